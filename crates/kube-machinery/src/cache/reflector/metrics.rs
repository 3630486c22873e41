//! Measures of a reflector, for whoever exports it.

use std::time::Duration;

/// Measures of a reflector, for whatever a program exports them with: client-go's `MetricsProvider` of
/// `tools/cache`, one for each reflector; set by [`ReflectorOptions::metrics`](super::ReflectorOptions).
///
/// The calls are made on the reflector's task. What can be asked at any time is in
/// [`SourceHealth`](super::SourceHealth): how many lists and watches were asked for, and the last
/// resourceVersion.
pub trait ReflectorMetrics: Send + Sync + 'static {
    /// A list is whole, of so many items, so long after it was asked for (`list_duration_seconds`,
    /// `items_per_list`).
    fn listed(&self, took: Duration, items: usize) {
        let _ = (took, items);
    }

    /// A watch has ended after so long, and has brought so many events that could be read
    /// (`watch_duration_seconds`, `items_per_watch`). One that brought none and lasted less than a second is
    /// what client-go calls a short watch; one that was refused has lasted for no time.
    fn watched(&self, lasted: Duration, events: u64) {
        let _ = (lasted, events);
    }
}
