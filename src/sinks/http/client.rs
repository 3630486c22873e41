//! The client of a sink over HTTP, which is made anew when its connections are old, and one exchange by it.

use std::{
    collections::BTreeMap,
    error::Error,
    fmt,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ::http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
    header::{self, CONTENT_TYPE},
};
use bytes::Bytes;
use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
    redirect,
};
use tokio::time::{Instant, timeout_at};

use super::{
    super::{Proxy, Secret, SinkBuildError, TlsOptions, own_deadline},
    HttpOptions, keys, net_error, status, tls,
};
use crate::{
    bridge::{Failure, FailureClass, Secrets, Status},
    document::Wrong,
    event::Batch,
};

/// How much of a refusing answer is read, for its reason.
pub(crate) const REASON_BYTES: usize = 4096;
/// How long a body that decides nothing may take, before its connection is given up instead.
pub(crate) const BODY_WAIT: Duration = Duration::from_millis(250);
/// The name that this program gives itself.
pub(crate) const USER_AGENT: &str = concat!("tidings/", env!("CARGO_PKG_VERSION"));

/// For how long a connection is kept for the next request. Some servers close theirs after 5 s, and
/// a request that meets the close is lost without an answer, and [sent anew](Client::send).
const KEEP_IDLE: Duration = Duration::from_secs(4);
/// How often a receiver over HTTP/2 is asked whether it is still there, and how long it may take to answer: all
/// requests are on one connection, and wait for one that is dead.
const PING: Duration = Duration::from_secs(5);

/// Reads a URL of the configuration, which stands at the end of these keys. The messages do not repeat it.
pub(crate) fn parse_url(keys: &[&str], text: &str) -> Result<Url, SinkBuildError> {
    let bad = |reason: String| SinkBuildError::at(keys, reason);
    keys::url(text).map_err(|wrong| bad(wrong.what))?;
    text.parse().map_err(|error| bad(format!("expected an address, found another text: {error}")))
}

/// The address of a path below another one.
#[cfg(any(feature = "elasticsearch", feature = "loki", feature = "splunk"))]
pub(crate) fn below(url: &Url, path: &[&str]) -> Url {
    let mut below = url.clone();
    // Every address of HTTP has a path.
    if let Ok(mut segments) = below.path_segments_mut() {
        segments.pop_if_empty().extend(path);
    }
    below
}

/// `host:port` of an address, for messages: without user, path and query, which may hold secrets.
pub(crate) fn peer(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    format!("{host}:{}", url.port_or_known_default().unwrap_or_default())
}

fn is_ipv6(url: &Url) -> bool {
    url.host_str().is_some_and(|host| host.starts_with('['))
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

/// One request.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Request {
    /// A POST of a body of a type.
    pub(crate) fn post(url: &Url, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        // Its own headers, those of the configuration, and those of the client.
        let mut headers = HeaderMap::with_capacity(16);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        Self { method: Method::POST, url: url.clone(), headers, body: body.into() }
    }

    /// Sets a header; a value that is none is left out.
    pub(crate) fn header(&mut self, name: HeaderName, value: impl TryInto<HeaderValue>) {
        if let Ok(value) = value.try_into() {
            self.headers.insert(name, value);
        }
    }
}

/// How much of the body of an answer is read.
#[derive(Clone, Copy)]
pub(crate) enum Reading {
    /// As much as the reason of a failure has room for: the status says all. A body that is slow, huge or cut off can
    /// only cost the connection.
    Status,
    /// The start, of so many bytes, as far as it comes in time.
    Start(usize),
    /// All of it, without which the answer says nothing. Of a longer one than so many bytes the start.
    Whole(usize),
}

