//! Code of the program that panics or refuses: it is said, it is counted, and the rest goes on.

use std::{
    borrow::Cow,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{ConfigMap, EventSource},
};
use kube::{
    Resource,
    core::{ApiResource, ObjectMeta},
};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use tidings_kube::{
    informer::{Indexers, QueueKind, SharedInformer, SharedInformerFactory},
    object::Object,
    recorder::{EventBroadcaster, EventType},
    reflector::ReflectorOptions,
};
use tokio::time::sleep;

use super::{
    informer_support::{Told, builder, config_maps, settle, spawn, stored},
    memory::MemoryServer,
    reflector_streaming_lists::complete,
    scripted::{Answer, Ending, ScriptedServer},
    shared::{secs, server_with},
    support::{api, object},
};
use crate::{
    log::Log,
    recorder::support::{MemorySink, options},
};

fn value(map: &ConfigMap) -> &str {
    &map.data.as_ref().expect("a config map of these tests has data")["value"]
}

#[tokio::test(start_paused = true)]
async fn an_index_function_that_panics_loses_the_object_to_that_index_only() {
    let (log, _guard) = Log::begin();
    let server = server_with(&["a", "b"]);
    server.put("ns/b", 13);
    let by_value = |map: &ConfigMap| {
        assert!(value(map) != "13", "unlucky");
        vec![value(map).to_owned()]
    };
    let names = |map: &ConfigMap| vec![map.name().to_owned()];
    let indexers = Indexers::new().with("value", by_value).with("name", names);
    let informer = builder(&server).indexers(indexers).build();
    let told = Told::default();
    informer.add_handler(told.handler()).unwrap();
    spawn(&informer);
    assert!(informer.wait_for_cache_sync().await);
    server.put("ns/c", 7);
    settle().await;
    assert_eq!((stored(&informer), told.len()), (server.versions(), 3));
    let store = informer.store();
    assert_eq!(store.index_keys("value", "7").unwrap(), ["ns/c"]);
    assert_eq!(store.index_keys("name", "b").unwrap(), ["ns/b"]);
    assert!(store.index_keys("value", "13").unwrap().is_empty());
    server.put("ns/b", 8);
    settle().await;
    assert_eq!(store.index_keys("value", "8").unwrap(), ["ns/b"], "found when it can be read");
    assert_eq!(informer.panics(), 2, "of the object as it came, and as it went");
    let line = log.text().lines().find(|line| line.contains("unlucky")).unwrap().to_owned();
    for part in ["index=\"value\"", "object=\"ns/b\""] {
        assert!(line.contains(part), "{part} in {line}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_index_function_that_panics_later_leaves_nothing_behind_in_its_index() {
    let server = server_with(&["a", "b"]);
    let broken = Arc::new(AtomicBool::new(false));
    let breaks = Arc::clone(&broken);
    let all = move |_: &ConfigMap| {
        assert!(!breaks.load(Ordering::Relaxed), "poisoned");
        vec!["all".to_owned()]
    };
    let informer = builder(&server).indexers(Indexers::new().with("x", all)).build();
    spawn(&informer);
    assert!(informer.wait_for_cache_sync().await);
    broken.store(true, Ordering::Relaxed);
    server.delete("ns/a");
    settle().await;
    assert_eq!(informer.store().index_keys("x", "all").unwrap(), ["ns/b"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_the_transformer_panics_on_is_left_out() {
    for queue in [QueueKind::InOrder, QueueKind::Delta] {
        let (log, _guard) = Log::begin();
        let server = server_with(&["a"]);
        server.put("ns/b", 13);
        let transform = |map: ConfigMap| {
            assert!(value(&map) != "13", "unlucky");
            Ok(map)
        };
        let informer = builder(&server).queue(queue).transform(transform).build();
        spawn(&informer);
        assert!(informer.wait_for_cache_sync().await, "a list with such an object is taken");
        assert_eq!((stored(&informer), server.lists()), (vec!["ns/a@1".to_owned()], 1));
        server.put("ns/a", 13);
        server.put("ns/c", 7);
        settle().await;
        assert_eq!(stored(&informer), ["ns/a@1", "ns/c@4"], "the last state stays");
        server.delete("ns/a");
        settle().await;
        assert_eq!(stored(&informer), ["ns/c@4"], "that it is gone needs no transformer");
        assert_eq!(informer.panics(), 3);
        assert!(log.text().contains("object=\"ns/b\" cause=the transformer panicked: unlucky"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_error_handler_that_panics_is_called_again() {
    let (log, _guard) = Log::begin();
    let server = server_with(&["a"]);
    server.fail(2);
    let informer = builder(&server).watch_error_handler(|_| panic!("of the {}", "handler")).build();
    spawn(&informer);
    assert!(informer.wait_for_cache_sync().await);
    assert_eq!(informer.panics(), 2);
    assert!(log.text().contains("source=\"configmaps\" panic=\"of the handler\""));
}

#[tokio::test(start_paused = true)]
async fn a_list_that_the_transformer_refuses_is_told_to_the_watch_error_handler() {
    let server = server_with(&["a"]);
    server.put("ns/b", 13);
    let errors = Arc::<Mutex<Vec<String>>>::default();
    let told = Arc::clone(&errors);
    let refuse = |map: ConfigMap| if value(&map) == "13" { Err("unlucky".into()) } else { Ok(map) };
    let informer = builder(&server)
        .transform(refuse)
        .watch_error_handler(move |error| told.lock().unwrap().push(error.to_string()))
        .build();
    spawn(&informer);
    settle().await;
    let error = "cannot list configmaps: cannot transform \"ns/b\": unlucky";
    assert_eq!(*errors.lock().unwrap(), [error]);
    assert_eq!(informer.health().unwrap().last_error.as_deref(), Some(error));
    server.put("ns/b", 1);
    assert!(informer.wait_for_cache_sync().await);
    assert_eq!(informer.health().unwrap().last_error, None);
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_that_the_transformer_refuses_is_told_too() {
    let objects = [(0, "ADDED", object("b", "5")), complete("10")];
    let server = ScriptedServer::script([Answer::watch(objects, Ending::Open)]);
    let errors = Arc::<Mutex<Vec<String>>>::default();
    let told = Arc::clone(&errors);
    let informer = SharedInformer::<ConfigMap>::builder(api(&server))
        .reflector(ReflectorOptions { streaming_lists: true, ..ReflectorOptions::default() })
        .transform(|_| Err("unlucky".into()))
        .watch_error_handler(move |error| told.lock().unwrap().push(error.to_string()))
        .build();
    spawn(&informer);
    sleep(Duration::from_millis(100)).await;
    let error = "cannot list configmaps: cannot transform \"shop/b\": unlucky";
    assert_eq!(*errors.lock().unwrap(), [error]);
}

/// A list without the kind of an item, as an API server sends it, and an item of another kind.
fn list_of(name: &str) -> Answer {
    let item = json!({"metadata": {"name": name, "namespace": "ns", "resourceVersion": "5"}});
    let other = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "ns"}});
    Answer::list(&[item, other], "10", "")
}

#[tokio::test(start_paused = true)]
async fn a_dynamic_object_of_a_list_carries_its_kind_so_an_event_can_be_about_it() {
    let watch = Answer::watch(None::<(u64, &str, Value)>, Ending::Open);
    let server = ScriptedServer::script([list_of("settings"), watch]);
    let factory = SharedInformerFactory::new(server.client());
    let informer = factory.informer_for(&ApiResource::erase::<ConfigMap>(&()));
    factory.start();
    assert!(factory.wait_for_cache_sync().await[0].synced);
    assert_eq!(informer.unreadable(), 1, "a namespace is no config map");
    let object = informer.store().get_by_key("ns/settings").unwrap();
    let types = object.types.clone().unwrap();
    assert_eq!((&*types.api_version, &*types.kind), ("v1", "ConfigMap"));

    let sink = MemorySink::new([]);
    let broadcaster = EventBroadcaster::new(options());
    broadcaster.start_recording_to_sink(sink.clone()).await.unwrap();
    let recorder = broadcaster.new_recorder(EventSource::default());
    recorder.event(&*object, EventType::Normal, "Seen", "in the first list");
    assert!(broadcaster.shutdown().await.is_complete());
    let about = sink.calls()[0].event.involved_object.clone();
    assert_eq!(
        (about.kind.as_deref(), about.name.as_deref()),
        (Some("ConfigMap"), Some("settings"))
    );
    factory.shutdown().await;
}

/// A type whose own code panics: while 13 is read, and at a 14 that is in the cache once it is told to.
#[derive(Clone)]
struct Fragile(ConfigMap);

static BREAKS: AtomicBool = AtomicBool::new(false);

impl<'de> Deserialize<'de> for Fragile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let map = ConfigMap::deserialize(deserializer)?;
        assert!(value(&map) != "13", "while it is read");
        Ok(Self(map))
    }
}

impl Resource for Fragile {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind(&(): &()) -> Cow<'_, str> {
        ConfigMap::kind(&())
    }

    fn group(&(): &()) -> Cow<'_, str> {
        ConfigMap::group(&())
    }

    fn version(&(): &()) -> Cow<'_, str> {
        ConfigMap::version(&())
    }

    fn plural(&(): &()) -> Cow<'_, str> {
        ConfigMap::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        assert!(value(&self.0) != "14" || !BREAKS.load(Ordering::Relaxed), "in the cache");
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_reading_panics_is_unreadable() {
    let server = server_with(&["a"]);
    server.put("ns/b", 13);
    let informer = SharedInformer::<Fragile>::builder(config_maps(&server)).build();
    let running = informer.clone();
    tokio::spawn(async move { running.run().await });
    assert!(informer.wait_for_cache_sync().await);
    assert_eq!((informer.store().list_keys(), informer.unreadable()), (vec!["ns/a".to_owned()], 1));
}

fn factory_of(server: &MemoryServer) -> SharedInformerFactory {
    SharedInformerFactory::new(server.client())
}

#[tokio::test(start_paused = true)]
async fn a_factory_says_which_informer_has_ended() {
    let (log, _guard) = Log::begin();
    let server = server_with(&["a"]);
    let factory = factory_of(&server);
    let (maps, others) = (
        factory.informer::<ConfigMap>(),
        factory.metadata_informer_for(&ApiResource::erase::<ConfigMap>(&())),
    );
    factory.start();
    assert!(factory.wait_for_cache_sync().await.iter().all(|cache| cache.synced && !cache.ended));
    let waited = tokio::time::timeout(secs(3600), factory.failed()).await;
    assert!(waited.is_err(), "{waited:?}");
    maps.stop();
    let ended = factory.failed().await;
    assert!(ended.to_string().starts_with("the informer of configmaps ("), "{ended}");
    assert!(ended.to_string().ends_with("ConfigMap) was stopped"), "{ended}");
    assert!(log.line("its cache is no longer kept up").contains("configmaps"));
    let caches = factory.wait_for_cache_sync().await;
    let ends: Vec<_> = caches.iter().map(|cache| (cache.synced, cache.ended)).collect();
    assert_eq!(ends.iter().filter(|end| **end == (true, true)).count(), 1);
    assert!(!others.is_stopped());
    factory.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_factory_says_what_its_informer_panicked_with() {
    let (log, _guard) = Log::begin();
    let server = server_with(&[]);
    server.put("ns/a", 14);
    let factory = factory_of(&server);
    let informer = factory.informer::<Fragile>();
    factory.start();
    assert!(factory.wait_for_cache_sync().await[0].synced);
    BREAKS.store(true, Ordering::Relaxed);
    server.put("ns/a", 5);
    let ended = factory.failed().await;
    assert_eq!(ended.panic.as_deref(), Some("in the cache"));
    assert!(informer.is_stopped() && factory.wait_for_cache_sync().await[0].ended);
    assert!(log.line("its cache is no longer kept up").contains("panicked: in the cache"));
    factory.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_informer_that_is_stopped_before_it_has_synced_has_ended() {
    let server = ScriptedServer::script([]);
    let factory = SharedInformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>();
    factory.start();
    settle().await;
    informer.stop();
    let cache = &factory.wait_for_cache_sync().await[0];
    assert!(!cache.synced && cache.ended);
}

#[tokio::test(start_paused = true)]
async fn a_factory_that_is_dropped_at_once_leaves_nobody_waiting() {
    let factory = factory_of(&server_with(&["a"]));
    let informer = factory.informer::<ConfigMap>();
    factory.start();
    drop(factory);
    assert!(!informer.wait_for_cache_sync().await);
}

#[tokio::test(start_paused = true)]
async fn a_factory_that_is_shut_down_has_not_failed() {
    let server = server_with(&["a"]);
    let factory = factory_of(&server);
    factory.informer::<ConfigMap>();
    factory.start();
    sleep(Duration::from_millis(1)).await;
    factory.shutdown().await;
    assert!(tokio::time::timeout(secs(60), factory.failed()).await.is_err());
}
