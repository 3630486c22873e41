//! What goes over the wire.

use k8s_openapi::api::events::v1::Event;
use serde_json::{Value, json};
use tidings_testkit::receiver::{HttpReceiver, Step};

use super::server::pod;
use crate::{
    client_without_retry,
    recorder::{
        ApiServerSink, EventType, SinkError,
        events_v1::{EventBroadcaster, EventBroadcasterOptions, EventSink, RecordingOptions},
    },
};

fn start() -> (HttpReceiver, ApiServerSink) {
    let server = HttpReceiver::recording(|_, request| {
        let (status, body) = if request.line().starts_with("PATCH") {
            ("404 Not Found", json!({"kind": "Status", "code": 404, "reason": "NotFound"}))
        } else {
            let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {}});
            ("201 Created", event)
        };
        vec![Step::answer(status, "", body.to_string())]
    });
    let server = server.unwrap();
    let config = kube::Config::new(server.url("http").parse().unwrap());
    (server, ApiServerSink::new(client_without_retry(config).unwrap()))
}

#[tokio::test]
async fn a_repeat_is_posted_and_patched_and_posted_again_if_it_has_expired() {
    let (server, sink) = start();
    let broadcaster = EventBroadcaster::new(EventBroadcasterOptions::default());
    broadcaster.start_recording_to_sink(sink, RecordingOptions::default()).await.unwrap();
    let recorder = broadcaster.new_recorder("example.io/scheduler");
    for _ in 0..2 {
        recorder.event(&pod("web"), EventType::Normal, "Evicted", "Evicting", "why");
    }
    let report = broadcaster.shutdown().await;
    assert_eq!(report.tally.announced, 2);
    let received = server.received();
    let body = |nth: usize| serde_json::from_slice::<Value>(&received[nth].body).unwrap();
    let (first, patch, again) = (body(0), body(1), body(2));
    let asked: Vec<_> =
        received.iter().map(|r| (r.line(), r.header("content-type").unwrap())).collect();
    let path = "/apis/events.k8s.io/v1/namespaces/shop/events";
    let name = first["metadata"]["name"].as_str().unwrap();
    let post = format!("POST {path} HTTP/1.1");
    let expected = [
        (&*post, "application/json"),
        (&*format!("PATCH {path}/{name} HTTP/1.1"), "application/strategic-merge-patch+json"),
        (&*post, "application/json"),
    ];
    assert_eq!(asked, expected);
    assert_eq!(first["apiVersion"], "events.k8s.io/v1");
    assert_eq!(patch["series"]["count"], 2);
    assert_eq!(patch.as_object().unwrap().len(), 1);
    assert_eq!(again["series"], patch["series"]);
}

#[tokio::test]
async fn an_event_without_a_namespace_is_not_sent() {
    let (server, sink) = start();
    let error = EventSink::create(&sink, &Event::default()).await.unwrap_err();
    assert!(matches!(error, SinkError::RequestConstruction(_)), "{error}");
    assert_eq!(server.requests(), 0);
}
