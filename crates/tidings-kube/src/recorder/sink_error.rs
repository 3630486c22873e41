//! Why an event was not written, in the classes that decide what happens next.

use std::{error::Error, time::Duration};

use kube::core::Status;

use crate::text::short;

/// Why a write of an event failed.
///
/// The class is that of the outermost error, as in client-go: a [`Status`] that is only the cause
/// of another error is [`Other`](Self::Other).
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The request cannot be made, and will not be the next time (`RequestConstructionError`).
    #[error("cannot make the request: {0}")]
    RequestConstruction(String),
    /// The API server answered, and the answer is no (`StatusError`).
    #[error("the API server answers {} {}: {}", .status.code, short(&.status.reason), short(&.status.message))]
    Status {
        /// What it says.
        status: Box<Status>,
        /// How long it asks to be left alone.
        retry_after: Option<Duration>,
    },
    /// The API server answered something that is no event (`UnexpectedObjectError`).
    #[error("the API server answers something that is no event: {0}")]
    UnexpectedObject(String),
    /// Everything else; mostly that there was no answer.
    #[error(transparent)]
    Other(Box<dyn Error + Send + Sync>),
}

impl SinkError {
    /// A status that does not ask for a pause other than in its details.
    pub fn status(status: Status) -> Self {
        let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        let retry_after = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
        Self::Status { status: Box::new(status), retry_after }
    }

    /// Whether there is no such event (client-go's `IsKeyNotFoundError`: by the code alone).
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Status { status, .. } if status.code == 404)
    }

    /// Whether there is such an event already (client-go's `IsAlreadyExists`: by the reason alone).
    pub fn is_already_exists(&self) -> bool {
        matches!(self, Self::Status { status, .. } if status.reason == "AlreadyExists")
    }

    /// Whether the namespace is being deleted, so that nothing can be made in it any more.
    pub fn is_namespace_terminating(&self) -> bool {
        matches!(self, Self::Status { status, .. } if status.details.iter()
            .flat_map(|details| &details.causes)
            .any(|cause| cause.reason == "NamespaceTerminating"))
    }

    /// Whether the API server cannot *now*: 429 or 5xx.
    pub fn is_overload(&self) -> bool {
        matches!(self, Self::Status { status, .. } if status.code == 429 || status.code >= 500)
    }

    /// How long the API server asks to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}
