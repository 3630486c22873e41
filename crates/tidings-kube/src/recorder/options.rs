//! What can be chosen of a broadcaster.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    intake::{Clock, system_clock},
    retry::RetryPolicy,
};
use crate::correlator::CorrelatorOptions;

/// How an [`EventBroadcaster`](super::EventBroadcaster) works. The default is client-go's, but for
/// the end: see [`drain`](Self::drain).
#[derive(Clone)]
pub struct BroadcasterOptions {
    /// Events that wait to be handed out (client-go's `maxQueuedEvents`); what is recorded beyond
    /// them is dropped.
    pub queue: usize,
    /// Events that wait for each sink, handler and log; what comes beyond them is lost to it.
    /// client-go has one number for both.
    pub watcher_queue: usize,
    /// Makes the options of a correlator. Each sink has a correlator of its own.
    pub correlator: Arc<dyn Fn() -> CorrelatorOptions + Send + Sync>,
    /// How often a write is tried (client-go's `maxTriesPerEvent`), at least once.
    pub max_tries: u32,
    /// What is tried again, and when.
    pub retry: RetryPolicy,
    /// How long [`shutdown`](super::EventBroadcaster::shutdown) lets the sinks work on what is
    /// queued.
    pub drain: Duration,
    /// The clock of recorders and correlators.
    pub clock: Clock,
    /// Random numbers in `[0, 1)`, for the spread of retries.
    pub random: Arc<dyn Fn() -> f64 + Send + Sync>,
}

impl Default for BroadcasterOptions {
    fn default() -> Self {
        Self {
            queue: 1000,
            watcher_queue: 1000,
            correlator: Arc::new(CorrelatorOptions::default),
            max_tries: 12,
            retry: RetryPolicy::default(),
            drain: Duration::from_secs(10),
            clock: system_clock(),
            random: Arc::new(fastrand::f64),
        }
    }
}

impl fmt::Debug for BroadcasterOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BroadcasterOptions")
            .field("queue", &self.queue)
            .field("watcher_queue", &self.watcher_queue)
            .field("max_tries", &self.max_tries)
            .field("retry", &self.retry)
            .field("drain", &self.drain)
            .finish_non_exhaustive()
    }
}
