//! A webhook that speaks HTTP/1.1 by hand, because its answers have to break off, drip and never
//! end, and its connections to be reset.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::fmt::rfc2822::DateTimePrinter;
use jiff::{SignedDuration, Timestamp};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use super::patience::Patience;
use tidings_testkit::ledger::SharedLedger;

const TAKEN: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";
const GIGABYTE: usize = 1 << 30;

/// What the webhook does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Manner {
    /// Takes it.
    Take,
    /// Takes nothing, and answers with this status line, headers (with their line ends) and body.
    Answer(&'static str, String, &'static str),
    /// Takes nothing, answers 429, and complains of whoever comes before the time that it told.
    Later { seconds: u64, as_date: bool },
    /// Resets connections: at once, amid a request, with a request taken, amid the answer.
    Reset,
    /// Takes nothing, and answers nothing.
    Hang,
    /// Takes it, and answers a byte a second.
    Drip,
    /// Takes it, answers 200 at once, and goes on with a byte of the body a second.
    DripBody,
    /// Takes it, and answers 200 with a body of a gigabyte.
    Huge,
}

struct Shared {
    ledger: SharedLedger,
    manner: Mutex<Manner>,
    tls: Mutex<Option<TlsAcceptor>>,
    patience: Patience,
    /// Events taken whose answer did not leave whole.
    unanswered: AtomicUsize,
    /// Changes when all connections are to end.
    cut: watch::Sender<()>,
}

/// A webhook on a port of its own. It ends with the runtime.
pub(crate) struct NastyWebhook {
    pub(crate) ledger: SharedLedger,
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl Manner {
    /// Whether it takes the events of a request, whatever it answers.
    fn takes(&self) -> bool {
        !matches!(self, Self::Answer(..) | Self::Later { .. } | Self::Hang)
    }
}

impl Shared {
    /// So many taken events have their answer.
    fn answered(&self, events: usize) {
        self.unanswered.fetch_sub(events, Ordering::Relaxed);
    }
}

/// How a connection is to end.
enum End {
    Close,
    Reset,
}

impl NastyWebhook {
    /// Starts one that takes everything, over TLS if there is something to speak it with.
    pub(crate) async fn start(tls: Option<ServerConfig>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("the port");
        let ledger = SharedLedger::default();
        let shared = Arc::new(Shared {
            ledger: ledger.clone(),
            manner: Mutex::new(Manner::Take),
            tls: Mutex::new(tls.map(|config| TlsAcceptor::from(Arc::new(config)))),
            patience: Patience::default(),
            unanswered: AtomicUsize::new(0),
            cut: watch::Sender::new(()),
        });
        tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { ledger, shared, address }
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if lock(&self.shared.tls).is_some() { "https" } else { "http" };
        format!("{scheme}://{}/hook", self.address)
    }

    /// From now on it is like this, on connections made anew.
    pub(crate) fn set(&self, manner: Manner) {
        *lock(&self.shared.manner) = manner;
        self.shared.cut.send_replace(());
    }

    /// From now on it shows this certificate, on connections made anew.
    pub(crate) fn show(&self, tls: ServerConfig) {
        *lock(&self.shared.tls) = Some(TlsAcceptor::from(Arc::new(tls)));
        self.shared.cut.send_replace(());
    }

    /// Whoever was asked to wait may have been killed.
    pub(crate) fn forget_waits(&self) {
        self.shared.patience.forget();
    }

    /// How many events were taken whose sender cannot know it: as many may come again.
    pub(crate) fn unanswered(&self) -> usize {
        self.shared.unanswered.load(Ordering::Relaxed)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let mut cut = shared.cut.subscribe();
            let acceptor = lock(&shared.tls).clone();
            let connection = async {
                match acceptor {
                    Some(acceptor) => serve(acceptor.accept(&mut stream).await?, &shared).await,
                    None => serve(&mut stream, &shared).await,
                }
            };
            let end = tokio::select! {
                end = connection => end,
                _ = cut.changed() => Ok(End::Close),
            };
            // A handshake or a connection that breaks is what is drilled here.
            if let Ok(End::Reset) = end {
                stream.set_zero_linger().expect("a socket that can be reset");
            }
        });
    }
}

