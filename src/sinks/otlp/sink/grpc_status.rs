//! The meaning of a gRPC status to the bridge.
//!
//! | code | class | fault |
//! |---|---|---|
//! | INVALID_ARGUMENT | refused: invalid | a record's, for good |
//! | RESOURCE_EXHAUSTED, OUT_OF_RANGE that speak of a message larger than the maximum | refused: too large | a record's, for good |
//! | RESOURCE_EXHAUSTED otherwise | throttled, RetryInfo honoured | the sink's |
//! | UNAVAILABLE, ABORTED, CANCELLED, INTERNAL, UNKNOWN, DATA_LOSS, OUT_OF_RANGE otherwise | unavailable, RetryInfo honoured | a record's, for now |
//! | DEADLINE_EXCEEDED | timeout, RetryInfo honoured | a record's, for now |
//! | UNAUTHENTICATED | misconfigured | the sink's |
//! | PERMISSION_DENIED in words about credentials | misconfigured | the sink's |
//! | PERMISSION_DENIED otherwise, UNIMPLEMENTED, NOT_FOUND, ALREADY_EXISTS, FAILED_PRECONDITION | misconfigured | a record's, for good |
//!
//! With RetryInfo it is always the sink's fault.

use std::time::Duration;

use prost::Message as _;
use tonic::{Code, Status};

use crate::{
    bridge::{Failure, FailureClass, Fault, RefusedClass, Secrets, Status as Answer},
    event::Batch,
    sinks::http::credentials,
};

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

/// The failure that an answer to a batch is whose status is not OK.
pub(super) fn to_failure(status: &Status, sent: &Batch, secrets: &Secrets) -> Failure {
    let mut reason = format!("gRPC {:?}", status.code());
    if !status.message().trim().is_empty() {
        reason = format!("{reason}: {}", status.message());
    }
    let (code, words) = (status.code(), status.message());
    let class = match code {
        Code::InvalidArgument => FailureClass::Refused(RefusedClass::Invalid),
        Code::ResourceExhausted | Code::OutOfRange if speaks_of_size(words) => {
            FailureClass::Refused(RefusedClass::TooLarge)
        }
        Code::ResourceExhausted => FailureClass::Throttled,
        Code::DeadlineExceeded => FailureClass::Timeout,
        Code::Unauthenticated
        | Code::PermissionDenied
        | Code::Unimplemented
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition => FailureClass::Misconfigured,
        _ => FailureClass::Unavailable,
    };
    let asked = retry_info(status);
    let fault = match class {
        _ if asked.is_some() || code == Code::Unauthenticated => Fault::Sink,
        FailureClass::Throttled => Fault::Sink,
        _ if code == Code::PermissionDenied && credentials::are_spoken_of(words, &sent.records) => {
            Fault::Sink
        }
        FailureClass::Refused(_) | FailureClass::Misconfigured => Fault::RecordForGood,
        FailureClass::Unavailable | FailureClass::Timeout => Fault::RecordForNow,
    };
    let honoured = !matches!(class, FailureClass::Refused(_) | FailureClass::Misconfigured);
    let after = asked.filter(|_| honoured);
    let status = Answer::Grpc(code as i32);
    Failure { fault, status, after, ..Failure::new(class, secrets.reason(reason)) }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sinks::fixtures;

    fn failure(status: &Status) -> Failure {
        to_failure(status, &fixtures::batch(1..=2), &Secrets::none())
    }

    fn with_wait(code: Code, seconds: i64) -> Status {
        let info = RetryInfo { retry_delay: Some(Delay { seconds, nanos: 500_000_000 }) };
        let detail = Detail {
            type_url: "type.googleapis.com/google.rpc.RetryInfo".into(),
            value: info.encode_to_vec(),
        };
        let details =
            RpcStatus { code: code.into(), message: "busy".into(), details: vec![detail] };
        Status::with_details(code, "busy", details.encode_to_vec().into())
    }

    #[test]
    fn every_code_has_its_failure() {
        use FailureClass::{Misconfigured, Refused, Throttled, Timeout, Unavailable};
        for (code, class, fault) in [
            (Code::Cancelled, Unavailable, Fault::RecordForNow),
            (Code::Unknown, Unavailable, Fault::RecordForNow),
            (Code::InvalidArgument, Refused(RefusedClass::Invalid), Fault::RecordForGood),
            (Code::DeadlineExceeded, Timeout, Fault::RecordForNow),
            (Code::NotFound, Misconfigured, Fault::RecordForGood),
            (Code::AlreadyExists, Misconfigured, Fault::RecordForGood),
            (Code::PermissionDenied, Misconfigured, Fault::RecordForGood),
            (Code::ResourceExhausted, Throttled, Fault::Sink),
            (Code::FailedPrecondition, Misconfigured, Fault::RecordForGood),
            (Code::Aborted, Unavailable, Fault::RecordForNow),
            (Code::OutOfRange, Unavailable, Fault::RecordForNow),
            (Code::Unimplemented, Misconfigured, Fault::RecordForGood),
            (Code::Internal, Unavailable, Fault::RecordForNow),
            (Code::Unavailable, Unavailable, Fault::RecordForNow),
            (Code::DataLoss, Unavailable, Fault::RecordForNow),
            (Code::Unauthenticated, Misconfigured, Fault::Sink),
        ] {
            let found = failure(&Status::new(code, "words"));
            assert_eq!((found.class, found.fault, found.after), (class, fault, None), "{code:?}");
            assert_eq!(found.status, Answer::Grpc(code as i32));
            assert!(found.reason.ends_with(": words"), "{}", found.reason);
            // Who asks for time blames no record.
            let found = failure(&with_wait(code, 3));
            assert_eq!((found.class, found.fault), (class, Fault::Sink), "{code:?}");
            let honoured = !matches!(class, Refused(_) | Misconfigured);
            let asked = honoured.then_some(Duration::from_millis(3500));
            assert_eq!(found.after, asked, "{code:?}");
        }
        assert_eq!(failure(&with_wait(Code::Unavailable, -3)).after, None);
    }

    #[test]
    fn a_message_too_large_is_refused_under_either_code() {
        for code in [Code::ResourceExhausted, Code::OutOfRange] {
            let words = "grpc: received message larger than max (5242895 vs. 4194304)";
            let found = failure(&Status::new(code, words));
            let too_large = FailureClass::Refused(RefusedClass::TooLarge);
            assert_eq!((found.class, found.fault), (too_large, Fault::RecordForGood));
        }
    }

    #[test]
    fn a_denial_that_speaks_of_credentials_is_no_fault_of_a_record() {
        let found = failure(&Status::permission_denied("the token has expired"));
        assert_eq!((found.class, found.fault), (FailureClass::Misconfigured, Fault::Sink));
    }
}
