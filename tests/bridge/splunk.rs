//! The bridge and Splunk: an event is delivered once an indexer says that it has it, whatever fails on the way.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use serde_json::{Value, json};
use tidings::{
    bridge::{Sink, SinkCondition},
    config::parse,
};
use tidings_testkit::api_server::EventObject;

use crate::support::{
    MemorySink, Setup, Tuning, costs_no_event, create, server, settled, stop, until,
};

const HOSTILE: [&str; 3] = [
    "line\n{\"event\":\"forged\",\"fields\":{\"event_id\":\"forged\"}}\n",
    "quote \" brace } ] backslash \\ NUL \0 bell \u{7} C1 \u{9b} \u{2028}",
    "right-to-left \u{202e}txt.exe, {{ id }} {% if %}",
];

/// The behaviour of the double.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Takes,
    /// The token is not known.
    Revoked,
    /// The token may not write to the index.
    Forbidden,
    /// The queues are full.
    Busy,
    /// Takes events and loses them before they are indexed.
    Loses,
}

/// An event collector that acknowledges a request at the second question, once.
#[derive(Clone)]
struct Collector(Arc<Mutex<Store>>);

#[derive(Default)]
struct Store {
    mode: Option<Mode>,
    /// By their ids.
    events: BTreeMap<String, Vec<Value>>,
    requests: usize,
    /// By channel: the ids given out, and how often each was asked for.
    channels: BTreeMap<String, Vec<Option<usize>>>,
}

type Answer = (StatusCode, Json<Value>);

impl Collector {
    async fn start() -> (Self, String) {
        let collector = Self(Arc::default());
        let router = Router::new()
            .route("/services/collector/event", post(event))
            .route("/services/collector/ack", post(acknowledge))
            .with_state(collector.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async { axum::serve(listener, router).await });
        (collector, url)
    }

    fn set(&self, mode: Mode) {
        self.0.lock().unwrap().mode = Some(mode);
    }

    fn requests(&self) -> usize {
        self.0.lock().unwrap().requests
    }

    fn events(&self) -> BTreeMap<String, Vec<Value>> {
        self.0.lock().unwrap().events.clone()
    }
}

fn said(status: u16, code: u32, text: &str) -> Answer {
    let status = StatusCode::from_u16(status).unwrap();
    (status, Json(json!({ "text": text, "code": code })))
}

async fn event(State(collector): State<Collector>, headers: HeaderMap, body: Bytes) -> Answer {
    let mut store = collector.0.lock().unwrap();
    store.requests += 1;
    let mode = store.mode.unwrap_or(Mode::Takes);
    if mode == Mode::Revoked || headers["authorization"] != "Splunk 0f6b9c1e-token" {
        return said(403, 4, "Invalid token");
    }
    let Some(channel) = headers.get("x-splunk-request-channel") else {
        return said(400, 10, "Data channel is missing");
    };
    let channel = channel.to_str().unwrap().to_owned();
    if uuid::Uuid::parse_str(&channel).is_err() {
        return said(400, 11, "Invalid data channel");
    }
    match mode {
        Mode::Busy => return said(503, 9, "Server is busy"),
        Mode::Forbidden => return said(400, 7, "Incorrect index"),
        _ => {}
    }
    let objects: Result<Vec<Value>, _> =
        serde_json::Deserializer::from_slice(&body).into_iter().collect();
    let Ok(objects) = objects else { return said(400, 6, "Invalid data format") };
    for object in &objects {
        let flat = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
        if object["event"].is_null() {
            return said(400, 12, "Event field is required");
        }
        if !object["time"].is_number() || object["index"] != "k8s" {
            return said(400, 7, "Incorrect index");
        }
        if !object["fields"].as_object().is_some_and(|fields| fields.values().all(flat)) {
            return said(400, 15, "Error in handling indexed fields");
        }
    }
    if mode == Mode::Takes {
        for object in objects {
            let id = object["fields"]["event_id"].as_str().unwrap().to_owned();
            store.events.entry(id).or_default().push(object);
        }
    }
    let channel = store.channels.entry(channel).or_default();
    channel.push((mode == Mode::Takes).then_some(0));
    let answer = json!({ "text": "Success", "code": 0, "ackId": channel.len() - 1 });
    (StatusCode::OK, Json(answer))
}

