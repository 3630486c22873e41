//! The bridge and Elasticsearch: each event is one document under its id, whatever fails on the way.

use std::{
    collections::BTreeMap,
    io::Read as _,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
    routing::post,
};
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use tidings::{
    bridge::{Sink, SinkCondition},
    config::parse,
};
use tidings_testkit::api_server::EventObject;

use crate::support::{
    MemorySink, Setup, costs_no_event, create, dead_letters, free, server, settled, stop, until,
};

const HOSTILE: [&str; 4] = [
    "line\n{\"create\":{\"_index\":\"other\",\"_id\":\"forged\"}}\n{\"message\":\"forged\"}\n",
    "quote \" brace } ] backslash \\ NUL \0 bell \u{7} C1 \u{9b} \u{2028}",
    "right-to-left \u{202e}txt.exe, {{ id }} {% if %}",
    "",
];

/// The behaviour of the double.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Takes,
    /// The credentials are no longer known.
    Revoked,
    /// The user may not write to the index.
    Forbidden,
    /// The index is closed.
    Closed,
    /// Stores every document, and its answer is lost.
    Mute,
    Busy,
}

/// A cluster that stores documents as Elasticsearch does, and refuses what it refuses.
#[derive(Clone)]
struct Cluster(Arc<Mutex<Store>>);

struct Store {
    mode: Mode,
    authorization: &'static str,
    /// By index and id.
    documents: BTreeMap<(String, String), Value>,
    requests: usize,
}

impl Cluster {
    async fn start(authorization: &'static str) -> (Self, String) {
        let (mode, documents) = (Mode::Takes, BTreeMap::new());
        let store = Store { mode, authorization, documents, requests: 0 };
        let cluster = Self(Arc::new(Mutex::new(store)));
        let router = Router::new()
            .route("/_bulk", post(|s, h: HeaderMap, b: Bytes| async move { bulk(s, None, &h, &b) }))
            .route(
                "/{index}/_bulk",
                post(|s, Path(index): Path<String>, h: HeaderMap, b: Bytes| async move {
                    bulk(s, Some(&index), &h, &b)
                }),
            )
            .layer(DefaultBodyLimit::disable())
            .with_state(cluster.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async { axum::serve(listener, router).await });
        (cluster, url)
    }

    fn set(&self, mode: Mode) {
        self.0.lock().unwrap().mode = mode;
    }

    fn requests(&self) -> usize {
        self.0.lock().unwrap().requests
    }

    /// The documents, with index and id.
    fn documents(&self) -> Vec<((String, String), Value)> {
        self.0.lock().unwrap().documents.clone().into_iter().collect()
    }
}

