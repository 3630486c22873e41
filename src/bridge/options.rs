//! How a sink watcher batches, retries and starts.

use std::time::Duration;

use serde::Serialize;

/// When a batch is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchOptions {
    /// At this many events; at least 1.
    pub events: usize,
    /// At this many bytes of envelopes; an event larger than that travels alone.
    pub bytes: u64,
    /// At the latest this long after its first event came.
    pub linger: Duration,
}

impl Default for BatchOptions {
    fn default() -> Self {
        Self { events: 500, bytes: 1 << 20, linger: Duration::from_millis(20) }
    }
}

/// How attempts follow each other: exponential, with full jitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryOptions {
    /// The bound of the first wait; never longer than `max`.
    pub initial: Duration,
    /// The bound of every wait.
    pub max: Duration,
    /// After how many attempts a batch goes to the dead letters; at least 1. `None`: never.
    pub max_attempts: Option<u32>,
}

impl Default for RetryOptions {
    fn default() -> Self {
        Self {
            initial: Duration::from_millis(100),
            max: Duration::from_secs(30),
            max_attempts: None,
        }
    }
}

/// Where a sink starts that is new to a journal with a past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SinkStart {
    /// With the next event.
    #[default]
    Now,
    /// With the oldest event that the journal holds.
    Oldest,
}

/// What happens when a sink has not had more than the journal is to hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Overflow {
    /// The oldest events go, and count as lost for it.
    #[default]
    DropOldest,
    /// Intake stops for all sinks until it has had some of them; none are dropped.
    Block,
}

/// What a sink's watcher does with what the correlator says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CorrelateMode {
    /// Everything is sent, and the envelope says what a recorder of client-go would have done.
    #[default]
    Annotate,
    /// What such a recorder would not have written is held back, and its increments come out with
    /// a later version.
    Suppress,
    /// There is no correlator.
    None,
}