/// An answer to a request.
#[derive(Debug)]
pub(crate) struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    /// The start of the body.
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn new(status: StatusCode, headers: HeaderMap, body: Vec<u8>) -> Self {
        Self { status, headers, body }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn is_success(&self) -> bool {
        self.status.is_success()
    }

    /// The values of a header that are text.
    #[cfg(feature = "splunk")]
    pub(crate) fn header_values(&self, name: &HeaderName) -> impl Iterator<Item = &str> {
        self.headers.get_all(name).iter().filter_map(|value| value.to_str().ok())
    }

    /// The start of the body, as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The variables of an expression over answers: `status`, `headers` and `body`, which is null where it is no JSON,
    /// or longer than so many bytes.
    pub(crate) fn variables(&self, most: usize) -> Vec<u8> {
        let mut headers = BTreeMap::<&str, String>::new();
        for (name, value) in &self.headers {
            let value = String::from_utf8_lossy(value.as_bytes());
            let all = headers.entry(name.as_str()).or_default();
            *all = if all.is_empty() { value.into_owned() } else { format!("{all}, {value}") };
        }
        let body = if self.body.len() > most { &[] } else { &*self.body };
        let body: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        let status = self.status.as_u16();
        serde_json::json!({ "status": status, "headers": headers, "body": body }).to_string().into()
    }

    /// The failure that an answer other than 2xx to a batch is; `words` is what the body says.
    pub(crate) fn failure(&self, words: &str, sent: &Batch, secrets: &Secrets) -> Failure {
        let location = self.headers.get(header::LOCATION).filter(|_| self.status.is_redirection());
        // What the body of a redirect says is that it is one.
        let location = location.map(status::points_to);
        let words = location.as_deref().unwrap_or(words);
        status::to_failure(self.status, self.retry_after(), words, &sent.records, secrets)
    }

    /// The failure that an answer is whose status does not say what it means.
    pub(crate) fn failure_of(&self, class: FailureClass, secrets: &Secrets) -> Failure {
        let after = self.retry_after().filter(|_| class == FailureClass::Throttled);
        let reason = secrets.reason(status::words(self.status, &self.text()));
        let status = Status::Http(self.status.as_u16());
        Failure { status, after, ..Failure::new(class, reason) }
    }

    fn retry_after(&self) -> Option<Duration> {
        self.headers.get(header::RETRY_AFTER).and_then(status::retry_after)
    }
}

/// A client for one server, whose connections are no older than they may be.
pub(crate) struct Client {
    setup: Arc<Setup>,
    deadline: Duration,
    /// The client of now, and since when it is that.
    current: Mutex<(reqwest::Client, Instant)>,
}

/// The authorities that a client trusts where `tls.ca` names some.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Those alone.
    Only,
    /// The system's, too.
    AlsoSystem,
}

/// How a client is made, however often.
struct Setup {
    options: HttpOptions,
    trust: Trust,
    /// The address of the server.
    url: Url,
    secrets: Secrets,
}

impl Client {
    /// Sets up the client for the server of an address; nothing is connected yet.
    pub(crate) fn new(
        options: &HttpOptions,
        url: &Url,
        trust: Trust,
        secrets: &Secrets,
    ) -> Result<Self, SinkBuildError> {
        if options.proxy != Proxy::None && url.scheme() == "https" && is_ipv6(url) {
            // The client takes the brackets of the address for part of the name in the certificate.
            let reason = "expected a host by its name behind a proxy, found an IPv6 address";
            return Err(SinkBuildError::at(&["proxy"], reason));
        }
        if let Some(tls) = &options.tls {
            tls::check(tls, url.scheme() == "https")?;
            if options.proxy != Proxy::None && tls.server_name.is_some() {
                let reason = "cannot be together with tls.serverName; remove one of the two";
                return Err(SinkBuildError::at(&["proxy"], reason));
            }
        }
        let (options, url, deadline) =
            (options.clone(), url.clone(), own_deadline(options.timeout));
        let setup = Setup { options, trust, url, secrets: secrets.clone() };
        let current = Mutex::new((setup.client()?, Instant::now()));
        Ok(Self { setup: Arc::new(setup), deadline, current })
    }

    /// The end of an attempt that begins now.
    pub(crate) fn end(&self) -> Instant {
        Instant::now() + self.deadline
    }

