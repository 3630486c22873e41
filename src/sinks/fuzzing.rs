//! Doors for `fuzz/`, which are no part of the library.

use ::http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{LOCATION, RETRY_AFTER},
};

use super::{
    WebhookOptions,
    http::{HttpKind as _, Reply},
    otlp,
    webhook::Webhook,
};
use crate::{
    bridge::{Outcome, Secrets},
    event::Batch,
};

/// A receiver's answer, with one text in the headers that are read: nothing if HTTP has no such answer.
fn reply(status: u16, header: &[u8], body: &[u8]) -> Option<Reply> {
    let value = HeaderValue::from_bytes(header).ok()?;
    let headers = HeaderMap::from_iter([(RETRY_AFTER, value.clone()), (LOCATION, value)]);
    Some(Reply::new(StatusCode::from_u16(status).ok()?, headers, body.to_vec()))
}

/// The outcome that a webhook makes of an answer.
pub fn webhook(
    options: &WebhookOptions,
    status: u16,
    header: &[u8],
    body: &[u8],
) -> Option<Outcome> {
    let reply = reply(status, header, body)?;
    let (kind, _) = Webhook::new(options).ok()?;
    Some(kind.outcome(&reply, &Batch::default(), &Secrets::of(options.secrets())))
}

/// The outcome that OTLP over HTTP makes of an answer to so many records.
pub fn otlp_http(status: u16, header: &[u8], body: &[u8], sent: u64) -> Option<Outcome> {
    Some(otlp::fuzzing::http(&reply(status, header, body)?, sent))
}

/// The outcome that OTLP over gRPC makes of a status.
pub fn otlp_grpc(code: i32, message: &str, details: &[u8]) -> Outcome {
    otlp::fuzzing::grpc(code, message, details)
}
