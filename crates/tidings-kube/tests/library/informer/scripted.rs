//! An API server whose answers are written down, as a service under the `kube` client: no socket,
//! so that paused time is exact. Bodies come in pieces, each at its time.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{
    FutureExt as _, StreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::StreamBody;
use hyper::body::Frame;
use kube::Client;
use serde_json::{Value, json};
use tokio::{
    sync::{Notify, mpsc},
    time::{Instant, sleep},
};

/// What was asked, and when.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) at: Instant,
    /// Since the server last did something: took a connection, sent a piece, closed.
    pub(crate) since_last_action: Duration,
    pub(crate) path: String,
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) headers: HeaderMap,
}

impl Request {
    pub(crate) fn param(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    pub(crate) fn is_watch(&self) -> bool {
        self.param("watch") == "true"
    }
}

/// How a body ends behind its pieces.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    /// As it should, after so long.
    Close(Duration),
    /// Not at all.
    Open,
    /// By an error of the connection.
    Break(io::ErrorKind),
}

/// An answer to one request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// There is no connection.
    Unreachable(io::ErrorKind),
    /// Nothing is ever answered.
    Hang,
    Body {
        code: u16,
        headers: Vec<(&'static str, String)>,
        /// Each so long after the one before.
        pieces: Vec<(Duration, Bytes)>,
        ending: Ending,
    },
}

impl Answer {
    /// A body at once and whole.
    pub(crate) fn body(code: u16, body: impl Into<Bytes>) -> Self {
        let pieces = vec![(Duration::ZERO, body.into())];
        let ending = Ending::Close(Duration::ZERO);
        Self::Body { code, headers: Vec::new(), pieces, ending }
    }

    /// A body in pieces.
    pub(crate) fn stream(pieces: Vec<(Duration, Bytes)>, ending: Ending) -> Self {
        Self::Body { code: 200, headers: Vec::new(), pieces, ending }
    }

    /// A watch: each object so many milliseconds after the one before, on a line of its own.
    pub(crate) fn watch<'a>(
        events: impl IntoIterator<Item = (u64, &'a str, Value)>,
        ending: Ending,
    ) -> Self {
        let line = |kind: &str, object: Value| json!({"type": kind, "object": object}).to_string();
        let pieces = events.into_iter().map(|(after_ms, kind, object)| {
            (Duration::from_millis(after_ms), Bytes::from(line(kind, object) + "\n"))
        });
        Self::stream(pieces.collect(), ending)
    }

    /// A list of config maps; `more` is the token of the next page.
    pub(crate) fn list(items: &[Value], resource_version: &str, more: &str) -> Self {
        let metadata = json!({"resourceVersion": resource_version, "continue": more});
        let list = json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": items});
        Self::body(200, list.to_string())
    }

    /// A refusal; `status` has code, reason, message and details.
    pub(crate) fn status(status: &Value) -> Self {
        let mut body = status.clone();
        body["kind"] = "Status".into();
        body["apiVersion"] = "v1".into();
        body["status"] = "Failure".into();
        let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok());
        Self::body(code.unwrap_or(500), body.to_string())
    }

    pub(crate) fn refused() -> Self {
        Self::Unreachable(io::ErrorKind::ConnectionRefused)
    }

    pub(crate) fn with_header(mut self, name: &'static str, value: &str) -> Self {
        if let Self::Body { headers, .. } = &mut self {
            headers.push((name, value.to_owned()));
        }
        self
    }
}

type Body = StreamBody<BoxStream<'static, io::Result<Frame<Bytes>>>>;

type Rule = Box<dyn FnMut(&Request) -> Answer + Send>;

struct Inner {
    rule: Rule,
    requests: Vec<Request>,
    last_action: Instant,
}

/// See the [module](self). Clones are the same server.
#[derive(Clone)]
pub(crate) struct ScriptedServer(Arc<Mutex<Inner>>, Arc<Notify>);

impl ScriptedServer {
    /// Answers by a rule.
    pub(crate) fn by(rule: impl FnMut(&Request) -> Answer + Send + 'static) -> Self {
        let last_action = Instant::now();
        let inner = Inner { rule: Box::new(rule), requests: Vec::new(), last_action };
        Self(Arc::new(Mutex::new(inner)), Arc::default())
    }

    /// Gives these answers in turn, and none after them.
    pub(crate) fn script(answers: impl IntoIterator<Item = Answer>) -> Self {
        let mut answers: VecDeque<Answer> = answers.into_iter().collect();
        Self::by(move |_| answers.pop_front().unwrap_or(Answer::Hang))
    }

    /// A client of it, which tries nothing again by itself.
    pub(crate) fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: http::Request<_>| server.serve(&request));
        Client::new(service, "default")
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.0.lock().unwrap().requests.clone()
    }

    /// Waits until so many were made.
    pub(crate) async fn until_requests(&self, count: usize) {
        loop {
            let another = self.1.notified();
            if self.0.lock().unwrap().requests.len() >= count {
                return;
            }
            another.await;
        }
    }

    fn serve<B>(
        &self,
        request: &http::Request<B>,
    ) -> BoxFuture<'static, Result<Response<Body>, io::Error>> {
        let query = request.uri().query().unwrap_or_default();
        let query = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let answer = {
            let mut inner = self.0.lock().unwrap();
            let request = Request {
                at: Instant::now(),
                since_last_action: inner.last_action.elapsed(),
                path: request.uri().path().to_owned(),
                query,
                headers: request.headers().clone(),
            };
            inner.last_action = Instant::now();
            let answer = (inner.rule)(&request);
            inner.requests.push(request);
            self.1.notify_waiters();
            answer
        };
        match answer {
            Answer::Unreachable(kind) => std::future::ready(Err(kind.into())).boxed(),
            Answer::Hang => std::future::pending().boxed(),
            Answer::Body { code, headers, pieces, ending } => {
                let frames = self.clone().send(pieces, ending).map(|piece| piece.map(Frame::data));
                let body = StreamBody::new(frames.boxed());
                let mut response = Response::new(body);
                *response.status_mut() = StatusCode::from_u16(code).unwrap();
                for (name, value) in headers {
                    response.headers_mut().insert(name, value.parse().unwrap());
                }
                std::future::ready(Ok(response)).boxed()
            }
        }
    }

    /// Sends whether or not anybody reads, until the other end goes away.
    fn send(
        self,
        pieces: Vec<(Duration, Bytes)>,
        ending: Ending,
    ) -> impl stream::Stream<Item = Result<Bytes, io::Error>> + Send + 'static {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let acted = move || self.0.lock().unwrap().last_action = Instant::now();
        tokio::spawn(async move {
            let send = async |after: Duration, piece: Result<Bytes, io::Error>| {
                // Without a wait nothing comes between, as it would not on a wire.
                if !after.is_zero() {
                    sleep(after).await;
                }
                let _ = sender.send(piece);
                acted();
            };
            let all = async {
                for (after, piece) in pieces {
                    send(after, Ok(piece)).await;
                }
                match ending {
                    Ending::Open => std::future::pending().await,
                    Ending::Break(kind) => send(Duration::ZERO, Err(kind.into())).await,
                    Ending::Close(after) if !after.is_zero() => {
                        sleep(after).await;
                        acted();
                    }
                    Ending::Close(_) => {}
                }
            };
            tokio::select! {
                () = all => {}
                () = sender.closed() => {}
            }
        });
        stream::poll_fn(move |context| receiver.poll_recv(context))
    }
}
