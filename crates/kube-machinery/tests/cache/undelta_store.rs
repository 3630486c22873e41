//! A store that tells all that it holds.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_machinery::cache::{
    ListWatchError, Reflector, ReflectorOptions, UndeltaStore, meta_namespace_key,
};
use tokio::sync::mpsc;

use crate::{informer_support::settle, made_source::MadeSource};

#[tokio::test(start_paused = true)]
async fn every_change_tells_the_whole_state() {
    let source = MadeSource::new();
    source.set("a");
    let (push, mut states) = mpsc::unbounded_channel();
    let store = Arc::new(UndeltaStore::new(move |all: Vec<Arc<ConfigMap>>| {
        let mut keys: Vec<_> = all.iter().map(|map| meta_namespace_key(&**map)).collect();
        keys.sort();
        push.send(keys.join(" ")).unwrap();
    }));
    let options = ReflectorOptions::default();
    let reflector = Reflector::for_objects(source.clone(), Arc::clone(&store), options);
    let running = tokio::spawn(reflector.run());
    settle().await;
    source.set("b");
    source.set("b");
    source.delete("a");
    settle().await;
    // What is missed is in the next state.
    source.end_watches(Some(ListWatchError::expired(source.call("watch"))));
    source.delete("b");
    source.set("c");
    let mut told = Vec::new();
    while told.last().is_none_or(|state| state != "ns/c") {
        told.push(states.recv().await.unwrap());
    }
    assert_eq!(told, ["ns/a", "ns/a ns/b", "ns/a ns/b", "ns/b", "ns/c"]);
    assert_eq!(store.store().list_keys(), ["ns/c"]);
    running.abort();
}
