//! The low-level controller, and the informer of one handler.

use std::{convert::Infallible, sync::Arc};

use k8s_openapi::api::core::v1::ConfigMap;
use tidings_kube::{
    informer::{Controller, Delta, DeltaFifo, DeltaFifoOptions, Informer, Store, TransformFunc},
    reflector::ReflectorOptions,
};
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::{
    informer_support::{Told, Writer, config_maps, settle},
    memory::MemoryServer,
    shared::{secs, server_with},
};
use crate::log::Log;

fn informer(
    server: &MemoryServer,
    transform: Option<TransformFunc<ConfigMap>>,
) -> Arc<Informer<ConfigMap>> {
    let options = ReflectorOptions { resync_period: Some(secs(60)), ..ReflectorOptions::default() };
    Arc::new(Informer::new(config_maps(server), Store::default(), transform, options))
}

fn run(informer: &Arc<Informer<ConfigMap>>, handler: Writer) -> JoinHandle<bool> {
    let informer = Arc::clone(informer);
    tokio::spawn(async move { informer.run(handler).await.is_ok() })
}

#[tokio::test(start_paused = true)]
async fn an_informer_keeps_its_store_and_tells_its_handler() {
    let server = server_with(&["a", "b"]);
    let (informer, told) = (informer(&server, None), Told::default());
    let running = run(&informer, told.handler().panics_on("add ns/b@2 initial"));
    assert!(informer.controller().synced().wait().await);
    server.put("ns/a", 5);
    server.delete("ns/b");
    settle().await;
    assert_eq!(told.lines(), ["add ns/a@1 initial", "update ns/a@1 to ns/a@3", "delete ns/b@4"]);
    assert_eq!((informer.store().list_keys(), informer.panics()), (vec!["ns/a".to_owned()], 1));
    assert_eq!(informer.controller().last_sync_resource_version(), "4");
    sleep(secs(60)).await;
    assert_eq!(told.lines()[3..], ["update ns/a@3 to ns/a@3"]);
    assert!(informer.run(told.handler()).await.is_err(), "it runs once");
    informer.controller().stop();
    assert!(running.await.unwrap());
    settle().await;
    assert_eq!(server.open_watches(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_informer_has_synced_when_its_handler_has_returned() {
    let server = server_with(&["a", "b"]);
    let (informer, told) = (informer(&server, None), Told::default());
    run(&informer, told.handler().takes(secs(10)));
    sleep(secs(15)).await;
    // Both are popped, and the change comes from the reflector's task.
    server.put("ns/c", 1);
    sleep(secs(4)).await;
    assert!(!informer.controller().has_synced());
    assert!(timeout(secs(10), informer.controller().synced().wait()).await.unwrap());
    assert!(informer.controller().has_synced());
    assert_eq!(told.lines(), ["add ns/a@1 initial", "add ns/b@2 initial"]);
}

#[tokio::test(start_paused = true)]
async fn an_informer_of_nothing_has_synced() {
    let server = server_with(&[]);
    let informer = informer(&server, None);
    run(&informer, Told::default().handler());
    assert!(informer.controller().synced().wait().await);
}

#[tokio::test(start_paused = true)]
async fn an_informer_that_is_told_to_stop_leaves_the_rest_of_its_queue() {
    let server = server_with(&["a", "b", "c"]);
    let (informer, told) = (informer(&server, None), Told::default());
    let running = run(&informer, told.handler().takes(secs(10)));
    sleep(secs(5)).await;
    informer.controller().stop();
    assert!(running.await.unwrap());
    assert_eq!(told.lines(), ["add ns/a@1 initial"]);
    assert!(!informer.controller().synced().wait().await);
    let never = self::informer(&server, None);
    never.controller().stop();
    assert!(never.run(told.handler()).await.is_err());
    assert!(!never.controller().synced().wait().await);
    assert_eq!(server.lists(), 1, "it asked for nothing");
}

#[tokio::test(start_paused = true)]
async fn an_informer_whose_transformer_panics_leaves_the_object_out() {
    let server = server_with(&["a", "b"]);
    let transform = |map: ConfigMap| {
        assert!(map.metadata.name.as_deref() != Some("a"), "as it was told to");
        Ok(map)
    };
    let (informer, told) = (informer(&server, Some(Arc::new(transform))), Told::default());
    run(&informer, told.handler());
    assert!(informer.controller().synced().wait().await);
    assert_eq!((told.lines(), informer.panics()), (vec!["add ns/b@2 initial".to_owned()], 1));
}

#[tokio::test(start_paused = true)]
async fn a_controller_has_a_queue_of_ones_own_processed() {
    let (log, _guard) = Log::begin();
    let server = server_with(&["a", "b"]);
    let queue = DeltaFifo::new(DeltaFifoOptions {
        known_objects: Some(Arc::new(Store::default())),
        ..DeltaFifoOptions::default()
    });
    let controller =
        Arc::new(Controller::new(config_maps(&server), queue, ReflectorOptions::default()));
    let (sent, mut processed) = mpsc::unbounded_channel();
    let running = tokio::spawn({
        let controller = Arc::clone(&controller);
        async move {
            let process = |deltas: &[Delta<ConfigMap>], initial: bool| {
                let key = deltas[0].object.key();
                sent.send(format!("{:?} {key} {initial}", deltas[0].kind)).unwrap();
                if key == "ns/c" {
                    // From within, where the queue is locked.
                    assert!(controller.has_synced());
                    controller.stop();
                }
                if key == "ns/b" { Err("not this one".to_owned()) } else { Ok(()) }
            };
            controller.run(process).await.is_ok()
        }
    });
    assert!(controller.synced().wait().await);
    server.put("ns/c", 1);
    assert!(running.await.unwrap());
    let mut told = Vec::new();
    while let Ok(line) = processed.try_recv() {
        told.push(line);
    }
    assert_eq!(told, ["Sync ns/a true", "Sync ns/b true", "Added ns/c false"]);
    assert!(log.line("could not be processed").contains("not this one"), "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn a_controller_whose_run_is_dropped_never_syncs() {
    let server = server_with(&["a"]);
    server.fail(1000);
    let queue = DeltaFifo::<ConfigMap>::new(DeltaFifoOptions::default());
    let controller = Controller::new(config_maps(&server), queue, ReflectorOptions::default());
    let synced = controller.synced();
    let run = controller.run(|_, _| Ok::<_, Infallible>(()));
    assert!(timeout(secs(10), run).await.is_err());
    assert!(!synced.wait().await);
}
