//! Where events are written.

use k8s_openapi::api::events::v1::Event;
use kube::core::ObjectMeta;
use serde_json::Value;

use crate::recorder::{ApiServerSink, SinkError};

/// Where events are written: client-go's `tools/events.EventSink`. It makes one attempt; the
/// recording decides by the error's class whether there will be another.
///
/// Calls for one series come one after the other, calls for different series at the same time. A
/// future may be dropped at any await, when the time of a shutdown is up.
pub trait EventSink: Send + Sync + 'static {
    /// Writes a new event, in the namespace that it names, and answers with the copy that was
    /// stored.
    fn create(&self, event: &Event) -> impl Future<Output = Result<Event, SinkError>> + Send;

    /// Changes the event of that namespace and name by a strategic merge patch, and answers with
    /// what is stored then. `event` is what it should look like afterwards.
    fn patch(
        &self,
        event: &Event,
        patch: &Value,
    ) -> impl Future<Output = Result<Event, SinkError>> + Send;
}

/// `POST` and `PATCH` of `/apis/events.k8s.io/v1/namespaces/<namespace>/events`.
impl EventSink for ApiServerSink {
    async fn create(&self, event: &Event) -> Result<Event, SinkError> {
        self.create_at(path(self, &event.metadata)?, event).await
    }

    async fn patch(&self, event: &Event, patch: &Value) -> Result<Event, SinkError> {
        let path = path(self, &event.metadata)?;
        self.patch_at(&path, &event.metadata, patch.to_string().into_bytes()).await
    }
}

fn path(sink: &ApiServerSink, meta: &ObjectMeta) -> Result<String, SinkError> {
    if meta.namespace.as_deref().unwrap_or_default().is_empty() {
        return Err(SinkError::RequestConstruction("the event has no namespace".to_owned()));
    }
    sink.path("/apis/events.k8s.io/v1", meta)
}
