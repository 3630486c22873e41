//! The HTTP side of it.

use std::{
    future::IntoFuture,
    net::SocketAddr,
    sync::{Arc, PoisonError},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::net::TcpListener;

use super::{
    registry,
    serving::{ServerEnded, Serving},
    status,
};
use crate::bridge::{BridgeView, Stuck};

/// A watch that has been closed for so long is not one that is just being renewed.
const STREAM_MAY_BE_CLOSED: Duration = Duration::from_mins(1);

/// Why the admin server does not start.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen on {address}: {error}\nhint: choose another address with server.listen; port 0 takes any free one"
)]
pub struct ServeError {
    address: SocketAddr,
    error: std::io::Error,
}

/// A listening admin server; it ends when it is dropped.
#[derive(Debug)]
pub struct AdminServer {
    address: SocketAddr,
    serving: Serving,
}

#[derive(Clone)]
struct Shared {
    view: BridgeView,
    registry: Arc<Registry>,
}

impl AdminServer {
    /// Binds the address and serves.
    ///
    /// # Errors
    ///
    /// The address cannot be bound.
    pub async fn start(address: SocketAddr, view: BridgeView) -> Result<Self, ServeError> {
        let failed = |error| ServeError { address, error };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let server = axum::serve(listener, read_only(view)).into_future();
        Ok(Self { address, serving: Serving::start("the admin server", server) })
    }

    /// The address bound.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Completes when it does not serve any longer, which it does until it is stopped or dropped.
    pub async fn failed(&mut self) -> ServerEnded {
        self.serving.failed().await
    }

    /// Ends it, and waits until it has.
    pub async fn stop(self) {
        self.serving.stop().await;
    }
}

/// Alive: nothing is at work on something that should long be done, so a restart would mend nothing.
async fn livez(State(shared): State<Shared>) -> Response {
    let stuck = shared.view.watchdog.stuck();
    if stuck.is_empty() {
        return "ok\n".into_response();
    }
    let reason = |Stuck { part, doing, since }: &Stuck| {
        format!("{part} is stuck: {doing}, for {} s\n", since.as_secs())
    };
    let reasons: String = stuck.iter().map(reason).collect();
    (StatusCode::SERVICE_UNAVAILABLE, reasons).into_response()
}

/// What everybody may ask who reaches the server.
pub(super) fn read_only(view: BridgeView) -> Router {
    let registry = Arc::new(registry(&view));
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/api/v1/status", get(serve_status))
        .with_state(Shared { view, registry })
}

/// Ready: the journal takes events, and each source has a stream open or had one a minute ago.
/// A sink that is down does not count: the journal keeps what it has not had, until one with
/// `overflow: block` has filled it.
async fn readyz(State(shared): State<Shared>) -> Response {
    let mut reasons = Vec::new();
    if let Some(error) = shared.view.ingest.journal_error() {
        reasons.push(format!("the journal cannot be written: {error}"));
    }
    for blocked in shared.view.ingest.blocked() {
        reasons.push(format!(
            "intake stands still: the sink {} has not had {} bytes of the journal",
            blocked.sink, blocked.bytes
        ));
    }
    let sources = shared.view.sources.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if sources.is_empty() {
        let why = shared.view.not_identified.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let why = why.unwrap_or_else(|| "not connected yet".to_owned());
        reasons.push(format!("the cluster has not been identified: {why}"));
    }
    for source in sources {
        let health = source.health.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if health.stream_closed_for().is_none_or(|closed| closed > STREAM_MAY_BE_CLOSED) {
            let why = health.last_error.unwrap_or_else(|| "not connected yet".to_owned());
            reasons.push(format!("no watch stream for {}: {why}", source.key));
        }
    }
    if reasons.is_empty() {
        return "ok\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, reasons.join("\n") + "\n").into_response()
}

async fn metrics(State(shared): State<Shared>) -> Response {
    let mut text = String::new();
    if encode(&mut text, &shared.registry).is_err() {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

async fn serve_status(State(shared): State<Shared>) -> Response {
    Json(status(&shared.view)).into_response()
}
