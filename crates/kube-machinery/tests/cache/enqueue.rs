//! From handlers to a work queue.

use std::sync::Arc;

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::ConfigMap,
};
use kube_machinery::cache::{
    DeletedFinalStateUnknown, DeltaObject, ResourceEventHandler,
    workqueue::{RateLimitingQueue, enqueue, enqueue_mapped, enqueue_owner},
};
use serde_json::{Value, json};

fn read<K: serde::de::DeserializeOwned>(json: Value) -> Arc<K> {
    Arc::new(serde_json::from_value(json).unwrap())
}

/// The keys that wait, in order.
async fn waiting(queue: &RateLimitingQueue<String>) -> Vec<String> {
    let mut items = Vec::new();
    while !queue.is_empty() {
        items.push(queue.get().await.unwrap().clone());
    }
    items
}

#[tokio::test]
async fn keys_come_once_and_also_of_what_is_gone_unseen() {
    let queue = RateLimitingQueue::default();
    let mut handler = enqueue::<ConfigMap>(&queue);
    let map = |name: &str| read(json!({"metadata": {"name": name, "namespace": "ns"}}));
    handler.on_add(map("a"), true).await;
    handler.on_update(map("a"), map("a")).await;
    handler.on_delete(DeltaObject::Object(map("b"))).await;
    let unseen = DeletedFinalStateUnknown { key: "ns/c".to_owned(), object: None };
    handler.on_delete(DeltaObject::Tombstone(unseen)).await;
    assert_eq!(waiting(&queue).await, ["ns/a", "ns/b", "ns/c"]);
}

#[tokio::test]
async fn an_object_that_moves_is_mapped_before_and_after() {
    let queue = RateLimitingQueue::default();
    let by_data =
        |map: &ConfigMap| map.data.iter().flat_map(|data| data.values().cloned()).collect();
    let mut handler = enqueue_mapped(&queue, by_data);
    let map = |on: &str| read(json!({"metadata": {"name": "a"}, "data": {"on": on}}));
    handler.on_update(map("node-1"), map("node-2")).await;
    assert_eq!(waiting(&queue).await, ["node-1", "node-2"]);
}

#[tokio::test]
async fn the_owner_is_the_controller_of_that_kind_and_group() {
    let queue = RateLimitingQueue::default();
    let mut handler = enqueue_owner::<Deployment, ReplicaSet>(&queue);
    let owned = |api_version: &str, kind: &str, controller: bool| {
        read(json!({"metadata": {"name": "web-1", "namespace": "shop", "ownerReferences": [{
            "apiVersion": api_version, "kind": kind, "name": "web", "uid": "1",
            "controller": controller,
        }]}}))
    };
    handler.on_add(owned("apps/v1", "Rollout", true), false).await;
    handler.on_add(owned("example.com/v1", "Deployment", true), false).await;
    handler.on_add(owned("apps/v1", "Deployment", false), false).await;
    assert!(queue.is_empty());
    handler.on_add(owned("apps/v1", "Deployment", true), false).await;
    assert_eq!(waiting(&queue).await, ["shop/web"]);
}
