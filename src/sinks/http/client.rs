//! The connections of a sink over HTTP: one for each request under way, kept for the next request, and
//! made anew when they are old.
//!
//! A connection has no task of its own: it goes on while its request is waited for.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak},
    time::Duration,
};

use ::http::{Request, Response};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, client::conn::http1};
use tokio::time::{Instant, sleep, timeout};

use super::{
    super::SinkBuildError,
    BODY_WAIT, REASON_BYTES,
    connect::{BoxError, Connector, Route, Stream},
};

/// For how long a connection is kept for the next request. Some servers close theirs after 5 s, and
/// a request that meets the close is lost without an answer, and [sent anew](super::HttpPoster::post).
const KEEP_IDLE: Duration = Duration::from_secs(4);

/// A pool of connections that are no older than they may be.
pub(super) struct Client {
    route: Arc<Route>,
    /// For how long a connection is used.
    max_age: Duration,
    /// The pool of now, and since when it is that.
    current: Mutex<(Arc<Pool>, Instant)>,
}

impl Client {
    pub(super) fn new(route: Route, max_age: Duration) -> Result<Self, SinkBuildError> {
        let route = Arc::new(route);
        let current = Mutex::new((Pool::new(route.connector()?), Instant::now()));
        Ok(Self { route, max_age, current })
    }

    /// The pool for a request. Once it is as old as a connection may be, another one takes its
    /// place, whose connections ask for the addresses of the name again; what is under way on the old
    /// one ends there.
    pub(super) async fn pool(&self) -> Arc<Pool> {
        {
            let mut current = lock(&self.current);
            if current.1.elapsed() < self.max_age {
                return Arc::clone(&current.0);
            }
            // Whoever else asks meanwhile does with the old one.
            current.1 = Instant::now();
        }
        let old_ones_stay = |error: &dyn std::fmt::Display| {
            tracing::warn!(%error, "connections cannot be renewed: the old ones stay in use");
        };
        // To read the system's certificates takes a while.
        let route = Arc::clone(&self.route);
        match tokio::task::spawn_blocking(move || route.connector()).await {
            Ok(Ok(connector)) => lock(&self.current).0 = Pool::new(connector),
            Ok(Err(error)) => old_ones_stay(&error),
            Err(error) => old_ones_stay(&error),
        }
        Arc::clone(&lock(&self.current).0)
    }
}

/// Connections that wait for a request.
pub(super) struct Pool {
    connector: Connector,
    /// And since when. The last one has waited least.
    idle: Mutex<Vec<(Connection, Instant)>>,
    looked_after: Once,
}

impl Pool {
    fn new(connector: Connector) -> Arc<Self> {
        Arc::new(Self { connector, idle: Mutex::default(), looked_after: Once::new() })
    }

    /// A connection that was used before.
    pub(super) fn used(&self) -> Option<Connection> {
        let (connection, since) = lock(&self.idle).pop()?;
        (since.elapsed() < KEEP_IDLE).then_some(connection)
    }

    /// A connection of its own.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<Connection, BoxError> {
        let stream = self.connector.connect().await?;
        let (sender, exchange) = http1::handshake(stream).await?;
        self.looked_after.call_once(|| drop(tokio::spawn(Self::look_after(Arc::downgrade(self)))));
        Ok(Connection { sender, exchange: Some(Box::new(exchange)) })
    }

    /// Keeps a connection for the next request.
    pub(super) fn keep(&self, connection: Connection) {
        lock(&self.idle).push((connection, Instant::now()));
    }

    /// Ends connections that nobody uses.
    async fn look_after(pool: Weak<Self>) {
        loop {
            sleep(KEEP_IDLE).await;
            let Some(pool) = pool.upgrade() else { return };
            let is_old = |(_, since): &mut (_, Instant)| since.elapsed() >= KEEP_IDLE;
            let old: Vec<_> = lock(&pool.idle).extract_if(.., is_old).collect();
            for (connection, _) in old {
                connection.end().await;
            }
        }
    }
}

type Exchange = http1::Connection<Box<dyn Stream>, Full<Bytes>>;

/// A connection, for one request after the other.
pub(super) struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    /// Nothing once it has ended.
    exchange: Option<Box<Exchange>>,
}

impl Connection {
    /// Sends a request, and waits for the head of the answer.
    pub(super) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> hyper::Result<Response<Incoming>> {
        let answer = self.sender.send_request(request);
        go_on(&mut self.exchange, answer).await
    }

    /// Reads at most `limit` bytes of an answer into `body`. What was read when the caller loses patience
    /// stays. Answers whether the connection can be used again.
    ///
    /// An end that comes within one buffer more is read too: it sets the connection free for the next
    /// request.
    pub(super) async fn read(
        &mut self,
        mut answer: Incoming,
        limit: usize,
        body: &mut Vec<u8>,
    ) -> bool {
        let reading = async {
            let mut drained = 0;
            while let Some(Ok(frame)) = answer.frame().await {
                let Some(chunk) = frame.data_ref() else { continue };
                let wanted = limit.saturating_sub(body.len()).min(chunk.len());
                body.extend_from_slice(&chunk[..wanted]);
                drained += chunk.len();
                if drained > limit.max(REASON_BYTES) {
                    return false;
                }
            }
            self.sender.ready().await.is_ok()
        };
        go_on(&mut self.exchange, reading).await
    }

    /// Ends it as its protocols do, which nobody waits long for.
    async fn end(self) {
        drop(self.sender);
        if let Some(exchange) = self.exchange {
            let _ = timeout(BODY_WAIT, exchange).await;
        }
    }
}

/// Waits for what comes of an exchange, which goes on meanwhile.
async fn go_on<T>(exchange: &mut Option<Box<Exchange>>, awaited: impl Future<Output = T>) -> T {
    let mut awaited = pin!(awaited);
    poll_fn(|context| {
        if exchange.as_mut().is_some_and(|going| Pin::new(going).poll(context).is_ready()) {
            *exchange = None;
        }
        awaited.as_mut().poll(context)
    })
    .await
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        bridge::Secrets,
        sinks::{TlsOptions, http::test_server::TestServer},
    };

    #[tokio::test]
    async fn a_connection_is_used_until_it_is_old() {
        let young = Duration::from_secs(3600);
        for (max_age, expected) in [(young, [0, 0, 0]), (Duration::ZERO, [0, 1, 2])] {
            let server = TestServer::always("200 OK", "", "").await;
            let route = Route {
                address: server.url("http").parse().unwrap(),
                proxy: None,
                tls: TlsOptions::default(),
                within: Duration::from_secs(5),
                secrets: Secrets::none(),
            };
            let client = Client::new(route, max_age).unwrap();
            for _ in 0..3 {
                let pool = client.pool().await;
                let mut connection = match pool.used() {
                    Some(used) => used,
                    None => pool.connect().await.unwrap(),
                };
                let answer = connection.send(Request::new("{}".into())).await.unwrap();
                assert!(connection.read(answer.into_body(), 0, &mut Vec::new()).await);
                pool.keep(connection);
            }
            let received = server.received.lock().unwrap();
            let connections: Vec<_> = received.iter().map(|request| request.connection).collect();
            assert_eq!(connections, expected, "{max_age:?}");
        }
    }
}
