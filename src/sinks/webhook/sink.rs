//! Webhooks: events as JSON, signed as [Standard Webhooks] asks when a secret is set.
//!
//! A batch is one JSON array of events in the sink's format, always, also when it holds one; with
//! `single` it is one object. A template may make the body, the path and query of the address, and the values of
//! headers; what it cannot make of an event refuses that event.
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

use std::error::Error;

use ::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header::CONTENT_TYPE};
use bytes::Bytes;
use reqwest::Url;
use sha2::{Digest as _, Sha256};

use self::sign::Signer;
use super::{WebhookBody, WebhookMethod, WebhookOptions, keys::is_one_json};
use crate::{
    bridge::{Failure, FailureClass, Filter, Outcome, Reason, RefusedClass, Secrets},
    document::Misplaced,
    encode::{EncodeError, Format},
    event::{Batch, Record},
    sinks::{
        HttpOptions, SinkBuildError,
        http::{
            HttpKind, HttpSink, Part, Reading, Reply, Request,
            address::{Address, AddressError, MOST_BYTES},
            keys::{header_name, header_value},
            parse_url,
        },
    },
    template::{Context, Escape, RenderError, Template},
};

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// How much of an answer an expression over it reads, in bytes. The body of a longer one is null.
const ANSWER_BYTES: usize = 1 << 20;

/// Sends events to one server.
pub(crate) struct Webhook {
    /// The address, or the server of those that a template makes.
    url: Url,
    address: Address,
    method: Method,
    body: Option<WebhookBody>,
    /// The headers whose values are templates.
    headers: Vec<(HeaderName, Template)>,
    /// Whether a template makes any of these.
    has_template: bool,
    success: Option<Filter>,
    retry_when: Option<Filter>,
    signer: Option<Signer>,
    format: Format,
    single: bool,
}

/// Checks the options and sets up the client; nothing is connected yet.
pub(crate) fn build(options: &WebhookOptions) -> Result<HttpSink<Webhook>, SinkBuildError> {
    let (kind, http) = Webhook::new(options)?;
    let url = kind.url.clone();
    HttpSink::new(kind, &http, &url, options.secrets())
}

impl Webhook {
    /// The kind, and the options of its client, which has the headers that no event changes.
    pub(crate) fn new(options: &WebhookOptions) -> Result<(Self, HttpOptions), SinkBuildError> {
        let bad = |keys: &[&str], bad: Misplaced| SinkBuildError::at(keys, bad.wrong.what);
        let address = Address::parse(options.http.url.expose()).map_err(|at| bad(&["url"], at))?;
        let url = parse_url(&["url"], address.fixed())?;
        let signer = Signer::new(&options.signing_secrets)?;
        let method = match options.method {
            WebhookMethod::Post => Method::POST,
            WebhookMethod::Put => Method::PUT,
            WebhookMethod::Patch => Method::PATCH,
        };
        let mut http = options.http.clone();
        if options.body.is_some() {
            http.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("content-type"));
        }
        let mut headers = Vec::new();
        let templates = http.headers.extract_if(.., |(_, value)| Template::is_in(value.expose()));
        for (name, value) in templates {
            let keys = ["headers", &name];
            let template = Template::compile(value.expose(), Escape::Plain)
                .map_err(|error| bad(&keys, error.into()))?;
            let parsed = header_name(&name, false).map_err(|wrong| bad(&keys, wrong.into()))?;
            headers.push((parsed, template));
        }
        if options.has_template() && !options.single {
            let reason = "expected one event a request beside a template, found batches";
            return Err(SinkBuildError::at(&[], reason));
        }
        let kind = Self {
            url,
            address,
            method,
            body: options.body.clone(),
            headers,
            has_template: options.has_template(),
            success: options.success.clone(),
            retry_when: options.retry_when.clone(),
            signer,
            format: options.format,
            single: options.single,
        };
        Ok((kind, http))
    }

    /// The request for one event.
    fn one(&self, record: &Record) -> Result<Request, TemplatedError> {
        if !self.has_template {
            let body = self.format.encode(record)?;
            return Ok(Request::post(&self.url, self.format.content_type(), body));
        }
        let context = Context::of(record)?;
        let url = self.address.of(&context)?;
        let url = url.parse().map_err(|error| TemplatedError::Url(format!("{error}")))?;
        let mut request = match &self.body {
            None => Request::post(&url, self.format.content_type(), self.format.encode(record)?),
            Some(WebhookBody { template, content_type }) => {
                let body = template.render(&context).map_err(TemplatedError::Body)?;
                if template.escape() == Escape::Json {
                    is_one_json(&body)?;
                }
                let mut request = Request::post(&url, "", body);
                request.header(CONTENT_TYPE, content_type.as_str());
                request
            }
        };
        for (name, template) in &self.headers {
            let value = template
                .render(&context)
                .map_err(|error| TemplatedError::Value(name.clone(), error))?;
            if value.len() > MOST_BYTES {
                return Err(TemplatedError::LongHeader(name.clone(), value.len()));
            }
            let value = header_value(&value).map_err(|_| TemplatedError::Header(name.clone()))?;
            request.headers.insert(name.clone(), value);
        }
        Ok(request)
    }
}

/// Why there is no request for an event.
#[derive(Debug, thiserror::Error)]
enum TemplatedError {
    #[error("{0}")]
    Encode(#[from] EncodeError),
    #[error("{0}")]
    Event(#[from] RenderError),
    #[error("`body`: {0}")]
    Body(RenderError),
    #[error("header `{0}`: {1}")]
    Value(HeaderName, RenderError),
    #[error("`url`: {0}")]
    Address(#[from] AddressError),
    #[error("`url`: expected an address, found another text: {0}")]
    Url(String),
    #[error("`body`: expected JSON, found another text: {0}")]
    Json(#[from] serde_json::Error),
    #[error("header `{0}`: expected printable ASCII, found other characters")]
    Header(HeaderName),
    #[error("header `{0}`: expected at most {MOST_BYTES} bytes, found {1}")]
    LongHeader(HeaderName, usize),
}

impl HttpKind for Webhook {
    fn requests(&self, batch: &Batch, secrets: &Secrets) -> Result<Vec<Part>, Failure> {
        let refused =
            |error: &dyn Error| Failure::refused(RefusedClass::Unsendable, secrets.reason(error));
        let (id, mut request) = match batch.records.as_slice() {
            [record] if self.single => {
                (record.id().to_owned(), self.one(record).map_err(|error| refused(&error))?)
            }
            _ => {
                let body = array_body(batch, self.format).map_err(|error| refused(&error))?;
                (array_id(batch), Request::post(&self.url, self.format.content_type(), body))
            }
        };
        request.method = self.method.clone();
        // Ids are printable ASCII by their making.
        request.header(ID, id);
        request.header(TIMESTAMP, jiff::Timestamp::now().as_second());
        Ok(Part::all(batch, request))
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

    fn destination(&self, record: &Record, secrets: &Secrets) -> Result<Option<String>, Reason> {
        if !self.address.is_template() {
            return Ok(None);
        }
        let destination = || -> Result<_, TemplatedError> {
            Ok(self.address.destination(&Context::of(record)?)?)
        };
        destination().map(Some).map_err(|error| secrets.reason(error))
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
