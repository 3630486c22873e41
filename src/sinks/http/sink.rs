//! A sink over HTTP: the requests for a batch, most often one, and what their answers mean.

use ::http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{AUTHORIZATION, CONTENT_ENCODING},
};
use futures_util::{StreamExt as _, future::BoxFuture, stream};
use reqwest::Url;
use tokio::time::Instant;

use super::{
    HttpOptions,
    auth::Auth,
    client::{Client, Reading, Reply, Request, Trust, headers},
    compress,
    tokens::Tokens,
};
use crate::{
    bridge::{Failure, FailureClass, Outcome, Reason, Secrets, Sink},
    event::{Batch, Record},
    sinks::{Compression, SinkBuildError},
};

/// The questions that a kind of sink over HTTP answers.
pub(crate) trait HttpKind: Send + Sync + 'static {
    /// How much is read of an answer of this status.
    fn reads(&self, status: StatusCode) -> Reading {
        let _ = status;
        Reading::Status
    }

    /// The requests for a batch. Their bodies are not compressed yet.
    fn requests(&self, batch: &Batch, secrets: &Secrets) -> Result<Vec<Part>, Failure>;

    /// The destination that a template makes of a record; see [`Sink::destination`].
    fn destination(&self, record: &Record, secrets: &Secrets) -> Result<Option<String>, Reason> {
        let _ = (record, secrets);
        Ok(None)
    }

    /// Adds headers that depend on the body, as it is sent and, where that is compressed, as it was before.
    fn sign(&self, headers: &mut HeaderMap, bodies: &[&[u8]]) {
        let _ = (headers, bodies);
    }

    /// The outcome that an answer to a request for a batch, or for a part of it, states.
    fn outcome(&self, reply: &Reply, sent: &Batch, secrets: &Secrets) -> Outcome {
        if reply.is_success() {
            return Outcome::Delivered;
        }
        Outcome::Failed(reply.failure(&reply.text(), sent, secrets))
    }
}

/// How many requests of a batch are under way at once.
const AT_ONCE: usize = 8;

/// A request for some records of a batch.
pub(crate) struct Part {
    pub(crate) request: Request,
    /// The places of its records in the batch.
    pub(crate) places: Vec<usize>,
}

impl Part {
    /// The one request for all of a batch.
    pub(crate) fn all(batch: &Batch, request: Request) -> Vec<Self> {
        vec![Self { request, places: (0..batch.records.len()).collect() }]
    }
}

/// Sends the batches of a kind.
pub(crate) struct HttpSink<K> {
    kind: K,
    client: Client,
    /// Those of every request.
    headers: HeaderMap,
    compression: Compression,
    tokens: Option<Tokens>,
    secrets: Secrets,
}

impl<K: HttpKind> HttpSink<K> {
    /// Sets up the client for the server of an address; nothing is connected yet. No reason
    /// will hold the secrets.
    pub(crate) fn new(
        kind: K,
        options: &HttpOptions,
        url: &Url,
        secrets: Vec<String>,
    ) -> Result<Self, SinkBuildError> {
        let texts = secrets;
        let secrets = Secrets::of(&texts);
        let client = Client::new(options, url, Trust::Only, &secrets)?;
        let compression = options.compression;
        let mut headers = headers(&options.headers, false)?;
        if let Some(encoding) = compress::content_encoding(compression) {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
        }
        let fixed = options.auth.as_ref().and_then(Auth::authorization);
        if let Some(mut value) = fixed.and_then(|text| HeaderValue::try_from(text).ok()) {
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let tokens = match &options.auth {
            Some(Auth::OAuth2(oauth2)) => Some(Tokens::new(oauth2, options, texts)?),
            _ => None,
        };
        Ok(Self { kind, client, headers, compression, tokens, secrets })
    }

    /// A request with all that it is sent with but a token that has to be asked for.
    pub(crate) async fn prepared(&self, mut request: Request) -> Result<Request, Failure> {
        let plain = request.body.clone();
        request.body = compress::compress(self.compression, plain.clone()).await?;
        let bodies: &[&[u8]] = match self.compression {
            Compression::None => &[&plain],
            Compression::Gzip | Compression::Zstd => &[&request.body, &plain],
        };
        self.kind.sign(&mut request.headers, bodies);
        request
            .headers
            .extend(self.headers.iter().map(|(name, value)| (name.clone(), value.clone())));
        Ok(request)
    }

    async fn attempt(&self, batch: &Batch) -> Result<Outcome, Failure> {
        let end = self.client.end();
        let parts = self.kind.requests(batch, &self.secrets)?;
        let sending = stream::iter(parts).map(async |Part { request, places }| {
            let outcome = self.deliver(request, batch, end).await;
            (places, outcome.unwrap_or_else(Outcome::Failed))
        });
        let outcomes = sending.buffer_unordered(AT_ONCE).collect().await;
        Ok(Outcome::of_parts(batch.records.len(), outcomes))
    }

    /// Sends one request for records of a batch.
    async fn deliver(
        &self,
        request: Request,
        batch: &Batch,
        end: Instant,
    ) -> Result<Outcome, Failure> {
        if Instant::now() >= end {
            let words = "no time was left for this request of the attempt";
            return Err(Failure::new(FailureClass::Timeout, self.secrets.reason(words)));
        }
        let request = self.prepared(request).await?;
        let Some(tokens) = &self.tokens else {
            let reply = self.send_by(request, end).await?;
            return Ok(self.kind.outcome(&reply, batch, &self.secrets));
        };
        let (mut token, is_new) = tokens.token(end).await?;
        let mut reply = self.send_by(token.on(request.clone()), end).await?;
        if reply.status() == StatusCode::UNAUTHORIZED {
            tokens.forget(&token).await;
            if !is_new {
                token = tokens.token(end).await?.0;
                reply = self.send_by(token.on(request), end).await?;
            }
        }
        Ok(self.kind.outcome(&reply, batch, &token.secrets))
    }

    async fn send_by(&self, request: Request, end: Instant) -> Result<Reply, Failure> {
        self.client.send(request, |status| self.kind.reads(status), end).await
    }
}

#[cfg(feature = "splunk")]
impl<K: HttpKind> HttpSink<K> {
    /// Sends one request, which may take as long as any, but not beyond `end`.
    pub(crate) async fn exchange(&self, request: Request, end: Instant) -> Result<Reply, Failure> {
        self.send_by(request, end.min(self.client.end())).await
    }

    /// Adds the credentials to a request that is not for a batch.
    pub(crate) fn authorize(&self, request: &mut Request) {
        if let Some(value) = self.headers.get(AUTHORIZATION) {
            request.headers.insert(AUTHORIZATION, value.clone());
        }
    }

    pub(crate) fn kind(&self) -> &K {
        &self.kind
    }

    pub(crate) fn secrets(&self) -> &Secrets {
        &self.secrets
    }
}

impl<K: HttpKind> Sink for HttpSink<K> {
    fn send<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Outcome> {
        Box::pin(async { self.attempt(batch).await.unwrap_or_else(Outcome::Failed) })
    }

    fn destination(&self, record: &Record) -> Result<Option<String>, Reason> {
        self.kind.destination(record, &self.secrets)
    }
}
