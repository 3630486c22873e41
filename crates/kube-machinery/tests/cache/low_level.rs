//! A queue whose changes a program processes itself.

use std::{convert::Infallible, sync::Arc};

use futures_util::FutureExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_machinery::cache::{
    DeletedFinalStateUnknown, Delta, InOrderFifo, LowLevelController, ObjectStore as _, PopError,
    ReflectorOptions, StoreWriter,
};

use crate::{informer_support::settle, made_source::MadeSource};

type Controlled = LowLevelController<ConfigMap, InOrderFifo<ConfigMap>>;

/// Processes a change by showing it.
async fn pop(controller: &mut Controlled) -> Result<String, PopError<Infallible>> {
    controller.pop(|deltas, initial| Ok(shown(deltas, initial))).await
}

fn shown(deltas: &[Delta<ConfigMap>], initial: bool) -> String {
    let shown: Vec<_> =
        deltas.iter().map(|delta| format!("{:?} {}", delta.kind, delta.object.key())).collect();
    format!("{} {initial}", shown.join(", "))
}

#[tokio::test(start_paused = true)]
async fn changes_come_out_of_the_queue_until_it_is_stopped() {
    let source = MadeSource::new();
    source.set("a");
    let known = StoreWriter::<ConfigMap>::default();
    let queue = InOrderFifo::new(Arc::new(known.store()), None);
    let options = ReflectorOptions::default();
    let mut controller = LowLevelController::start(source.clone(), queue, options);
    assert!(!controller.has_synced());
    assert_eq!(pop(&mut controller).await.unwrap(), "Replaced ns/a true");
    assert!(controller.has_synced());
    settle().await;
    source.delete("a");
    assert_eq!(pop(&mut controller).await.unwrap(), "Deleted ns/a false");
    assert_eq!(controller.health().lock().unwrap().last_sync_resource_version, "2");
    assert!(pop(&mut controller).now_or_never().is_none());
    controller
        .queue()
        .delete_tombstone(DeletedFinalStateUnknown { key: "ns/b".to_owned(), object: None });
    let refused = controller.pop(|_, _| Err::<(), _>("no")).await;
    assert_eq!(refused, Err(PopError::Process("no")));
    let health = controller.health();
    controller.stop().await;
    settle().await;
    source.set("b");
    settle().await;
    assert_eq!(health.lock().unwrap().last_sync_resource_version, "2", "the reflector has ended");
}
