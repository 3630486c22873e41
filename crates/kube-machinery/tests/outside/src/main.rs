//! A program outside the workspace that uses the crate: a controller with a recorder, over an API
//! server in its own process. Built by `tests/outside.rs` with another version of Kubernetes each time.

use std::num::NonZeroUsize;

use k8s_openapi::api::core::v1::{ConfigMap, EventSource};
use kube::{Api, Config, api::PostParams};
use kube_machinery::{
    cache::{
        SharedInformerFactory,
        workqueue::{
            RateLimitingQueue,
            controller::{Action, run_workers},
            enqueue,
        },
    },
    record::{ApiServerSink, EventBroadcaster, EventType},
};
use kube_testkit::api_server::{ApiServer, Options};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = ApiServer::start(Options::default())?;
    let client = kube_machinery::client_without_retry(Config::new(server.url().parse()?))?;

    let broadcaster = EventBroadcaster::default();
    broadcaster.start_recording_to_sink(ApiServerSink::new(client.clone())).await?;
    let recorder = broadcaster.new_recorder(EventSource::default());

    let factory = SharedInformerFactory::new(client.clone());
    let maps = factory.informer::<ConfigMap>();
    let queue = RateLimitingQueue::default();
    maps.add_handler(enqueue(&queue))?;
    factory.start();
    assert!(factory.wait_for_cache_sync().await.iter().all(|cache| cache.synced));

    let store = maps.store();
    let workers =
        tokio::spawn(run_workers(queue.clone(), NonZeroUsize::MIN, move |key: String| {
            let object = store.get_by_key(&key);
            if let Some(object) = &object {
                recorder.event(object, EventType::Normal, "Synced", "it is there");
            }
            async move { object.map(|_| Action::Done).ok_or(format!("{key} is not there")) }
        }));

    let map: ConfigMap = serde_json::from_str(r#"{"metadata": {"name": "settings"}}"#)?;
    Api::<ConfigMap>::namespaced(client, "shop").create(&PostParams::default(), &map).await?;
    while server.live_events() == 0 {
        tokio::task::yield_now().await;
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }

    queue.shut_down_with_drain().await;
    let report = workers.await?;
    factory.shutdown().await;
    let recorded = broadcaster.shutdown().await;
    assert!(recorded.is_complete(), "{recorded:?}");
    println!("reconciled {}, events {}", report.reconciled, server.live_events());
    Ok(())
}