fn bulk(
    State(cluster): State<Cluster>,
    index: Option<&str>,
    headers: &HeaderMap,
    body: &[u8],
) -> Response {
    let mut store = cluster.0.lock().unwrap();
    store.requests += 1;
    let header = |name: &str| headers.get(name).map_or("", |value| value.to_str().unwrap());
    if header("content-type") != "application/x-ndjson" {
        return (StatusCode::NOT_ACCEPTABLE, r#"{"error":"Content-Type"}"#).into_response();
    }
    if store.mode == Mode::Revoked || header("authorization") != store.authorization {
        let body = r#"{"error":{"type":"security_exception","reason":"unable to authenticate"}}"#;
        return (StatusCode::UNAUTHORIZED, body).into_response();
    }
    if store.mode == Mode::Busy {
        return StatusCode::TOO_MANY_REQUESTS.into_response();
    }
    let mut text = String::new();
    assert_eq!(header("content-encoding"), "gzip");
    GzDecoder::new(body).read_to_string(&mut text).unwrap();
    let invalid = || StatusCode::BAD_REQUEST.into_response();
    let Some(text) = text.strip_suffix('\n') else { return invalid() };
    let lines: Vec<&str> = text.split('\n').collect();
    let mut items = Vec::new();
    for pair in lines.chunks(2) {
        let [action, document] = pair else { return invalid() };
        let Ok(action) = serde_json::from_str::<Value>(action) else { return invalid() };
        let create = &action["create"];
        let Some(id) = create["_id"].as_str() else { return invalid() };
        if id.is_empty() || id.len() > 512 {
            return invalid();
        }
        let Some(index) = create["_index"].as_str().or(index) else {
            return invalid();
        };
        items.push(store.create(index.to_owned(), id, document));
    }
    if store.mode == Mode::Mute {
        return StatusCode::BAD_GATEWAY.into_response();
    }
    let errors = items.iter().any(|item| item.get("error").is_some());
    let items: Vec<_> = items.into_iter().map(|item| json!({ "create": item })).collect();
    axum::Json(json!({ "errors": errors, "items": items })).into_response()
}

impl Store {
    /// The item that an action is answered by.
    fn create(&mut self, index: String, id: &str, document: &str) -> Value {
        let error = |status: u16, kind: &str, reason: &str| json!({ "status": status, "error": { "type": kind, "reason": reason } });
        match self.mode {
            Mode::Forbidden => return error(403, "security_exception", "is unauthorized"),
            Mode::Closed => return error(400, "index_closed_exception", "closed"),
            _ => {}
        }
        if index.chars().any(|c| c.is_ascii_uppercase() || ",*<>/\\ ".contains(c)) {
            return error(400, "invalid_index_name_exception", &index);
        }
        let Ok(document) = serde_json::from_str::<Value>(document) else {
            return error(400, "mapper_parsing_exception", "failed to parse");
        };
        if document["@timestamp"]
            .as_str()
            .is_none_or(|time| time.parse::<jiff::Timestamp>().is_err())
        {
            return error(400, "mapper_parsing_exception", "'@timestamp'");
        }
        if self.documents.contains_key(&(index.clone(), id.to_owned())) {
            return error(409, "version_conflict_engine_exception", "document already exists");
        }
        self.documents.insert((index, id.to_owned()), document);
        json!({ "status": 201 })
    }
}

/// The only sink of a configuration of `config/`, towards the double.
fn shipped(file: &str, hosts: &[&str], url: &str) -> Arc<dyn Sink> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("config").join(file);
    let mut text = std::fs::read_to_string(path).unwrap();
    for host in hosts {
        assert!(text.contains(host), "{host}");
        text = text.replace(host, url);
    }
    let variables = [("ELASTICSEARCH_API_KEY", "aWQ6a2V5"), ("OPENSEARCH_PASSWORD", "s3cret")];
    let variables = variables.map(|(name, value)| (name.into(), value.into()));
    let settings = parse(file, &text, variables).unwrap_or_else(|error| panic!("{error}"));
    let [sink] = settings.sinks.as_slice() else { panic!("one sink") };
    sink.sink.build().unwrap()
}

fn opensearch(url: &str) -> Arc<dyn Sink> {
    shipped("opensearch.yaml", &["https://opensearch:9200"], url)
}

const OPENSEARCH_AUTHORIZATION: &str = "Basic dGlkaW5nczpzM2NyZXQ=";

