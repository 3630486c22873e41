//! A store that hands out everything it holds, at each change.

use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::ConfigMap;
use tidings_kube::{
    informer::UndeltaStore,
    object::meta_namespace_key,
    reflector::{Reflector, ReflectorOptions},
};
use tokio::time::sleep;

use super::{
    informer_support::{config_maps, settle},
    memory::MemoryServer,
    shared::{secs, server_with},
};

/// The keys of each push, in order.
type Pushes = Arc<Mutex<Vec<Vec<String>>>>;

fn follow(server: &MemoryServer) -> Pushes {
    let pushes = Pushes::default();
    let pushed = Arc::clone(&pushes);
    let api = config_maps(server);
    let store = UndeltaStore::<ConfigMap, _>::new(&api, move |maps| {
        let mut keys: Vec<_> = maps.iter().map(|map| meta_namespace_key(&**map)).collect();
        keys.sort();
        pushed.lock().unwrap().push(keys);
    });
    tokio::spawn(Reflector::new(api, store, ReflectorOptions::default()).run());
    pushes
}

#[tokio::test(start_paused = true)]
async fn each_change_pushes_all_objects() {
    let server = server_with(&["a", "b"]);
    let pushes = follow(&server);
    settle().await;
    server.put("ns/c", 1);
    server.put("ns/a", 1);
    server.delete("ns/b");
    settle().await;
    let all = ["ns/a", "ns/b", "ns/c"];
    assert_eq!(*pushes.lock().unwrap(), [&all[..2], &all, &all, &["ns/a", "ns/c"]]);
}

#[tokio::test(start_paused = true)]
async fn a_list_after_a_gap_is_one_push() {
    let server = server_with(&["a", "b"]);
    let pushes = follow(&server);
    settle().await;
    server.cut();
    server.delete("ns/b");
    server.put("ns/c", 1);
    server.compact();
    sleep(secs(60)).await;
    assert_eq!(*pushes.lock().unwrap(), [["ns/a", "ns/b"], ["ns/a", "ns/c"]]);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_cannot_be_read_deletes() {
    let server = server_with(&["a", "b"]);
    server.say_deleted(0, &["ns/b"]);
    let pushes = follow(&server);
    settle().await;
    assert_eq!(*pushes.lock().unwrap(), [vec!["ns/a", "ns/b"], vec!["ns/a"]]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_stays_as_it_was() {
    let server = server_with(&["a", "b"]);
    let pushes = follow(&server);
    settle().await;
    server.put_broken("ns/b");
    settle().await;
    server.cut();
    server.put("ns/c", 1);
    server.compact();
    sleep(secs(60)).await;
    assert_eq!(pushes.lock().unwrap().last().unwrap(), &["ns/a", "ns/b", "ns/c"]);
}