async fn serve<S>(mut stream: S, shared: &Shared) -> io::Result<End>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut buffer = Vec::new();
    loop {
        let kind = fastrand::u8(..4);
        let resets = matches!(*lock(&shared.manner), Manner::Reset);
        if resets && kind == 0 {
            return Ok(End::Reset);
        }
        let Some((length, start)) = head(&mut stream, &mut buffer).await? else {
            return Ok(End::Close);
        };
        if resets && kind == 1 {
            return Ok(End::Reset);
        }
        while buffer.len() < start + length {
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(End::Close);
            }
        }
        let body: Vec<u8> = buffer.drain(..start + length).skip(start).collect();
        shared.patience.somebody_comes(&shared.ledger);
        let manner = lock(&shared.manner).clone();
        let taken = if manner.takes() { take(shared, &body) } else { 0 };
        match manner {
            Manner::Take => stream.write_all(TAKEN).await?,
            Manner::Answer(status, headers, words) => {
                stream.write_all(&answer(status, &headers, words)).await?;
            }
            Manner::Later { seconds, as_date } => {
                let header = later(&shared.patience, seconds, as_date);
                stream.write_all(&answer("429 Too Many Requests", &header, "slower")).await?;
            }
            Manner::Reset => {
                if kind == 3 {
                    stream.write_all(&TAKEN[..11]).await?;
                }
                return Ok(End::Reset);
            }
            Manner::Hang => {
                // Until the other side loses patience.
                while stream.read_buf(&mut buffer).await? > 0 {}
                return Ok(End::Close);
            }
            Manner::Drip => drip(&mut stream, TAKEN).await?,
            Manner::DripBody => {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 600\r\n\r\n").await?;
                shared.answered(taken);
                return drip(&mut stream, &[b'.'; 600]).await.map(|()| End::Close);
            }
            Manner::Huge => {
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {GIGABYTE}\r\n\r\n");
                stream.write_all(head.as_bytes()).await?;
                shared.answered(taken);
                let piece = vec![b'.'; 1 << 16];
                for _ in 0..GIGABYTE / piece.len() {
                    stream.write_all(&piece).await?;
                }
                return Ok(End::Close);
            }
        }
        stream.flush().await?;
        shared.answered(taken);
    }
}

/// Reads the head of a request; answers the length of its body and where that starts.
async fn head(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
) -> io::Result<Option<(usize, usize)>> {
    loop {
        if let Some(end) = memchr::memmem::find(buffer, b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..end]).to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length = length.and_then(|length| length.trim().parse().ok());
            return Ok(Some((length.expect("every POST says how long it is"), end + 4)));
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

/// Takes the events of a request, and answers how many.
fn take(shared: &Shared, body: &[u8]) -> usize {
    let count = shared.ledger.take_envelopes(body);
    shared.unanswered.fetch_add(count, Ordering::Relaxed);
    count
}

/// The header that asks for patience.
fn later(patience: &Patience, seconds: u64, as_date: bool) -> String {
    let wait = SignedDuration::from_secs(seconds.cast_signed());
    let text = if as_date {
        let now = Timestamp::now();
        // A date has no fractions: the next whole second, lest it be too early.
        let next = Timestamp::from_second(now.as_second() + 1).expect("now is a time");
        let date = next + wait;
        patience.ask(date.duration_since(now).unsigned_abs());
        DateTimePrinter::new().timestamp_to_rfc9110_string(&date).expect("a date")
    } else {
        patience.ask(wait.unsigned_abs());
        seconds.to_string()
    };
    format!("retry-after: {text}\r\n")
}

fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len()).into()
}

async fn drip(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    for byte in bytes {
        stream.write_all(&[*byte]).await?;
        stream.flush().await?;
        sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
