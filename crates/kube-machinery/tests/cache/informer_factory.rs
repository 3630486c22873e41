//! The factory: one informer for each type, all started and stopped together.

use std::{any::Any, sync::Arc};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::core::{ApiResource, DynamicObject};
use kube_machinery::cache::{HandlerFuncs, Object, SharedInformerFactory};
use tokio::time::{Duration, sleep};

use crate::{
    informer_support::{Told, settle, stored},
    model_server::ModelServer,
};

fn config_maps() -> ApiResource {
    ApiResource::erase::<ConfigMap>(&())
}

#[tokio::test(start_paused = true)]
async fn a_type_has_one_informer_and_one_watch() {
    let server = ModelServer::default();
    server.put("ns/a", 1);
    let factory = SharedInformerFactory::new(server.client());
    let (one, two) = (factory.informer::<ConfigMap>(), factory.informer::<ConfigMap>());
    let told = Told::default();
    one.add_handler(told.handler()).unwrap();
    assert!(factory.wait_for_cache_sync().await.is_empty(), "none was started");
    factory.start();
    factory.start();
    let caches = factory.wait_for_cache_sync().await;
    assert_eq!(caches.len(), 1);
    assert!(caches[0].synced && caches[0].object.ends_with("ConfigMap"));
    settle().await;
    assert_eq!((stored(&two), told.len()), (server.objects(), 1));
    assert_eq!((server.lists(), server.watched().len()), (1, 1));
    factory.shutdown().await;
    assert!(one.is_stopped() && told.handlers() == 0 && server.open_watches() == 0);
    factory.informer_for(&config_maps());
    factory.start();
    settle().await;
    assert_eq!(server.lists(), 1, "after the end none is started");
}

