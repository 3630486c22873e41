//! Enrichment: what a sink is told of the objects that events are about, live, late and again.

use std::{collections::BTreeMap, path::Path, time::Duration};

use serde_json::{Value, json};
use tidings::{
    bridge::{Bridge, CorrelateMode, Enrich, KeyPatterns, ObjectOptions, SinkStart},
    demo::api_server::{ApiServer, EventObject, Fault, On, Verb},
    event::{Envelope, Missing, ObjectInfo},
};
use tokio::runtime::Runtime;

use crate::support::{
    MemorySink, Received, Setup, Tuning, server, settled, sink_status, stop, until,
};

/// All labels, owners and the node.
fn everything() -> Enrich {
    let all = || KeyPatterns::new(["*".to_owned()]);
    Enrich { labels: all(), annotations: KeyPatterns::default(), owners: true, node: false }
}

fn enriching() -> Tuning {
    Tuning { enrich: Some(everything()), ..Tuning::default() }
}

/// What the sink was told of the object.
fn object(event: &Received) -> ObjectInfo {
    Envelope::parse(event.envelope.as_bytes()).unwrap().object.unwrap()
}

fn uid(kind: u8, number: usize) -> String {
    format!("{kind:08x}-0000-4000-8000-{number:012x}")
}

fn owner(kind: &str, name: &str, uid: &str) -> Value {
    json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": true}])
}

/// A Deployment with its ReplicaSet.
fn deploy(server: &ApiServer, app: usize) {
    let (deployment, replica_set) = (format!("app-{app}"), format!("app-{app}-5d8f"));
    let metadata = json!({"namespace": "shop", "name": deployment, "uid": uid(1, app)});
    server.create_object("deployments.apps", json!({"metadata": metadata, "spec": {}})).unwrap();
    let owners = owner("Deployment", &deployment, &uid(1, app));
    let metadata = json!({
        "namespace": "shop", "name": replica_set, "uid": uid(2, app), "ownerReferences": owners,
    });
    server.create_object("replicasets.apps", json!({"metadata": metadata, "spec": {}})).unwrap();
}

/// A Pod of it; answers its name.
fn pod(server: &ApiServer, number: usize, app: usize) -> String {
    let name = format!("app-{app}-5d8f-{number}");
    let owners = owner("ReplicaSet", &format!("app-{app}-5d8f"), &uid(2, app));
    let metadata = json!({
        "namespace": "shop", "name": name, "uid": uid(3, number), "ownerReferences": owners,
        "labels": {"app": format!("app-{app}"), "number": number.to_string(), "event": "x"},
        "annotations": {"secret": "y"},
    });
    let pod = json!({"metadata": metadata, "spec": {"nodeName": format!("node-{}", number % 7)}});
    server.create_object("pods", pod).unwrap();
    name
}

/// What is to be told of that Pod.
fn pod_info(number: usize, app: usize) -> ObjectInfo {
    let labels = [("app", format!("app-{app}")), ("number", number.to_string())];
    let mut labels: BTreeMap<_, _> =
        labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    labels.insert("event".to_owned(), "x".to_owned());
    let owner = |kind: &str, name: String, uid| tidings::event::Owner {
        api_version: "apps/v1".to_owned(),
        kind: kind.to_owned(),
        name,
        uid,
    };
    let owners = vec![
        owner("ReplicaSet", format!("app-{app}-5d8f"), uid(2, app)),
        owner("Deployment", format!("app-{app}"), uid(1, app)),
    ];
    ObjectInfo { labels, owners, ..ObjectInfo::default() }
}

fn about(kind: &str, api_version: &str, name: &str, uid: &str, reason: &str) -> EventObject {
    let mut event = EventObject::about_pod("shop", name, reason, "it happened");
    kind.clone_into(&mut event.involved_object.kind);
    api_version.clone_into(&mut event.involved_object.api_version);
    uid.clone_into(&mut event.involved_object.uid);
    event
}

/// An Event about a Pod, by its number.
fn about_pod(name: &str, number: usize, reason: &str) -> EventObject {
    about("Pod", "v1", name, &uid(3, number), reason)
}

fn missing(why: Missing) -> ObjectInfo {
    ObjectInfo { missing: Some(why), ..ObjectInfo::default() }
}

/// Waits until the bridge has its watches.
async fn watching(server: &ApiServer) {
    for resource in ["pods", "replicasets.apps", "deployments.apps", "events"] {
        until("a watch of each kind", || server.open_watches_of(resource) == 1).await;
    }
}

#[tokio::test]
async fn labels_and_owners_come_with_the_event() {
    let (server, sink, plain) = (server(), MemorySink::default(), MemorySink::default());
    let journal = tempfile::tempdir().unwrap();
    deploy(&server, 1);
    let name = pod(&server, 1, 1);
    let setup = Setup::new(&server, journal.path());
    let bridge = setup.tuned("told", &sink, enriching()).sink("plain", &plain).start().await;
    watching(&server).await;
    server.create(about_pod(&name, 1, "Started")).unwrap();
    let told = sink.wait_for(1).await;
    assert_eq!(object(&told[0]), pod_info(1, 1));
    let plain = plain.wait_for(1).await;
    assert_eq!(Envelope::parse(plain[0].envelope.as_bytes()).unwrap().object, None);
    // A label that changes is news from the next event on; another uid is another object.
    server.patch_object("pods", "shop", &name, &json!({"metadata": {"labels": {"event": "z"}}})).unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    server.create(about_pod(&name, 1, "Changed")).unwrap();
    server.create(about_pod(&name, 99, "Other")).unwrap();
    let told = sink.wait_for(3).await;
    assert_eq!(object(&told[1]).labels["event"], "z");
    assert_eq!(object(&told[2]), missing(Missing::NotFound));
    assert_eq!(server.request_count(Verb::Get, "pods"), 1);
    stop(bridge).await;
}
