//! What ingest shares with others, and its patience with the disk.

use std::{
    fmt::Display,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::{
    bridge::{
        objects::Objects,
        seen::Seen,
        shared::{IngestCounters, now_ms},
        watchdog::Pulse,
    },
    journal::Log,
};

/// Waits between attempts while the disk does not take, or give, anything.
const RETRY: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(5);

/// The disk did not do what was needed before the program had to end.
pub(super) struct GaveUp;

/// What others see of the thread.
pub(in crate::bridge) struct IngestShared {
    pub(in crate::bridge) counters: Arc<IngestCounters>,
    pub(in crate::bridge) seen: Arc<Seen>,
    /// Nothing where no sink is told of objects.
    pub(in crate::bridge) objects: Option<Arc<Objects>>,
    /// Set when the program does not wait for the disk any longer.
    pub(in crate::bridge) give_up: Arc<AtomicBool>,
    /// It rests while the disk is known to take nothing.
    pub(in crate::bridge) pulse: Pulse,
}

impl IngestShared {
    /// Tries until the disk takes it, or gives it.
    pub(super) fn insist<T, E: Display>(
        &self,
        mut attempt: impl FnMut() -> Result<T, E>,
    ) -> Result<T, GaveUp> {
        let mut wait = *RETRY.start();
        loop {
            self.pulse.works("using the disk");
            match attempt() {
                Ok(done) => {
                    if self.counters.set_journal_error(None) {
                        tracing::info!("the journal can be used again: intake goes on");
                    }
                    return Ok(done);
                }
                Err(error) => {
                    if !self.counters.set_journal_error(Some(error.to_string())) {
                        tracing::error!(%error, "the journal cannot be used: intake stands still, delivery goes on");
                    }
                    self.pulse.rests();
                    self.go_on()?;
                    std::thread::sleep(wait);
                    wait = (wait * 2).min(*RETRY.end());
                }
            }
        }
    }

    /// Waits until the view can take so many changes. Nothing may be saved of it that a power cut
    /// could still take from the log, so what there is is synced first.
    pub(super) fn make_room(&self, log: &mut Log, changes: usize) -> Result<(), GaveUp> {
        if self.seen.has_room(changes) {
            return Ok(());
        }
        self.insist(|| log.sync(now_ms()))?;
        self.pulse.rests();
        while !self.seen.wait_for_room(changes, *RETRY.start()) {
            self.go_on()?;
        }
        Ok(())
    }

    fn go_on(&self) -> Result<(), GaveUp> {
        if self.give_up.load(Ordering::Relaxed) { Err(GaveUp) } else { Ok(()) }
    }
}
