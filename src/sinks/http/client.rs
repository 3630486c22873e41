//! The client of a sink over HTTP, which is made anew when its connections are old.

use std::{
    cell::Cell,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use reqwest::dns::Resolve;
use tokio::time::Instant;
use tower::util::MapRequestLayer;

use super::{
    super::{Proxy, SinkBuildError, TlsOptions},
    USER_AGENT, innermost,
};
use crate::bridge::Secrets;

/// For how long a connection is kept for the next request. Some servers close theirs after 5 s, and
/// a request that meets the close is lost without an answer, and [sent anew](super::HttpPoster::post).
const KEEP_IDLE: Duration = Duration::from_secs(4);

tokio::task_local! {
    /// Whether a connection was begun for the request that is being made.
    static DIALED: Cell<bool>;
}

/// Makes a request, and answers whether a connection was begun for it. One without had a connection
/// that was used before.
pub(super) async fn noting_dials<F: Future>(request: F) -> (F::Output, bool) {
    let noting = async {
        let answer = request.await;
        (answer, DIALED.with(Cell::get))
    };
    DIALED.scope(Cell::new(false), noting).await
}

/// How a client is made, however often.
pub(super) struct Setup {
    /// Whether it speaks TLS.
    pub(super) https: bool,
    pub(super) tls: TlsOptions,
    pub(super) proxy: Proxy,
    /// The source of the addresses of the URL's name, if it is not the system.
    pub(super) resolver: Option<Arc<dyn Resolve>>,
    pub(super) connect_timeout: Duration,
    /// For how long a connection is used.
    pub(super) max_age: Duration,
    /// How many requests may be under way at once.
    pub(super) concurrency: usize,
    pub(super) secrets: Secrets,
}

/// A client whose connections are no older than they may be.
pub(super) struct Client {
    setup: Arc<Setup>,
    /// The client of now, and since when it is that.
    current: Mutex<(reqwest::Client, Instant)>,
}

impl Client {
    pub(super) fn new(setup: Setup) -> Result<Self, SinkBuildError> {
        let current = Mutex::new((setup.client()?, Instant::now()));
        Ok(Self { setup: Arc::new(setup), current })
    }

    /// The client of now, however old.
    pub(super) fn now(&self) -> reqwest::Client {
        self.current().0.clone()
    }

    /// The client for a request. Once it is as old as a connection may be, another one takes its
    /// place, whose connections ask for the addresses of the name again; what is under way on the old
    /// one ends there.
    pub(super) async fn get(&self) -> reqwest::Client {
        {
            let mut current = self.current();
            if current.1.elapsed() < self.setup.max_age {
                return current.0.clone();
            }
            // Whoever else asks meanwhile does with the old one.
            current.1 = Instant::now();
        }
        // To read the system's certificates takes a while.
        let setup = Arc::clone(&self.setup);
        match tokio::task::spawn_blocking(move || setup.client()).await {
            Ok(Ok(client)) => self.current().0 = client,
            Ok(Err(error)) => tracing::warn!(%error, "old connections are used on"),
            Err(error) => tracing::warn!(%error, "old connections are used on"),
        }
        self.now()
    }

    fn current(&self) -> MutexGuard<'_, (reqwest::Client, Instant)> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Setup {
    fn client(&self) -> Result<reqwest::Client, SinkBuildError> {
        let mut builder = reqwest::Client::builder()
            .user_agent(USER_AGENT)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .http1_only()
            .tcp_nodelay(true)
            .tcp_keepalive(Duration::from_secs(30))
            .pool_idle_timeout(KEEP_IDLE)
            .pool_max_idle_per_host(self.concurrency)
            .connector_layer(MapRequestLayer::new(noted))
            .connect_timeout(self.connect_timeout);
        builder = match &self.proxy {
            Proxy::None => builder.no_proxy(),
            Proxy::Env => builder,
            Proxy::Url(url) => builder.proxy(
                reqwest::Proxy::all(url.expose())
                    .map_err(|_| SinkBuildError::Proxy("not the address of a proxy"))?,
            ),
        };
        if !self.https {
            // Without TLS the system's roots are not needed, and in a bare image there are none.
            builder = builder.tls_certs_only([]);
        } else if let Some(pem) = &self.tls.ca {
            let certificates = reqwest::Certificate::from_pem_bundle(pem)
                .map_err(|e| SinkBuildError::Tls { key: "ca", reason: innermost(&e) })?;
            builder = builder.tls_certs_only(certificates);
        }
        if let (Some(cert), Some(key)) = (&self.tls.cert, &self.tls.key) {
            let pem = [cert.as_slice(), b"\n", key.expose().as_bytes()].concat();
            let identity = reqwest::Identity::from_pem(&pem)
                .map_err(|e| SinkBuildError::Tls { key: "cert", reason: innermost(&e) })?;
            builder = builder.identity(identity);
        }
        if let Some(resolver) = &self.resolver {
            // A proxy would be asked for the name instead, so none is used.
            builder = builder.no_proxy().dns_resolver(Arc::clone(resolver));
        }
        builder.build().map_err(|e| SinkBuildError::Client(self.secrets.reason(innermost(&e))))
    }
}

/// Notes a wish for a connection, of a type that nobody can name, with the request that it is for: the
/// connector is called by that.
fn noted<T>(wish: T) -> T {
    let _ = DIALED.try_with(|dialed| dialed.set(true));
    wish
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use reqwest::dns::{Addrs, Name, Resolving};

    use super::*;
    use crate::sinks::test_server::TestServer;

    /// Answers every name with the address of now.
    struct Now(Arc<Mutex<SocketAddr>>);

    impl Resolve for Now {
        fn resolve(&self, _name: Name) -> Resolving {
            let address = *self.0.lock().unwrap();
            Box::pin(async move { Ok(Box::new(std::iter::once(address)) as Addrs) })
        }
    }

    #[tokio::test]
    async fn a_name_is_asked_for_its_addresses_again_once_a_connection_is_old() {
        let young = Duration::from_secs(3600);
        for (max_age, expected) in [(young, [3, 0]), (Duration::ZERO, [1, 2])] {
            let old = TestServer::always("200 OK", "", "").await;
            let new = TestServer::always("200 OK", "", "").await;
            let leads_to = Arc::new(Mutex::new(old.address));
            let client = Client::new(Setup {
                https: false,
                tls: TlsOptions::default(),
                proxy: Proxy::None,
                resolver: Some(Arc::new(Now(Arc::clone(&leads_to)))),
                connect_timeout: Duration::from_secs(5),
                max_age,
                concurrency: 1,
                secrets: Secrets::none(),
            })
            .unwrap();
            for _ in 0..3 {
                let sent =
                    client.get().await.post("http://receiver.invalid/").body("{}").send().await;
                // So that the connection can be used again.
                sent.unwrap().bytes().await.unwrap();
                *leads_to.lock().unwrap() = new.address;
            }
            let of = |server: &TestServer| server.received.lock().unwrap().len();
            assert_eq!([of(&old), of(&new)], expected, "{max_age:?}");
        }
    }
}
