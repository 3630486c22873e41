//! The ground that the sinks over HTTP share: one client, one POST, and one reading of the answer.
//!
//! HTTP/1.1 only, with a connection for each request under way: a dead HTTP/2 connection is kept, and takes
//! all that it multiplexes along, where a dead HTTP/1.1 connection goes with its request.

mod client;
pub(super) mod compress;
mod dns;
mod status;

use std::{fmt, sync::Arc, time::Duration};

use ::http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri,
    header::{self, CONTENT_ENCODING, CONTENT_TYPE},
    uri::Scheme,
};
use bytes::Bytes;
use reqwest::dns::Resolve;
use tokio::time::{Instant, timeout, timeout_at};

use self::client::{Client, Setup, noting_dials};
use super::{
    Compression, Proxy, Secret, SinkBuildError, TlsOptions, is_reserved_header, net_error,
    own_deadline, tls,
};
use crate::{
    bridge::{Failure, FailureClass, Secrets},
    event::Batch,
};

/// How much of a refusing answer is read, for its reason.
pub(super) const REASON_BYTES: usize = 4096;
/// How long a body that decides nothing may take, before its connection is given up instead.
pub(super) const BODY_WAIT: Duration = Duration::from_millis(250);
/// The name that this program gives itself.
pub(super) const USER_AGENT: &str = concat!("tidings/", env!("CARGO_PKG_VERSION"));

/// The parts of an address.
pub(super) struct Address {
    pub(super) uri: Uri,
    /// `host:port`, for messages: without user, path and query, which may hold secrets.
    pub(super) peer: String,
}

impl Address {
    /// Reads a URL of a key of the configuration. The messages do not repeat it.
    pub(super) fn parse(key: &'static str, url: &str) -> Result<Self, SinkBuildError> {
        let bad = |reason: &str| SinkBuildError::Address { key, reason: reason.into() };
        if !url.contains("://") {
            return Err(bad("not a URL; write http:// or https:// in front"));
        }
        let uri: Uri = url.parse().map_err(|e| bad(&format!("not a URL: {e}")))?;
        let port = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => 80,
            Some(scheme) if *scheme == Scheme::HTTPS => 443,
            _ => return Err(bad("neither http:// nor https://")),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| bad("has no host"))?;
        let peer = format!("{host}:{}", uri.port_u16().unwrap_or(port));
        Ok(Self { uri, peer })
    }
}

/// Reads configured headers; their values are marked as secrets.
pub(super) fn headers(configured: &[(String, Secret)]) -> Result<HeaderMap, SinkBuildError> {
    let mut headers = HeaderMap::new();
    for (name, value) in configured {
        let bad =
            |reason: &str| SinkBuildError::Header { name: name.clone(), reason: reason.into() };
        let parsed: HeaderName = name.parse().map_err(|_| bad("not the name of a header"))?;
        if is_reserved_header(parsed.as_str()) {
            return Err(bad("is set by the bridge"));
        }
        let mut value = HeaderValue::from_str(value.expose())
            .map_err(|_| bad("its value has characters that a header cannot carry"))?;
        value.set_sensitive(true);
        headers.append(parsed, value);
    }
    Ok(headers)
}

/// A receiver's answer.
#[derive(Debug)]
pub(super) struct Reply {
    status: StatusCode,
    retry_after: Option<Duration>,
    /// Where a redirect points to.
    location: Option<HeaderValue>,
    /// The start of the body.
    pub(super) body: Vec<u8>,
}

impl Reply {
    pub(super) fn new(status: StatusCode, headers: &HeaderMap, body: Vec<u8>) -> Self {
        let retry_after = headers.get(header::RETRY_AFTER).and_then(status::retry_after);
        let location = headers.get(header::LOCATION).cloned();
        Self { status, retry_after, location: location.filter(|_| status.is_redirection()), body }
    }

    /// Whether the receiver took it.
    pub(super) fn is_success(&self) -> bool {
        self.status.is_success()
    }

