//! What an informer makes of objects that it cannot read, or that its transformer refuses.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use tidings_kube::informer::{QueueKind, SharedInformer};
use tokio::time::{Duration, sleep};

use super::{
    informer_support::{Told, builder, settle, spawn, stored},
    memory::MemoryServer,
    scripted::{Answer, Ending, ScriptedServer},
    support::{api, object},
};

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_reported_counted_and_left_out() {
    let items = [
        object("a", "1"),
        object("b", "2"),
        json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "x"}}),
        json!({"metadata": {"name": "y", "namespace": "shop"}, "data": 7}),
        json!({"metadata": {}}),
    ];
    let metadata = json!({"name": "a", "namespace": "shop", "resourceVersion": "3"});
    let changes = [
        (10, "MODIFIED", json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}})),
        (0, "MODIFIED", json!({"kind": "ConfigMap", "metadata": &metadata, "data": 7})),
        // That it is gone can be said without reading all of it.
        (10, "DELETED", json!({"metadata": metadata, "data": 7})),
    ];
    let list = Answer::list(&items, "2", "");
    let server = ScriptedServer::script([list, Answer::watch(changes, Ending::Open)]);
    let errors = Arc::new(AtomicU64::new(0));
    let reported = Arc::clone(&errors);
    let count = move |_: &_| {
        reported.fetch_add(1, Ordering::Relaxed);
    };
    let informer =
        SharedInformer::<ConfigMap>::builder(api(&server)).watch_error_handler(count).build();
    let told = Told::default();
    informer.add_handler(told.handler()).unwrap();
    spawn(&informer);
    assert!(informer.wait_for_cache_sync().await);
    assert_eq!((informer.unreadable(), errors.load(Ordering::Relaxed)), (3, 3));
    sleep(Duration::from_millis(10)).await;
    settle().await;
    assert_eq!((informer.unreadable(), errors.load(Ordering::Relaxed)), (5, 5));
    assert_eq!(stored(&informer), ["shop/a@1", "shop/b@2"]);
    sleep(Duration::from_millis(10)).await;
    assert_eq!(stored(&informer), ["shop/b@2"]);
    assert_eq!(told.lines()[2..], ["delete tombstone shop/a@1"]);
    assert_eq!(server.requests().iter().filter(|request| !request.is_watch()).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_cannot_be_read_is_not_missed_while_the_object_is_still_queued() {
    for queue in [QueueKind::InOrder, QueueKind::Delta] {
        let server = MemoryServer::start();
        server.say_deleted(2, &["ns/c", "ns/a", "ns/never-seen"]);
        server.put("ns/a", 0);
        let informer = builder(&server).queue(queue).build();
        let told = Told::default();
        informer.add_handler(told.handler()).unwrap();
        spawn(&informer);
        assert!(informer.wait_for_cache_sync().await);
        // In one read: the add has not been popped when the deletion comes.
        server.put("ns/c", 0);
        server.put("ns/a", 1);
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
        let server = MemoryServer::start();
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
        server.put_broken("ns/a");
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
        assert_eq!(last, ["delete tombstone ns/b@2", "update ns/a@1 to ns/a@7"], "{queue:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_whose_last_state_the_transformer_refuses_is_told() {
    let server = MemoryServer::start();
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
