//! Doors for `fuzz/`, which are no part of the library.

use ::http::{HeaderValue, StatusCode};

use super::{WebhookSink, http::Reply, otlp};
use crate::bridge::Outcome;

/// What a receiver answered: nothing if HTTP has no such answer.
fn reply(status: u16, retry_after: &[u8], body: &[u8]) -> Option<Reply> {
    let header = HeaderValue::from_bytes(retry_after).ok()?;
    Some(Reply::new(StatusCode::from_u16(status).ok()?, Some(&header), body.to_vec()))
}

/// What a webhook makes of an answer.
pub fn webhook(
    sink: &WebhookSink,
    status: u16,
    retry_after: &[u8],
    body: &[u8],
) -> Option<Outcome> {
    Some(sink.outcome_of(&reply(status, retry_after, body)?))
}

/// What OTLP over HTTP makes of an answer to so many records.
pub fn otlp_http(status: u16, retry_after: &[u8], body: &[u8], sent: u64) -> Option<Outcome> {
    Some(otlp::fuzzing::http(&reply(status, retry_after, body)?, sent))
}

/// What OTLP over gRPC makes of a status.
pub fn otlp_grpc(code: i32, message: &str, details: &[u8]) -> Outcome {
    otlp::fuzzing::grpc(code, message, details)
}