    /// The failure that an answer other than 2xx to a batch is; `words` is what the body says.
    pub(super) fn failure(&self, words: &str, sent: &Batch, secrets: &Secrets) -> Failure {
        // What the body of a redirect says is that it is one.
        let location = self.location.as_ref().map(status::points_to);
        let words = location.as_deref().unwrap_or(words);
        status::to_failure(self.status, self.retry_after, words, sent, secrets)
    }
}

/// How a sink over HTTP connects.
pub(super) struct Connecting<'a> {
    pub(super) tls: Option<&'a TlsOptions>,
    pub(super) proxy: &'a Proxy,
    /// How long one attempt may take.
    pub(super) timeout: Duration,
    /// For how long a connection is used.
    pub(super) max_age: Duration,
    /// How many requests may be under way at once.
    pub(super) concurrency: usize,
}

/// POSTs to one address.
pub(super) struct HttpPoster {
    client: Client,
    url: reqwest::Url,
    peer: String,
    /// Those of every request.
    headers: HeaderMap,
    compression: Compression,
    secrets: Secrets,
    deadline: Duration,
    /// How much of a 2xx answer is read; 0: it is only drained, for the connection's sake.
    pub(super) success_bytes: usize,
}

impl fmt::Debug for HttpPoster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may hold secrets, and so may what the client knows.
        f.debug_struct("HttpPoster").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl HttpPoster {
    /// Sets up the client; `headers` go with every request, which has a body of this type.
    pub(super) fn new(
        address: &Address,
        connecting: &Connecting<'_>,
        content_type: &'static str,
        mut headers: HeaderMap,
        compression: Compression,
        secrets: Secrets,
    ) -> Result<Self, SinkBuildError> {
        let mut url = reqwest::Url::parse(&address.uri.to_string()).map_err(|e| {
            SinkBuildError::Address { key: "url", reason: format!("not a URL: {e}") }
        })?;
        let deadline = own_deadline(connecting.timeout);
        let tls = connecting.tls.cloned().unwrap_or_default();
        if *connecting.proxy != Proxy::None && tls.server_name.is_some() {
            return Err(SinkBuildError::Proxy(
                "cannot be together with tls.serverName; remove one of the two",
            ));
        }
        tls::check(&tls, address.uri.scheme())?;
        let name = tls.server_name.as_deref();
        let host = name.map(|name| rename(&mut url, &mut headers, name)).transpose()?;
        let client = Client::new(Setup {
            https: address.uri.scheme() == Some(&Scheme::HTTPS),
            tls,
            proxy: connecting.proxy.clone(),
            resolver: host.map(|host| Arc::new(dns::Alias::new(&host)) as Arc<dyn Resolve>),
            // Before the whole attempt is over, so that the reason can tell the two apart.
            connect_timeout: (deadline / 2).max(Duration::from_millis(1)),
            max_age: connecting.max_age,
            concurrency: connecting.concurrency,
            secrets: secrets.clone(),
        })?;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        if let Some(encoding) = compress::content_encoding(compression) {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
        }
        // The client makes a header of what the URL says of a user.
        let request = client.now().post(url).headers(headers).build();
        let request = request.map_err(|e| SinkBuildError::Client(secrets.reason(innermost(&e))))?;
        let (url, headers) = (request.url().clone(), request.headers().clone());
        let peer = address.peer.clone();
        Ok(Self { client, url, peer, headers, compression, secrets, deadline, success_bytes: 0 })
    }

    /// The secrets that no reason may hold.
    pub(super) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// One POST. An answer of any status is a reply; no answer is a failure.
    ///
    /// A receiver may close a connection that is idle at the moment of the next request. So one that
    /// was used before and ends without an answer says nothing of the receiver, and the request is
    /// sent again at once, on a new one. Should the first have arrived, it arrives again under the
    /// same ids.
    pub(super) async fn post(&self, body: Bytes) -> Result<Reply, Failure> {
        let body = self.compress(body).await?;
        self.post_compressed(&[], body).await
    }

    /// A body as it is to be sent.
    pub(super) async fn compress(&self, body: Bytes) -> Result<Bytes, Failure> {
        compress::compress(self.compression, body).await
    }

    /// One POST of what [`compress`](Self::compress) made, with headers of its own.
    pub(super) async fn post_compressed(
        &self,
        headers: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> Result<Reply, Failure> {
        let end = Instant::now() + self.deadline;
        let client = self.client.get().await;
        // Not by the client's builder, which copies the headers twice.
        let request = || {
            let mut request = reqwest::Request::new(Method::POST, self.url.clone());
            *request.headers_mut() = self.headers_with(headers);
            *request.body_mut() = Some(body.clone().into());
            client.execute(request)
        };
        let sending = async {
            match noting_dials(request()).await {
                (Err(error), false) if net_error::is_cut(&error) => {
                    tracing::debug!(peer = self.peer, "a connection that was idle is gone");
                    request().await
                }
                (answer, _) => answer,
            }
        };
        let response = match timeout_at(end, sending).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(self.failure(error)),
            Err(_) => return Err(net_error::silence(self.deadline, &self.peer, &self.secrets)),
        };
        let mut reply = Reply::new(response.status(), response.headers(), Vec::new());
        // The status decides; a body that is slow, huge or cut off can only cost the connection.
        let read = if reply.is_success() { self.success_bytes } else { REASON_BYTES };
        let wait = if reply.is_success() && read > 0 {
            end.saturating_duration_since(Instant::now())
        } else {
            BODY_WAIT
        };
        let _ = timeout(wait, read_body(response, read, &mut reply.body)).await;
        Ok(reply)
    }

    /// The headers of one request.
    fn headers_with(&self, own: &[(HeaderName, HeaderValue)]) -> HeaderMap {
        // The client adds two.
        let mut headers = HeaderMap::with_capacity(self.headers.len() + own.len() + 2);
        headers.extend(self.headers.iter().map(|(name, value)| (name.clone(), value.clone())));
        headers.extend(own.iter().cloned());
        headers
    }

    fn failure(&self, error: reqwest::Error) -> Failure {
        // The URL may hold secrets.
        let error = error.without_url();
        if error.is_timeout() && error.is_connect() {
            let reason = format_args!("no connection to {} in time", self.peer);
            return Failure::new(FailureClass::Timeout, self.secrets.reason(reason));
        }
        net_error::to_failure(&error, !error.is_connect(), &self.peer, &self.secrets)
    }
}

