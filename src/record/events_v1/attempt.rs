//! One write: a call or two, and what its errors mean (client-go's `recordEvent`).

use k8s_openapi::api::events::v1::Event;
use serde_json::{Value, json};
use tracing::{debug, warn};

use super::{EventSink, series::Ending};
use crate::record::SinkError;

/// Tries once to write an event. An event with a series is patched, and created if the server does
/// not know it; one without is created.
pub(super) async fn try_to_write(sink: &dyn EventSink, event: &mut Event) -> Ending {
    let is_series = event.series.is_some();
    let mut result = match series_patch(event) {
        Some(patch) => sink.patch(event, &patch).await,
        None => create(sink, event).await,
    };
    if is_series && result.as_ref().is_err_and(SinkError::is_not_found) {
        result = create(sink, event).await;
    }
    match result {
        Ok(answer) => Ending::Written(Box::new(answer)),
        Err(error) => judge(event, is_series, &error),
    }
}

async fn create(sink: &dyn EventSink, event: &mut Event) -> Result<Event, SinkError> {
    // The API server refuses a create that carries one.
    event.metadata.resource_version = None;
    sink.create(event).await
}

/// What has to be sent so that an event without the series becomes this one.
fn series_patch(event: &Event) -> Option<Value> {
    event.series.as_ref().map(|series| json!({ "series": series }))
}

fn judge(event: &Event, is_series: bool, error: &SinkError) -> Ending {
    let (name, namespace) = (&event.metadata.name, &event.metadata.namespace);
    match error {
        // The patch found no event, and then the create found one: the first occurrence was
        // written in between. The next patch will find it.
        SinkError::Status { .. } if error.is_already_exists() && is_series => {
            debug!(?namespace, ?name, %error, "event was created meanwhile, will be patched again");
            Ending::Failed
        }
        SinkError::Status { .. } if error.is_already_exists() => {
            debug!(?namespace, ?name, %error, "server rejected event, not tried again");
            Ending::Refused
        }
        SinkError::Status { .. } => {
            warn!(?namespace, ?name, %error, "server rejected event, not tried again");
            Ending::Refused
        }
        SinkError::RequestConstruction(_) => {
            warn!(?namespace, ?name, %error, "cannot construct the request, not tried again");
            Ending::Refused
        }
        SinkError::UnexpectedObject(_) | SinkError::Other(_) => {
            warn!(?namespace, ?name, %error, "cannot write event");
            Ending::Failed
        }
    }
}
