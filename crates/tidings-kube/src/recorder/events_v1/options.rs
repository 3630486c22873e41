//! The numbers; the defaults are client-go's.

use std::{num::NonZeroUsize, time::Duration};

use crate::recorder::{Clock, RetryPolicy, intake::system_clock};

/// How events are recorded to a sink. The default is what client-go does.
#[derive(Clone, Debug)]
pub struct RecordingOptions {
    /// How often a write is tried. Default 12.
    pub max_tries: u32,
    /// What is tried again, and when. With client-go's policy every pause is `sleep`, lengthened at
    /// random by up to a quarter: the recorders of client-go differ in that. Default client-go's,
    /// 10 s.
    pub retry: RetryPolicy,
    /// The pause between two refreshes of all live series. Default 30 min.
    pub refresh_interval: Duration,
    /// How long a series has to be silent to have ended, and the pause between two searches for
    /// such series; so the final count comes one to two of them after the last occurrence.
    /// Default 6 min.
    pub finish_interval: Duration,
    /// How many series and single events are tracked. Past it, the one that occurred least
    /// recently ends early, with its final count. client-go has no bound. Default 4096.
    pub max_series: NonZeroUsize,
    /// How many events are written or wait for their next try at the same time. While so many
    /// are, events stay in the queue. client-go has no bound. Default 1000.
    pub max_writes: NonZeroUsize,
}

impl Default for RecordingOptions {
    fn default() -> Self {
        const fn number(n: usize) -> NonZeroUsize {
            NonZeroUsize::MIN.saturating_add(n - 1)
        }
        Self {
            max_tries: 12,
            retry: RetryPolicy::default(),
            refresh_interval: Duration::from_mins(30),
            finish_interval: Duration::from_mins(6),
            max_series: number(4096),
            max_writes: number(1000),
        }
    }
}

/// How a broadcaster is made. The default is client-go's, but for the queue: there an event that
/// finds no room is a goroutine that waits.
#[derive(Clone)]
pub struct EventBroadcasterOptions {
    /// Events that may wait for the broadcaster. Default 1000.
    pub incoming_queue: usize,
    /// Events that may wait for each watcher. Default 1000.
    pub watcher_queue: usize,
    /// The time of events and of their last observation. Default the system's.
    pub clock: Clock,
    /// The host's name in `reportingInstance`, `<controller>-<host name>`. Default this host's.
    pub host_name: String,
}

impl Default for EventBroadcasterOptions {
    fn default() -> Self {
        Self {
            incoming_queue: 1000,
            watcher_queue: 1000,
            clock: system_clock(),
            host_name: gethostname::gethostname().to_string_lossy().into_owned(),
        }
    }
}
