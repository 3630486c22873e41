//! Why an attempt failed, and whose fault that may be.
//!
//! Whoever may create an Event controls its text, and a receiver that stumbles over it fails for the
//! Events of others, too, if they are held up behind it. So a failure says whether it may be that of a
//! record: a receiver that answers, cuts the connection or falls silent once it has been sent one may
//! do so for what it holds. What an Event cannot bring about is the sink's, always.

use std::time::Duration;

use super::{Reason, Secrets};

/// A failure of an attempt, or of one event in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Whose it may be.
    pub fault: Fault,
    /// The way to go on.
    pub class: FailureClass,
    /// Failures with the same status are alike.
    pub status: Status,
    /// The wait that the receiver asked for (`Retry-After`, gRPC RetryInfo).
    pub after: Option<Duration>,
    /// The words for the log, the status page and dead letters.
    pub reason: Reason,
}

impl Failure {
    /// A failure without a status: that of a record if it refuses, else the sink's.
    pub fn new(class: FailureClass, reason: Reason) -> Self {
        let fault = match class {
            FailureClass::Refused(_) => Fault::RecordForGood,
            _ => Fault::Sink,
        };
        Self { fault, class, status: Status::Other, after: None, reason }
    }

    /// The payload was refused, and will be however often it is sent.
    pub fn refused(class: RefusedClass, reason: Reason) -> Self {
        Self::new(FailureClass::Refused(class), reason)
    }

    /// A sink has not answered for an event of the batch.
    pub(super) fn unanswered() -> Self {
        let words = "some events of the batch were not taken";
        Self::new(FailureClass::Unavailable, Secrets::none().reason(words))
    }

    /// No answer came in time to a request that was written.
    pub fn silence(reason: Reason) -> Self {
        let (fault, status) = (Fault::RecordForNow, Status::Silence);
        Self { fault, status, ..Self::new(FailureClass::Timeout, reason) }
    }
}

/// Whose failure it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// No record's: no connection, TLS, missing or refused credentials, a request for less or for
    /// time.
    Sink,
    /// Perhaps a record's, and it may pass: HTTP 5xx, gRPC UNKNOWN, a connection that is cut when the
    /// request is written, silence.
    RecordForNow,
    /// Perhaps a record's, and about what it holds: HTTP 400, 403, gRPC INVALID_ARGUMENT, Kafka's
    /// invalid record.
    RecordForGood,
}

/// The way to go on after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureClass {
    /// Tried again. The address does not answer, or answers that it cannot now: connection
    /// refused or cut, HTTP 5xx, gRPC UNAVAILABLE.
    Unavailable,
    /// Tried again. The receiver asks for less: HTTP 429, gRPC RESOURCE_EXHAUSTED.
    Throttled,
    /// Tried again. No answer came in time: whether the batch arrived is not known.
    Timeout,
    /// Tried again slowly, for ever and loudly, because only a person can mend it. The answer is
    /// about us or the address, not about the payload: HTTP 401, 403, 404, 405, 410 and 3xx, TLS, gRPC
    /// UNAUTHENTICATED, an unknown topic, an ACL.
    Misconfigured,
    /// A single event becomes a dead letter, and a batch is halved until one stands alone.
    Refused(RefusedClass),
}

impl FailureClass {
    /// The spelling in the log.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Throttled => "throttled",
            Self::Timeout => "timeout",
            Self::Misconfigured => "misconfigured",
            Self::Refused(class) => class.as_str(),
        }
    }
}

/// Why a payload will never be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusedClass {
    /// The receiver calls it malformed: HTTP 400, 422, gRPC INVALID_ARGUMENT, Kafka invalid record.
    Invalid,
    /// Larger than the receiver takes: HTTP 413, Kafka message too large.
    TooLarge,
    /// There is no request for it: a template or the format fails on it, its destination is one too many, or it stays too long. The
    /// receiver is not asked, so nothing is said of the sink, however many there are.
    Unsendable,
}

impl RefusedClass {
    /// The spelling in dead letters and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::TooLarge => "too-large",
            Self::Unsendable => "unsendable",
        }
    }
}

/// The receiver's answer, or the end of the exchange without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// An HTTP status.
    Http(u16),
    /// A gRPC status code.
    Grpc(i32),
    /// An error code of Kafka, librdkafka's own below zero.
    Kafka(i32),
    /// The connection was cut when the request was written.
    Cut,
    /// No answer came in time to a request that was written.
    Silence,
    /// Anything else: the request never got there, or the sink has no statuses.
    Other,
}
