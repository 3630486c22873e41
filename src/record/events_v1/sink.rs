//! Where events are written to.

use futures_util::future::BoxFuture;
use k8s_openapi::api::events::v1::Event;
use serde_json::Value;

use crate::record::SinkError;

/// Takes events (client-go's `tools/events.EventSink`).
///
/// A sink makes one attempt and says how it went; it neither sleeps nor retries. Calls for one
/// series come one after the other, calls for different series at the same time. The future may be
/// dropped at any await, when recording is cancelled.
pub trait EventSink: Send + Sync + 'static {
    /// Creates an event; answers it as the server has it.
    fn create<'a>(&'a self, event: &'a Event) -> BoxFuture<'a, Result<Event, SinkError>>;

    /// Applies a strategic merge patch to the event of that namespace and name; answers the event
    /// as the server has it then. The event is the whole of it, with the patch applied.
    fn patch<'a>(
        &'a self,
        event: &'a Event,
        patch: &'a Value,
    ) -> BoxFuture<'a, Result<Event, SinkError>>;
}