/// Reads at most `limit` bytes into `body`. What was read when the caller loses patience stays.
///
/// An end that comes within one buffer more is read too: it sets the connection free for the next
/// request.
async fn read_body(mut response: reqwest::Response, limit: usize, body: &mut Vec<u8>) {
    let mut drained = 0;
    while let Ok(Some(chunk)) = response.chunk().await {
        let wanted = limit.saturating_sub(body.len()).min(chunk.len());
        body.extend_from_slice(&chunk[..wanted]);
        drained += chunk.len();
        if drained > limit.max(REASON_BYTES) {
            return;
        }
    }
}

/// Makes the client ask for, and insist on, the certificate of another name than the host's, and
/// answers the host.
///
/// The client takes the name for TLS from the URL and offers no other place for it. So the URL
/// gets the name, resolving it yields the real host's addresses, and the `Host` header stays what
/// it was.
fn rename(
    url: &mut reqwest::Url,
    headers: &mut HeaderMap,
    name: &str,
) -> Result<String, SinkBuildError> {
    let bad = |reason: &str| SinkBuildError::Tls { key: "serverName", reason: reason.into() };
    let host = url.host_str().unwrap_or_default().to_owned();
    let authority = url.port().map_or_else(|| host.clone(), |port| format!("{host}:{port}"));
    let value = HeaderValue::from_str(&authority).map_err(|_| bad("the host is not ASCII"))?;
    headers.insert(header::HOST, value);
    url.set_host(Some(name)).map_err(|_| bad("not a host name"))?;
    Ok(host)
}

/// The end of an error's chain, which says what the rest only frames.
pub(super) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut current = error;
    while let Some(source) = current.source() {
        current = source;
    }
    current.to_string()
}
