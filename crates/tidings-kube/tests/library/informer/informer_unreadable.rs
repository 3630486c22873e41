//! What an informer makes of objects that it cannot read, or that its transformer refuses.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use tidings_kube::informer::QueueKind;
use tokio::time::{Duration, sleep};

use super::{
    informer_support::{Told, builder, settle, spawn, stored},
    model_server::ModelServer,
};

/// A config map that has a name and a version, and can be read no further.
fn broken(name: &str, version: u64) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "ns", "resourceVersion": version.to_string() },
        "data": 7,
    })
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_reported_counted_and_left_out() {
    let server = ModelServer::default();
    server.put("ns/a", 0);
    server.put("ns/b", 0);
    server
        .put_raw("ns/x", json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "x"}}));
    server.put_raw("ns/y", json!({"metadata": {"name": "y", "namespace": "ns"}, "data": 7}));
    server.put_raw("ns/z", json!({"metadata": {}}));
    let errors = Arc::new(AtomicU64::new(0));
    let reported = Arc::clone(&errors);
    let count = move |_: &_| {
        reported.fetch_add(1, Ordering::Relaxed);
    };
    let informer = builder(&server).watch_error_handler(count).build();
    let told = Told::default();
    informer.add_handler(told.handler()).unwrap();
    spawn(&informer);
    assert!(informer.wait_for_cache_sync().await);
    assert_eq!((informer.unreadable(), errors.load(Ordering::Relaxed)), (3, 3));
    settle().await;
    server.say("MODIFIED", &json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}}));
    server.say(
        "MODIFIED",
        &json!({"kind": "ConfigMap", "metadata": {"name": "a", "namespace": "ns"}, "data": 7}),
    );
    settle().await;
    assert_eq!((informer.unreadable(), errors.load(Ordering::Relaxed)), (5, 5));
    assert_eq!(stored(&informer), ["ns/a@1", "ns/b@2"]);
    // That it is gone can be said without reading all of it.
    server.say(
        "DELETED",
        &json!({"metadata": {"name": "a", "namespace": "ns", "resourceVersion": "3"}, "data": 7}),
    );
    settle().await;
    assert_eq!(stored(&informer), ["ns/b@2"]);
    assert_eq!(told.lines()[2..], ["delete tombstone ns/a@1"]);
    assert_eq!(server.lists(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_cannot_be_read_is_not_missed_while_the_object_is_still_queued() {
    for queue in [QueueKind::InOrder, QueueKind::Delta] {
        let server = ModelServer::default();
        server.put("ns/a", 0);
        let informer = builder(&server).queue(queue).build();
        let told = Told::default();
        informer.add_handler(told.handler()).unwrap();
        spawn(&informer);
        assert!(informer.wait_for_cache_sync().await);
        // In one read: the add has not been popped when the deletion comes.
        server.put("ns/c", 0);
        server.put("ns/a", 1);
        server.say("DELETED", &broken("c", 4));
        server.say("DELETED", &broken("a", 5));
        server.say("DELETED", &broken("never-seen", 6));
        settle().await;
        assert_eq!(stored(&informer), [""; 0], "{queue:?}");
        let mut last = told.lines();
        last.retain(|line| line.starts_with("delete"));
        last.sort();
        assert_eq!(last, ["delete tombstone ns/a@3", "delete tombstone ns/c@2"], "{queue:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_a_later_list_cannot_tell_stays_as_it_was() {
    for queue in [QueueKind::InOrder, QueueKind::Delta] {
        let server = ModelServer::default();
        for name in ["ns/a", "ns/b", "ns/c"] {
            server.put(name, 0);
        }
        let informer = builder(&server).queue(queue).build();
        let told = Told::default();
        informer.add_handler(told.handler()).unwrap();
        spawn(&informer);
        assert!(informer.wait_for_cache_sync().await);
        server.cut();
        server.delete("ns/b");
        server.put_raw("ns/a", broken("a", 5));
        server.compact();
        sleep(Duration::from_secs(60)).await;
        assert!(server.lists() > 1 && informer.unreadable() > 0);
        assert_eq!(stored(&informer), ["ns/a@1", "ns/c@3"], "{queue:?}");
        // The next that can be read is an update.
        server.put("ns/a", 9);
        settle().await;
        let mut last = told.lines().split_off(3);
        // Until the first check for a resync a list is told whole.
        last.retain(|line| line != "update ns/c@3 to ns/c@3");
        assert_eq!(last, ["delete tombstone ns/b@2", "update ns/a@1 to ns/a@5"], "{queue:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_whose_last_state_the_transformer_refuses_is_told() {
    let server = ModelServer::default();
    server.put("ns/a", 0);
    let refused = Arc::new(AtomicU64::new(u64::MAX));
    let version = Arc::clone(&refused);
    let strip = move |map: ConfigMap| {
        let refused = version.load(Ordering::Relaxed).to_string();
        if map.metadata.resource_version == Some(refused) { Err("unlucky".into()) } else { Ok(map) }
    };
    let informer = builder(&server).transform(strip).build();
    let told = Told::default();
    informer.add_handler(told.handler()).unwrap();
    spawn(&informer);
    assert!(informer.wait_for_cache_sync().await);
    refused.store(2, Ordering::Relaxed);
    server.delete("ns/a");
    settle().await;
    assert_eq!(stored(&informer), [""; 0]);
    assert_eq!(told.lines()[1..], ["delete tombstone ns/a@1"]);
}
