//! Why a list or a watch failed, and which of client-go's classes of errors it is of.

use std::{error::Error, fmt, io, sync::Arc, time::Duration};

use kube::core::Status;

use super::{DecodeError, lines::LineError, list_items::ListError};
use crate::text::{short, with_causes};

/// A request that a reflector makes, for messages: "list events".
#[derive(Clone, Debug)]
pub struct Call {
    /// `list` or `watch`.
    pub verb: &'static str,
    /// The plural of the resource.
    pub resource: Arc<str>,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)
    }
}

/// Why a list or a watch failed.
///
/// The classes (`is_…`) are those of client-go's reflector and of apimachinery's `api/errors`.
#[derive(Debug, thiserror::Error)]
pub enum ListWatchError {
    /// The API server answered with an error.
    #[error("the API server refuses to {call}: {} ({} {})", short(&.status.message), .status.code, short(&.status.reason))]
    Status {
        /// What was asked.
        call: Call,
        /// What it says.
        status: Box<Status>,
        /// The header `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// It could not be asked, or its answer broke off.
    #[error("cannot {call}: {reason}")]
    Transport {
        /// What was asked.
        call: Call,
        /// What happened, with its causes.
        reason: String,
        /// Whether nobody listened at the address.
        connection_refused: bool,
    },
    /// It did not answer in time.
    #[error("cannot {call}: the API server sent nothing for {} s", .waited.as_secs())]
    Stalled {
        /// What was asked.
        call: Call,
        /// How long was waited.
        waited: Duration,
    },
    /// The answer to a list is none.
    #[error(transparent)]
    List(#[from] ListError),
    /// A line of a watch is none.
    #[error(transparent)]
    Line(#[from] LineError),
    /// The store cannot keep the list that was on its way.
    #[error("cannot {call}: {reason}")]
    NotKept {
        /// What was asked.
        call: Call,
        /// Why, and what to do about it.
        reason: String,
    },
    /// An object cannot be read. It was left out; the list or the watch went on.
    #[error(transparent)]
    Object(#[from] DecodeError),
}

impl ListWatchError {
    /// A call that an error kept from being made or answered.
    pub fn transport(call: Call, error: &(dyn Error + 'static)) -> Self {
        Self::Transport {
            call,
            reason: reason(error),
            connection_refused: io_kind(error) == Some(io::ErrorKind::ConnectionRefused),
        }
    }

    /// The resourceVersion or the continue token is older than the API server's history: the
    /// reason Expired or Gone, or 410.
    pub fn is_expired(&self) -> bool {
        self.has_reason("Expired") || self.is_status("Gone", 410)
    }

    /// The reason is Expired. Of a continue token client-go's pager asks for no less.
    pub(super) fn has_reason(&self, reason: &str) -> bool {
        matches!(self, Self::Status { status, .. } if status.reason == reason)
    }

    /// The resourceVersion is newer than anything the API server knows.
    ///
    /// client-go's rule: the cause `ResourceVersionTooLarge`, or the reason Timeout (or 504) with a
    /// message of those words (API servers before 1.18 send no cause).
    pub fn is_too_large_resource_version(&self) -> bool {
        const WORDS: &str = "Too large resource version";
        let Self::Status { status, .. } = self else { return false };
        let Some(details) = &status.details else { return false };
        let in_words =
            || status.message.contains(WORDS) || details.causes.iter().any(|c| c.message == WORDS);
        details.causes.iter().any(|cause| cause.reason == "ResourceVersionTooLarge")
            || (self.is_status("Timeout", 504) && in_words())
    }

    /// The API server asks for fewer requests: the reason TooManyRequests, or 429.
    pub fn is_too_many_requests(&self) -> bool {
        self.is_status("TooManyRequests", 429)
    }

    /// The API server failed within: the reason InternalError, or 500. client-go counts as one,
    /// too, what it cannot read in a stream.
    pub fn is_internal_error(&self) -> bool {
        self.is_status("InternalError", 500) || matches!(self, Self::Line(_))
    }

    /// Nobody listens at the API server's address (`ECONNREFUSED`).
    pub fn is_connection_refused(&self) -> bool {
        matches!(self, Self::Transport { connection_refused: true, .. })
    }

    /// How long the API server asked to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// What a person can do about it, where it is known.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Status { status, .. } if status.code == 401 => Some(
                "the credentials are not accepted: check the token or certificate of the kubeconfig or service account",
            ),
            Self::Status { status, .. } if status.code == 403 => Some(
                "grant the verbs list and watch on this resource to this account: a Role or ClusterRole, and its binding",
            ),
            Self::List(ListError::Endless | ListError::Cut | ListError::Empty(_)) => Some(
                "what stands in front of the API server, a proxy or a cache, has to pass on the parameters limit and continue",
            ),
            _ => None,
        }
    }

    /// By its reason, or by its code where the reason is none that apimachinery knows.
    fn is_status(&self, reason: &str, code: u16) -> bool {
        matches!(self, Self::Status { status, .. } if status.reason == reason
            || (status.code == code && !KNOWN_REASONS.contains(&&*status.reason)))
    }
}

/// The reasons of apimachinery's `api/errors` (`knownReasons`).
const KNOWN_REASONS: [&str; 19] = [
    "Unauthorized",
    "Forbidden",
    "NotFound",
    "AlreadyExists",
    "Conflict",
    "Gone",
    "Invalid",
    "ServerTimeout",
    "StorageReadError",
    "Timeout",
    "TooManyRequests",
    "BadRequest",
    "MethodNotAllowed",
    "NotAcceptable",
    "RequestEntityTooLarge",
    "UnsupportedMediaType",
    "InternalError",
    "Expired",
    "ServiceUnavailable",
];

/// An error of a call with its causes. Where the connection was cut or timed out, that is all it says: the terms
/// of TLS and timers would only puzzle.
fn reason(error: &(dyn Error + 'static)) -> String {
    match io_kind(error) {
        Some(io::ErrorKind::UnexpectedEof) => "the connection was cut".to_owned(),
        Some(io::ErrorKind::TimedOut) => "the connection timed out".to_owned(),
        _ => {
            let text = with_causes(error);
            text.strip_prefix("ServiceError: ").unwrap_or(&text).to_owned()
        }
    }
}

/// What the system says of an error, if it is one of its own.
fn io_kind(error: &(dyn Error + 'static)) -> Option<io::ErrorKind> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(error.kind());
        }
        next = error.source();
    }
    None
}