fn elasticsearch(url: &str) -> Arc<dyn Sink> {
    let hosts = [
        "https://elasticsearch-0.elasticsearch:9200",
        "https://elasticsearch-1.elasticsearch:9200",
    ];
    shipped("elasticsearch.yaml", &hosts, url)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_version_of_an_event_is_one_document_under_its_id() {
    for (build, authorization, index) in [
        (opensearch as fn(&str) -> Arc<dyn Sink>, OPENSEARCH_AUTHORIZATION, "k8s-events-"),
        (elasticsearch, "ApiKey aWQ6a2V5", "logs-kubernetes.events-prod"),
    ] {
        let (server, dir, memory) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
        let (cluster, url) = Cluster::start(authorization).await;
        let setup = Setup::new(&server, dir.path()).sink("memory", &memory);
        let bridge = setup.other("elastic", build(&url)).start().await;
        for (n, message) in HOSTILE.into_iter().enumerate() {
            let mut event = EventObject::about_pod("shop", &format!("web-{n}"), "Failed", message);
            event.reason = message.chars().take(100).collect();
            server.create(event).unwrap();
        }
        let view = bridge.view();
        settled(&view, "elastic", HOSTILE.len() as u64).await;
        // They are stored, and no answer comes: they are sent again.
        cluster.set(Mode::Mute);
        for n in 0..50 {
            create(&server, &format!("api-{n}"));
        }
        let seen = HOSTILE.len() + 50;
        until("some are stored", || cluster.documents().len() > HOSTILE.len()).await;
        cluster.set(Mode::Takes);
        let status = settled(&view, "elastic", seen as u64).await;
        assert_eq!((status.delivered, status.dead_lettered), (seen as u64, 0));
        assert!(status.duplicates > 0);
        stop(bridge).await;

        let documents = cluster.documents();
        let mut ids: Vec<_> = documents.iter().map(|((_, id), _)| id.clone()).collect();
        let mut sent = memory.ids();
        ids.sort();
        sent.sort();
        assert_eq!(ids, sent);
        for ((at, id), document) in &documents {
            assert!(at.starts_with(index), "{at}");
            assert_eq!(document["event"]["id"], **id);
        }
        let messages = documents.iter().map(|(_, document)| document["message"].as_str());
        for message in HOSTILE.into_iter().filter(|message| !message.is_empty()) {
            assert_eq!(messages.clone().filter(|found| *found == Some(message)).count(), 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_misconfigured_cluster_costs_no_event() {
    let server = server();
    let (cluster, url) = Cluster::start(OPENSEARCH_AUTHORIZATION).await;
    costs_no_event(
        &server,
        opensearch(&url),
        || cluster.requests(),
        || cluster.set(Mode::Takes),
        &[
            (&|| cluster.set(Mode::Revoked), SinkCondition::Misconfigured),
            (&|| cluster.set(Mode::Forbidden), SinkCondition::Misconfigured),
            (&|| cluster.set(Mode::Closed), SinkCondition::Misconfigured),
            (&|| cluster.set(Mode::Busy), SinkCondition::Retrying),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bridge_that_is_killed_stores_nothing_twice() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let (cluster, url) = Cluster::start(OPENSEARCH_AUTHORIZATION).await;
    for run in 0..4 {
        let bridge = Setup::new(&server, dir.path()).other("a", opensearch(&url)).start().await;
        for n in 0..100 {
            create(&server, &format!("web-{run}-{n}"));
        }
        until("some are stored", || cluster.documents().len() > run * 100 + 20).await;
        drop(bridge);
        free(dir.path()).await;
    }
    let bridge = Setup::new(&server, dir.path()).other("a", opensearch(&url)).start().await;
    let status = settled(&bridge.view(), "a", 400).await;
    assert_eq!((status.delivered, status.dead_lettered), (400, 0));
    stop(bridge).await;
    // The double has an id once in an index; that it has one index is the bridge's doing.
    assert_eq!(cluster.documents().len(), 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_without_an_index_takes_no_other_with_it() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let (_, url) = Cluster::start("").await;
    let text = format!(
        "sinks: {{a: {{elasticsearch: {{urls: [\"{url}\"], index: \"k8s-{{{{ event.involvedObject.name }}}}\"}}, \
         compression: gzip}}}}"
    );
    let settings = parse("a", &text, []).unwrap_or_else(|error| panic!("{error}"));
    let sink = settings.sinks[0].sink.build().unwrap();
    let bridge = Setup::new(&server, dir.path()).other("a", sink).start().await;
    // A namespace has an eighth of 16 destinations.
    for n in 0..100 {
        create(&server, ["web", "a,b", "api", "late"][n % 4]);
    }
    let status = settled(&bridge.view(), "a", 100).await;
    assert_eq!((status.delivered, status.dead_lettered), (50, 50));
    stop(bridge).await;
    let letters = dead_letters(dir.path());
    assert!(letters.iter().all(|letter| letter.class == "unsendable"));
    for (reason, count) in [
        ("`index`: expected the name of an index, found one with ',' in it", 25),
        (
            "expected at most 2 destinations a day by one namespace, found one more: see `maxDestinations`",
            25,
        ),
    ] {
        assert_eq!(
            letters.iter().filter(|letter| letter.reason == reason).count(),
            count,
            "{reason}"
        );
    }
}
