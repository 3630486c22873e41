//! The ground that the sinks over HTTP share: one client, one POST, and one reading of the answer.
//!
//! HTTP/1.1 only, with a connection for each request under way: a dead HTTP/2 connection is kept, and takes
//! all that it multiplexes along, where a dead HTTP/1.1 connection goes with its request.

mod client;
pub(super) mod compress;
mod connect;
mod status;

use std::{error::Error, fmt, time::Duration};

use ::http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri,
    header::{self, CONTENT_ENCODING, CONTENT_TYPE, Entry},
    uri::{Authority, Scheme},
};
use bytes::Bytes;
use http_body_util::Full;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use tokio::time::{Instant, timeout, timeout_at};

use self::{client::Client, connect::Route};
use super::{
    Compression, Proxy, Secret, SinkBuildError, TlsOptions, is_reserved_header, net_error,
    own_deadline, tls,
};
use crate::{
    bridge::{Failure, Secrets},
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
    /// The same without a port that the scheme implies, for the receiver.
    host: String,
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
        let named = uri.port_u16();
        let text = uri.authority().map_or("", Authority::as_str);
        if named.is_none() && !text.trim_end_matches(':').ends_with(host) {
            return Err(bad("not a URL: invalid port number"));
        }
        let peer = format!("{host}:{}", named.unwrap_or(port));
        let host = if named.is_none_or(|named| named == port) { host } else { &peer };
        let host = host.to_owned();
        Ok(Self { uri, peer, host })
    }

    /// Another path of its server, which goes by this name.
    fn with(&self, server: &str, path: &str) -> Result<Uri, SinkBuildError> {
        let scheme = self.uri.scheme_str().unwrap_or_default();
        let uri = Uri::builder().scheme(scheme).authority(server).path_and_query(path).build();
        uri.map_err(|e| SinkBuildError::Address { key: "url", reason: format!("not a URL: {e}") })
    }

    /// What it says of a user, as a header. It is written as in the address of a proxy.
    fn user(&self) -> Option<HeaderValue> {
        let read = Matcher::builder().all(self.uri.to_string()).build().intercept(&self.uri)?;
        read.basic_auth().cloned()
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
}

/// POSTs to one address.
pub(super) struct HttpPoster {
    client: Client,
    /// As it stands in the line of a request.
    target: Uri,
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
        let deadline = own_deadline(connecting.timeout);
        let tls = connecting.tls.cloned().unwrap_or_default();
        if *connecting.proxy != Proxy::None && tls.server_name.is_some() {
            return Err(SinkBuildError::Proxy(
                "cannot be together with tls.serverName; remove one of the two",
            ));
        }
        tls::check(&tls, address.uri.scheme())?;
        let route = Route {
            address: address.with(&address.peer, "/")?,
            proxy: connect::proxy_of(&address.uri, connecting.proxy)?,
            tls,
            // Before the whole attempt is over, so that the reason can tell the two apart.
            within: (deadline / 2).max(Duration::from_millis(1)),
            secrets: secrets.clone(),
        };
        // A request has some of its own, and the client adds one.
        headers.reserve(10);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        if let Some(encoding) = compress::content_encoding(compression) {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
        }
        let forwarding = route.forwarding_proxy();
        for (name, value) in [
            (header::HOST, HeaderValue::try_from(&address.host).ok()),
            (header::USER_AGENT, Some(HeaderValue::from_static(USER_AGENT))),
            (header::ACCEPT, Some(HeaderValue::from_static("*/*"))),
            (header::AUTHORIZATION, address.user()),
            (header::PROXY_AUTHORIZATION, forwarding.and_then(Intercept::basic_auth).cloned()),
        ] {
            if let (Entry::Vacant(place), Some(value)) = (headers.entry(name), value) {
                place.insert(value);
            }
        }
        let path = address.uri.path_and_query().cloned();
        let target = match (forwarding, path) {
            (Some(_), Some(path)) => address.with(&address.host, path.as_str())?,
            (_, path) => path.map(Uri::from).unwrap_or_default(),
        };
        let client = Client::new(route, connecting.max_age)?;
        let peer = address.peer.clone();
        Ok(Self { client, target, peer, headers, compression, secrets, deadline, success_bytes: 0 })
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
        let pool = self.client.pool().await;
        let request = || self.request(headers, body.clone());
        let sending = async {
            if let Some(mut used) = pool.used() {
                match used.send(request()).await {
                    Ok(answer) => return Ok((used, answer)),
                    Err(error) if net_error::is_cut(&error) => {
                        tracing::debug!(peer = self.peer, "a connection that was idle is gone");
                    }
                    Err(error) => return Err(self.failure(&error, true)),
                }
            }
            let mut new = pool.connect().await.map_err(|error| self.failure(&*error, false))?;
            let answer = new.send(request()).await.map_err(|error| self.failure(&error, true))?;
            Ok((new, answer))
        };
        let (mut connection, answer) = timeout_at(end, sending)
            .await
            .map_err(|_| net_error::silence(self.deadline, &self.peer, &self.secrets))??;
        let mut reply = Reply::new(answer.status(), answer.headers(), Vec::new());
        // The status decides; a body that is slow, huge or cut off can only cost the connection.
        let read = if reply.is_success() { self.success_bytes } else { REASON_BYTES };
        let wait = if reply.is_success() && read > 0 {
            end.saturating_duration_since(Instant::now())
        } else {
            BODY_WAIT
        };
        let reading = connection.read(answer.into_body(), read, &mut reply.body);
        if let Ok(true) = timeout(wait, reading).await {
            pool.keep(connection);
        }
        Ok(reply)
    }

    fn request(&self, own: &[(HeaderName, HeaderValue)], body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.target.clone();
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().extend(own.iter().cloned());
        request
    }

    fn failure(&self, error: &(dyn Error + 'static), connected: bool) -> Failure {
        net_error::to_failure(error, connected, &self.peer, &self.secrets)
    }
}

/// The end of an error's chain, which says what the rest only frames.
pub(super) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut current = error;
    while let Some(source) = current.source() {
        current = source;
    }
    current.to_string()
}
