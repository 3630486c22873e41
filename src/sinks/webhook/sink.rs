//! Webhooks: events as JSON, signed as [Standard Webhooks] asks when a secret is set.
//!
//! A batch is one JSON array of events in the sink's format, always, also when it holds one; with
//! `single` it is one object.
//!
//! | header | value |
//! |---|---|
//! | `webhook-id` | the record's id; of an array `<first id>-<n>-<16 hex digits of SHA-256>` over the ids joined by line feeds, so it is the same in every attempt at the same batch |
//! | `webhook-timestamp` | Unix seconds of the attempt |
//! | `webhook-signature` | for each secret `v1,` and base64 of HMAC-SHA256, or `v1a,` and base64 of an ed25519 signature, over `id.timestamp.body`; separated by spaces |
//!
//! A compressed body is signed twice by each secret: as it is sent, so that nobody has to unpack what
//! is not authenticated yet, and before compression, which is what the receiver's framework hands on
//! after undoing `content-encoding`.
//!
//! [Standard Webhooks]: https://www.standardwebhooks.com

mod sign;
#[cfg(test)]
mod tests;

use ::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use bytes::Bytes;
use reqwest::Url;
use sha2::{Digest as _, Sha256};

use self::sign::Signer;
use super::{WebhookMethod, WebhookOptions};
use crate::{
    bridge::{Failure, FailureClass, Filter, Outcome, RefusedClass, Secrets},
    encode::{EncodeError, Format},
    event::Batch,
    sinks::{
        SinkBuildError,
        http::{HttpKind, HttpSink, Reading, Reply, Request, parse_url},
    },
};

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// How much of an answer an expression over it reads, in bytes. The body of a longer one is null.
const ANSWER_BYTES: usize = 1 << 20;

/// Sends events to one URL.
pub(crate) struct Webhook {
    url: Url,
    method: Method,
    success: Option<Filter>,
    retry_when: Option<Filter>,
    signer: Option<Signer>,
    format: Format,
    single: bool,
}

/// Checks the options and sets up the client; nothing is connected yet.
pub(crate) fn build(options: &WebhookOptions) -> Result<HttpSink<Webhook>, SinkBuildError> {
    let kind = Webhook::new(options)?;
    let url = kind.url.clone();
    HttpSink::new(kind, &options.http, &url, options.secrets())
}

impl Webhook {
    pub(crate) fn new(options: &WebhookOptions) -> Result<Self, SinkBuildError> {
        let url = parse_url(&["url"], options.http.url.expose())?;
        let signer = Signer::new(&options.signing_secrets)?;
        let method = match options.method {
            WebhookMethod::Post => Method::POST,
            WebhookMethod::Put => Method::PUT,
            WebhookMethod::Patch => Method::PATCH,
        };
        Ok(Self {
            url,
            method,
            success: options.success.clone(),
            retry_when: options.retry_when.clone(),
            signer,
            format: options.format,
            single: options.single,
        })
    }
}

impl HttpKind for Webhook {
    fn request(&self, batch: &Batch, secrets: &Secrets) -> Result<Request, Failure> {
        let refused = |error| Failure::refused(RefusedClass::Invalid, secrets.reason(error));
        let (id, body) = match batch.records.as_slice() {
            [record] if self.single => {
                (record.id().to_owned(), self.format.encode(record).map_err(refused)?)
            }
            _ => (array_id(batch), array_body(batch, self.format).map_err(refused)?),
        };
        let mut request = Request::post(&self.url, self.format.content_type(), body);
        request.method = self.method.clone();
        // Ids are printable ASCII by their making.
        request.header(ID, id);
        request.header(TIMESTAMP, jiff::Timestamp::now().as_second());
        Ok(request)
    }

    fn reads(&self, status: StatusCode) -> Reading {
        let is_asked = if status.is_success() { &self.success } else { &self.retry_when };
        if is_asked.is_some() { Reading::Whole(ANSWER_BYTES + 1) } else { Reading::Status }
    }

    fn outcome(&self, reply: &Reply, sent: &Batch, secrets: &Secrets) -> Outcome {
        // Nobody is asked of an answer whose status says it all.
        let is_asked = self.success.is_some() || self.retry_when.is_some();
        let variables = if is_asked { reply.variables(ANSWER_BYTES) } else { Vec::new() };
        let holds = |test: &Option<Filter>, default| {
            test.as_ref().map_or(default, |test| test.is_true_of(&variables).unwrap_or(false))
        };
        if reply.is_success() && holds(&self.success, true) {
            return Outcome::Delivered;
        }
        Outcome::Failed(if holds(&self.retry_when, false) {
            reply.failure_of(FailureClass::Throttled, secrets)
        } else if reply.is_success() {
            reply.failure_of(FailureClass::Refused(RefusedClass::Invalid), secrets)
        } else {
            reply.failure(&reply.text(), sent, secrets)
        })
    }

    fn sign(&self, headers: &mut HeaderMap, bodies: &[&[u8]]) {
        let text = |name| headers.get(&name).and_then(|value| value.to_str().ok());
        let (Some(signer), Some(id), Some(time)) = (&self.signer, text(ID), text(TIMESTAMP)) else {
            return;
        };
        if let Ok(signature) = HeaderValue::try_from(signer.sign(id, time, bodies)) {
            headers.insert(SIGNATURE, signature);
        }
    }
}

/// One id for a whole batch, of whatever size.
fn array_id(batch: &Batch) -> String {
    use std::fmt::Write as _;

    let mut digest = Sha256::new();
    for (i, record) in batch.records.iter().enumerate() {
        if i > 0 {
            digest.update(b"\n");
        }
        digest.update(record.id().as_bytes());
    }
    let first = batch.records.first().map_or("", |record| record.id());
    let mut id = format!("{first}-{}-", batch.records.len());
    for byte in &digest.finalize()[..8] {
        // Writing to a string cannot fail.
        let _ = write!(id, "{byte:02x}");
    }
    id
}

fn array_body(batch: &Batch, format: Format) -> Result<Bytes, EncodeError> {
    let mut body = Vec::with_capacity(batch.bytes() + batch.records.len() + 1);
    body.push(b'[');
    for (i, record) in batch.records.iter().enumerate() {
        if i > 0 {
            body.push(b',');
        }
        body.extend_from_slice(&format.encode(record)?);
    }
    body.push(b']');
    Ok(body.into())
}
