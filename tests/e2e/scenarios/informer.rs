//! A shared informer on the real API server: many objects, several writers, and harm in between.
//!
//! There are two API servers on one etcd, as many clusters have them. The informer follows the one
//! that is harmed; writes go to both, so that much happens while the informer sees nothing.

mod observer;
mod writers;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams};
use kube::core::ApiResource;
use tidings_kube::{informer::SharedInformer, object::meta_namespace_key, reflector::ResourceApi};

use self::observer::{Observer, Version};
use self::writers::Writing;
use crate::parts::{ApiServer, ApiServerOptions, Part as _};
use crate::stage::Cluster;
use crate::wait::until_within;

const OBJECTS: usize = 20_000;
/// What the informer selects by: the API server has config maps of its own.
const LABEL: &str = "e2e-informer";
const WRITTEN_WITHIN: Duration = Duration::from_mins(4);
/// How long the informer may take to notice that the API server is back, and the slow handler to
/// have worked off what came meanwhile.
const AT_REST_WITHIN: Duration = Duration::from_mins(3);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: make e2e ARGS=--all"]
async fn after_restarts_and_compactions_store_and_handlers_know_what_the_api_server_holds() {
    let mut cluster = Cluster::start(ApiServerOptions::default()).await;
    let other = ApiServer::start(&cluster.etcd, ApiServerOptions::default()).await;
    let clients = [other.client("admin").await, cluster.admin().await];
    let api = ResourceApi::new(cluster.admin().await, &ApiResource::erase::<ConfigMap>(&()));
    let informer = SharedInformer::<ConfigMap>::builder(api.labels(LABEL)).build();
    let mut observers = vec![
        Observer::add(&informer, "first", Duration::ZERO),
        Observer::add(&informer, "second", Duration::ZERO),
        Observer::add(&informer, "slow", Duration::from_millis(10)),
    ];
    let running = tokio::spawn({
        let informer = informer.clone();
        async move { informer.run().await }
    });
    let writing = Writing::start(&clients, OBJECTS).await;
    let written = async |percent| {
        let what = format!("{percent} % is written");
        until_within(WRITTEN_WITHIN, &what, async || writing.percent() >= percent).await;
    };

    written(15).await;
    cluster.etcd.compact(cluster.etcd.current_revision());
    written(30).await;
    cluster.server.restart().await;
    written(45).await;
    // In the middle of the backlog that the restart has left.
    observers.push(Observer::add(&informer, "late", Duration::ZERO));
    written(55).await;
    cluster.server.kill9();
    cluster.etcd.compact(cluster.etcd.current_revision());
    cluster.server.launch().await;
    written(65).await;
    cluster.etcd.compact(cluster.etcd.current_revision());
    written(70).await;
    cluster.server.stop().await;
    written(75).await;
    cluster.server.launch().await;
    let slow = observers.iter().map(|observer| observer.registration.pending()).max();
    eprintln!("  the slow handler is {} notifications behind", slow.unwrap_or_default());
    let deleted = writing.finish().await;

    let maps = Api::<ConfigMap>::all(clients[0].clone());
    let maps = maps.list(&ListParams::default().labels(LABEL)).await.expect("a list of all");
    let fresh = versions(&maps.items);
    until_within(AT_REST_WITHIN, "the informer and its handlers know what is there", async || {
        let store: Vec<_> = informer.store().list();
        versions(store.iter().map(AsRef::as_ref)) == fresh
            && observers.iter().all(|observer| observer.known().maps == fresh)
    })
    .await;

    for observer in &observers {
        let (name, known) = (observer.name, observer.known());
        assert_eq!(known.contradictions, [""; 0], "{name}");
        let missed = deleted.iter().filter(|uid| known.seen.contains(*uid));
        let missed: Vec<_> = missed.filter(|uid| !known.ended.contains(*uid)).collect();
        assert!(missed.is_empty(), "{name} was not told the end of {missed:?}");
        eprintln!(
            "  {name}: {} of {} deletions, {} of them unseen by a watch",
            known.ended.len(),
            deleted.len(),
            known.tombstones
        );
    }
    let health = informer.health().expect("an informer that runs");
    eprintln!("  {} objects, {} lists, {} watches", fresh.len(), health.lists, health.watches);
    assert!(health.lists > 1, "history that is gone asks for a list");
    assert!(observers[0].known().tombstones > 0, "nothing was deleted unseen: not much of a test");

    informer.shutdown().await;
    running.await.expect("an informer that does not panic").expect("its first run");
}

fn versions<'a>(maps: impl IntoIterator<Item = &'a ConfigMap>) -> BTreeMap<String, Version> {
    maps.into_iter().map(|map| (meta_namespace_key(map), Version::of(map))).collect()
}