async fn acknowledge(
    State(collector): State<Collector>,
    headers: HeaderMap,
    Json(asked): Json<Value>,
) -> Answer {
    let mut store = collector.0.lock().unwrap();
    let channel = headers["x-splunk-request-channel"].to_str().unwrap();
    let ids = store.channels.get_mut(channel).unwrap();
    let mut acks = serde_json::Map::new();
    for id in asked["acks"].as_array().unwrap() {
        let id = usize::try_from(id.as_u64().unwrap()).unwrap();
        if let Some(times) = &mut ids[id] {
            *times += 1;
        }
        // Said once.
        acks.insert(id.to_string(), (ids[id] == Some(2)).into());
    }
    (StatusCode::OK, Json(json!({ "acks": acks })))
}

/// The sink of `config/splunk.yaml`, towards the double, with another time for acknowledgements.
fn shipped(url: &str) -> Arc<dyn Sink> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("config/splunk.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let text = text.replace("https://splunk.example.com:8088", url);
    let text = text.replace("acknowledge: true", "acknowledge: true\n      acknowledgeWithin: 2s");
    let text = text.replace("    compression: gzip\n", "");
    let token = [("SPLUNK_HEC_TOKEN".into(), "0f6b9c1e-token".into())];
    let settings = parse("splunk.yaml", &text, token).unwrap_or_else(|error| panic!("{error}"));
    let [sink] = settings.sinks.as_slice() else { panic!("one sink") };
    assert_eq!(sink.timeout, std::time::Duration::from_secs(2));
    assert_eq!(sink.concurrency, 8);
    sink.sink.build().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_event_is_indexed_though_some_are_lost_before_that() {
    let (server, dir, memory) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let (collector, url) = Collector::start().await;
    let mut setup = Setup::new(&server, dir.path()).sink("memory", &memory);
    setup.sinks.push(("splunk", shipped(&url), Tuning { concurrency: 8, ..Tuning::default() }));
    let bridge = setup.start().await;
    let view = bridge.view();
    for (n, message) in HOSTILE.into_iter().enumerate() {
        let event = EventObject::about_pod("shop", &format!("web-{n}"), "Failed", message);
        server.create(event).unwrap();
    }
    settled(&view, "splunk", HOSTILE.len() as u64).await;
    collector.set(Mode::Loses);
    let before = collector.requests();
    for n in 0..100 {
        create(&server, &format!("api-{n}"));
    }
    until("some are lost", || collector.requests() > before).await;
    collector.set(Mode::Takes);
    let seen = HOSTILE.len() + 100;
    let status = settled(&view, "splunk", seen as u64).await;
    assert_eq!((status.delivered, status.dead_lettered), (seen as u64, 0));
    stop(bridge).await;

    let events = collector.events();
    let mut sent = memory.ids();
    sent.sort();
    assert_eq!(events.keys().cloned().collect::<Vec<_>>(), sent);
    for (id, objects) in &events {
        assert!(objects.iter().all(|object| object == &objects[0]), "{id}");
        assert_eq!(objects[0]["event"]["id"], **id);
    }
    let messages: Vec<_> =
        events.values().map(|objects| objects[0]["event"]["event"]["message"].clone()).collect();
    for message in HOSTILE {
        assert_eq!(messages.iter().filter(|found| *found == message).count(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_misconfigured_token_costs_no_event() {
    let server = server();
    let (collector, url) = Collector::start().await;
    let seen = costs_no_event(
        &server,
        shipped(&url),
        || collector.requests(),
        || collector.set(Mode::Takes),
        &[
            (&|| collector.set(Mode::Revoked), SinkCondition::Misconfigured),
            (&|| collector.set(Mode::Forbidden), SinkCondition::Misconfigured),
            (&|| collector.set(Mode::Busy), SinkCondition::Retrying),
        ],
    )
    .await;
    assert_eq!(collector.events().len() as u64, seen);
}