#[tokio::test(start_paused = true)]
async fn a_resource_without_a_type_has_one_informer_for_each_view_of_it() {
    let server = ModelServer::default();
    server.put("ns/a", 7);
    let factory = SharedInformerFactory::new(server.client());
    let (typed, dynamic) = (factory.informer::<ConfigMap>(), factory.informer_for(&config_maps()));
    let (again, other) = (
        factory.informer_for(&config_maps()),
        factory.informer_for(&ApiResource::erase::<Namespace>(&())),
    );
    factory.start();
    assert_eq!(factory.wait_for_cache_sync().await.len(), 3);
    let value = |object: Arc<DynamicObject>| object.data["data"]["value"].clone();
    assert_eq!(again.store().get_by_key("ns/a").map(value), Some("7".into()));
    assert_eq!((typed.store().list().len(), dynamic.store().list().len()), (1, 1));
    assert_eq!(other.unreadable(), 1, "a config map is no namespace");
    factory.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn metadata_alone_is_asked_for_as_such() {
    let server = ModelServer::default();
    server.put("ns/a", 7);
    let factory = SharedInformerFactory::new(server.client());
    let informer = factory.metadata_informer_for(&config_maps());
    factory.start();
    assert!(factory.wait_for_cache_sync().await[0].synced);
    assert_eq!(informer.store().list_keys(), ["ns/a"]);
    assert_eq!(
        server.accepted()[0],
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    );
    factory.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn one_that_is_asked_for_later_is_started_later() {
    let server = ModelServer::default();
    let factory = SharedInformerFactory::new(server.client());
    factory.informer::<ConfigMap>();
    factory.start();
    let late = factory.informer::<Namespace>();
    assert_eq!(factory.wait_for_cache_sync().await.len(), 1);
    assert!(!late.has_synced());
    factory.start();
    assert_eq!(factory.wait_for_cache_sync().await.len(), 2);
    late.shutdown().await;
    factory.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn namespace_resync_and_selectors_are_the_informers() {
    let server = ModelServer::default();
    server.put("ns/a", 1);
    let factory = SharedInformerFactory::new(server.client())
        .namespace("ns")
        .resync(Duration::from_secs(10))
        .tweak(|api| api.labels("app=a"));
    let (told, whole) = (Told::default(), factory.informer::<Namespace>());
    factory.informer::<ConfigMap>().add_handler(told.handler()).unwrap();
    factory.start();
    assert!(factory.wait_for_cache_sync().await.iter().all(|cache| cache.synced));
    sleep(Duration::from_secs(25)).await;
    assert_eq!(told.len(), 3);
    let mut paths = server.watched();
    paths.sort();
    assert!(paths[0].starts_with("/api/v1/namespaces/ns/configmaps?"), "{paths:?}");
    assert!(paths[1].starts_with("/api/v1/namespaces?"), "a namespace is in no namespace");
    assert!(paths.iter().all(|path| path.ends_with("labelSelector=app%3Da")), "{paths:?}");
    drop((factory, whole));
    settle().await;
    assert_eq!((told.handlers(), server.open_watches()), (0, 0), "dropped with the factory");
}

#[tokio::test(start_paused = true)]
async fn setting_one_up_may_ask_for_another() {
    let server = ModelServer::default();
    let factory = SharedInformerFactory::new(server.client());
    let config_maps = factory.informer_with::<ConfigMap>(|builder| {
        let namespaces = factory.informer::<Namespace>().store();
        builder.transform(move |map| if namespaces.is_empty() { Ok(map) } else { Err("".into()) })
    });
    let config_maps = config_maps.unwrap();
    factory.start();
    assert_eq!(factory.wait_for_cache_sync().await.len(), 2);
    factory.shutdown().await;
    assert!(config_maps.is_stopped());
}

#[tokio::test(start_paused = true)]
async fn a_type_is_set_up_by_the_factory_whoever_asks_for_it_first() {
    let server = ModelServer::default();
    server.put("ns/a", 1);
    let factory = SharedInformerFactory::new(server.client()).set_up::<ConfigMap>(|maps| {
        maps.resync_check_period(Duration::from_secs(10)).transform(|mut map: ConfigMap| {
            map.data = None;
            Ok(map)
        })
    });
    let (maps, dynamic) = (factory.informer::<ConfigMap>(), factory.informer_for(&config_maps()));
    let resyncs =
        |told: &Told| told.lines().iter().filter(|line| line.starts_with("update")).count();
    let told = Told::default();
    maps.add_handler(told.handler()).unwrap();
    let others = Arc::new(());
    let counted = Arc::clone(&others);
    let count = HandlerFuncs::new().on_update(move |_, _| std::mem::forget(Arc::clone(&counted)));
    dynamic.add_handler(count).unwrap();
    factory.start();
    assert!(factory.wait_for_cache_sync().await.iter().all(|cache| cache.synced));
    assert!(maps.store().list()[0].data.is_none());
    assert!(dynamic.store().list()[0].data.get("data").is_some());
    sleep(Duration::from_secs(25)).await;
    assert_eq!((resyncs(&told), Arc::strong_count(&others)), (2, 2), "the other type has none");
    factory.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_transformer_of_the_factory_is_that_of_each_type_without_one_of_its_own() {
    let server = ModelServer::default();
    server.put("ns/a", 1);
    let transform = |object: &mut dyn Object| {
        if let Some(metadata) = object.metadata_mut() {
            metadata.labels = None;
        }
        if let Some(map) = (object as &mut dyn Any).downcast_mut::<ConfigMap>() {
            map.data = None;
        }
        Ok(())
    };
    let factory = SharedInformerFactory::new(server.client())
        .set_up::<DynamicObject>(|objects| objects.transform(Ok))
        .transform(transform);
    let (maps, dynamic) = (factory.informer::<ConfigMap>(), factory.informer_for(&config_maps()));
    let metadata = factory.metadata_informer_for(&config_maps());
    factory.start();
    assert!(factory.wait_for_cache_sync().await.iter().all(|cache| cache.synced));
    let map = maps.store().list().remove(0);
    assert_eq!((&map.data, &map.metadata.labels), (&None, &None));
    let object = dynamic.store().list().remove(0);
    assert!(object.data.get("data").is_some() && object.metadata.labels.is_some());
    assert_eq!(metadata.store().len(), 1, "one that has no such metadata goes through as it is");
    factory.shutdown().await;
}
