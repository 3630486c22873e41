//! What stands in front of an API server: it ends TLS, passes on what is said, and can break off in
//! the middle of a line, fall silent, and show another certificate.

use std::future::pending;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memchr::memmem;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

const BUFFER: usize = 64 * 1024;
const UNAUTHORIZED: &[u8] = b"HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\n\
    connection: close\r\ncontent-length: 85\r\n\r\n\
    {\"kind\":\"Status\",\"apiVersion\":\"v1\",\"code\":401,\"reason\":\"Unauthorized\",\"message\":\"no\"}";
/// How the line of a watch begins.
const LINE: &[u8] = b"{\"type\":\"";

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// All is passed on.
    Open,
    /// Nothing is passed on, nothing is answered, and nothing ends.
    Dark,
}

/// What becomes of the connections that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Cut,
    Dark,
}

struct Shared {
    way: Mutex<Way>,
    fate: watch::Sender<Fate>,
    tls: Mutex<TlsAcceptor>,
    upstream: SocketAddr,
    /// Whoever does not bear it is answered 401.
    token: Mutex<Option<String>>,
    cut_a_line: AtomicBool,
}

/// See the [module](self). It ends with the runtime.
pub(crate) struct Front {
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl Front {
    /// Stands in front of a server.
    pub(crate) async fn start(upstream: SocketAddr, tls: ServerConfig) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("the port");
        let shared = Arc::new(Shared {
            way: Mutex::new(Way::Open),
            fate: watch::Sender::new(Fate::Cut),
            tls: Mutex::new(TlsAcceptor::from(Arc::new(tls))),
            upstream,
            token: Mutex::default(),
            cut_a_line: AtomicBool::default(),
        });
        let accepting = Arc::clone(&shared);
        tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                let shared = Arc::clone(&accepting);
                tokio::spawn(async move { live(stream, &shared).await });
            }
        });
        Self { shared, address }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// From now on. Connections that there are end, or are dark for ever.
    pub(crate) fn set(&self, way: Way) {
        let fate = if way == Way::Dark { Fate::Dark } else { Fate::Cut };
        // What is dark stays so: who dropped its packets has no more to do with it.
        let reopened = way == Way::Open && *lock(&self.shared.way) == Way::Dark;
        *lock(&self.shared.way) = way;
        if !reopened {
            self.shared.fate.send_replace(fate);
        }
    }

    /// Shows another certificate to whoever comes, and ends all connections.
    pub(crate) fn show(&self, tls: ServerConfig) {
        *lock(&self.shared.tls) = TlsAcceptor::from(Arc::new(tls));
        self.shared.fate.send_replace(Fate::Cut);
    }

    /// Asks whoever comes for this bearer token, and ends all connections.
    pub(crate) fn ask_for(&self, token: &str) {
        *lock(&self.shared.token) = Some(token.to_owned());
        self.shared.fate.send_replace(Fate::Cut);
    }

    /// Ends the next watch that says something, in the middle of its line.
    pub(crate) fn cut_a_line(&self) {
        self.shared.cut_a_line.store(true, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection, until it or somebody ends it.
async fn live(stream: TcpStream, shared: &Shared) {
    let mut fate = shared.fate.subscribe();
    let mut serving = pin!(serve(stream, shared));
    tokio::select! {
        // A connection that breaks is the client's to notice.
        _ = &mut serving => return,
        _ = fate.changed() => {}
    }
    if *fate.borrow_and_update() == Fate::Dark {
        // Whatever happens to others later, its sockets stay open.
        pending::<()>().await;
    }
}

async fn serve(stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let way = *lock(&shared.way);
    if way == Way::Dark {
        return pending().await;
    }
    let acceptor = lock(&shared.tls).clone();
    let mut client = acceptor.accept(stream).await?;
    let mut buffer = vec![0; BUFFER];
    let read = client.read(&mut buffer).await?;
    let first = &buffer[..read];
    let token = lock(&shared.token).clone();
    if token.is_some_and(|token| !bears(first, &token)) {
        client.write_all(UNAUTHORIZED).await?;
        return client.shutdown().await;
    }
    pass_on(client, first, TcpStream::connect(shared.upstream).await?, shared).await
}

/// Whether a request has the token. A connection is asked once, as all its requests are of one
/// client; who changes the token ends those that there are.
fn bears(request: &[u8], token: &str) -> bool {
    let text = String::from_utf8_lossy(request);
    let bearer = format!("Bearer {token}");
    let mut headers = text.lines().filter_map(|line| line.split_once(": "));
    headers.any(|(name, value)| name.eq_ignore_ascii_case("authorization") && value == bearer)
}

/// Passes on what both sides say; of the client this has been read.
async fn pass_on(
    client: impl AsyncRead + AsyncWrite,
    first: &[u8],
    server: impl AsyncRead + AsyncWrite,
    shared: &Shared,
) -> io::Result<()> {
    let (mut from_client, mut to_client) = split(client);
    let (mut from_server, mut to_server) = split(server);
    let asking = async {
        let mut buffer = vec![0; BUFFER];
        buffer[..first.len()].copy_from_slice(first);
        let mut read = first.len();
        while read > 0 {
            to_server.write_all(&buffer[..read]).await?;
            to_server.flush().await?;
            read = from_client.read(&mut buffer).await?;
        }
        Ok(())
    };
    let answering = async {
        let mut buffer = vec![0; BUFFER];
        loop {
            let read = from_server.read(&mut buffer).await?;
            if read == 0 {
                return Ok(());
            }
            let line = memmem::find(&buffer[..read], LINE);
            let cut = line.filter(|_| shared.cut_a_line.swap(false, Ordering::Relaxed));
            let end = cut.map_or(read, |line| line + (read - line) / 2);
            to_client.write_all(&buffer[..end]).await?;
            to_client.flush().await?;
            if cut.is_some() {
                return Ok(());
            }
        }
    };
    tokio::select! { ended = asking => ended, ended = answering => ended }
}
