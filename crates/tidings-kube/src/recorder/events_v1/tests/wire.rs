//! What goes over the wire.

use std::sync::{Arc, Mutex};

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse as _, Response},
};
use k8s_openapi::api::events::v1::Event;
use serde_json::{Value, json};

use super::server::pod;
use crate::{
    client_without_retry,
    recorder::{
        ApiServerSink, EventType, SinkError,
        events_v1::{EventBroadcaster, EventBroadcasterOptions, EventSink, RecordingOptions},
    },
};

type Requests = Arc<Mutex<Vec<(String, String, Value)>>>;

async fn start() -> (Requests, ApiServerSink) {
    let requests = Requests::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let app = Router::new().fallback(answer).with_state(Arc::clone(&requests));
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    let config = kube::Config::new(url.parse().unwrap());
    (requests, ApiServerSink::new(client_without_retry(config).unwrap()))
}

async fn answer(
    State(requests): State<Requests>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Response {
    let content_type = headers["content-type"].to_str().unwrap().to_owned();
    requests.lock().unwrap().push((format!("{method} {uri}"), content_type, body));
    if method == Method::PATCH {
        let status = json!({"kind": "Status", "code": 404, "reason": "NotFound"});
        return (StatusCode::NOT_FOUND, Json(status)).into_response();
    }
    let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {}});
    (StatusCode::CREATED, Json(event)).into_response()
}

#[tokio::test]
async fn a_repeat_is_posted_and_patched_and_posted_again_if_it_has_expired() {
    let (requests, sink) = start().await;
    let broadcaster = EventBroadcaster::new(EventBroadcasterOptions::default());
    broadcaster.start_recording_to_sink(sink, RecordingOptions::default()).await.unwrap();
    let recorder = broadcaster.new_recorder("example.io/scheduler");
    for _ in 0..2 {
        recorder.event(&pod("web"), EventType::Normal, "Evicted", "Evicting", "why");
    }
    let report = broadcaster.shutdown().await;
    assert_eq!(report.tally.announced, 2);
    let requests = std::mem::take(&mut *requests.lock().unwrap());
    let [first, patch, again] = requests.try_into().unwrap();
    let path = "/apis/events.k8s.io/v1/namespaces/shop/events";
    assert_eq!((first.0, &*first.1), (format!("POST {path}"), "application/json"));
    assert_eq!(first.2["apiVersion"], "events.k8s.io/v1");
    let name = first.2["metadata"]["name"].as_str().unwrap();
    assert_eq!(patch.0, format!("PATCH {path}/{name}"));
    assert_eq!(patch.1, "application/strategic-merge-patch+json");
    assert_eq!(patch.2["series"]["count"], 2);
    assert_eq!(patch.2.as_object().unwrap().len(), 1);
    assert_eq!((again.0, &again.2["series"]), (format!("POST {path}"), &patch.2["series"]));
}

#[tokio::test]
async fn an_event_without_a_namespace_is_not_sent() {
    let (requests, sink) = start().await;
    let error = EventSink::create(&sink, &Event::default()).await.unwrap_err();
    assert!(matches!(error, SinkError::RequestConstruction(_)), "{error}");
    assert!(requests.lock().unwrap().is_empty());
}
