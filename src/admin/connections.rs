//! The connections of a server: so many, and each for one request, within a size and a time.
//!
//! Anybody who reaches the port may open connections and send no end of a head, as fast as he likes.
//! Each such connection costs a descriptor and a buffer, which the journal and the sinks need, so
//! there are [`MOST`] of them. When all are taken, a newcomer gets the place of the oldest that waits for
//! its client, which has not sent all of a head or not read all of an answer, among those of the address
//! that has most of them. So a flood takes from itself, and a probe has the time that it needs for its
//! head, which may be more than 64 newcomers take to come. Only when every request is being answered,
//! one of them makes room, chosen in the same way. What the control socket answers is waited for: a
//! replay goes on for as long as its client reads.
//!
//! A connection ends with its answer. Probes and scrapes come seconds apart, so nothing is gained by
//! keeping it, and without it there is no idle connection and no queue of requests to bound.

use std::{
    collections::HashMap,
    convert::Infallible,
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::Router;
use http::Request;
use hyper::{
    body::Incoming,
    server::conn::http1,
    service::{Service as _, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    task::JoinHandle,
    time::{sleep, timeout},
};

/// So many connections at once.
const MOST: usize = 64;
/// The longest head of a request, in bytes; a longer one is answered with 431.
const HEAD_BYTES: usize = 16 << 10;
/// How long a head may take.
const HEAD_WITHIN: Duration = Duration::from_secs(5);
/// How long a request may take, from the connection on.
pub(super) const REQUEST_WITHIN: Duration = Duration::from_secs(10);
/// How long is waited after an accept that failed for want of something, such as descriptors.
const AFTER_A_FAILURE: Duration = Duration::from_millis(100);

/// The other end of a connection; each request has it among its extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// Somebody at this address.
    Address(SocketAddr),
    /// The user of the control socket.
    Socket,
}

/// A socket that is listened on.
pub(super) trait Listen: Send + 'static {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    fn next(&self) -> impl Future<Output = io::Result<(Self::Stream, Peer)>> + Send;
}

impl Listen for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<(TcpStream, Peer)> {
        self.accept().await.map(|(stream, address)| (stream, Peer::Address(address)))
    }
}

impl Listen for UnixListener {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<(UnixStream, Peer)> {
        self.accept().await.map(|(stream, _)| (stream, Peer::Socket))
    }
}

/// Serves whoever connects, for ever. A connection with its answer lasts for the time given, if one is.
pub(super) async fn serve(
    listener: impl Listen,
    routes: Router,
    within: Option<Duration>,
) -> Infallible {
    let mut open = Open::default();
    let mut failing = false;
    loop {
        match listener.next().await {
            Ok((stream, peer)) => {
                failing = false;
                open.admit(|| Connection::start(stream, peer, routes.clone(), within)).await;
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                if !failing {
                    tracing::warn!(
                        %error,
                        "no connection can be accepted: probes, metrics and commands are not \
                         answered; if descriptors are short, raise their limit (ulimit -n)"
                    );
                }
                failing = true;
                // It may be a descriptor that is wanted.
                open.close_one().await;
                sleep(AFTER_A_FAILURE).await;
            }
        }
    }
}

/// Whether a connection was gone before it was accepted, which says nothing of the next.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// The connections that are open, the oldest first.
#[derive(Default)]
struct Open(Vec<Connection>);

impl Open {
    /// Takes one in, and makes room for it before if there is none.
    async fn admit(&mut self, start: impl FnOnce() -> Connection) {
        self.0.retain(|connection| !connection.task.is_finished());
        if self.0.len() == MOST {
            self.close_one().await;
        }
        self.0.push(start());
    }

    /// Closes one, and waits until its descriptor is free.
    async fn close_one(&mut self) {
        if let Some(at) = self.next_to_go() {
            let connection = self.0.remove(at);
            connection.task.abort();
            // Its end is that it was told to end.
            let _ = connection.task.await;
        }
    }

    /// The oldest that waits for its client, of the address that has most of those; without any, the
    /// oldest of the address that has most.
    fn next_to_go(&self) -> Option<usize> {
        let waits = |at: &usize| !self.0[*at].at_work.load(Ordering::Relaxed);
        let mut those: Vec<usize> = (0..self.0.len()).filter(waits).collect();
        if those.is_empty() {
            those = (0..self.0.len()).collect();
        }
        let mut of_address = HashMap::<_, usize>::new();
        for at in &those {
            *of_address.entry(self.0[*at].from).or_default() += 1;
        }
        // Of equals the last is taken, which is the oldest.
        those.into_iter().rev().max_by_key(|at| of_address[&self.0[*at].from])
    }
}

