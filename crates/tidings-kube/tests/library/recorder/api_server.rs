//! What goes over the wire, and what comes back.

use k8s_openapi::api::core::v1::Event;
use kube::{Client, Config};
use serde_json::{Value, json};
use tidings_kube::{
    client_without_retry,
    recorder::{ApiServerSink, EventBroadcaster, EventSink, EventType, SinkError, fake_recorder},
};
use tidings_testkit::receiver::{HttpReceiver, Received, Step};

use super::support::{options, pod, record, source};

/// Answers from a list, then with the body of the request under the resourceVersion "9".
fn start(answers: Vec<Step>) -> (HttpReceiver, Client) {
    let server = HttpReceiver::recording(move |nth, request| {
        vec![answers.get(nth).cloned().unwrap_or_else(|| stored(&body(request)))]
    });
    let server = server.unwrap();
    let client = client(&server.url("http"));
    (server, client)
}

fn body(request: &Received) -> Value {
    assert!(request.header("content-type").is_some_and(|it| it.ends_with("json")));
    serde_json::from_slice(&request.body).unwrap()
}

fn stored(body: &Value) -> Step {
    let mut stored = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {}, "involvedObject": {}
    });
    for (name, value) in body.as_object().unwrap() {
        stored[name] = value.clone();
    }
    stored["metadata"]["resourceVersion"] = "9".into();
    Step::answer("201 Created", "", stored.to_string())
}

fn client(url: &str) -> Client {
    client_without_retry(Config::new(url.parse().unwrap())).unwrap()
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
    let (server, client) = start(Vec::new());
    let broadcaster = EventBroadcaster::new(options());
    let running = broadcaster.start_recording_to_sink(ApiServerSink::new(client)).await.unwrap();
    let recorder = broadcaster.new_recorder(source());
    for _ in 0..2 {
        recorder.event(&pod("web"), EventType::Warning, "BackOff", "a < b");
    }
    assert!(broadcaster.shutdown().await.is_complete());
    assert_eq!(running.counts().written, 2);
    let received = server.received();
    let [created, patched] = received.as_slice() else { panic!("{received:?}") };
    assert_eq!(created.line(), "POST /api/v1/namespaces/shop/events HTTP/1.1");
    assert_eq!(created.header("content-type"), Some("application/json"));
    let created = body(created);
    assert_eq!(created["kind"], "Event");
    assert_eq!(created["reportingComponent"], "tester");
    let name = created["metadata"]["name"].as_str().unwrap();
    assert_eq!(patched.line(), format!("PATCH /api/v1/namespaces/shop/events/{name} HTTP/1.1"));
    assert_eq!(patched.header("content-type"), Some("application/strategic-merge-patch+json"));
    let patched = body(patched);
    assert_eq!(patched["count"], 2);
    assert_eq!(patched.as_object().unwrap().len(), 3, "{patched}");
}

#[tokio::test]
async fn the_answer_is_what_was_stored() {
    let (_server, client) = start(Vec::new());
    let stored = ApiServerSink::new(client).create(&event()).await.unwrap();
    assert_eq!(stored.metadata.resource_version.as_deref(), Some("9"));
}

#[tokio::test]
async fn an_error_is_told_by_its_class() {
    let status = |code: u16, reason: &str, more: Value| {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
            "code": code, "reason": reason, "message": "so it is", "details": more});
        Step::answer(&format!("{code} {reason}"), "", status.to_string())
    };
    let terminating = json!({"causes": [{"reason": "NamespaceTerminating", "message": "going"}]});
    let plain = |status, headers| Step::answer(status, headers, "Too many requests");
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}}).to_string();
    let (server, client) = start(vec![
        status(404, "NotFound", json!({})),
        status(409, "AlreadyExists", json!({})),
        status(403, "Forbidden", terminating),
        status(503, "ServiceUnavailable", json!({"retryAfterSeconds": 4})),
        plain("429 Too Many Requests", "retry-after: 7\r\n"),
        plain("409 Conflict", ""),
        Step::answer("200 OK", "", pod),
        Step::answer("200 OK", "", "<html>"),
    ]);
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
    assert_eq!(server.requests(), 8);
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
    let (server, client) = start(Vec::new());
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
    assert_eq!(server.requests(), 0);
    own.create(&named("shop", "web.1")).await.unwrap();
    // As it is in client-go, an event without a namespace goes to the collection of all.
    sink.create(&named("", "web.1")).await.unwrap();
    assert_eq!(server.received()[1].line(), "POST /api/v1/events HTTP/1.1");
}
