//! What ingest, the sink watchers and the keeper share: the counters of ingest.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

use super::gap::{Gap, GapSum, RecentGaps};

/// A sync that fails for less is not worth a word to who asks whether the bridge is ready.
const UNSAFE_FOR: Duration = Duration::from_secs(3);

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
    /// Those of them whose Event was cut, being larger than the journal takes.
    pub truncated: AtomicU64,
    /// Versions that were in the journal already.
    pub repeats: AtomicU64,
    /// Objects that are no Events.
    pub undecodable: AtomicU64,
    /// Heartbeats of this bridge, which are not journalled.
    pub heartbeats: AtomicU64,
    /// Watches that did not bring this bridge's own heartbeat in time, and were opened anew.
    pub heartbeats_missed: AtomicU64,
    /// Gaps that hid something.
    pub gaps: AtomicU64,
    /// Their length together, and that of what new epochs left unseen, in milliseconds.
    pub gap_ms: AtomicU64,
    /// Increments that were seen only as part of a larger one.
    pub skipped_increments: AtomicU64,
    /// New epochs.
    pub epochs: AtomicU64,
    /// When intake last stood still, in milliseconds since the epoch.
    stood_still_ms: AtomicU64,
    journal_error: Mutex<Option<String>>,
    /// Since when and why what was written may not stay.
    unsafe_since: Mutex<Option<(Instant, String)>>,
    blocked: Mutex<Vec<BlockedBy>>,
    recent_gaps: Mutex<RecentGaps>,
}

/// A sink with [`Overflow::Block`](super::Overflow::Block) that intake stands still for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct BlockedBy {
    /// Its name.
    pub sink: String,
    /// What it has not had of the log, in bytes.
    pub bytes: u64,
}

impl IngestCounters {
    /// Notes why the journal cannot be written; answers whether there was a reason before.
    pub(super) fn set_journal_error(&self, error: Option<String>) -> bool {
        std::mem::replace(&mut *lock(&self.journal_error), error).is_some()
    }

    /// Notes why what is written to the journal may not stay, while that is so.
    pub(super) fn set_unsafe(&self, reason: Option<String>) {
        let mut since = lock(&self.unsafe_since);
        let began = since.as_ref().map_or_else(Instant::now, |(began, _)| *began);
        *since = reason.map(|reason| (began, reason));
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

    /// States a gap: in the log, in the counters, and among the recent ones.
    pub(super) fn state_gap(&self, gap: Gap) {
        gap.log();
        let count = if gap.epoch { &self.epochs } else { &self.gaps };
        count.fetch_add(1, Ordering::Relaxed);
        self.gap_ms.fetch_add(gap.length_ms(), Ordering::Relaxed);
        self.skipped_increments.fetch_add(gap.skipped, Ordering::Relaxed);
        lock(&self.recent_gaps).add(gap);
    }

    /// The newest gaps of all sources since the start of the process, 16 at most, oldest first.
    pub fn recent_gaps(&self) -> Vec<Gap> {
        lock(&self.recent_gaps).list()
    }

    /// The last gap of each source since the start of the process.
    pub fn last_gaps(&self) -> Vec<Gap> {
        lock(&self.recent_gaps).last()
    }

    /// The gaps since this was asked last: for what tells each of them once.
    pub(super) fn take_untold_gaps(&self) -> Vec<GapSum> {
        lock(&self.recent_gaps).take_untold()
    }

    /// Why the journal cannot be written, while it cannot; and why not so that it stays, when that
    /// has been so for some seconds.
    pub fn journal_error(&self) -> Option<String> {
        let lasting = |(since, reason): &(Instant, String)| {
            (since.elapsed() >= UNSAFE_FOR).then(|| reason.clone())
        };
        let error = lock(&self.journal_error).clone();
        error.or_else(|| lock(&self.unsafe_since).as_ref().and_then(lasting))
    }
}