struct Connection {
    /// None for the control socket, which has one user.
    from: Option<IpAddr>,
    task: JoinHandle<()>,
    /// The head of its request is there, and the answer is not, or goes to the control socket.
    at_work: Arc<AtomicBool>,
}

impl Connection {
    fn start(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: Peer,
        routes: Router,
        within: Option<Duration>,
    ) -> Self {
        let from = match peer {
            Peer::Address(address) => Some(address.ip()),
            Peer::Socket => None,
        };
        let at_work = Arc::<AtomicBool>::default();
        let (noted, routes) = (Arc::clone(&at_work), TowerToHyperService::new(routes));
        let service = service_fn(move |mut request: Request<Incoming>| {
            noted.store(true, Ordering::Relaxed);
            request.extensions_mut().insert(peer);
            let (answering, noted) = (routes.call(request), Arc::clone(&noted));
            async move {
                let answer = answering.await;
                noted.store(peer == Peer::Socket, Ordering::Relaxed);
                answer
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_WITHIN)
            .max_buf_size(HEAD_BYTES)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service);
        // How a connection ends is its client's business.
        let served = async move {
            let _ = timeout(within.unwrap_or(Duration::MAX), connection).await;
        };
        Self { from, task: tokio::spawn(served), at_work }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use axum::routing::get;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpSocket,
        sync::Semaphore,
    };

    use super::*;

    /// A listener that has failures ahead of its connections.
    struct Failing(TcpListener, Mutex<Vec<io::Error>>);

    impl Listen for Failing {
        type Stream = TcpStream;

        async fn next(&self) -> io::Result<(TcpStream, Peer)> {
            let failure = self.1.lock().unwrap().pop();
            match failure {
                Some(failure) => Err(failure),
                None => self.0.next().await,
            }
        }
    }

    async fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    fn routes() -> Router {
        Router::new().route("/", get(async || "here\n"))
    }

    async fn send(address: SocketAddr, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    /// Everything until the other end closes.
    async fn rest(mut stream: TcpStream) -> String {
        let mut rest = Vec::new();
        // It may close with something of ours unread, which comes as an error after what it sent.
        let _ = stream.read_to_end(&mut rest).await;
        String::from_utf8(rest).unwrap()
    }

    const WHOLE: &str = "GET / HTTP/1.1\r\nhost: t\r\n\r\n";

    #[tokio::test]
    async fn an_accept_that_fails_does_not_end_the_server() {
        let (listener, address) = listener().await;
        // EMFILE has no kind of its own; the last comes first.
        let failures = vec![io::Error::from_raw_os_error(24), io::Error::from_raw_os_error(103)];
        let server = serve(Failing(listener, Mutex::new(failures)), routes(), None);
        let asked = async { rest(send(address, WHOLE).await).await };
        tokio::select! {
            _ = server => unreachable!(),
            answer = asked => assert!(answer.ends_with("here\n"), "{answer}"),
        }
    }

    #[tokio::test]
    async fn a_connection_is_for_one_request_of_which_nothing_is_too_long() {
        let (listener, address) = listener().await;
        let server = tokio::spawn(serve(listener, routes(), Some(REQUEST_WITHIN)));
        let answer = rest(send(address, &WHOLE.repeat(3)).await).await;
        assert_eq!(answer.matches("HTTP/1.1 200").count(), 1, "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
        let fits = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(HEAD_BYTES - 100));
        assert!(rest(send(address, &fits).await).await.starts_with("HTTP/1.1 200"));
        let endless = format!("GET / HTTP/1.1\r\nx: {}", "x".repeat(HEAD_BYTES));
        let answer = rest(send(address, &endless).await).await;
        assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
        server.abort();
    }

    #[tokio::test]
    async fn a_flood_from_one_address_takes_no_place_from_another() {
        let (listener, address) = listener().await;
        let server = tokio::spawn(serve(listener, routes(), None));
        let other = TcpSocket::new_v4().unwrap();
        other.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let mut slow = other.connect(address).await.unwrap();
        slow.write_all(b"GET / HT").await.unwrap();
        let mut heads = Vec::new();
        for _ in 0..2 * MOST {
            heads.push(send(address, "GET / HT").await);
        }
        // Those that had come before have had to go.
        assert_eq!(rest(heads.swap_remove(0)).await, "");
        slow.write_all(&WHOLE.as_bytes()[8..]).await.unwrap();
        assert!(rest(slow).await.ends_with("here\n"));
        server.abort();
    }

    #[tokio::test]
    async fn oldest_unfinished_head_makes_room_when_all_places_are_taken() {
        let (listener, address) = listener().await;
        let (waiting, go_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let (arrived, released) = (Arc::clone(&waiting), Arc::clone(&go_on));
        let slow = async move || {
            arrived.add_permits(1);
            released.acquire().await.unwrap().forget();
            "late\n"
        };
        let server = tokio::spawn(serve(listener, routes().route("/slow", get(slow)), None));
        let asking = WHOLE.replace("GET /", "GET /slow");
        let first = send(address, &asking).await;
        waiting.acquire().await.unwrap().forget();
        let mut heads = Vec::new();
        for _ in 1..MOST {
            heads.push(send(address, "GET / HT").await);
        }
        // The request is older than any head, and in progress.
        assert!(rest(send(address, WHOLE).await).await.ends_with("here\n"));
        let gone = heads.remove(0);
        assert_eq!(rest(gone).await, "");
        // The place of that request is free again, so no other head had to go for it.
        let mut second = heads.remove(0);
        second.write_all(&WHOLE.as_bytes()[8..]).await.unwrap();
        assert!(rest(second).await.ends_with("here\n"));
        // When all of them are requests, the oldest goes.
        drop(heads);
        let mut requests = Vec::new();
        for _ in 1..MOST {
            requests.push(send(address, &asking).await);
            waiting.acquire().await.unwrap().forget();
        }
        assert!(rest(send(address, WHOLE).await).await.ends_with("here\n"));
        assert_eq!(rest(first).await, "");
        go_on.add_permits(requests.len());
        for request in requests {
            assert!(rest(request).await.ends_with("late\n"));
        }
        server.abort();
    }

    #[tokio::test]
    async fn a_client_that_reads_no_answer_takes_no_place_from_another() {
        const LARGE: usize = 1 << 20;
        // With buffers that hold little of it, which the connections inherit.
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_send_buffer_size(4096).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(128).unwrap();
        let address = listener.local_addr().unwrap();
        let large = get(async || "x".repeat(LARGE));
        let server = tokio::spawn(serve(listener, routes().route("/large", large), None));
        let mut readers = Vec::new();
        for _ in 2..MOST {
            let socket = TcpSocket::new_v4().unwrap();
            socket.set_recv_buffer_size(4096).unwrap();
            let mut reader = socket.connect(address).await.unwrap();
            reader.write_all(WHOLE.replace("GET /", "GET /large").as_bytes()).await.unwrap();
            // The answer has begun.
            reader.read_u8().await.unwrap();
            readers.push(reader);
        }
        let mut probe = send(address, "GET / HT").await;
        let mut heads = Vec::new();
        for _ in 0..3 {
            heads.push(send(address, "GET / HT").await);
        }
        // They come one after the other, so those before have their places.
        assert!(rest(send(address, WHOLE).await).await.ends_with("here\n"));
        probe.write_all(&WHOLE.as_bytes()[8..]).await.unwrap();
        assert!(rest(probe).await.ends_with("here\n"));
        assert!(rest(readers.remove(0)).await.len() < LARGE, "the oldest had to go");
        server.abort();
    }

    #[tokio::test]
    async fn a_request_that_is_not_answered_in_time_ends_with_its_connection() {
        let (listener, address) = listener().await;
        let arrived = Arc::new(Semaphore::new(0));
        let arrives = Arc::clone(&arrived);
        let never = get(async move || {
            arrives.add_permits(1);
            std::future::pending::<()>().await;
        });
        let routes = routes().route("/never", never);
        let server = tokio::spawn(serve(listener, routes, Some(REQUEST_WITHIN)));
        let asking = send(address, &WHOLE.replace("GET /", "GET /never")).await;
        arrived.acquire().await.unwrap().forget();
        // From here on time goes by as soon as there is nothing to do.
        tokio::time::pause();
        let answer = timeout(REQUEST_WITHIN * 2, rest(asking)).await;
        assert_eq!(answer.as_deref(), Ok(""));
        server.abort();
    }
}
