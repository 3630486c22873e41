//! The sinks that are configured, in their order, which changes while a bridge runs.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use super::{SinkProgress, control::ReplayDesk, shared::lock};

/// A sink as the other parts of a bridge know it. Clones are the same sink.
#[derive(Clone, Debug)]
pub(super) struct KnownSink {
    pub(super) progress: Arc<SinkProgress>,
    pub(super) replays: Arc<ReplayDesk>,
}

/// The sinks of a bridge. Clones are the same list.
#[derive(Clone, Debug, Default)]
pub struct Sinks(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    sinks: Mutex<Arc<[KnownSink]>>,
    /// Rises with each change.
    changes: AtomicU64,
    /// A sink has a correlator, or had one.
    correlates: AtomicBool,
}

impl Sinks {
    /// The sinks that are configured now.
    pub fn now(&self) -> Vec<Arc<SinkProgress>> {
        self.known().iter().map(|sink| Arc::clone(&sink.progress)).collect()
    }

    pub(super) fn known(&self) -> Arc<[KnownSink]> {
        Arc::clone(&lock(&self.0.sinks))
    }

    /// Changes the list.
    pub(super) fn edit(&self, change: impl FnOnce(&mut Vec<KnownSink>)) {
        let mut sinks = lock(&self.0.sinks);
        let mut changed = sinks.to_vec();
        change(&mut changed);
        *sinks = changed.into();
        self.changed();
    }

    /// A sink has other options than before.
    pub(super) fn changed(&self) {
        self.0.changes.fetch_add(1, Ordering::Release);
    }

    /// A number that is another after each change.
    pub(super) fn changes(&self) -> u64 {
        self.0.changes.load(Ordering::Acquire)
    }

    /// A sink begins to correlate.
    pub(super) fn one_correlates(&self) {
        self.0.correlates.store(true, Ordering::Relaxed);
    }

    /// Whether a sink has a use for the keys that records are correlated by.
    pub(super) fn correlate(&self) -> bool {
        self.0.correlates.load(Ordering::Relaxed)
    }
}
