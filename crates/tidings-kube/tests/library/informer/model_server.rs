//! An API server that holds the config maps of one cluster in memory, with a history that watches
//! are served from, and that a test changes, cuts and compacts. It stands under `kube::Client`
//! without a network, so it works in paused time.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
};

use axum::{
    Router,
    body::Body,
    extract::{Query, State as Shared},
    http::{HeaderMap, Uri, header::ACCEPT},
    response::Response,
};
use bytes::Bytes;
use futures_util::stream;
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::mpsc;

#[derive(Clone, Default)]
pub(crate) struct ModelServer(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    version: u64,
    /// By "namespace/name".
    objects: BTreeMap<String, Value>,
    /// Each change with the version that it made.
    history: Vec<(u64, Bytes)>,
    /// Watches from before this version are expired.
    compacted: u64,
    watches: Vec<mpsc::UnboundedSender<Bytes>>,
    lists: u32,
    /// How many requests are to fail.
    failing: u32,
    /// The path and query of each watch.
    watched: Vec<String>,
    /// The `Accept` of each request.
    accepted: Vec<String>,
}

impl State {
    fn change(&mut self, kind: &str, object: &Value) {
        let line = line(kind, object);
        self.history.push((self.version, line.clone()));
        self.tell(&line);
    }

    fn tell(&mut self, line: &Bytes) {
        self.watches.retain(|watch| watch.send(line.clone()).is_ok());
    }
}

fn line(kind: &str, object: &Value) -> Bytes {
    format!("{}\n", json!({ "type": kind, "object": object })).into()
}

/// A config map of the namespace "ns", unless the name says another.
fn config_map(key: &str, version: u64, value: u64) -> Value {
    let (namespace, name) = key.split_once('/').unwrap_or(("ns", key));
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "namespace": namespace, "name": name, "uid": format!("uid-{name}"),
            "resourceVersion": version.to_string(), "labels": { "app": name } },
        "data": { "value": value.to_string() },
    })
}

impl ModelServer {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub(crate) fn client(&self) -> Client {
        let router = Router::new().fallback(answer).with_state(self.clone());
        Client::new(router, "default")
    }

    /// Creates or updates an object.
    pub(crate) fn put(&self, key: &str, value: u64) {
        let mut state = self.lock();
        state.version += 1;
        let object = config_map(key, state.version, value);
        let known = state.objects.insert(key.to_owned(), object.clone()).is_some();
        state.change(if known { "MODIFIED" } else { "ADDED" }, &object);
    }

    pub(crate) fn delete(&self, key: &str) {
        let mut state = self.lock();
        let Some(mut object) = state.objects.remove(key) else { return };
        state.version += 1;
        object["metadata"]["resourceVersion"] = state.version.to_string().into();
        state.change("DELETED", &object);
    }

    /// Has lists hold this as it is.
    pub(crate) fn put_raw(&self, key: &str, object: Value) {
        self.lock().objects.insert(key.to_owned(), object);
    }

    /// A line of every open watch that is no change of an object.
    pub(crate) fn say(&self, kind: &str, object: &Value) {
        self.lock().tell(&line(kind, object));
    }

    /// The next requests fail.
    pub(crate) fn fail(&self, requests: u32) {
        self.lock().failing += requests;
    }

    /// Ends every open watch.
    pub(crate) fn cut(&self) {
        self.lock().watches.clear();
    }

    /// Forgets the history: who is not up to date has to list.
    pub(crate) fn compact(&self) {
        let mut state = self.lock();
        state.compacted = state.version;
        state.history.clear();
    }

    /// "ns/name@version" of each object.
    pub(crate) fn objects(&self) -> Vec<String> {
        let state = self.lock();
        let version =
            |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        state.objects.iter().map(|(key, object)| format!("{key}@{}", version(object))).collect()
    }

    pub(crate) fn lists(&self) -> u32 {
        self.lock().lists
    }

    pub(crate) fn watched(&self) -> Vec<String> {
        self.lock().watched.clone()
    }

    pub(crate) fn accepted(&self) -> Vec<String> {
        self.lock().accepted.clone()
    }

    pub(crate) fn open_watches(&self) -> usize {
        let mut state = self.lock();
        state.watches.retain(|watch| !watch.is_closed());
        state.watches.len()
    }
}

async fn answer(
    Shared(server): Shared<ModelServer>,
    Query(query): Query<BTreeMap<String, String>>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let mut state = server.lock();
    let accept = headers.get(ACCEPT).map_or("", |accept| accept.to_str().unwrap());
    state.accepted.push(accept.to_owned());
    if state.failing > 0 {
        state.failing -= 1;
        return json_answer(503, &json!({ "kind": "Status", "apiVersion": "v1", "code": 503 }));
    }
    if !query.contains_key("watch") {
        state.lists += 1;
        let (version, kind) = if accept.contains("PartialObjectMetadata") {
            ("meta.k8s.io/v1", "PartialObjectMetadataList")
        } else if uri.path().ends_with("/configmaps") {
            ("v1", "ConfigMapList")
        } else {
            ("v1", "NamespaceList")
        };
        let list = json!({
            "apiVersion": version,
            "kind": kind,
            "metadata": { "resourceVersion": state.version.to_string() },
            "items": state.objects.values().map(|object| seen_as(object, version)).collect::<Vec<_>>(),
        });
        return json_answer(200, &list);
    }
    state.watched.push(uri.to_string());
    let from: u64 = query["resourceVersion"].parse().unwrap();
    if from < state.compacted {
        let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {},
            "status": "Failure", "message": "too old", "reason": "Expired", "code": 410 });
        return json_answer(410, &status);
    }
    let (sender, lines) = mpsc::unbounded_channel();
    for (_, line) in state.history.iter().filter(|(version, _)| *version > from) {
        sender.send(line.clone()).unwrap();
    }
    state.watches.push(sender);
    let lines = stream::unfold(lines, |mut lines| async move {
        Some((Ok::<_, Infallible>(lines.recv().await?), lines))
    });
    Response::new(Body::from_stream(lines))
}

/// An object, or its metadata alone.
fn seen_as(object: &Value, version: &str) -> Value {
    match version {
        "v1" => object.clone(),
        _ => json!({ "apiVersion": version, "kind": "PartialObjectMetadata",
            "metadata": object["metadata"] }),
    }
}

fn json_answer(code: u16, body: &Value) -> Response {
    Response::builder().status(code).body(Body::from(body.to_string())).unwrap()
}
