//! What ingest, the sink watchers and the keeper share: the counters of ingest.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use jiff::Timestamp;
use serde::Serialize;

/// Milliseconds since the epoch.
pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// A lock whose holders do not panic half way: what a panicking thread leaves is whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What ingest counts, from the start of the process.
#[derive(Debug, Default)]
pub struct IngestCounters {
    /// Records appended to the journal.
    pub records: AtomicU64,
    /// Versions that were in the journal already.
    pub repeats: AtomicU64,
    /// Objects that are no Events.
    pub undecodable: AtomicU64,
    /// Heartbeats of a bridge, which are not journalled.
    pub heartbeats: AtomicU64,
    /// Watches that did not bring this bridge's own heartbeat in time, and were opened anew.
    pub heartbeats_missed: AtomicU64,
    /// Gaps that hid something.
    pub gaps: AtomicU64,
    /// Their length together, in milliseconds.
    pub gap_ms: AtomicU64,
    /// Increments that were seen only as part of a larger one.
    pub skipped_increments: AtomicU64,
    /// New epochs.
    pub epochs: AtomicU64,
    /// When intake last stood still, in milliseconds since the epoch.
    stood_still_ms: AtomicU64,
    journal_error: Mutex<Option<String>>,
    blocked: Mutex<Vec<BlockedBy>>,
    last_gap: Mutex<Option<Gap>>,
}

/// A sink with [`Overflow::Block`](super::Overflow::Block) that intake stands still for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BlockedBy {
    /// Its name.
    pub sink: String,
    /// What it has not had of the log, in bytes.
    pub bytes: u64,
}

/// What the watch of a source did not show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The source's key.
    pub source: Arc<str>,
    /// The last sign of life before it, in milliseconds since the epoch.
    pub from_ms: u64,
    /// The list that ended it, in milliseconds since the epoch.
    pub to_ms: u64,
    /// Increments that were seen only as part of a larger one.
    pub skipped: u64,
    /// The API server's own history was replaced by another one.
    pub epoch: bool,
}

impl Gap {
    /// The last sign of life before it.
    pub fn from(&self) -> Timestamp {
        timestamp(self.from_ms)
    }

    /// The list that ended it.
    pub fn to(&self) -> Timestamp {
        timestamp(self.to_ms)
    }
}

fn timestamp(ms: u64) -> Timestamp {
    Timestamp::from_millisecond(ms.cast_signed()).unwrap_or_default()
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, skipped, .. } = self;
        let (from, to) = (self.from(), self.to());
        let what = if self.epoch { "The API server was restored; the watch" } else { "The watch" };
        write!(
            f,
            "{what} of {source} has a gap from {from} to {to}: the newest version of each Event was replayed, \
             {skipped} increments came as part of a later one, and Events that came and went are not known"
        )
    }
}

impl IngestCounters {
    /// Notes why the journal cannot be written; answers whether there was a reason before.
    pub(super) fn set_journal_error(&self, error: Option<String>) -> bool {
        std::mem::replace(&mut *lock(&self.journal_error), error).is_some()
    }

    /// Intake stands still for a moment, whatever for.
    pub(super) fn stands_still(&self) {
        self.stood_still_ms.store(now_ms(), Ordering::Relaxed);
    }

    /// Whether intake has stood still since so long ago.
    pub(super) fn stood_still_within(&self, time: Duration) -> bool {
        let ago = now_ms().saturating_sub(self.stood_still_ms.load(Ordering::Relaxed));
        u128::from(ago) <= time.as_millis()
    }

    pub(super) fn set_blocked(&self, blocked: Vec<BlockedBy>) {
        *lock(&self.blocked) = blocked;
    }

    /// The sinks that intake stands still for; none while it goes on.
    pub fn blocked(&self) -> Vec<BlockedBy> {
        lock(&self.blocked).clone()
    }

    pub(super) fn set_last_gap(&self, gap: Gap) {
        *lock(&self.last_gap) = Some(gap);
    }

    /// The last gap of any source since the start of the process.
    pub fn last_gap(&self) -> Option<Gap> {
        lock(&self.last_gap).clone()
    }

    /// Why the journal cannot be written, while it cannot.
    pub fn journal_error(&self) -> Option<String> {
        lock(&self.journal_error).clone()
    }
}
