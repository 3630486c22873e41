//! How a source does, as the reflector and its readers share it.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::{sync::Notify, time::Instant};

/// How a source does, for readiness, metrics and the status page.
#[derive(Clone, Debug, Default)]
pub struct SourceHealth {
    /// Whether a watch stream is open.
    pub stream_open: bool,
    /// When a stream was last open.
    pub stream_last_open: Option<Instant>,
    /// When the API server last answered or sent something, in milliseconds since the epoch.
    pub last_heard_ms: Option<u64>,
    /// When it was last known that nothing was missing, in milliseconds since the epoch.
    pub caught_up_ms: Option<u64>,
    /// The last failure, until the next success.
    pub last_error: Option<String>,
    /// Up to which resourceVersion the store has been fed; empty before the first list is in.
    pub last_sync_resource_version: String,
    /// Requests sent, by kind.
    pub lists: u64,
    /// See `lists`.
    pub watches: u64,
}

impl SourceHealth {
    /// How long no stream has been open: nothing while one is, `None` before the first.
    pub fn stream_closed_for(&self) -> Option<Duration> {
        if self.stream_open {
            return Some(Duration::ZERO);
        }
        self.stream_last_open.map(|last| last.elapsed())
    }
}

/// [`SourceHealth`] as the reflector and its readers share it.
pub type SharedHealth = Arc<Mutex<SourceHealth>>;

/// Tells a reflector that the watch it has open is dead, which somebody knows who waits in vain for
/// what it should bring.
#[derive(Clone, Debug, Default)]
pub struct Reconnect(Arc<Notify>);

impl Reconnect {
    /// The watch that is open is given up, and the next one is opened where it was; nothing while
    /// none is open.
    pub fn now(&self) {
        self.0.notify_waiters();
    }

    /// Completes when the watch that is open by now is to be given up.
    pub(super) async fn asked(&self) {
        self.0.notified().await;
    }
}

/// Milliseconds since the epoch.
pub(super) fn now_ms() -> Option<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).ok()
}
