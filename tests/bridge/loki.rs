//! The bridge and Loki: every event is a line in the stream of its labels, however often it is sent and however old it is.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tidings::{
    bridge::{Sink, SinkCondition},
    config::parse,
    event::Record,
    sinks::{BuildSink as _, LokiOptions},
};
use tidings_testkit::api_server::EventObject;

use crate::support::{MemorySink, Setup, Tuning, costs_no_event, server, settled, stop, until};

const HOSTILE: [&str; 4] = [
    "line\n{\"streams\":[{\"stream\":{\"forged\":\"1\"},\"values\":[[\"1\",\"forged\"]]}]}\n",
    "quote \" brace } ] backslash \\ NUL \0 bell \u{7} C1 \u{9b} \u{2028}",
    "right-to-left \u{202e}txt.exe, {{ id }} {% if %}",
    "entry too far behind, missing required labels 'a', or contact your Loki administrator to enable it",
];

/// The behaviour of the double.
#[derive(Clone, Copy, Default, PartialEq)]
enum Mode {
    #[default]
    Takes,
    /// Takes the entries, and the answer is lost.
    Forgets,
    /// The password is not known.
    Revoked,
    /// The tenant may not have structured metadata.
    Disallowed,
    /// Ingestion is blocked, with the default status.
    Blocked,
    /// The tenant is above its limits.
    Limited,
}

/// By its labels: entries, each once, and the time of the newest.
type Streams = BTreeMap<BTreeMap<String, String>, (BTreeSet<Entry>, i128)>;
/// The time, the line and the metadata.
type Entry = (i128, String, BTreeMap<String, String>);
type Answer = (StatusCode, String);
/// The tenant, the labels and the entry.
type Event = (String, BTreeMap<String, String>, Entry);

/// A Loki with tenants.
#[derive(Clone, Default)]
struct Loki(Arc<Mutex<Store>>);

#[derive(Default)]
struct Store {
    mode: Mode,
    requests: usize,
    tenants: BTreeMap<String, Streams>,
}

#[derive(serde::Deserialize)]
struct Push {
    streams: Vec<Stream>,
}

#[derive(serde::Deserialize)]
struct Stream {
    stream: BTreeMap<String, String>,
    values: Vec<(String, String, BTreeMap<String, String>)>,
}

impl Loki {
    async fn start() -> (Self, String) {
        let loki = Self::default();
        let router = Router::new().route("/loki/api/v1/push", post(push)).with_state(loki.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async { axum::serve(listener, router).await });
        (loki, url)
    }

    fn set(&self, mode: Mode) {
        self.0.lock().unwrap().mode = mode;
    }

    fn requests(&self) -> usize {
        self.0.lock().unwrap().requests
    }

    /// By their ids.
    fn events(&self) -> BTreeMap<String, Vec<Event>> {
        let mut events = BTreeMap::<_, Vec<_>>::new();
        for (tenant, streams) in &self.0.lock().unwrap().tenants {
            for (labels, (entries, _)) in streams {
                for entry in entries {
                    let event = (tenant.clone(), labels.clone(), entry.clone());
                    events.entry(entry.2["event_id"].clone()).or_default().push(event);
                }
            }
        }
        events
    }
}

async fn push(State(loki): State<Loki>, headers: HeaderMap, body: Bytes) -> Answer {
    let mut store = loki.0.lock().unwrap();
    store.requests += 1;
    let said = |status: u16, text: &str| (StatusCode::from_u16(status).unwrap(), text.to_owned());
    let Some(tenant) = headers.get("x-scope-orgid") else { return said(401, "no org id\n") };
    match store.mode {
        Mode::Takes | Mode::Forgets => {}
        Mode::Revoked => return said(401, ""),
        Mode::Disallowed => {
            return said(
                400,
                "stream '{a=\"b\"}' includes structured metadata, but this feature is disallowed. Please see `limits_config.allow_structured_metadata` or contact your Loki administrator to enable it\n",
            );
        }
        Mode::Blocked => {
            return said(
                260,
                "ingestion blocked for user 'a' until '2026-12-31T00:00:00Z' with status code '260'\n",
            );
        }
        Mode::Limited => return said(429, "Maximum active stream limit exceeded\n"),
    }
    let Ok(Push { streams }) = serde_json::from_slice(&body) else { return said(400, "no JSON") };
    let is_name = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !streams.iter().all(|stream| stream.stream.keys().all(|name| is_name(name))) {
        return said(400, "error parsing labels");
    }
    let forgets = store.mode == Mode::Forgets;
    let of_tenant = store.tenants.entry(tenant.to_str().unwrap().to_owned()).or_default();
    let (now, hour) = (Timestamp::now(), SignedDuration::from_hours(1));
    // Of the ingester's reasons Loki says those of the last stream.
    let (mut refused, mut behind) = (String::new(), String::new());
    for Stream { stream, values } in streams {
        behind.clear();
        let long = stream.values().any(|value| value.is_empty() || value.len() > 2048);
        let (entries, newest) = of_tenant.entry(stream.clone()).or_default();
        for (time, line, metadata) in values {
            let time: i128 = time.parse().unwrap();
            let age = now.duration_since(Timestamp::from_nanosecond(time).unwrap());
            if long || stream.len() > 15 || line.len() > 256 << 10 {
                refused = format!("max entry size '262144' bytes exceeded for stream '{stream:?}'");
            } else if age > hour * 24 * 7 || age < SignedDuration::from_mins(-10) {
                refused = format!("entry for stream '{stream:?}' has timestamp too old");
            } else if time < *newest - hour.as_nanos() {
                behind = format!("entry ignored, reason: 'entry too far behind', {stream:?}");
            } else {
                *newest = time.max(*newest);
                entries.insert((time, line, metadata));
            }
        }
    }
    match [refused, behind].concat().as_str() {
        _ if forgets => said(502, ""),
        "" => said(204, ""),
        words => said(400, words),
    }
}

