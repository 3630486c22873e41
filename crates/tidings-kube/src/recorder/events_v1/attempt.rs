//! One write: a call or two, and what its errors mean (client-go's `recordEvent`).

use k8s_openapi::api::events::v1::Event;
use serde_json::{Value, json};

use super::{EventSink, series::Ending};
use crate::recorder::{RetryPolicy, SinkError, given_up};

/// Tries once to write an event. An event with a series is patched, and created if the server does
/// not know it; one without is created.
pub(super) async fn try_to_write(
    sink: &impl EventSink,
    event: &mut Event,
    retry: &RetryPolicy,
) -> Ending {
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
        Err(error) => judge(event, is_series, error, retry),
    }
}

async fn create(sink: &impl EventSink, event: &mut Event) -> Result<Event, SinkError> {
    // The API server refuses a create that carries one.
    event.metadata.resource_version = None;
    sink.create(event).await
}

/// What has to be sent so that an event without the series becomes this one.
///
/// client-go's library for patches takes finalizers that are not sorted for a change of their order,
/// and says so.
fn series_patch(event: &Event) -> Option<Value> {
    let mut patch = json!({ "series": event.series.as_ref()? });
    let finalizers = event.metadata.finalizers.as_ref();
    if let Some(finalizers) = finalizers.filter(|finalizers| !finalizers.is_sorted()) {
        patch["metadata"] = json!({ "$setElementOrder/finalizers": finalizers });
    }
    Some(patch)
}

fn judge(event: &Event, is_series: bool, error: SinkError, retry: &RetryPolicy) -> Ending {
    let event = format_args!(
        "{}/{}",
        event.metadata.namespace.as_deref().unwrap_or_default(),
        event.metadata.name.as_deref().unwrap_or_default()
    );
    match error {
        // The patch found no event, and then the create found one: the first occurrence was
        // written in between. The next patch will find it.
        SinkError::Status { .. } if error.is_already_exists() && is_series => {
            tracing::debug!(%event, %error, "Event was written meanwhile, will be patched again");
            Ending::Failed(error)
        }
        SinkError::Status { .. } if error.is_already_exists() => {
            tracing::debug!(%event, %error, "Server rejected event (will not retry!)");
            Ending::Exists
        }
        _ if retry.is_worth_another_try(&error) => {
            tracing::warn!(%event, %error, "Unable to write event, may try again");
            Ending::Failed(error)
        }
        SinkError::RequestConstruction(_) => {
            let hint = given_up::hint(&error);
            tracing::error!(%event, %error, hint, "Unable to construct event (will not retry!)");
            Ending::Refused
        }
        _ => {
            let hint = given_up::hint(&error);
            tracing::error!(%event, %error, hint, "Server rejected event (will not retry!)");
            Ending::Refused
        }
    }
}