    /// Sends one request, and waits for its answer until the end of the attempt. An answer of any status is a
    /// reply; no answer is a failure.
    ///
    /// A receiver may close a connection that is idle at the moment of the next request. So a request
    /// whose connection ends without an answer is sent again at once, once. Should the first have
    /// arrived, it arrives again under the same ids.
    pub(crate) async fn send(
        &self,
        request: Request,
        reads: impl Fn(StatusCode) -> Reading,
        end: Instant,
    ) -> Result<Reply, Failure> {
        let within = end.saturating_duration_since(Instant::now());
        // In whole milliseconds, for a person.
        let within = within + Duration::from_micros(500);
        let within = Duration::from_millis(within.as_millis() as u64);
        let silence = || net_error::silence(within, &peer(&self.setup.url), &self.setup.secrets);
        let request = self.setup.request(request);
        let sending = async {
            let client = self.get().await;
            let again = request.try_clone();
            match (client.execute(request).await, again) {
                (Err(error), Some(again)) if net_error::is_cut(&error) && !error.is_connect() => {
                    tracing::debug!(peer = peer(&self.setup.url), "a connection is gone");
                    client.execute(again).await
                }
                (answer, _) => answer,
            }
        };
        let mut response = match timeout_at(end, sending).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(self.failure(error)),
            Err(_) => return Err(silence()),
        };
        let headers = std::mem::take(response.headers_mut());
        let mut reply = Reply::new(response.status(), headers, Vec::new());
        let reading = reads(reply.status);
        let (most, until) = match reading {
            Reading::Status if reply.is_success() => (0, Instant::now() + BODY_WAIT),
            Reading::Status => (REASON_BYTES, Instant::now() + BODY_WAIT),
            Reading::Start(most) | Reading::Whole(most) => (most, end),
        };
        let read = timeout_at(until, read_body(response, most, &mut reply.body)).await;
        match (reading, read) {
            (Reading::Whole(_), Ok(Err(error))) => Err(self.failure(error)),
            (Reading::Whole(_), Err(_)) => Err(silence()),
            _ => Ok(reply),
        }
    }

    /// The client for a request. Once it is as old as a connection may be, another one takes its
    /// place, whose connections ask for the addresses of the name again; what is under way on the old
    /// one ends there.
    async fn get(&self) -> reqwest::Client {
        {
            let mut current = self.current();
            if current.1.elapsed() < self.setup.options.connection_max_age {
                return current.0.clone();
            }
            // Whoever else asks meanwhile does with the old one.
            current.1 = Instant::now();
        }
        let old_ones_stay = |error: &dyn fmt::Display| {
            tracing::warn!(%error, "connections cannot be renewed: the old ones stay in use");
        };
        // To read the system's certificates takes a while.
        let setup = Arc::clone(&self.setup);
        match tokio::task::spawn_blocking(move || setup.client()).await {
            Ok(Ok(client)) => self.current().0 = client,
            Ok(Err(error)) => old_ones_stay(&error),
            Err(error) => old_ones_stay(&error),
        }
        self.current().0.clone()
    }

    fn current(&self) -> MutexGuard<'_, (reqwest::Client, Instant)> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failure(&self, error: reqwest::Error) -> Failure {
        let peer = peer(&self.setup.url);
        // The URL may hold secrets.
        let error = error.without_url();
        if error.is_timeout() && error.is_connect() {
            let reason = format_args!("no connection to {peer} in time");
            return Failure::new(FailureClass::Timeout, self.setup.secrets.reason(reason));
        }
        net_error::to_failure(&error, !error.is_connect(), &peer, &self.setup.secrets)
    }
}

impl Setup {
    /// Reads the certificates, those of the system too; nothing is connected yet.
    fn client(&self) -> Result<reqwest::Client, SinkBuildError> {
        let HttpOptions { tls, proxy, timeout, .. } = &self.options;
        let deadline = own_deadline(*timeout);
        let mut builder = reqwest::Client::builder()
            .user_agent(USER_AGENT)
            .redirect(redirect::Policy::none())
            .referer(false)
            .pool_idle_timeout(KEEP_IDLE)
            .http2_keep_alive_interval(PING)
            .http2_keep_alive_timeout(PING)
            // Before the whole attempt is over, so that the reason can tell the two apart.
            .connect_timeout((deadline / 2).max(Duration::from_millis(1)));
        builder = match proxy {
            Proxy::None => builder.no_proxy(),
            Proxy::Env => builder,
            Proxy::Url(url) => builder.proxy(reqwest::Proxy::all(url.expose()).map_err(|_| {
                SinkBuildError::at(&["proxy"], "expected the address of a proxy, found another")
            })?),
        };
        let secure = |(_, url): &(_, String)| url.starts_with("https://");
        if self.url.scheme() == "http" && !proxy.addresses().iter().any(secure) {
            // Without TLS the system's roots are not needed, and in a bare image there are none.
            builder = builder.tls_certs_only([]);
        }
        if let Some(pem) = tls.as_ref().and_then(|tls| tls.ca.as_ref()) {
            let certificates = reqwest::Certificate::from_pem_bundle(pem);
            let certificates = certificates.map_err(|e| tls::bad("ca", innermost(&e)))?;
            builder = match self.trust {
                Trust::Only => builder.tls_certs_only(certificates),
                Trust::AlsoSystem => builder.tls_certs_merge(certificates),
            };
        }
        if let Some((cert, key)) = tls.as_ref().map_or(Ok(None), TlsOptions::identity)? {
            let pem = [cert, b"\n", key.expose().as_bytes()].concat();
            let identity = reqwest::Identity::from_pem(&pem);
            builder = builder.identity(identity.map_err(|e| tls::bad("cert", innermost(&e)))?);
        }
        if self.server_name().is_some() {
            let host = self.url.host_str().unwrap_or_default();
            builder = builder.http1_only().dns_resolver(Alias::new(host));
        }
        builder.build().map_err(|error| client_refuses(&self.secrets, &error))
    }

