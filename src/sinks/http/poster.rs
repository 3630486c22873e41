//! One POST over HTTP, and the reading of its answer.
//!
//! HTTP/1.1 only, with a connection for each request under way: a dead HTTP/2 connection is kept, and takes
//! all that it multiplexes along, where a dead HTTP/1.1 connection goes with its request.

use std::{error::Error, fmt, time::Duration};

use ::http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri,
    header::{self, CONTENT_ENCODING, CONTENT_TYPE, Entry},
    uri::Scheme,
};
use bytes::Bytes;
use http_body_util::Full;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    super::{Compression, Proxy, Secret, SinkBuildError, own_deadline},
    HttpOptions,
    client::Client,
    compress,
    connect::{self, Route},
    keys, net_error, status, tls,
};
use crate::{
    bridge::{Failure, Secrets},
    document::Wrong,
    event::Batch,
};

/// How much of a refusing answer is read, for its reason.
pub(crate) const REASON_BYTES: usize = 4096;
/// How long a body that decides nothing may take, before its connection is given up instead.
pub(crate) const BODY_WAIT: Duration = Duration::from_millis(250);
/// The name that this program gives itself.
pub(crate) const USER_AGENT: &str = concat!("tidings/", env!("CARGO_PKG_VERSION"));

/// The parts of an address.
pub(crate) struct Address {
    pub(crate) uri: Uri,
    /// `host:port`, for messages: without user, path and query, which may hold secrets.
    pub(crate) peer: String,
    /// The same without a port that the scheme implies, for the receiver.
    host: String,
}

impl Address {
    /// Reads a URL of a key of the configuration. The messages do not repeat it.
    pub(crate) fn parse(key: &'static str, url: &str) -> Result<Self, SinkBuildError> {
        let bad = |wrong: Wrong| SinkBuildError::at(&[key], wrong.what);
        let uri = keys::address(url).map_err(bad)?;
        let port = if uri.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
        let (host, named) = (uri.host().unwrap_or_default(), uri.port_u16());
        let peer = format!("{host}:{}", named.unwrap_or(port));
        let host = if named.is_none_or(|named| named == port) { host } else { &peer };
        let host = host.to_owned();
        Ok(Self { uri, peer, host })
    }

    /// Another path of its server, which goes by this name.
    fn with(&self, server: &str, path: &str) -> Result<Uri, SinkBuildError> {
        let scheme = self.uri.scheme_str().unwrap_or_default();
        let uri = Uri::builder().scheme(scheme).authority(server).path_and_query(path).build();
        uri.map_err(|e| SinkBuildError::at(&[], format_args!("expected an address: {e}")))
    }

    /// The user and password that it has, as a header. They are read as in the address of a proxy.
    fn user(&self) -> Option<HeaderValue> {
        let read = Matcher::builder().all(self.uri.to_string()).build().intercept(&self.uri)?;
        read.basic_auth().cloned()
    }
}

/// Reads configured headers; their values are marked as secrets.
pub(crate) fn headers(
    configured: &[(String, Secret)],
    grpc: bool,
) -> Result<HeaderMap, SinkBuildError> {
    let mut headers = HeaderMap::new();
    for (name, value) in configured {
        let bad = |wrong: Wrong| SinkBuildError::at(&["headers", name], wrong.what);
        let name = keys::header_name(name, grpc).map_err(bad)?;
        headers.append(name, keys::header_value(value.expose()).map_err(bad)?);
    }
    Ok(headers)
}

#[derive(Debug)]
pub(crate) struct Reply {
    status: StatusCode,
    retry_after: Option<Duration>,
    /// Where a redirect points to.
    location: Option<HeaderValue>,
    /// The start of the body.
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn new(status: StatusCode, headers: &HeaderMap, body: Vec<u8>) -> Self {
        let retry_after = headers.get(header::RETRY_AFTER).and_then(status::retry_after);
        let location = headers.get(header::LOCATION).cloned();
        Self { status, retry_after, location: location.filter(|_| status.is_redirection()), body }
    }

    pub(crate) fn is_success(&self) -> bool {
        self.status.is_success()
    }

    /// The failure that an answer other than 2xx to a batch is; `words` is what the body says.
    pub(crate) fn failure(&self, words: &str, sent: &Batch, secrets: &Secrets) -> Failure {
        // What the body of a redirect says is that it is one.
        let location = self.location.as_ref().map(status::points_to);
        let words = location.as_deref().unwrap_or(words);
        status::to_failure(self.status, self.retry_after, words, sent, secrets)
    }
}

/// POSTs to one address.
pub(crate) struct HttpPoster {
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
    pub(crate) success_bytes: usize,
}

impl fmt::Debug for HttpPoster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may hold secrets, and so may what the client knows.
        f.debug_struct("HttpPoster").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl HttpPoster {
    /// Sets up the client for an address, which may be more than that of the options, and bodies of this type.
    pub(crate) fn new(
        address: &Address,
        options: &HttpOptions,
        content_type: &'static str,
        secrets: Secrets,
    ) -> Result<Self, SinkBuildError> {
        let mut headers = headers(&options.headers, false)?;
        let deadline = own_deadline(options.timeout);
        let tls = options.tls.clone().unwrap_or_default();
        if options.proxy != Proxy::None && tls.server_name.is_some() {
            let reason = "cannot be together with tls.serverName; remove one of the two";
            return Err(SinkBuildError::at(&["proxy"], reason));
        }
        tls::check(&tls, address.uri.scheme())?;
        let route = Route {
            address: address.with(&address.peer, "/")?,
            proxy: connect::proxy_of(&address.uri, &options.proxy)?,
            tls,
            // Before the whole attempt is over, so that the reason can tell the two apart.
            within: (deadline / 2).max(Duration::from_millis(1)),
            secrets: secrets.clone(),
        };
        // A request has some of its own, and the client adds one.
        headers.reserve(10);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        if let Some(encoding) = compress::content_encoding(options.compression) {
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
        let client = Client::new(route, options.connection_max_age)?;
        let compression = options.compression;
        let peer = address.peer.clone();
        Ok(Self { client, target, peer, headers, compression, secrets, deadline, success_bytes: 0 })
    }

    /// The secrets that no reason may hold.
    pub(crate) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// One POST. An answer of any status is a reply; no answer is a failure.
    ///
    /// A receiver may close a connection that is idle at the moment of the next request. So one that
    /// was used before and ends without an answer says nothing of the receiver, and the request is
    /// sent again at once, on a new one. Should the first have arrived, it arrives again under the
    /// same ids.
    pub(crate) async fn post(&self, body: Bytes) -> Result<Reply, Failure> {
        let body = self.compress(body).await?;
        self.post_compressed(&[], body).await
    }

    /// A body as it is to be sent.
    pub(crate) async fn compress(&self, body: Bytes) -> Result<Bytes, Failure> {
        compress::compress(self.compression, body).await
    }

    /// One POST of what [`compress`](Self::compress) made, with headers of its own.
    pub(crate) async fn post_compressed(
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
pub(crate) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut current = error;
    while let Some(source) = current.source() {
        current = source;
    }
    current.to_string()
}

/// An objection of the HTTP or gRPC client to the options.
pub(crate) fn client_refuses(
    secrets: &Secrets,
    error: &(dyn std::error::Error + 'static),
) -> SinkBuildError {
    let reason = secrets.reason(innermost(error));
    SinkBuildError::at(&[], format_args!("cannot set up the client: {reason}"))
}
