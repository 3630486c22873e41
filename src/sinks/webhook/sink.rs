//! Webhooks: envelopes POSTed as JSON, signed as [Standard Webhooks] asks when a secret is set.
//!
//! A batch is one JSON array of envelopes, always, also when it holds one; with `single` it is
//! one object. The envelopes go out byte for byte as the journal holds them.
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

use ::http::{HeaderName, HeaderValue};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use sha2::{Digest as _, Sha256};

use self::sign::Signer;
use super::WebhookOptions;
use crate::{
    bridge::{Failure, Outcome, Sink},
    event::Batch,
    sinks::{
        SinkBuildError,
        http::{Address, HttpPoster, Reply},
    },
};

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// POSTs batches to one URL.
#[derive(Debug)]
pub struct WebhookSink {
    poster: HttpPoster,
    signer: Option<Signer>,
    single: bool,
}

impl WebhookSink {
    /// Checks the options and sets up the client; nothing is connected yet.
    pub fn new(options: &WebhookOptions) -> Result<Self, SinkBuildError> {
        let address = Address::parse("url", options.http.url.expose())?;
        let secrets = options.secrets();
        let poster = HttpPoster::new(&address, &options.http, "application/json", secrets)?;
        let signer = Signer::new(&options.signing_secrets)?;
        Ok(Self { poster, signer, single: options.single })
    }

    async fn post(&self, batch: &Batch) -> Result<Reply, Failure> {
        let (id, body) = match batch.records.as_slice() {
            [record] if self.single => (record.id().to_owned(), record.envelope.clone()),
            _ => (array_id(batch), array_body(batch)),
        };
        let timestamp = jiff::Timestamp::now().as_second();
        let mut headers = vec![(TIMESTAMP, HeaderValue::from(timestamp))];
        let sent = self.poster.compress(body.clone()).await?;
        if let Some(signer) = &self.signer {
            let bodies: &[&[u8]] = if sent == body { &[&body] } else { &[&sent, &body] };
            if let Ok(signature) = HeaderValue::try_from(signer.sign(&id, timestamp, bodies)) {
                headers.push((SIGNATURE, signature));
            }
        }
        // Ids are printable ASCII by their making.
        if let Ok(id) = HeaderValue::try_from(id) {
            headers.push((ID, id));
        }
        self.poster.post_compressed(&headers, sent).await
    }

    /// The outcome that an answer to a batch states.
    pub(crate) fn outcome_of(&self, reply: &Reply, sent: &Batch) -> Outcome {
        if reply.is_success() {
            return Outcome::Delivered;
        }
        let words = String::from_utf8_lossy(&reply.body);
        Outcome::Failed(reply.failure(&words, sent, self.poster.secrets()))
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

fn array_body(batch: &Batch) -> Bytes {
    let mut body = Vec::with_capacity(batch.bytes() + batch.records.len() + 1);
    body.push(b'[');
    for (i, record) in batch.records.iter().enumerate() {
        if i > 0 {
            body.push(b',');
        }
        body.extend_from_slice(&record.envelope);
    }
    body.push(b']');
    body.into()
}

impl Sink for WebhookSink {
    fn send<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Outcome> {
        Box::pin(async {
            match self.post(batch).await {
                Ok(reply) => self.outcome_of(&reply, batch),
                Err(failure) => Outcome::Failed(failure),
            }
        })
    }
}
