//! A sink over HTTP: one request for each batch, and what its answer means.

use ::http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{AUTHORIZATION, CONTENT_ENCODING},
};
use futures_util::future::BoxFuture;
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
    bridge::{Failure, Outcome, Reason, Secrets, Sink},
    event::{Batch, Record},
    sinks::{Compression, SinkBuildError},
};

/// The two questions that a kind of sink over HTTP answers.
pub(crate) trait HttpKind: Send + Sync + 'static {
    /// How much is read of an answer of this status.
    fn reads(&self, status: StatusCode) -> Reading {
        let _ = status;
        Reading::Status
    }

    /// The request for a batch. The body is not compressed yet.
    fn request(&self, batch: &Batch, secrets: &Secrets) -> Result<Request, Failure>;

    /// The destination that a template makes of a record; see [`Sink::destination`].
    fn destination(&self, record: &Record, secrets: &Secrets) -> Result<Option<String>, Reason> {
        let _ = (record, secrets);
        Ok(None)
    }

    /// Adds headers that depend on the body, as it is sent and, where that is compressed, as it was before.
    fn sign(&self, headers: &mut HeaderMap, bodies: &[&[u8]]) {
        let _ = (headers, bodies);
    }

    /// The outcome that an answer to a batch states.
    fn outcome(&self, reply: &Reply, sent: &Batch, secrets: &Secrets) -> Outcome {
        if reply.is_success() {
            return Outcome::Delivered;
        }
        Outcome::Failed(reply.failure(&reply.text(), sent, secrets))
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

    /// The request for a batch, with all that it is sent with but a token that has to be asked for.
    pub(crate) async fn prepare(&self, batch: &Batch) -> Result<Request, Failure> {
        let mut request = self.kind.request(batch, &self.secrets)?;
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
        let request = self.prepare(batch).await?;
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

    pub(crate) fn secrets(&self) -> &Secrets {
        &self.secrets
    }
}

#[cfg(feature = "loki")]
impl<K: HttpKind> HttpSink<K> {
    pub(crate) fn kind(&self) -> &K {
        &self.kind
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