    /// The name that the server's certificate has to carry, where it is not the host's.
    fn server_name(&self) -> Option<&str> {
        self.options.tls.as_ref()?.server_name.as_deref()
    }

    /// A request as the client takes it.
    ///
    /// The client takes the name for TLS from the URL and offers no other place for it. So the URL
    /// gets the name, resolving it yields the real host's addresses, and the `Host` header stays what
    /// it was.
    fn request(&self, mut request: Request) -> reqwest::Request {
        if let Some(name) = self.server_name() {
            let host = request.url.host_str().unwrap_or_default();
            let host = request.url.port().map_or(host.to_owned(), |port| format!("{host}:{port}"));
            request.header(header::HOST, host);
            // It is a DNS name: that was checked.
            let _ = request.url.set_host(Some(name));
        }
        let mut sent = reqwest::Request::new(request.method, request.url);
        *sent.headers_mut() = request.headers;
        *sent.body_mut() = Some(request.body.into());
        sent
    }
}

/// A resolver that answers every name with the addresses of one host.
struct Alias(Arc<str>);

impl Alias {
    /// `host` as it stands in a URL: a name, an IPv4 address, or an IPv6 address in brackets.
    fn new(host: &str) -> Self {
        Self(host.trim_start_matches('[').trim_end_matches(']').into())
    }
}

impl Resolve for Alias {
    fn resolve(&self, _name: Name) -> Resolving {
        let host = Arc::clone(&self.0);
        Box::pin(async move {
            if let Ok(ip) = host.parse::<IpAddr>() {
                return Ok(Box::new(std::iter::once(SocketAddr::new(ip, 0))) as Addrs);
            }
            // Port 0 stands for the URL's.
            let addresses: Vec<_> = tokio::net::lookup_host((&*host, 0)).await?.collect();
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// Reads at most `limit` bytes into `body`. What was read when the caller loses patience stays.
///
/// An end that comes within one buffer more is read too: it sets the connection free for the next
/// request.
async fn read_body(
    mut response: reqwest::Response,
    limit: usize,
    body: &mut Vec<u8>,
) -> reqwest::Result<()> {
    let mut drained = 0;
    while let Some(chunk) = response.chunk().await? {
        let wanted = limit.saturating_sub(body.len()).min(chunk.len());
        body.extend_from_slice(&chunk[..wanted]);
        drained += chunk.len();
        if drained > limit.max(REASON_BYTES) {
            break;
        }
    }
    Ok(())
}

/// The end of an error's chain, which says what the rest only frames.
pub(crate) fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut current = error;
    while let Some(source) = current.source() {
        current = source;
    }
    current.to_string()
}

/// An objection of the HTTP or gRPC client to the options.
pub(crate) fn client_refuses(secrets: &Secrets, error: &(dyn Error + 'static)) -> SinkBuildError {
    let reason = secrets.reason(innermost(error));
    SinkBuildError::at(&[], format_args!("cannot set up the client: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidings_testkit::receiver::HttpReceiver;

    #[tokio::test]
    async fn a_connection_is_used_until_it_is_old() {
        let young = Duration::from_hours(1);
        for (max_age, expected) in [(young, [0, 0, 0]), (Duration::ZERO, [0, 1, 2])] {
            let server = HttpReceiver::always("200 OK", "", "").unwrap();
            let url = parse_url(&["url"], &server.url("http")).unwrap();
            let options =
                HttpOptions { connection_max_age: max_age, ..HttpOptions::new(url.as_str()) };
            let client = Client::new(&options, &url, Trust::Only, &Secrets::none()).unwrap();
            for _ in 0..3 {
                let (request, end) = (Request::post(&url, "text/plain", "x"), client.end());
                client.send(request, |_| Reading::Status, end).await.unwrap();
            }
            let received = server.received();
            let connections: Vec<_> = received.iter().map(|request| request.connection).collect();
            assert_eq!(connections, expected, "{max_age:?}");
        }
    }
}
