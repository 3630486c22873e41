//! The client is made anew when its credentials end, when their files are replaced, and when the API
//! server does not accept them.
//!
//! A watch under way goes on over the connection that it has. A request that was answered 401 is sent
//! again with the new credentials: the API server has not acted on it.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Collected, Limited};
use jiff::{SignedDuration, Timestamp};
use kube::{Client, client::Body, core::Status};
use serde_json::json;
use tokio::{
    task::spawn_blocking,
    time::{Instant, timeout},
};

use super::{
    ClientError,
    access::{Access, Made},
    lock,
};
use crate::sinks::Proxy;

/// Between two looks at the files, and between two attempts to make the client anew.
const EVERY: Duration = Duration::from_secs(5);

/// A new client is made this long before the credentials end, or a fifth of their life before if that is
/// less.
const AHEAD: SignedDuration = SignedDuration::from_secs(60);

/// The longest that a request waits for a new client; then it uses the present one.
const WAITED_FOR: Duration = Duration::from_secs(10);

/// The most bytes of the body of a 401 that are read, and the time for it.
const MAX_REFUSAL: usize = 64 << 10;
const REFUSAL_WITHIN: Duration = Duration::from_secs(5);

/// A client that renews its credentials.
pub(super) fn client(access: Arc<Access>, made: Made) -> Client {
    let namespace = made.client.default_namespace().to_owned();
    let renewing = Arc::new(Renewing {
        turn: tokio::sync::Mutex::new(Turn {
            looked: Instant::now(),
            tried: None,
            proxy: access.proxy(),
        }),
        now: Mutex::new(Arc::new(made)),
        failed: Mutex::default(),
        failing: AtomicBool::new(false),
        access,
    });
    let service = tower::service_fn(move |request| {
        let renewing = Arc::clone(&renewing);
        async move {
            let answer = renewing.send(request).await?;
            Ok::<_, kube::Error>(answer.map(|body| body.map_err(inner)))
        }
    });
    Client::new(service, namespace)
}

struct Renewing {
    access: Arc<Access>,
    now: Mutex<Arc<Made>>,
    turn: tokio::sync::Mutex<Turn>,
    /// Why the client could not be made anew the last time.
    failed: Mutex<Option<String>>,
    /// Whether the last request failed.
    failing: AtomicBool,
}

/// Attempts are made one at a time.
struct Turn {
    looked: Instant,
    /// When the last attempt ended.
    tried: Option<Instant>,
    /// `source.proxy` at the last attempt.
    proxy: Proxy,
}

impl Renewing {
    async fn send(self: Arc<Self>, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
        let (parts, body) = request.into_parts();
        let again = body.try_clone().map(|body| Request::from_parts(parts.clone(), body));
        let made = self.current_for_a_request().await;
        let answer = self.ask(&made, Request::from_parts(parts, body)).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        let renewed = self.renewed(Some(&made)).await;
        let answer = match again {
            Some(again) if !Arc::ptr_eq(&renewed, &made) => self.ask(&renewed, again).await?,
            _ => answer,
        };
        if answer.status() != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        let mut whose = renewed.user.clone();
        if let Some(failed) = &*lock(&self.failed) {
            whose = format!("{whose}; now {failed}");
        }
        Ok(explained(answer, &whose).await)
    }

    async fn ask(
        &self,
        made: &Made,
        request: Request<Body>,
    ) -> Result<Response<Body>, kube::Error> {
        let answer = made.client.send(request).await;
        let refused = |answer: &Response<Body>| answer.status() == StatusCode::UNAUTHORIZED;
        self.failing.store(answer.as_ref().map_or(true, refused), Ordering::Relaxed);
        answer
    }

    /// The client for the next request. Waits for a new one where the present one may not work.
    async fn current_for_a_request(self: &Arc<Self>) -> Arc<Made> {
        let made = self.current();
        let may_not_work = made.ended() || self.failing.load(Ordering::Relaxed);
        if may_not_work || self.access.has_other_proxy(&made.of) {
            return self.renewed(None).await;
        }
        let looked = self.turn.try_lock().map(|turn| turn.looked);
        if looked.is_ok_and(|looked| made.ends_soon() || looked.elapsed() >= EVERY) {
            tokio::spawn(Arc::clone(self).renew(None));
        }
        made
    }

