//! Holds those who were asked to wait to it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::ledger::SharedLedger;

/// By how much less a wait may be seen: clocks of wall and of timers need not tick alike.
const LEEWAY: Duration = Duration::from_millis(50);

/// Until when whoever comes was asked to stay away.
#[derive(Default)]
pub(super) struct Patience(Mutex<Option<Instant>>);

impl Patience {
    /// Asks for so much time from now on.
    pub(super) fn ask(&self, wait: Duration) {
        *self.lock() = Some(Instant::now() + wait);
    }

    /// Who was asked is no more, and who comes now has not heard of it.
    pub(super) fn forget(&self) {
        *self.lock() = None;
    }

    /// Somebody comes, which is complained of when it is too early.
    pub(super) fn somebody_comes(&self, ledger: &SharedLedger) {
        let early = self.lock().map_or(Duration::ZERO, |until| until - Instant::now());
        if early > LEEWAY {
            ledger.complain(format!("came {early:.1?} before the time that was asked for"));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
