//! How informers end: told to, before their start, in the middle, and by a panic.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use tidings_kube::informer::{
    AlreadyStarted, HandlerFuncs, InformerStopped, SharedInformer, wait_for_cache_sync,
};
use tokio::time::{Instant, sleep};

use super::{
    informer_support::{Told, builder, settle, spawn, stored},
    shared::{secs, server_with},
};

#[tokio::test(start_paused = true)]
async fn shutdown_ends_the_watch_and_the_handlers() {
    let server = server_with(&["a", "b"]);
    let informer = builder(&server).build();
    let told = Told::default();
    let registration = informer.add_handler(told.handler().takes(secs(5))).unwrap();
    let run = spawn(&informer);
    informer.wait_for_cache_sync().await;
    settle().await;
    assert_eq!((server.open_watches(), informer.is_stopped()), (1, false));
    assert_eq!(informer.run().await, Err(AlreadyStarted));
    let before = Instant::now();
    informer.shutdown().await;
    assert!(before.elapsed() > secs(4), "it waits for the call that a handler is in");
    assert_eq!((told.lines(), told.handlers()), (vec!["add ns/a@1 initial".to_owned()], 0));
    settle().await;
    assert_eq!(server.open_watches(), 0);
    run.await.unwrap();
    assert!(informer.is_stopped() && informer.has_synced() && !registration.wait_for_sync().await);
    assert_eq!(informer.add_handler(told.handler()).unwrap_err(), InformerStopped);
    assert_eq!(informer.run().await, Err(AlreadyStarted));
    informer.shutdown().await;
    assert_eq!(stored(&informer), server.versions(), "the cache stays");
}

#[tokio::test(start_paused = true)]
async fn waiting_for_the_sync_ends_with_the_informer() {
    let server = server_with(&["a"]);
    let (syncs, fails) =
        (builder(&server).build(), builder(&server).transform(|_| Err("no".into())).build());
    let told = Told::default();
    let registration = fails.add_handler(told.handler()).unwrap();
    let (one, two) = (spawn(&syncs), spawn(&fails));
    assert!(wait_for_cache_sync([syncs.synced()]).await);
    let both = tokio::spawn(wait_for_cache_sync([fails.synced(), syncs.synced()]));
    let handler = tokio::spawn(async move { registration.wait_for_sync().await });
    sleep(secs(100)).await;
    assert!(!both.is_finished() && !handler.is_finished());
    fails.stop();
    assert!(!both.await.unwrap() && !handler.await.unwrap() && !fails.wait_for_cache_sync().await);
    syncs.stop();
    one.await.unwrap();
    two.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_informer_stopped_before_its_start_never_starts() {
    let server = server_with(&["a"]);
    let informer = builder(&server).build();
    let told = Told::default();
    let registration = informer.add_handler(told.handler()).unwrap();
    informer.shutdown().await;
    assert!(!registration.wait_for_sync().await && informer.is_stopped());
    assert_eq!(informer.run().await, Err(AlreadyStarted));
    assert_eq!((server.lists(), told.handlers()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn dropping_its_run_leaves_nothing_behind() {
    let server = server_with(&["a"]);
    let informer = builder(&server).build();
    let told = Told::default();
    let registration = informer.add_handler(told.handler().takes(secs(1000))).unwrap();
    let run = spawn(&informer);
    informer.wait_for_cache_sync().await;
    settle().await;
    run.abort();
    assert!(!registration.wait_for_sync().await);
    settle().await;
    assert_eq!((told.handlers(), server.open_watches()), (0, 0), "in the middle of a call");
    assert!(informer.is_stopped());
    informer.shutdown().await;
}

/// Looks at its informer when it goes.
struct Looks(SharedInformer<ConfigMap>);

impl Drop for Looks {
    fn drop(&mut self) {
        assert!(self.0.is_stopped());
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_dropped_may_use_the_informer() {
    let informer = builder(&server_with(&[])).build();
    let alive = Arc::new(());
    let (looks, held) = (Looks(informer.clone()), Arc::clone(&alive));
    let handler = HandlerFuncs::new().on_add(move |_: &_, _| {
        let _ = (&looks, &held);
    });
    informer.add_handler(handler).unwrap();
    informer.stop();
    assert_eq!(Arc::strong_count(&alive), 1);
}