    /// Makes a new client if one is due, and returns the present one. The attempt goes on when its
    /// request no longer waits: a plugin may take longer.
    async fn renewed(self: &Arc<Self>, refused: Option<&Arc<Made>>) -> Arc<Made> {
        let attempt = tokio::spawn(Arc::clone(self).renew(refused.cloned()));
        let _ = timeout(WAITED_FOR, attempt).await;
        self.current()
    }

    async fn renew(self: Arc<Self>, refused: Option<Arc<Made>>) {
        let mut turn = self.turn.lock().await;
        let proxy = self.access.proxy();
        if turn.proxy == proxy && turn.tried.is_some_and(|tried| tried.elapsed() < EVERY) {
            return;
        }
        turn.proxy = proxy;
        turn.looked = Instant::now();
        let made = self.current();
        let refused = refused.is_some_and(|refused| Arc::ptr_eq(&refused, &made));
        let needed = refused || made.ends_soon();
        let (this, before) = (Arc::clone(&self), Arc::clone(&made));
        let reading = spawn_blocking(move || {
            let access = &this.access;
            (needed || access.has_changed(&before.of)).then(|| access.read(Some(&before.of)))
        });
        let Ok(Some(read)) = reading.await else { return };
        let (read, unread) = match read {
            Ok(read) => (Some(read), None),
            // A plugin can be run all the same.
            Err(error) => (needed.then(|| made.of.clone()), Some(error)),
        };
        let renewed = match read {
            Some(read) => read.client().await.map(Some),
            None => Ok(None),
        };
        turn.tried = Some(Instant::now());
        let failed = match renewed {
            Ok(renewed) => {
                if let Some(renewed) = renewed.filter(|renewed| !renewed.is_as(&made)) {
                    let user = &renewed.user;
                    tracing::info!(user, "the client to the API server was made anew");
                    *lock(&self.now) = Arc::new(renewed);
                }
                unread
            }
            Err(error) => Some(error),
        };
        self.set_failed(failed.as_ref());
    }

    fn set_failed(&self, failed: Option<&ClientError>) {
        let text = failed.map(|error| format!("{}: {}", error.what, error.error));
        let before = std::mem::replace(&mut *lock(&self.failed), text.clone());
        if let Some(ClientError { hint, .. }) = failed
            && before != text
        {
            let said = "the client to the API server cannot be made anew: the former one is used";
            tracing::warn!(error = text, hint, "{said}");
        }
    }

    fn current(&self) -> Arc<Made> {
        Arc::clone(&lock(&self.now))
    }
}

impl Made {
    fn ended(&self) -> bool {
        self.expires.is_some_and(|expires| expires <= Timestamp::now())
    }

    fn ends_soon(&self) -> bool {
        self.expires.is_some_and(|expires| {
            let ahead = AHEAD.min(expires.duration_since(self.since) / 5);
            expires.duration_since(Timestamp::now()) <= ahead
        })
    }
}

/// A 401 that says whose credentials the API server does not accept.
async fn explained(answer: Response<Body>, whose: &str) -> Response<Body> {
    let (mut parts, body) = answer.into_parts();
    let body = timeout(REFUSAL_WITHIN, Limited::new(body, MAX_REFUSAL).collect()).await;
    let body = body.ok().and_then(Result::ok).map(Collected::to_bytes).unwrap_or_default();
    let words = serde_json::from_slice::<Status>(&body).map(|status| status.message);
    let words = words.ok().filter(|words| !words.is_empty() && words.len() < 200);
    let words = words.as_deref().unwrap_or("Unauthorized");
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": format!("{words}: {whose}"),
        "reason": "Unauthorized",
        "code": 401,
    });
    for gone in [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CONTENT_ENCODING] {
        parts.headers.remove(gone);
    }
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Response::from_parts(parts, Body::from(status.to_string().into_bytes()))
}

/// Unwraps an error of kube, which the outer client wraps again.
fn inner(error: kube::Error) -> Box<dyn std::error::Error + Send + Sync> {
    match error {
        kube::Error::Service(error) => error,
        error => Box::new(error),
    }
}
