//! One clear line for each event that will not be written: which, why, and what can be done.

use k8s_openapi::api::core::v1::Event;

use super::sink_error::SinkError;

/// `namespace/name`.
pub(super) fn name_of(event: &Event) -> String {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}", text(&event.metadata.namespace), text(&event.metadata.name))
}

/// The answer is final.
pub(super) fn log_refused(event: &Event, error: &SinkError) {
    let name = name_of(event);
    let reason = event.reason.as_deref().unwrap_or_default();
    if error.is_already_exists() || error.is_namespace_terminating() {
        // Nobody needs to do anything about these, and a namespace that goes makes many of them.
        let why = if error.is_already_exists() {
            "it is written already"
        } else {
            "its namespace is being deleted"
        };
        tracing::debug!(event = name, reason, why, %error, "Server rejected event");
        return;
    }
    let hint = hint(error);
    match error {
        SinkError::RequestConstruction(_) => tracing::error!(
            event = name, reason, %error, hint,
            "Unable to construct event (will not retry!)"
        ),
        _ => tracing::error!(
            event = name, reason, %error, hint,
            "Server rejected event (will not retry!)"
        ),
    }
}

/// It was tried as often as the options allow.
pub(super) fn log_tried_too_often(event: &Event, error: &SinkError, tries: u32) {
    tracing::error!(
        event = name_of(event), tries, %error, hint = hint(error),
        "Unable to write event (retry limit exceeded!)"
    );
}

/// It was waiting for its next try.
pub(super) fn log_shut_down(event: &Event, error: &SinkError) {
    tracing::error!(
        event = name_of(event), %error,
        "Unable to write event (broadcaster is shut down)"
    );
}

/// What a person can do about it.
pub(super) fn hint(error: &SinkError) -> &'static str {
    let code = match error {
        SinkError::Status { status, .. } => status.code,
        SinkError::RequestConstruction(_) => {
            return "the event's namespace or name cannot be asked for: check the object that it is about, and the namespace that the sink is for";
        }
        SinkError::UnexpectedObject(_) => {
            return "something between here and the API server answers in its place: check the address and proxies";
        }
        SinkError::Other(_) => return "check that the API server can be reached",
    };
    match code {
        401 => "the credentials are not accepted: check the token or certificate",
        403 => {
            "grant the verbs create and patch on the resource events, in this namespace, to this account; a quota may be used up, too"
        }
        404 => "check that the namespace exists, and that the address is an API server's",
        413 => "the event is too large: shorten its message or annotations",
        400 | 422 => {
            "the API server finds the event invalid: its namespace must be that of the object that it is about (or `default` for one without)"
        }
        409 => "somebody else changed the event in the meantime",
        429 | 500.. => "the API server is overloaded; RetryPolicy::PATIENT tries such events again",
        _ => "the API server's message says what it does not like",
    }
}
