//! The HTTP side of it.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use axum::{
    Extension, Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use prometheus_client::{encoding::text::encode, registry::Registry};
use rustix::{io::Errno, net::sockopt};
use tokio::{
    net::{TcpListener, TcpSocket},
    task::spawn_blocking,
};

use super::{
    access::{Access, Refused, Token},
    connections::{self, Peer, REQUEST_WITHIN},
    registry,
    serving::{ServerEnded, Serving},
    status::{self, Problem, status},
    text_format,
};
use crate::{
    bridge::BridgeView,
    config::{ServerDetail, ServerSettings},
};

/// So many connections may wait to be accepted, if the kernel allows them (`net.core.somaxconn`): beside
/// a flood, a probe that finds no room there tries again only after a second.
const BACKLOG: u32 = 4096;

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
    token: Token,
    serving: Serving,
}

#[derive(Clone)]
struct Shared {
    view: BridgeView,
    registry: Arc<Registry>,
    access: Arc<Access>,
}

impl AdminServer {
    /// Binds the address and serves.
    ///
    /// # Errors
    ///
    /// The address cannot be bound.
    pub fn start(settings: ServerSettings, view: BridgeView) -> Result<Self, ServeError> {
        let ServerSettings { listen: address, detail, token } = settings;
        let failed = |error| ServeError { address, error };
        let listener = bind(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let token = Token::new(token);
        let routes = read_only(view, Access { detail, token: token.clone() });
        let server = connections::serve(listener, routes, Some(REQUEST_WITHIN));
        Ok(Self { address, token, serving: Serving::start("the admin server", server) })
    }

    /// The address bound.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The token that it asks for.
    pub fn token(&self) -> Token {
        self.token.clone()
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

/// Listens on an address. `[::]` is every address of both families, whatever `net.ipv6.bindv6only`
/// says, and where there is no IPv6, every one of IPv4.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    if address.ip() != Ipv6Addr::UNSPECIFIED {
        return listen(address);
    }
    let lacks_ipv6 = |error: &io::Error| {
        let code = error.raw_os_error();
        [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL].iter().any(|e| code == Some(e.raw_os_error()))
    };
    match listen(address) {
        Err(error) if lacks_ipv6(&error) => listen((Ipv4Addr::UNSPECIFIED, address.port()).into()),
        listener => listener,
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    if address.ip() == Ipv6Addr::UNSPECIFIED {
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Alive: nothing is at work on something that should long be done, so a restart would mend nothing.
async fn livez(
    State(shared): State<Shared>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Response {
    shared.probed(&status::stuck(&shared.view), "stuck", peer, &headers)
}

impl Shared {
    /// What a probe is answered: what is wrong for whoever may know, one word for everybody else.
    fn probed(&self, found: &[Problem], word: &str, peer: Peer, headers: &HeaderMap) -> Response {
        if found.is_empty() {
            return "ok\n".into_response();
        }
        let told = self.access.permit(ServerDetail::All, peer, headers).is_ok();
        let facts = || found.iter().map(|problem| &*problem.what).collect::<Vec<_>>().join("\n");
        let said = if told { facts() } else { word.to_owned() };
        (StatusCode::SERVICE_UNAVAILABLE, said + "\n").into_response()
    }
}

/// What may be asked of a bridge without changing anything.
pub(super) fn read_only(view: BridgeView, access: Access) -> Router {
    let (registry, access) = (Arc::new(registry(&view)), Arc::new(access));
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/api/v1/status", get(serve_status))
        .with_state(Shared { view, registry, access })
}

/// Ready: the journal takes events, and each source has a stream open or had one a minute ago.
/// A sink that is down does not count: the journal keeps what it has not had, until one with
/// `overflow: block` has filled it.
async fn readyz(
    State(shared): State<Shared>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Response {
    shared.probed(&status::unready(&shared.view), "unready", peer, &headers)
}

async fn metrics(
    State(shared): State<Shared>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    shared.access.permit(ServerDetail::Metrics, peer, &headers)?;
    // Counters of events may have many series; a probe does not wait for them.
    let encoding = spawn_blocking(move || {
        let mut text = String::new();
        encode(&mut text, &shared.registry).map(|()| text)
    });
    let Ok(Ok(text)) = encoding.await else {
        return Ok(StatusCode::INTERNAL_SERVER_ERROR.into_response());
    };
    let mut accepts = headers.get_all(header::ACCEPT).into_iter().filter_map(|a| a.to_str().ok());
    let openmetrics =
        accepts.any(|accept| accept.to_ascii_lowercase().contains("application/openmetrics-text"));
    let (kind, text) = if openmetrics {
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", text)
    } else {
        (text_format::CONTENT_TYPE, text_format::of_openmetrics(&text))
    };
    Ok(([(header::CONTENT_TYPE, kind), (header::VARY, "accept")], text).into_response())
}

async fn serve_status(
    State(shared): State<Shared>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    shared.access.permit(ServerDetail::All, peer, &headers)?;
    Ok(Json(status(&shared.view)).into_response())
}
