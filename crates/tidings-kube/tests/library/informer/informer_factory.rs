//! The factory: one informer for each type, all started and stopped together.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::core::{ApiResource, DynamicObject};
use tidings_kube::informer::{
    HandlerFuncs, Indexers, NAMESPACE_INDEX, SharedInformerFactory, namespace_index_func,
};
use tidings_testkit::api_server::{Fault, On, StreamFault, Verb};
use tokio::time::{Duration, sleep};

use super::{
    informer_support::{Told, settle, stored},
    memory::MemoryServer,
};
use crate::log::Log;

fn config_maps() -> ApiResource {
    ApiResource::erase::<ConfigMap>(&())
}

#[tokio::test(start_paused = true)]
async fn a_type_has_one_informer_and_one_watch() {
    let server = MemoryServer::start();
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
    assert_eq!((stored(&two), told.len()), (server.versions(), 1));
    assert_eq!((server.lists(), server.request_count(Verb::Watch, "configmaps")), (1, 1));
    factory.shutdown().await;
    assert!(one.is_stopped() && told.handlers() == 0);
    settle().await;
    assert_eq!(server.open_watches(), 0);
    let late = factory.informer_for(&config_maps());
    factory.start();
    assert!(late.is_stopped() && !late.wait_for_cache_sync().await, "nobody waits in vain");
    assert_eq!(server.lists(), 1, "after the end none is started");
}

#[tokio::test(start_paused = true)]
async fn an_informer_that_is_never_started_ends_with_its_factory() {
    let factory = SharedInformerFactory::new(MemoryServer::start().client());
    let informer = factory.informer::<ConfigMap>();
    factory.shutdown().await;
    assert!(informer.is_stopped() && !informer.wait_for_cache_sync().await);
}

#[tokio::test(start_paused = true)]
async fn a_second_set_up_is_not_used_and_the_log_says_so() {
    let (log, _guard) = Log::begin();
    let factory = SharedInformerFactory::new(MemoryServer::start().client());
    factory.informer::<ConfigMap>();
    factory.informer::<ConfigMap>();
    let informer =
        factory.informer_with::<ConfigMap>(|_| panic!("the informer was there: nothing is set up"));
    assert!(log.line("its second set-up is not used").contains("configmaps"));
    let indexers = Indexers::new().with(NAMESPACE_INDEX, namespace_index_func);
    informer.store().add_indexers(indexers).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_resource_without_a_type_has_one_informer_for_each_view_of_it() {
    let server = MemoryServer::start();
    server.put("ns/a", 7);
    let pod = Fault::Stream { after: 0, then: StreamFault::wrong_kind() };
    server.fail_once(On::Watch.of("namespaces"), pod);
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
    settle().await;
    assert_eq!(other.unreadable(), 1, "a pod is no namespace");
    factory.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_transformer_and_a_resync_may_be_for_each_type() {
    let server = MemoryServer::start();
    server.put("ns/a", 7);
    let factory = SharedInformerFactory::new(server.client())
        .resync(Duration::from_secs(100))
        .resync_of::<ConfigMap>(Duration::from_secs(10))
        .transform(|object| {
            if let Some(map) = object.downcast_mut::<ConfigMap>() {
                map.data = None;
            }
            Ok(())
        });
    let (maps, dynamic) = (factory.informer::<ConfigMap>(), factory.informer_for(&config_maps()));
    let (told, others) = (Told::default(), Arc::new(AtomicU64::new(0)));
    let told_of = Arc::clone(&others);
    maps.add_handler(told.handler()).unwrap();
    let count = move |_: &_, _: &_| {
        told_of.fetch_add(1, Ordering::Relaxed);
    };
    dynamic.add_handler(HandlerFuncs::new().on_update(count)).unwrap();
    factory.start();
    assert!(factory.wait_for_cache_sync().await.iter().all(|cache| cache.synced));
    sleep(Duration::from_secs(35)).await;
    assert_eq!((told.len(), others.load(Ordering::Relaxed)), (4, 0));
    assert!(maps.store().get_by_key("ns/a").unwrap().data.is_none());
    assert!(dynamic.store().get_by_key("ns/a").unwrap().data["data"].is_object());
    factory.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn metadata_alone_is_asked_for_as_such() {
    let server = MemoryServer::start();
    server.put("ns/a", 7);
    let factory = SharedInformerFactory::new(server.client());
    let informer = factory.metadata_informer_for(&config_maps());
    factory.start();
    assert!(factory.wait_for_cache_sync().await[0].synced);
    assert_eq!(informer.store().list_keys(), ["ns/a"]);
    let list = &server.requests()[0].request;
    assert_eq!(
        list.header("accept"),
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    );
    factory.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn one_that_is_asked_for_later_is_started_later() {
    let server = MemoryServer::start();
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
    let server = MemoryServer::start();
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
    let mut watched = server.requests();
    watched.retain(|recorded| recorded.request.flag("watch"));
    watched.sort_by_key(|recorded| recorded.request.path.len());
    assert_eq!(watched[0].request.path, "/api/v1/namespaces", "a namespace is in no namespace");
    assert_eq!(watched[1].request.path, "/api/v1/namespaces/ns/configmaps");
    assert!(watched.iter().all(|recorded| recorded.request.param("labelSelector") == "app=a"));
    drop((factory, whole));
    settle().await;
    assert_eq!((told.handlers(), server.open_watches()), (0, 0), "dropped with the factory");
}

#[tokio::test(start_paused = true)]
async fn setting_one_up_may_ask_for_another() {
    let server = MemoryServer::start();
    let factory = SharedInformerFactory::new(server.client());
    let config_maps = factory.informer_with::<ConfigMap>(|builder| {
        let namespaces = factory.informer::<Namespace>().store();
        builder.transform(move |map| if namespaces.is_empty() { Ok(map) } else { Err("".into()) })
    });
    factory.start();
    assert_eq!(factory.wait_for_cache_sync().await.len(), 2);
    factory.shutdown().await;
    assert!(config_maps.is_stopped());
}
