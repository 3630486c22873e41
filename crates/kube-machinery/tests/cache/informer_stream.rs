//! An informer's changes as a stream.

use futures_util::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_machinery::cache::{InformerStopped, Notification, SharedInformer, meta_namespace_key};

use crate::{
    informer_support::{settle, spawn},
    made_source::MadeSource,
};

fn line(told: &Notification<ConfigMap>) -> String {
    let what = match told {
        Notification::Add { is_in_initial_list: true, .. } => "initial",
        Notification::Add { .. } => "add",
        Notification::Update { is_resync: false, .. } => "update",
        Notification::Delete(_) => "delete",
        _ => "other",
    };
    format!("{what} {}", told.object().map(|map| meta_namespace_key(&**map)).unwrap_or_default())
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_told_what_a_handler_is_and_waits_for_nobody() {
    let source = MadeSource::new();
    source.set("a");
    let informer = SharedInformer::<ConfigMap>::builder(source.clone()).build();
    let mut early = informer.stream().unwrap();
    let running = spawn(&informer);
    assert!(informer.wait_for_cache_sync().await);
    source.set("b");
    source.set("a");
    source.delete("b");
    settle().await;
    // Nothing was taken, nothing is lost, and the cache is not behind.
    assert_eq!((early.registration().pending(), early.registration().has_synced()), (4, false));
    assert_eq!(informer.store().list_keys(), ["ns/a"]);
    let mut late = informer.stream().unwrap();
    let told: Vec<_> = early.by_ref().take(4).map(|told| line(&told)).collect().await;
    assert_eq!(told, ["initial ns/a", "add ns/b", "update ns/a", "delete ns/b"]);
    assert!(early.registration().has_synced());
    assert_eq!(early.registration().pending(), 1, "the last is being worked on");
    assert!(early.next().now_or_never().is_none());
    assert_eq!(early.registration().pending(), 0);
    assert_eq!(line(&late.next().await.unwrap()), "initial ns/a");

    // A stream that nobody reads holds nothing up, not the end either; and it ends by itself.
    source.set("c");
    settle().await;
    informer.shutdown().await;
    running.await.unwrap();
    assert!(late.next().await.is_none() && early.next().await.is_none());
    assert!(matches!(informer.stream(), Err(InformerStopped)));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_dropped_is_a_handler_that_is_removed() {
    let informer = SharedInformer::<ConfigMap>::builder(MadeSource::new()).build();
    let stream = informer.stream().unwrap();
    let registration = stream.registration().clone();
    drop(stream);
    assert!(!registration.wait_for_sync().await);
}
