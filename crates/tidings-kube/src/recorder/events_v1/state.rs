//! What the tasks of one recording share, and its handle.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{
    Tally,
    lane::Turn,
    series::{SeriesCache, Write},
};

/// Whether recording goes on. It can only become stricter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    No,
    /// Take what is queued and write what is owed, but do not wait for a sink that fails, nor
    /// longer than this.
    DrainUntil(Instant),
    /// Let go of everything.
    Now,
}

/// The time so long from now; years from now, if there is no such time.
pub(super) fn from_now(wait: Duration) -> Instant {
    const FAR: Duration = Duration::from_hours(24 * 365 * 30);
    let now = Instant::now();
    now.checked_add(wait).unwrap_or(now + FAR)
}

/// A write with its place in the lane of its series.
pub(super) struct Queued {
    pub(super) write: Write,
    pub(super) turn: Turn,
}

impl From<Write> for Queued {
    fn from(write: Write) -> Self {
        let turn = write.lane.queue();
        Self { write, turn }
    }
}

/// See the [module](self). The lock is never held over I/O.
#[derive(Debug)]
pub(super) struct State {
    series: Mutex<SeriesCache>,
    stop: watch::Sender<Stop>,
    /// Events that the queue before the recording had no room for.
    dropped: AtomicU64,
}

impl State {
    pub(super) fn new(series: SeriesCache) -> Self {
        Self {
            series: Mutex::new(series),
            stop: watch::Sender::new(Stop::No),
            dropped: AtomicU64::new(0),
        }
    }

    pub(super) fn series(&self) -> MutexGuard<'_, SeriesCache> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides writes and queues them in one step, so that the writes of a series come in the order
    /// of their decisions.
    pub(super) fn decide<const N: usize>(
        &self,
        decide: impl FnOnce(&mut SeriesCache) -> [Option<Write>; N],
    ) -> [Option<Queued>; N] {
        let mut series = self.series();
        decide(&mut series).map(|write| write.map(Queued::from))
    }

    pub(super) fn tally(&self) -> Tally {
        self.series().tally()
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(super) fn set_dropped(&self, dropped: u64) {
        self.dropped.store(dropped, Ordering::Relaxed);
    }

    /// Asks the recording to end.
    pub(super) fn end(&self, how: Stop) {
        self.stop.send_if_modified(|stop| {
            let stricter = match (*stop, how) {
                (Stop::No, _) | (Stop::DrainUntil(_), Stop::Now) => true,
                (Stop::DrainUntil(asked), Stop::DrainUntil(until)) => until < asked,
                _ => false,
            };
            if stricter {
                *stop = how;
            }
            stricter
        });
    }

    pub(super) fn ending(&self) -> watch::Receiver<Stop> {
        self.stop.subscribe()
    }

    /// Waits until the recording has to end, whatever is not written yet.
    pub(super) async fn time_is_up(&self) {
        let mut stop = self.stop.subscribe();
        loop {
            let asked = *stop.borrow_and_update();
            let end = async {
                match asked {
                    Stop::No => std::future::pending().await,
                    Stop::DrainUntil(until) => sleep_until(until).await,
                    Stop::Now => {}
                }
            };
            tokio::select! {
                () = end => return,
                // Never an error: the sender is here.
                _ = stop.changed() => {}
            }
        }
    }
}
