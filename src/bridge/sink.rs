//! What a sink is to the bridge: one attempt to deliver one batch, and an honest answer.

use std::time::Duration;

use futures_util::future::BoxFuture;

use super::Reason;
use crate::event::Batch;

/// Why an attempt is worth another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RetryClass {
    /// The address does not answer, or answers that it cannot now: connection refused or cut,
    /// HTTP 5xx, gRPC UNAVAILABLE.
    Unavailable,
    /// It asks for less: HTTP 429, gRPC RESOURCE_EXHAUSTED.
    Throttled,
    /// No answer in time. Whether the batch arrived is not known.
    Timeout,
    /// The answer is about us or the address, not about the payload: HTTP 401, 403, 404, 405, 410
    /// and 3xx, TLS, gRPC UNAUTHENTICATED, an unknown topic, an ACL. Only a person can mend it, so
    /// it is retried slowly, for ever and loudly.
    Misconfigured,
}

impl RetryClass {
    /// The spelling in the log.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Throttled => "throttled",
            Self::Timeout => "timeout",
            Self::Misconfigured => "misconfigured",
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
}

impl RefusedClass {
    /// The spelling in dead letters and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::TooLarge => "too-large",
        }
    }
}

/// What became of one event of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventFate {
    /// The receiver has it.
    Delivered,
    /// It is to be sent again.
    Retry,
    /// It will never be taken.
    Refused {
        /// Why.
        class: RefusedClass,
        /// The receiver's words.
        reason: Reason,
    },
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver has all of it.
    Delivered,
    /// The receiver answered for each event.
    PerEvent {
        /// One fate for each record, in the order of the batch.
        fates: Vec<EventFate>,
        /// Why those to be retried failed; they are retried under this class.
        retry: Option<(RetryClass, Reason)>,
    },
    /// The receiver took the batch but for some events that it does not name (OTLP partial
    /// success). Nothing of it is sent again, unless it rejects everything for long.
    Partial {
        /// How many it rejected. With 0 it took all of them, and warns.
        rejected: u64,
        /// The receiver's words.
        reason: Reason,
    },
    /// Nothing was taken, as far as is known; to be sent again whole.
    Retry {
        /// The wait that the receiver asked for (`Retry-After`, gRPC RetryInfo).
        after: Option<Duration>,
        /// Why.
        class: RetryClass,
        /// What happened, for the log and the status page.
        reason: Reason,
    },
    /// The payload was refused, and will be however often it is sent.
    Refused {
        /// Why.
        class: RefusedClass,
        /// The receiver's words.
        reason: Reason,
    },
}

/// A transport, shared by the attempts that are under way: what they have in common, a client with its
/// connections or a producer with its queue, is the sink's, once. A sink neither sleeps nor retries
/// (librdkafka's own queue excepted); the bridge owns time, order and acknowledgement. It makes its
/// [`Secrets`](super::Secrets) of its options, once, and every [`Reason`] by them.
///
/// [`send`](Self::send) may be called while an earlier call has not ended. A sink that has room for one
/// attempt, or whose receiver needs batches one after the other, lets them wait within: a lock that is
/// held over the attempt does (`tokio::sync::Mutex`, which is fair). The wait counts into the
/// configured timeout.
///
/// The future of [`send`](Self::send) may be dropped at any await, when the configured timeout
/// has passed or the bridge stops. A later call then brings the same batch again or a part of it,
/// and others may come in between, those that are sent beside the journal's order (dead letters,
/// replays: [`Record::FIRST_ERRAND`](crate::event::Record::FIRST_ERRAND)) among them. A sink that
/// keeps messages in a queue of its own must recognise them rather than queue twice.
pub trait Sink: Send + Sync + 'static {
    /// Makes ready for a run; called once, before the first batch. Where the journal has a past, a run
    /// before may have been killed while it sent a batch. Waits for nothing.
    fn begin(&self, journal_has_past: bool) {
        let _ = journal_has_past;
    }

    /// Makes one attempt to send one batch, which is never empty.
    fn send<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Outcome>;

    /// Lets go of connections and queues; called once, when no attempt is under way and none follows.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}
