//! One write: a call or two, and what its errors mean (client-go's `recordEvent`).

use std::any::type_name;

use k8s_openapi::api::events::v1::Event;
use serde_json::{Value, json};

use super::{EventSink, series::Ending};
use crate::{
    foreign::caught_future,
    recorder::{RetryPolicy, SinkError, given_up},
};

/// Tries once to write an event. An event with a series is patched, and created if the server does
/// not know it; one without is created.
pub(super) async fn try_to_write<S: EventSink>(
    sink: &S,
    event: &mut Event,
    retry: &RetryPolicy,
) -> Ending {
    let is_series = event.series.is_some();
    match caught_future(write(sink, event)).await {
        Ok(Ok(answer)) => Ending::Written(Box::new(answer)),
        Ok(Err(error)) => judge(event, is_series, error, retry),
        Err(panic) => {
            let (namespace, name) = (&event.metadata.namespace, &event.metadata.name);
            tracing::error!(
                sink = type_name::<S>(),
                ?namespace,
                ?name,
                panic,
                "A sink panicked: this event is not written"
            );
            Ending::Refused
        }
    }
}

async fn write(sink: &impl EventSink, event: &mut Event) -> Result<Event, SinkError> {
    let result = match series_patch(event) {
        Some(patch) => sink.patch(event, &patch).await,
        None => return create(sink, event).await,
    };
    match result {
        Err(error) if error.is_not_found() => create(sink, event).await,
        result => result,
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
