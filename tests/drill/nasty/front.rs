//! A proxy in front of an API server: it ends TLS, passes on what is said, and can break off in
//! the middle of a line, fall silent, answer by itself, and show another certificate.

use std::future::pending;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memchr::memmem;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::{TlsAcceptor, TlsConnector};

const BUFFER: usize = 64 * 1024;
const UNAUTHORIZED: &[u8] = b"HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\n\
    connection: close\r\ncontent-length: 85\r\n\r\n\
    {\"kind\":\"Status\",\"apiVersion\":\"v1\",\"code\":401,\"reason\":\"Unauthorized\",\"message\":\"no\"}";
/// How the line of a watch begins.
const LINE: &[u8] = b"{\"type\":\"";
/// Where a watch is told how long to last.
const LASTS: &[u8] = b"timeoutSeconds=";

/// The fate of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// All is passed on.
    Open,
    /// Each request has this answer, which ends its connection.
    Answer(String),
    /// Nothing is passed on, nothing is answered, and nothing ends.
    Dark,
}

/// The fate of the connections that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Cut,
    Dark,
}

/// The server that it stands in front of, and how that is spoken to.
pub(crate) struct Upstream {
    address: String,
    tls: Option<TlsConnector>,
}

impl Upstream {
    /// One whose authority is in a file.
    pub(crate) fn over_tls(address: &str, authority: &Path) -> Self {
        Self { address: address.to_owned(), tls: Some(connector(authority)) }
    }

    pub(crate) fn plain(address: SocketAddr) -> Self {
        Self { address: address.to_string(), tls: None }
    }
}

struct Shared {
    way: Mutex<Way>,
    fate: watch::Sender<Fate>,
    tls: Mutex<TlsAcceptor>,
    upstream: Upstream,
    /// Whoever does not bear it is answered 401.
    token: Mutex<Option<String>>,
    cut_a_line: AtomicBool,
    hurry: AtomicBool,
    answered: AtomicUsize,
}

/// See the [module](self). It ends with the runtime.
pub(crate) struct Front {
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl Front {
    /// Stands in front of a server.
    pub(crate) async fn start(upstream: Upstream, tls: ServerConfig) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("the port");
        let shared = Arc::new(Shared {
            way: Mutex::new(Way::Open),
            fate: watch::Sender::new(Fate::Cut),
            tls: Mutex::new(TlsAcceptor::from(Arc::new(tls))),
            upstream,
            token: Mutex::default(),
            cut_a_line: AtomicBool::default(),
            hurry: AtomicBool::default(),
            answered: AtomicUsize::default(),
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

    /// Whether that has happened.
    pub(crate) fn has_cut(&self) -> bool {
        !self.shared.cut_a_line.load(Ordering::Relaxed)
    }

    /// Has watches end after two seconds, in place of five minutes.
    pub(crate) fn hurry(&self, hurry: bool) {
        self.shared.hurry.store(hurry, Ordering::Relaxed);
        self.shared.fate.send_replace(Fate::Cut);
    }

    /// How many requests it has answered by itself.
    pub(crate) fn answered(&self) -> usize {
        self.shared.answered.load(Ordering::Relaxed)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn connector(authority: &Path) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(authority).expect("the authority's file");
    roots.add_parsable_certificates(certificates.map(|one| one.expect("PEM")));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("TLS versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
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
    let way = lock(&shared.way).clone();
    if way == Way::Dark {
        return pending().await;
    }
    let acceptor = lock(&shared.tls).clone();
    let mut client = acceptor.accept(stream).await?;
    if let Way::Answer(answer) = way {
        return turn_away(client, shared, &answer).await;
    }
    let mut buffer = vec![0; BUFFER];
    let read = client.read(&mut buffer).await?;
    let first = &buffer[..read];
    let token = lock(&shared.token).clone();
    if token.is_some_and(|token| !bears(first, &token)) {
        client.write_all(UNAUTHORIZED).await?;
        return client.shutdown().await;
    }
    match &shared.upstream {
        Upstream { address, tls: Some(connector) } => {
            let server = TcpStream::connect(address).await?;
            let name = ServerName::try_from("127.0.0.1").expect("a name");
            pass_on(client, first, connector.connect(name, server).await?, shared).await
        }
        Upstream { address, tls: None } => {
            pass_on(client, first, TcpStream::connect(address).await?, shared).await
        }
    }
}

/// Whether a request has the token. A connection is asked once, as all its requests are of one
/// client; who changes the token ends those that there are.
fn bears(request: &[u8], token: &str) -> bool {
    let text = String::from_utf8_lossy(request);
    let bearer = format!("Bearer {token}");
    let mut headers = text.lines().filter_map(|line| line.split_once(": "));
    headers.any(|(name, value)| name.eq_ignore_ascii_case("authorization") && value == bearer)
}

async fn turn_away(
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    shared: &Shared,
    answer: &str,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    if client.read(&mut buffer).await? > 0 {
        shared.answered.fetch_add(1, Ordering::Relaxed);
        client.write_all(answer.as_bytes()).await?;
    }
    client.shutdown().await
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
            if shared.hurry.load(Ordering::Relaxed) {
                shorten(&mut buffer[..read]);
            }
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

/// Asks for a watch of two seconds, in as many digits.
fn shorten(request: &mut [u8]) {
    let Some(at) = memmem::find(request, LASTS) else { return };
    let digits = request[at + LASTS.len()..].iter_mut();
    let mut digits: Vec<&mut u8> = digits.take_while(|byte| byte.is_ascii_digit()).collect();
    for digit in &mut digits {
        **digit = b'0';
    }
    if let Some(last) = digits.last_mut() {
        **last = b'2';
    }
}
