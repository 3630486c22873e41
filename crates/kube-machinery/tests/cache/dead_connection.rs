//! A connection that is dead and does not say so.

use std::time::Duration;

use bytes::Bytes;
use kube_machinery::cache::ReflectorOptions;
use serde_json::json;
use tokio::time::sleep;

use crate::{
    informer::{secs, server_with},
    informer_support::{Told, builder, settle, spawn, stored},
    scripted::{Answer, Ending},
    support::{follow, list, object},
};

#[tokio::test(start_paused = true)]
async fn a_change_behind_a_dead_connection_is_in_the_store_within_a_minute() {
    let server = server_with(&["a"]);
    let informer = builder(&server).build();
    let told = Told::default();
    informer.add_handler(told.handler()).unwrap();
    spawn(&informer);
    assert!(informer.wait_for_cache_sync().await);
    for name in ["ns/b", "ns/c", "ns/d"] {
        server.kill_connections();
        server.put(name, 1);
        sleep(secs(59)).await;
        assert_eq!(stored(&informer), server.objects());
    }
    let adds = ["add ns/a@1 initial", "add ns/b@2", "add ns/c@3", "add ns/d@4"];
    assert_eq!(told.lines(), adds, "each of them once");
    assert_eq!(server.lists(), 1, "nothing is listed again");
}

#[tokio::test(start_paused = true)]
async fn a_change_after_the_second_watch_has_opened_comes_by_it_at_once() {
    let server = server_with(&["a"]);
    let informer = builder(&server).build();
    spawn(&informer);
    assert!(informer.wait_for_cache_sync().await);
    server.kill_connections();
    sleep(secs(50)).await;
    assert_eq!(server.watched().len(), 2);
    server.put("ns/b", 1);
    settle().await;
    assert_eq!(stored(&informer), server.objects());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_bookmarks_come_by_goes_on() {
    let server = server_with(&["a"]);
    let informer = builder(&server).build();
    spawn(&informer);
    assert!(informer.wait_for_cache_sync().await);
    for minute in 1..=9 {
        sleep(secs(60)).await;
        let metadata = json!({ "resourceVersion": (100 + minute).to_string() });
        server.say(
            "BOOKMARK",
            &json!({ "kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata }),
        );
        settle().await;
        assert_eq!(server.open_watches(), 1, "the second is closed");
    }
    let from_the_list =
        server.watched().iter().filter(|w| w.ends_with("resourceVersion=1")).count();
    assert_eq!(from_the_list, 2, "the first watch has gone on: {:?}", server.watched());
    server.put("ns/b", 1);
    settle().await;
    assert_eq!(stored(&informer), server.objects());
}

#[tokio::test(start_paused = true)]
async fn a_second_watch_that_is_refused_does_not_end_the_first() {
    let server = server_with(&["a"]);
    let informer = builder(&server).build();
    spawn(&informer);
    assert!(informer.wait_for_cache_sync().await);
    server.fail(1);
    sleep(secs(60)).await;
    assert_eq!((server.watched().len(), server.open_watches()), (1, 1));
    server.put("ns/b", 1);
    settle().await;
    assert_eq!(stored(&informer), server.objects());
    server.kill_connections();
    server.fail(1);
    sleep(secs(46)).await;
    assert_eq!(server.watched().len(), 1, "the second is refused");
    server.put("ns/c", 1);
    sleep(secs(45)).await;
    assert_eq!(stored(&informer), server.objects(), "the first was given up all the same");
}

#[tokio::test(start_paused = true)]
async fn without_a_bound_on_silence_a_watch_is_waited_for() {
    let server = server_with(&["a"]);
    let options = ReflectorOptions { silence: None, ..ReflectorOptions::default() };
    let informer = builder(&server).reflector(options).build();
    spawn(&informer);
    assert!(informer.wait_for_cache_sync().await);
    sleep(secs(250)).await;
    assert_eq!(server.watched().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_line_that_comes_by_a_second_watch_in_pieces_is_read_to_its_end() {
    let line = json!({"type": "ADDED", "object": object("b", "11")}).to_string() + "\n";
    let (head, rest) = line.split_at(40);
    let piece = |text: &str| (Duration::from_millis(5), Bytes::from(text.to_owned()));
    let followed = follow([
        list(&["a@5"], "10"),
        Answer::watch([], Ending::Open),
        Answer::stream(vec![piece(head), piece(rest)], Ending::Open),
    ]);
    sleep(secs(60)).await;
    assert_eq!(followed.store.lines(), ["replace [a@5] at 10", "add b@11"]);
    assert_eq!(followed.calls().len(), 3, "the second watch goes on");
}
