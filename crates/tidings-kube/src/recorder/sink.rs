//! Where events are written.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Event;

use super::sink_error::SinkError;
use crate::correlator::Patch;

/// Where events are written: client-go's `tools/record.EventSink`. It makes one attempt; the
/// recording decides by the error's class whether there will be another.
///
/// Its calls come one after the other. A future may be dropped at any await, when the time of a
/// shutdown is up.
pub trait EventSink: Send + Sync + 'static {
    /// Writes a new event, in the namespace that it names, and answers with the copy that was
    /// stored: its name, resourceVersion, count and first timestamp are those that the next patch
    /// goes by.
    fn create(&self, event: &Event) -> impl Future<Output = Result<Event, SinkError>> + Send;

    /// Changes the event of that namespace and name by a strategic merge patch, and answers with
    /// what is stored then. `event` is what it should look like afterwards. An event that brought a
    /// count above 1 with it comes without a patch at its first sight, as in client-go; a
    /// 404 makes it be created.
    fn patch(
        &self,
        event: &Event,
        patch: Option<&Patch>,
    ) -> impl Future<Output = Result<Event, SinkError>> + Send;
}

impl<S: EventSink> EventSink for Arc<S> {
    fn create(&self, event: &Event) -> impl Future<Output = Result<Event, SinkError>> + Send {
        S::create(self, event)
    }

    fn patch(
        &self,
        event: &Event,
        patch: Option<&Patch>,
    ) -> impl Future<Output = Result<Event, SinkError>> + Send {
        S::patch(self, event, patch)
    }
}
