//! The shared informer: handlers that are slow, late, removed or panic; resync, transform.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::Selector;
use tidings_kube::{
    informer::{FilteringResourceEventHandler, HandlerFuncs, Indexers, QueueKind, SharedInformer},
    reflector::ReflectorOptions,
};
use tokio::time::sleep;

use super::{
    informer_support::{Told, builder, settle, spawn, stored},
    memory::MemoryServer,
};

const NONE: Duration = Duration::ZERO;

pub(crate) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A server with these config maps in the namespace "ns".
pub(crate) fn server_with(names: &[&str]) -> MemoryServer {
    let server = MemoryServer::start();
    for name in names {
        server.put(&format!("ns/{name}"), 0);
    }
    server
}

#[tokio::test(start_paused = true)]
async fn a_change_goes_to_the_store_and_to_every_handler() {
    for queue in [QueueKind::InOrder, QueueKind::Delta] {
        let server = server_with(&["a", "b"]);
        let informer = builder(&server).queue(queue).build();
        let (one, two) = (Told::default(), Told::default());
        informer.add_handler(one.handler()).unwrap();
        informer.add_handler(two.handler()).unwrap();
        assert!(!informer.has_synced() && informer.last_sync_resource_version().is_empty());
        spawn(&informer);
        assert!(informer.wait_for_cache_sync().await);
        settle().await;
        server.put("ns/a", 1);
        server.delete("ns/b");
        server.put("ns/c", 1);
        settle().await;
        let lines = [
            "add ns/a@1 initial",
            "add ns/b@2 initial",
            "update ns/a@1 to ns/a@3",
            "delete ns/b@4",
            "add ns/c@5",
        ];
        assert_eq!(one.lines(), lines, "{queue:?}");
        assert_eq!(two.lines(), lines, "{queue:?}");
        assert_eq!(stored(&informer), ["ns/a@3", "ns/c@5"]);
        assert_eq!(&*informer.last_sync_resource_version(), "5");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_handler_neither_blocks_nor_loses() {
    let server = server_with(&["a"]);
    let informer = builder(&server).build();
    let (fast, slow) = (Told::default(), Told::default());
    let quick = informer.add_handler(fast.handler()).unwrap();
    let lame = informer.add_handler(slow.handler().takes(secs(1))).unwrap();
    spawn(&informer);
    informer.wait_for_cache_sync().await;
    settle().await;
    for value in 1..=3000 {
        server.put("ns/a", value);
    }
    settle().await;
    assert_eq!((fast.len(), quick.pending()), (3001, 0));
    assert_eq!((slow.len(), lame.pending()), (0, 3001));
    assert!(quick.has_synced() && !lame.has_synced());
    assert_eq!(stored(&informer), server.versions());
    sleep(secs(1)).await;
    assert!(lame.has_synced(), "its only initial add is delivered");
    sleep(secs(3001)).await;
    assert_eq!(slow.lines(), fast.lines());
    assert_eq!(lame.pending(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_removed_handler_finishes_its_call_and_is_told_nothing_more() {
    let server = server_with(&["a", "b", "c"]);
    let informer = builder(&server).build();
    let (told, other) = (Told::default(), Told::default());
    let registration = informer.add_handler(told.handler().takes(secs(1))).unwrap();
    informer.add_handler(other.handler()).unwrap();
    spawn(&informer);
    informer.wait_for_cache_sync().await;
    sleep(Duration::from_millis(1500)).await;
    informer.remove_handler(&registration);
    informer.remove_handler(&registration);
    server.put("ns/d", 1);
    assert!(!registration.wait_for_sync().await, "its sync will never be");
    sleep(secs(10)).await;
    assert_eq!(told.lines(), ["add ns/a@1 initial", "add ns/b@2 initial"]);
    assert_eq!((told.handlers(), other.len()), (0, 4));
    assert_eq!(registration.pending(), 1, "what it was not told");
}

#[tokio::test(start_paused = true)]
async fn a_handler_removed_before_the_start_never_runs_and_a_foreign_one_is_left_alone() {
    let server = server_with(&["a"]);
    let (informer, other) = (builder(&server).build(), builder(&server).build());
    let (never, told) = (Told::default(), Told::default());
    let registration = informer.add_handler(never.handler()).unwrap();
    informer.remove_handler(&registration);
    let registration = informer.add_handler(told.handler()).unwrap();
    other.remove_handler(&registration);
    spawn(&informer);
    assert!(registration.wait_for_sync().await);
    assert_eq!((never.len(), told.len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_late_handler_gets_the_store_and_then_what_comes() {
    let server = server_with(&["a", "b"]);
    let informer = builder(&server).build();
    spawn(&informer);
    informer.wait_for_cache_sync().await;
    settle().await;
    server.delete("ns/b");
    settle().await;
    let late = Told::default();
    let registration = informer.add_handler(late.handler().takes(secs(1))).unwrap();
    assert!(!registration.has_synced());
    server.put("ns/a", 1);
    assert!(registration.wait_for_sync().await);
    assert_eq!(late.lines(), ["add ns/a@1 initial"], "it waits for no more than that");
    sleep(secs(5)).await;
    assert_eq!(late.lines()[1..], ["update ns/a@1 to ns/a@4"]);
}

#[tokio::test(start_paused = true)]
async fn a_resync_repeats_everything_to_those_that_are_due() {
    let server = server_with(&["a"]);
    let informer = builder(&server).resync_check_period(secs(10)).build();
    let (default, slow, never) = (Told::default(), Told::default(), Told::default());
    informer.add_handler(default.handler()).unwrap();
    informer.add_handler_with_resync(slow.handler(), secs(15)).unwrap();
    informer.add_handler_with_resync(never.handler(), NONE).unwrap();
    spawn(&informer);
    informer.wait_for_cache_sync().await;
    sleep(secs(45)).await;
    assert_eq!((default.len(), slow.len(), never.len()), (5, 3, 1));
    assert_eq!(default.lines()[1..], ["update ns/a@1 to ns/a@1"; 4]);
    let late = Told::default();
    informer.add_handler_with_resync(late.handler(), secs(1)).unwrap();
    sleep(secs(20)).await;
    assert_eq!(late.len(), 2, "its period was raised: not due yet at 50 s, but at 60 s");
}

#[tokio::test(start_paused = true)]
async fn a_period_beyond_the_end_of_the_clock_is_never() {
    let server = server_with(&["a"]);
    let (often, never) = (Told::default(), Told::default());
    let informer = builder(&server).resync_check_period(secs(10)).build();
    informer.add_handler(often.handler()).unwrap();
    informer.add_handler_with_resync(never.handler(), Duration::MAX).unwrap();
    spawn(&informer);
    sleep(secs(35)).await;
    assert_eq!((often.len(), never.len()), (4, 1));
    let informer = builder(&server).resync_check_period(Duration::MAX).build();
    assert!(informer.add_handler(Told::default().handler()).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_list_that_brings_nothing_new_goes_only_to_handlers_that_resync() {
    let server = server_with(&["a"]);
    let informer = builder(&server).resync_check_period(secs(60)).build();
    let (told, never) = (Told::default(), Told::default());
    informer.add_handler(told.handler()).unwrap();
    informer.add_handler_with_resync(never.handler(), NONE).unwrap();
    spawn(&informer);
    informer.wait_for_cache_sync().await;
    let relist = async || {
        let lists = server.lists();
        server.put("ns/a", lists);
        settle().await;
        if lists == 1 {
            server.put("ns/b", 0);
        }
        server.expire();
        while server.lists() == lists {
            sleep(Duration::from_millis(100)).await;
        }
        settle().await;
    };
    let repeats = |told: &Told| {
        let is_repeat = |line: &String| {
            line.strip_prefix("update ")
                .and_then(|line| line.split_once(" to "))
                .is_some_and(|(old, new)| old == new)
        };
        told.lines().iter().filter(|line| is_repeat(line)).count()
    };
    relist().await;
    assert_eq!((repeats(&told), repeats(&never)), (1, 1), "until the first check all are syncing");
    sleep(secs(61)).await;
    let before = repeats(&told);
    relist().await;
    assert!(repeats(&told) > before);
    assert_eq!(repeats(&never), 1);
}

#[tokio::test(start_paused = true)]
async fn a_panic_costs_one_notification_and_is_counted() {
    let server = server_with(&["a", "b"]);
    let informer = builder(&server).build();
    let told = Told::default();
    let handler = told.handler().panics_on("add ns/a@1 initial");
    let registration = informer.add_handler(handler).unwrap();
    spawn(&informer);
    assert!(registration.wait_for_sync().await, "it counts as delivered");
    server.put("ns/a", 1);
    settle().await;
    assert_eq!(told.lines(), ["add ns/b@2 initial", "update ns/a@1 to ns/a@3"]);
    assert_eq!((registration.panics(), registration.pending()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_filter_that_an_object_passes_or_no_longer_passes_is_told_as_add_and_delete() {
    let server = server_with(&["a"]);
    server.put("ns/b", 7);
    let told = Told::default();
    let high = |map: &ConfigMap| map.data.as_ref().is_some_and(|data| data["value"] != "0");
    let informer = builder(&server).build();
    informer.add_handler(FilteringResourceEventHandler::new(high, told.handler())).unwrap();
    spawn(&informer);
    informer.wait_for_cache_sync().await;
    settle().await;
    for value in [8, 0, 0, 9] {
        server.put("ns/b", value);
    }
    server.delete("ns/a");
    server.delete("ns/b");
    settle().await;
    let lines = [
        "add ns/b@2 initial",
        "update ns/b@2 to ns/b@3",
        "delete ns/b@3",
        "add ns/b@6",
        "delete ns/b@8",
    ];
    assert_eq!(told.lines(), lines);
}

#[tokio::test(start_paused = true)]
async fn a_transformer_runs_before_anybody_sees_the_object() {
    let server = server_with(&["a", "b"]);
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let strip = move |mut map: ConfigMap| {
        counted.fetch_add(1, Ordering::Relaxed);
        match map.data.take().and_then(|mut data| data.remove("value")).as_deref() {
            Some("13") => Err("unlucky".into()),
            _ => Ok(map),
        }
    };
    let informer = builder(&server).transform(strip).resync_check_period(secs(10)).build();
    let bare = Arc::new(AtomicBool::new(true));
    let all_bare = Arc::clone(&bare);
    informer
        .add_handler(HandlerFuncs::new().on_add(move |map: &Arc<ConfigMap>, _| {
            all_bare.fetch_and(map.data.is_none(), Ordering::Relaxed);
        }))
        .unwrap();
    spawn(&informer);
    informer.wait_for_cache_sync().await;
    sleep(secs(25)).await;
    assert_eq!(calls.load(Ordering::Relaxed), 2, "not again for a resync");
    server.put("ns/a", 13);
    server.put("ns/c", 1);
    settle().await;
    assert!(bare.load(Ordering::Relaxed));
    assert_eq!(stored(&informer), ["ns/a@1", "ns/b@2", "ns/c@4"], "what it refuses is left out");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_the_transformer_refuses_is_fetched_again() {
    let server = server_with(&["a"]);
    server.put("ns/b", 13);
    let strip = |map: ConfigMap| {
        let unlucky = map.data.as_ref().is_some_and(|data| data["value"] == "13");
        if unlucky { Err("unlucky".into()) } else { Ok(map) }
    };
    let informer = builder(&server).transform(strip).build();
    spawn(&informer);
    sleep(secs(10)).await;
    assert!(!informer.has_synced() && server.lists() > 1);
    server.put("ns/b", 1);
    assert!(informer.wait_for_cache_sync().await);
    assert_eq!(stored(&informer), server.versions());
}

#[tokio::test(start_paused = true)]
async fn a_gap_is_told_as_what_differs() {
    let server = server_with(&["a", "b"]);
    let informer = builder(&server).build();
    let told = Told::default();
    informer.add_handler(told.handler()).unwrap();
    spawn(&informer);
    informer.wait_for_cache_sync().await;
    settle().await;
    server.cut();
    server.delete("ns/b");
    server.put("ns/c", 1);
    server.put("ns/a", 1);
    server.compact();
    sleep(secs(60)).await;
    assert_eq!(
        told.lines()[2..],
        ["delete tombstone ns/b@2", "update ns/a@1 to ns/a@5", "add ns/c@4"]
    );
}

#[tokio::test(start_paused = true)]
async fn the_store_is_found_by_index_and_listed_by_namespace() {
    let server = server_with(&["a", "b"]);
    server.put("other/a", 0);
    let by_app = |map: &ConfigMap| -> Vec<String> {
        map.metadata.labels.iter().filter_map(|labels| labels.get("app").cloned()).collect()
    };
    let informer: SharedInformer<ConfigMap> = builder(&server)
        .indexers(Indexers::new().with("app", by_app))
        .reflector(ReflectorOptions { page_size: Some(1), ..ReflectorOptions::default() })
        .build();
    spawn(&informer);
    informer.wait_for_cache_sync().await;
    assert_eq!(informer.store().by_index("app", "b").unwrap().len(), 1);
    assert_eq!(informer.lister().namespace("ns").list(&Selector::default()).len(), 2);
}
