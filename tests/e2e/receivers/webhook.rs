//! A webhook that does as it is told, and checks what a receiver of Standard Webhooks should.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum::serve::Listener;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

use crate::ledger::{Delivery, SharedLedger, envelopes};

/// The key of the signatures, in the form in which it is configured.
pub(crate) const SECRET: &str = "whsec_dGlkaW5ncyBlbmQtdG8tZW5kIHRlc3Rz";

/// The way of the webhook with a request.
#[derive(Clone, Debug)]
pub(crate) enum Mode {
    /// Takes it.
    Take,
    /// Takes nothing and answers this.
    Answer(StatusCode),
    /// Takes it, and cuts the connection instead of answering.
    Cut,
    /// Answers 400 to whatever holds an Event of this name.
    Refuse(&'static str),
}

struct Shared {
    ledger: SharedLedger,
    mode: Mutex<Mode>,
    /// Every connection ends instead of bringing an answer.
    cut: Arc<AtomicBool>,
    requests: Mutex<Requests>,
}

/// Counts of requests to the webhook.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Requests {
    /// Requests that were taken.
    pub(crate) taken: usize,
    /// Requests that were not.
    pub(crate) turned_away: usize,
    /// The number of events of the largest.
    pub(crate) largest: usize,
}

/// A webhook on a port of its own.
pub(crate) struct WebhookReceiver {
    pub(crate) ledger: SharedLedger,
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl WebhookReceiver {
    /// Starts one that takes everything.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("the port");
        let (ledger, cut) = (SharedLedger::default(), Arc::<AtomicBool>::default());
        let shared = Arc::new(Shared {
            ledger: ledger.clone(),
            mode: Mutex::new(Mode::Take),
            cut: Arc::clone(&cut),
            requests: Mutex::default(),
        });
        let routes = Router::new().route("/hook", post(take)).with_state(Arc::clone(&shared));
        let listener = Severable { listener, cut };
        // Ends with the runtime of the test.
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Self { ledger, shared, address }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.shared.cut.store(matches!(mode, Mode::Cut), Ordering::Relaxed);
        *lock(&self.shared.mode) = mode;
    }

    pub(crate) fn requests(&self) -> Requests {
        *lock(&self.shared.requests)
    }
}

async fn take(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let Ok(envelopes) = envelopes(&body) else {
        shared.ledger.complain(format!("no envelopes: {}", String::from_utf8_lossy(&body)));
        return StatusCode::UNPROCESSABLE_ENTITY;
    };
    let mode = lock(&shared.mode).clone();
    let refused = match mode {
        Mode::Take | Mode::Cut => None,
        Mode::Answer(status) => Some(status),
        Mode::Refuse(name) => {
            let member = format!("\"name\":\"{name}\"");
            envelopes.iter().any(|one| one.contains(&member)).then_some(StatusCode::BAD_REQUEST)
        }
    };
    let mut requests = lock(&shared.requests);
    requests.largest = requests.largest.max(envelopes.len());
    if let Some(status) = refused {
        requests.turned_away += 1;
        return status;
    }
    requests.taken += 1;
    drop(requests);
    if let Err(complaint) = verify(&headers, &body) {
        shared.ledger.complain(complaint);
    }
    let single = envelopes.len() == 1;
    for envelope in envelopes {
        match Delivery::of_envelope(envelope) {
            Ok(delivery) => {
                if single && body[0] == b'{' && header(&headers, "webhook-id") != delivery.id {
                    shared.ledger.complain(format!("webhook-id is not {}", delivery.id));
                }
                shared.ledger.record(delivery);
            }
            Err(complaint) => shared.ledger.complain(complaint),
        }
    }
    StatusCode::NO_CONTENT
}

/// Checks the signature as the specification of Standard Webhooks says.
fn verify(headers: &HeaderMap, body: &[u8]) -> Result<(), String> {
    let key = SECRET.strip_prefix("whsec_").and_then(|key| STANDARD.decode(key).ok());
    let mut mac = Hmac::<Sha256>::new_from_slice(&key.expect("a key in base64")).expect("a key");
    let (id, timestamp) = (header(headers, "webhook-id"), header(headers, "webhook-timestamp"));
    mac.update(format!("{id}.{timestamp}.").as_bytes());
    mac.update(body);
    let wanted = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    let told = header(headers, "webhook-signature");
    if told == wanted { Ok(()) } else { Err(format!("{id} is signed {told}, not {wanted}")) }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A listener whose connections can be cut: what has been sent on them arrives, but no answer
/// leaves, as when a receiver dies half way.
struct Severable<T> {
    listener: T,
    cut: Arc<AtomicBool>,
}

impl Listener for Severable<TcpListener> {
    type Io = SeverableStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (stream, address) = Listener::accept(&mut self.listener).await;
        (SeverableStream { stream, cut: Arc::clone(&self.cut) }, address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

struct SeverableStream {
    stream: TcpStream,
    cut: Arc<AtomicBool>,
}

impl AsyncRead for SeverableStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for SeverableStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.cut.load(Ordering::Relaxed) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
