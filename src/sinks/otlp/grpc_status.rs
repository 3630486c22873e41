//! What a gRPC status means to the bridge.
//!
//! | code | outcome |
//! |---|---|
//! | INVALID_ARGUMENT | refused: invalid |
//! | RESOURCE_EXHAUSTED, OUT_OF_RANGE that speak of a message larger than the maximum | refused: too large |
//! | RESOURCE_EXHAUSTED otherwise | retry: throttled, RetryInfo honoured |
//! | UNAVAILABLE, ABORTED, CANCELLED, INTERNAL, UNKNOWN, DATA_LOSS, OUT_OF_RANGE otherwise | retry: unavailable, RetryInfo honoured |
//! | DEADLINE_EXCEEDED | retry: timeout |
//! | UNAUTHENTICATED, PERMISSION_DENIED, UNIMPLEMENTED, NOT_FOUND, ALREADY_EXISTS, FAILED_PRECONDITION | retry: misconfigured |

use std::time::Duration;

use prost::Message as _;
use tonic::{Code, Status};

use crate::bridge::{Outcome, RefusedClass, RetryClass, Secrets};

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RpcStatus {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
    #[prost(string, tag = "2")]
    pub(super) message: String,
    #[prost(message, repeated, tag = "3")]
    pub(super) details: Vec<Detail>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Detail {
    #[prost(string, tag = "1")]
    pub(super) type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    pub(super) retry_delay: Option<Delay>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(super) struct Delay {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(super) nanos: i32,
}

/// The outcome of an answer whose status is not OK.
pub(super) fn to_outcome(status: &Status, secrets: &Secrets) -> Outcome {
    let mut reason = format!("gRPC {:?}", status.code());
    if !status.message().trim().is_empty() {
        reason = format!("{reason}: {}", status.message());
    }
    let reason = secrets.reason(reason);
    let (class, after) = match status.code() {
        Code::InvalidArgument => {
            return Outcome::Refused { class: RefusedClass::Invalid, reason };
        }
        Code::ResourceExhausted | Code::OutOfRange if speaks_of_size(status.message()) => {
            return Outcome::Refused { class: RefusedClass::TooLarge, reason };
        }
        Code::ResourceExhausted => (RetryClass::Throttled, retry_info(status)),
        Code::DeadlineExceeded => (RetryClass::Timeout, retry_info(status)),
        Code::Unauthenticated
        | Code::PermissionDenied
        | Code::Unimplemented
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition => (RetryClass::Misconfigured, None),
        _ => (RetryClass::Unavailable, retry_info(status)),
    };
    Outcome::Retry { after, class, reason }
}

/// Whether the receiver's gRPC library refused the message for its size: grpc-go says "received
/// message larger than max (5242895 vs. 4194304)" (also "after decompression larger than max"),
/// grpc-java "gRPC message exceeds maximum size 4194304: 5242895", tonic "decoded message length
/// too large: found 5242895 bytes, the limit is: 4194304 bytes".
fn speaks_of_size(message: &str) -> bool {
    ["larger than max", "exceeds maximum size", "message length too large"]
        .into_iter()
        .any(|words| message.contains(words))
}

/// The wait that the receiver asks for in the status details.
fn retry_info(status: &Status) -> Option<Duration> {
    let details = RpcStatus::decode(status.details()).ok()?.details;
    let info = details.iter().find(|any| any.type_url.ends_with("/google.rpc.RetryInfo"))?;
    let delay = RetryInfo::decode(&*info.value).ok()?.retry_delay?;
    let nanos = u32::try_from(delay.nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Duration::new(u64::try_from(delay.seconds).ok()?, nanos))
}