/// The sink of `config/loki.yaml`, towards the double.
fn shipped(url: &str) -> Arc<dyn Sink> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("config/loki.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let text = text.replace("https://loki.example.com", url).replace("    compression: gzip\n", "");
    let password = [("LOKI_PASSWORD".into(), "hunter2".into())];
    let settings = parse("loki.yaml", &text, password).unwrap_or_else(|error| panic!("{error}"));
    let [sink] = settings.sinks.as_slice() else { panic!("one sink") };
    assert_eq!(sink.max_destinations, 2000);
    sink.sink.build().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_event_is_a_line_of_its_tenant_once() {
    let (server, dir, memory) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let (loki, url) = Loki::start().await;
    let mut setup = Setup::new(&server, dir.path()).sink("memory", &memory);
    setup.sinks.push(("loki", shipped(&url), Tuning::default()));
    let bridge = setup.start().await;
    let view = bridge.view();
    // Every other one is old, beside those of now.
    let hour = SignedDuration::from_hours(1);
    for (n, message) in (0..).zip(HOSTILE) {
        let old = (Timestamp::now() - hour * (n % 2) * 5).to_string();
        let mut event = EventObject::about_pod("shop", &format!("web-{n}"), "Failed", message);
        event.metadata.creation_timestamp = Some(old.clone());
        (event.first_timestamp, event.last_timestamp) = (Some(old.clone()), Some(old));
        server.create(event).unwrap();
    }
    let huge = "x".repeat(300 << 10);
    server.create(EventObject::about_pod("shop", "web-huge", "Failed", &huge)).unwrap();
    settled(&view, "loki", HOSTILE.len() as u64 + 1).await;
    loki.set(Mode::Forgets);
    let before = loki.requests();
    for n in 0..100 {
        let namespace = ["shop", "web"][n % 2];
        let event = EventObject::about_pod(namespace, &format!("api-{n}"), "Failed", "m");
        server.create(event).unwrap();
    }
    until("answers are lost", || loki.requests() > before + 2).await;
    loki.set(Mode::Takes);
    let seen = HOSTILE.len() as u64 + 101;
    let status = settled(&view, "loki", seen).await;
    assert_eq!((status.delivered, status.dead_lettered), (seen, 0));
    stop(bridge).await;

    let events = loki.events();
    let mut sent = memory.ids();
    sent.sort();
    assert_eq!(events.keys().cloned().collect::<Vec<_>>(), sent);
    let mut messages = Vec::new();
    for (id, found) in events {
        let [(tenant, labels, (time, line, metadata))] = found.as_slice() else {
            panic!("{id}: {found:?}")
        };
        let line: Value = serde_json::from_str(line).unwrap();
        let namespace = line["event"]["metadata"]["namespace"].as_str().unwrap();
        assert_eq!((tenant.clone(), line["id"].as_str()), (format!("k8s-{namespace}"), Some(&*id)));
        assert_eq!(labels["namespace"], namespace);
        assert_eq!((&*labels["service_name"], &*metadata["reason"]), ("tidings", "Failed"));
        let time = Timestamp::from_nanosecond(*time).unwrap();
        let is_old = Timestamp::now().duration_since(time) > hour;
        let name = time.strftime("%Y-%m-%dT%H").to_string();
        assert_eq!(labels.get("replayed"), is_old.then_some(&name));
        assert_eq!(metadata.contains_key("truncated"), metadata["name"] == "web-huge");
        messages.push(line["event"]["message"].as_str().unwrap().to_owned());
    }
    for message in HOSTILE {
        assert_eq!(messages.iter().filter(|found| *found == message).count(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_misconfigured_tenant_costs_no_event() {
    let server = server();
    let (loki, url) = Loki::start().await;
    let seen = costs_no_event(
        &server,
        shipped(&url),
        || loki.requests(),
        || loki.set(Mode::Takes),
        &[
            (&|| loki.set(Mode::Revoked), SinkCondition::Misconfigured),
            (&|| loki.set(Mode::Disallowed), SinkCondition::Misconfigured),
            (&|| loki.set(Mode::Blocked), SinkCondition::Misconfigured),
            (&|| loki.set(Mode::Limited), SinkCondition::Retrying),
        ],
    )
    .await;
    assert_eq!(loki.events().len() as u64, seen);
}

#[test]
fn the_labels_of_the_example_are_the_default() {
    let default = LokiOptions::new("http://h").build().unwrap();
    for cluster in [r#"{"name":"prod","uid":"u"}"#, r#"{"uid":"u"}"#] {
        let envelope = format!(
            r#"{{"id":"e-1","cluster":{cluster},"change":"created","time":"2026-11-21T10:00:00Z","observedTime":"2026-11-21T10:00:01Z","occurrences":1,"delta":1,"replayed":false,"event":{{"metadata":{{"namespace":"shop"}},"involvedObject":{{"kind":"Pod"}},"type":"Normal"}}}}"#
        );
        let record = Record { seq: 1, envelope: envelope.into() };
        let of = |sink: &dyn Sink| sink.destination(&record).unwrap().unwrap();
        let example = of(&*shipped("https://h"));
        assert_eq!(example.strip_prefix("k8s-shop"), Some(&*of(&*default)));
    }
}
