//! What goes over the wire, and what comes back.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use k8s_openapi::api::core::v1::Event;
use kube::{Client, Config};
use serde_json::{Value, json};
use tidings_kube::{
    client_without_retry,
    recorder::{ApiServerSink, EventBroadcaster, EventSink, EventType, SinkError, fake_recorder},
};

use super::support::{options, pod, record, source};

#[derive(Clone, Debug, PartialEq)]
struct Request {
    line: String,
    content_type: String,
    body: Value,
}

type Answer = (StatusCode, Vec<(&'static str, &'static str)>, String);

/// Answers from a list, then with the body of the request under the resourceVersion "9".
#[derive(Clone, Default)]
struct Server(Arc<Mutex<(Vec<Request>, VecDeque<Answer>)>>);

impl Server {
    async fn start(answers: impl IntoIterator<Item = Answer>) -> (Self, Client) {
        let server = Self::default();
        server.0.lock().unwrap().1 = answers.into_iter().collect();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let app = Router::new().fallback(answer).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        (server, client(&url))
    }

    fn requests(&self) -> Vec<Request> {
        self.0.lock().unwrap().0.clone()
    }
}

fn client(url: &str) -> Client {
    client_without_retry(Config::new(url.parse().unwrap())).unwrap()
}

async fn answer(
    State(server): State<Server>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let mut state = server.0.lock().unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    state.0.push(Request {
        line: format!("{method} {uri}"),
        content_type: headers["content-type"].to_str().unwrap().to_owned(),
        body: body.clone(),
    });
    if let Some((code, headers, body)) = state.1.pop_front() {
        let mut response = (code, body).into_response();
        for (name, value) in headers {
            response.headers_mut().insert(name, value.parse().unwrap());
        }
        return response;
    }
    let mut stored = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {}, "involvedObject": {}
    });
    for (name, value) in body.as_object().unwrap() {
        stored[name] = value.clone();
    }
    stored["metadata"]["resourceVersion"] = "9".into();
    (StatusCode::CREATED, stored.to_string()).into_response()
}

fn event() -> Event {
    let (recorder, mut events) = fake_recorder(1);
    record(&recorder, 1);
    let mut event = events.events().remove(0);
    event.metadata.name = Some("web-1.17".into());
    event
}

fn named(namespace: &str, name: &str) -> Event {
    let mut event = event();
    event.metadata.namespace = Some(namespace.into());
    event.metadata.name = Some(name.into());
    event
}

#[tokio::test]
async fn a_repeat_is_posted_and_then_patched() {
    let (server, client) = Server::start([]).await;
    let broadcaster = EventBroadcaster::new(options());
    let running = broadcaster.start_recording_to_sink(ApiServerSink::new(client)).await.unwrap();
    let recorder = broadcaster.new_recorder(source());
    for _ in 0..2 {
        recorder.event(&pod("web"), EventType::Warning, "BackOff", "a < b");
    }
    assert!(broadcaster.shutdown().await.is_complete());
    assert_eq!(running.counts().written, 2);
    let [created, patched] = <[Request; 2]>::try_from(server.requests()).unwrap();
    assert_eq!(created.line, "POST /api/v1/namespaces/shop/events");
    assert_eq!(created.content_type, "application/json");
    assert_eq!(created.body["kind"], "Event");
    assert_eq!(created.body["reportingComponent"], "tester");
    let name = created.body["metadata"]["name"].as_str().unwrap();
    assert_eq!(patched.line, format!("PATCH /api/v1/namespaces/shop/events/{name}"));
    assert_eq!(patched.content_type, "application/strategic-merge-patch+json");
    assert_eq!(patched.body["count"], 2);
    assert_eq!(patched.body.as_object().unwrap().len(), 3, "{}", patched.body);
}

#[tokio::test]
async fn the_answer_is_what_was_stored() {
    let (_, client) = Server::start([]).await;
    let stored = ApiServerSink::new(client).create(&event()).await.unwrap();
    assert_eq!(stored.metadata.resource_version.as_deref(), Some("9"));
}

#[tokio::test]
async fn an_error_is_told_by_its_class() {
    let status = |code: u16, reason: &str, more: Value| {
        let mut status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
            "code": code, "reason": reason, "message": "so it is"});
        status["details"] = more;
        (StatusCode::from_u16(code).unwrap(), vec![], status.to_string())
    };
    let terminating = json!({"causes": [{"reason": "NamespaceTerminating", "message": "going"}]});
    let plain = |code: u16, headers| {
        (StatusCode::from_u16(code).unwrap(), headers, "Too many requests".to_owned())
    };
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}}).to_string();
    let (server, client) = Server::start([
        status(404, "NotFound", json!({})),
        status(409, "AlreadyExists", json!({})),
        status(403, "Forbidden", terminating),
        status(503, "ServiceUnavailable", json!({"retryAfterSeconds": 4})),
        plain(429, vec![("retry-after", "7")]),
        plain(409, vec![]),
        (StatusCode::OK, vec![], pod),
        (StatusCode::OK, vec![], "<html>".into()),
    ])
    .await;
    let sink = ApiServerSink::new(client);
    let mut errors = Vec::new();
    for _ in 0..8 {
        errors.push(sink.create(&event()).await.unwrap_err());
    }
    assert!(errors[0].is_not_found());
    assert!(errors[1].is_already_exists());
    assert!(errors[2].is_namespace_terminating());
    assert!(errors[3].is_overload());
    assert_eq!(errors[3].retry_after().unwrap().as_secs(), 4);
    // A priority level that is full answers in plain text.
    assert!(errors[4].is_overload());
    assert_eq!(errors[4].retry_after().unwrap().as_secs(), 7);
    // Who answers a POST with 409 says that it is there.
    assert!(errors[5].is_already_exists());
    assert!(matches!(errors[6], SinkError::UnexpectedObject(_)), "{:?}", errors[6]);
    assert!(matches!(errors[7], SinkError::UnexpectedObject(_)), "{:?}", errors[7]);
    // None was tried again below.
    assert_eq!(server.requests().len(), 8);
}

#[tokio::test]
async fn no_answer_is_no_status() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = ApiServerSink::new(client(&url)).create(&event()).await.unwrap_err();
    assert!(matches!(error, SinkError::Other(_)), "{error:?}");
}

#[tokio::test]
async fn what_cannot_be_asked_for_is_not_asked_for() {
    let (server, client) = Server::start([]).await;
    let sink = ApiServerSink::new(client.clone());
    let own = ApiServerSink::for_namespace(client, "shop");
    let refused = [
        own.create(&named("billing", "web.1")).await,
        own.patch(&named("billing", "web.1"), None).await,
        sink.create(&named("a/../b", "web.1")).await,
        sink.create(&named("..", "web.1")).await,
        sink.patch(&named("shop", "web?x=1"), None).await,
        sink.patch(&named("shop", "web#1"), None).await,
        sink.patch(&named("shop", "%2e%2e"), None).await,
        sink.patch(&named("shop", ""), None).await,
    ];
    for answer in refused {
        assert!(matches!(answer, Err(SinkError::RequestConstruction(_))), "{answer:?}");
    }
    assert!(server.requests().is_empty());
    own.create(&named("shop", "web.1")).await.unwrap();
    // As it is in client-go, an event without a namespace goes to the collection of all.
    sink.create(&named("", "web.1")).await.unwrap();
    assert_eq!(server.requests()[1].line, "POST /api/v1/events");
}
