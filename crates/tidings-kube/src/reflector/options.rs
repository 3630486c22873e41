//! How a reflector is set up.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{ListWatchError, Witnesses};
use crate::foreign::caught;

/// The shortest time that client-go lets a watch last, unless it ends by itself.
const MIN_WATCH_TIMEOUT: Duration = Duration::from_mins(5);

/// The longest: any more would be for ever.
const MAX_WATCH_TIMEOUT: Duration = Duration::from_secs(u32::MAX as u64);

/// Where a source without a resume point starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartFrom {
    /// With every object that exists.
    List,
    /// With what happens from now on.
    Now,
}

/// What the store is to make of what the API server holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// It is to hold the same objects: client-go's reflector, for a cache. A list may come from the
    /// API server's own cache, changes between two lists may be skipped, and resourceVersions are
    /// opaque.
    State,
    /// Every change matters: for a log. Lists are consistent reads in pages; a watch is taken up
    /// where the last one ended, across restarts, after a probe whether the API server still is
    /// the one that the resume point is of. resourceVersions are numbers that grow, as they are
    /// wherever etcd is behind the resource.
    Changes {
        /// Where to go on; `None` when nothing was read before.
        resume: Option<u64>,
        /// What to do without a resume point.
        start: StartFrom,
    },
}

/// Called with each error that ends a round of list and watch.
pub type WatchErrorHandler = Arc<dyn Fn(&ListWatchError) + Send + Sync>;

/// A handler whose panics are logged and counted.
pub(crate) fn guarded_handler(
    handler: WatchErrorHandler,
    source: &str,
    panics: Arc<AtomicU64>,
) -> WatchErrorHandler {
    let source = source.to_owned();
    Arc::new(move |error| {
        if let Err(panic) = caught(|| handler(error)) {
            panics.fetch_add(1, Ordering::Relaxed);
            tracing::error!(source, panic, %error, "the watch error handler panicked");
        }
    })
}

/// How a reflector is set up. The defaults are client-go's.
#[derive(Clone)]
pub struct ReflectorOptions {
    /// The name of the source in logs.
    pub name: String,
    /// Items of a list are asked for in pages of this size (client-go's `WatchListPageSize`).
    /// `None` leaves it to the reflector: 500, and no pages where they would keep the API server
    /// from answering out of its cache.
    pub page_size: Option<u32>,
    /// The time between two calls of [`resync`](crate::reflector::ReflectorStore::resync); `None` for
    /// none, as is zero.
    pub resync_period: Option<Duration>,
    /// The server is told to end a watch after a random time between this and twice as much. Less
    /// than the default of five minutes is taken for five minutes.
    pub min_watch_timeout: Duration,
    /// How long a watch that the API server ends with an internal error is taken up again at once,
    /// without a list; zero for never.
    pub max_internal_error_retry: Duration,
    /// Asks for a stream in place of a list (client-go's `WatchListClient`, which is off in 0.34),
    /// and falls back to a list where the server has none. The objects of one are held in memory
    /// until they are complete. Not for [`Follow::Changes`].
    pub streaming_lists: bool,
    /// What the store is to make of it.
    pub follow: Follow,
    /// Behind the resume point the store has a part of a list: it is listed again before anything is
    /// watched, as a watch would bring what is older. Only asked with [`Follow::Changes`].
    pub has_part_of_list: bool,
    /// By what the store's history is told from another one; the store keeps it up. Only asked
    /// with [`Follow::Changes`].
    pub witnesses: Witnesses,
    /// Called with each error that ends a round of list and watch, before the pause (client-go's
    /// `WatchErrorHandler`). The log has it as well.
    pub watch_error_handler: Option<WatchErrorHandler>,
}

impl Default for ReflectorOptions {
    fn default() -> Self {
        Self {
            name: String::new(),
            page_size: None,
            resync_period: None,
            min_watch_timeout: MIN_WATCH_TIMEOUT,
            max_internal_error_retry: Duration::ZERO,
            streaming_lists: false,
            follow: Follow::State,
            has_part_of_list: false,
            witnesses: Witnesses::default(),
            watch_error_handler: None,
        }
    }
}

impl ReflectorOptions {
    pub(super) fn least_watch_timeout(&self) -> Duration {
        self.min_watch_timeout.clamp(MIN_WATCH_TIMEOUT, MAX_WATCH_TIMEOUT)
    }
}
