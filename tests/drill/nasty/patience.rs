//! Holds those who were asked to wait to it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidings_testkit::ledger::SharedLedger;

/// By how much less a wait may be seen: clocks of wall and of timers need not tick alike.
const LEEWAY: Duration = Duration::from_millis(50);
/// Requests that were under way when somebody was asked to wait come all the same, so soon after.
const UNDER_WAY: Duration = Duration::from_millis(500);

/// Since when, and until when, whoever comes is asked to stay away.
#[derive(Default)]
pub(super) struct Patience(Mutex<Option<(Instant, Instant)>>);

impl Patience {
    /// Asks for so much time from now on.
    pub(super) fn ask(&self, wait: Duration) {
        let (mut asked, now) = (self.lock(), Instant::now());
        let since = asked.filter(|(_, until)| *until > now).map_or(now, |(since, _)| since);
        *asked = Some((since, now + wait));
    }

    /// Who was asked is no more, and who comes now has not heard of it.
    pub(super) fn forget(&self) {
        *self.lock() = None;
    }

    /// Somebody comes, which is complained of when it is too early.
    pub(super) fn somebody_comes(&self, ledger: &SharedLedger) {
        let Some((asked, until)) = *self.lock() else { return };
        let now = Instant::now();
        let early = until.saturating_duration_since(now);
        if early > LEEWAY && now - asked > UNDER_WAY {
            ledger.complain(format!("came {early:.1?} before the time that was asked for"));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Instant, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
