//! A webhook: an envelope or an array of them in each POST.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::StatusCode,
    routing::post,
};
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::net::TcpListener;

use super::{Ledger, Outage, Receiver, Serving, listen};

/// The largest body taken: a batch of 1 MiB and one Event of 1.5 MiB fit well.
const MAX_BODY: usize = 16 * 1024 * 1024;

/// A webhook that keeps a [`Ledger`].
#[derive(Debug)]
pub struct WebhookReceiver {
    shared: Arc<Shared>,
    address: SocketAddr,
    serving: Serving,
}

#[derive(Debug, Default)]
struct Shared {
    ledger: Ledger,
    refusing: AtomicBool,
    requests: AtomicU64,
}

impl WebhookReceiver {
    /// Starts listening on a loopback port. Needs a tokio runtime.
    ///
    /// # Errors
    /// No port can be bound.
    pub fn start() -> io::Result<Self> {
        let listener = listen(None)?;
        let address = listener.local_addr()?;
        let receiver = Self { shared: Arc::default(), address, serving: Serving::default() };
        receiver.serve(listener);
        Ok(receiver)
    }

    /// Where to POST.
    pub fn url(&self) -> String {
        format!("http://{}/events", self.address)
    }

    /// How many requests came, refused ones too.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    fn serve(&self, listener: TcpListener) {
        let app = Router::new()
            .route("/events", post(receive))
            .layer(DefaultBodyLimit::max(MAX_BODY))
            .with_state(Arc::clone(&self.shared));
        self.serving.start(|stopped| async move {
            let serve = axum::serve(listener, app).with_graceful_shutdown(async {
                let _ = stopped.await;
            });
            if let Err(error) = serve.await {
                tracing::warn!(%error, "demo webhook");
            }
        });
    }
}

async fn receive(State(shared): State<Arc<Shared>>, body: Bytes) -> StatusCode {
    shared.requests.fetch_add(1, Ordering::Relaxed);
    if shared.refusing.load(Ordering::Relaxed) {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    let noted = if body.trim_ascii_start().first() == Some(&b'[') {
        serde_json::from_slice::<Vec<&RawValue>>(&body).is_ok_and(|all| {
            all.iter().all(|envelope| shared.ledger.note_envelope(envelope.get().as_bytes()))
        })
    } else {
        shared.ledger.note_envelope(&body)
    };
    if noted { StatusCode::NO_CONTENT } else { StatusCode::BAD_REQUEST }
}

impl Receiver for WebhookReceiver {
    fn ledger(&self) -> &Ledger {
        &self.shared.ledger
    }

    fn take_down(&self, how: Outage) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.shared.refusing.store(true, Ordering::Relaxed);
            if how == Outage::Closed {
                self.serving.stop().await;
            }
        })
    }

    fn bring_back(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            self.shared.refusing.store(false, Ordering::Relaxed);
            if !self.serving.running() {
                self.serve(listen(Some(self.address))?);
            }
            Ok(())
        })
    }
}
