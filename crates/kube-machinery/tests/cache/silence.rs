//! Nothing ends in silence: what panics, is refused, comes late or is removed is told to whoever waits.

use std::{
    io,
    num::NonZeroUsize,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use k8s_openapi::api::core::v1::{ConfigMap, EventSource};
use kube::core::{ApiResource, DynamicObject, ObjectMeta, Status};
use kube_machinery::{
    cache::{
        AlreadySetUp, Call, DeltaObject, HandlerFuncs, Indexers, ListWatchError,
        ResourceEventHandler, SharedInformerFactory, Synced,
        workqueue::{
            RateLimitingQueue,
            controller::{Action, run_workers},
        },
    },
    record::{EventBroadcaster, EventType},
};
use serde::Deserialize;
use tokio::time::{sleep, timeout};

use crate::{
    informer::{secs, server_with},
    informer_support::{Told, builder, settle, spawn, stored},
    log::Log,
};

async fn is_told(cache: Synced) -> bool {
    timeout(secs(3600), cache.wait()).await.expect("whoever waits is told")
}

#[tokio::test(start_paused = true)]
async fn an_index_function_that_panics_leaves_that_object_out_of_its_index_alone() {
    let (log, _guard) = Log::of_this_thread();
    let server = server_with(&["a", "b"]);
    let by_data = |map: &ConfigMap| {
        assert!(map.metadata.name.as_deref() != Some("b"), "no data");
        vec!["any".to_owned()]
    };
    let informer = builder(&server).indexers(Indexers::new().with("data", by_data)).build();
    let told = Told::default();
    informer.add_handler(told.handler()).unwrap();
    spawn(&informer);
    assert!(is_told(informer.synced()).await);
    server.put("ns/c", 1);
    settle().await;
    assert_eq!((stored(&informer), told.len()), (server.objects(), 3));
    let mut indexed = informer.store().index_keys("data", "any").unwrap();
    indexed.sort();
    assert_eq!((indexed, informer.panics()), (vec!["ns/a".to_owned(), "ns/c".to_owned()], 1));
    server.delete("ns/b");
    settle().await;
    assert_eq!((stored(&informer), informer.panics()), (server.objects(), 1));
    let text = log.text();
    assert!(text.contains("index=\"data\"") && text.contains("ns/b"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_transformer_that_panics_has_refused_the_object() {
    let server = server_with(&["a"]);
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let errors = Arc::clone(&told);
    let informer = builder(&server)
        .transform(|map: ConfigMap| {
            assert!(map.metadata.name.as_deref() != Some("b"), "no room");
            Ok(map)
        })
        .watch_error_handler(move |error| errors.lock().unwrap().push(error.to_string()))
        .build();
    spawn(&informer);
    assert!(is_told(informer.synced()).await);
    server.put("ns/b", 1);
    server.put("ns/c", 1);
    settle().await;
    assert_eq!(informer.store().len(), 2);
    assert_eq!((informer.unreadable(), informer.panics()), (1, 1));
    assert_eq!(
        *told.lock().unwrap(),
        ["cannot transform \"ns/b\": the transformer panicked: no room"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_refused_is_told_to_the_error_handler_and_in_the_health() {
    let server = server_with(&["a", "b"]);
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let errors = Arc::clone(&told);
    let informer = builder(&server)
        .transform(|map: ConfigMap| match map.metadata.name.as_deref() {
            Some("b") => Err("there is too much of it".into()),
            _ => Ok(map),
        })
        .watch_error_handler(move |error| errors.lock().unwrap().push(error.to_string()))
        .build();
    spawn(&informer);
    sleep(secs(60)).await;
    let refused = "cannot list configmaps: cannot transform \"ns/b\": there is too much of it";
    let told = told.lock().unwrap().clone();
    assert!(told.len() > 1 && told.iter().all(|error| error == refused), "{told:?}");
    assert_eq!(informer.health().unwrap().last_error.as_deref(), Some(refused));
    server.delete("ns/b");
    assert!(is_told(informer.synced()).await);
    assert_eq!(informer.health().unwrap().last_error, None);
}

#[tokio::test(start_paused = true)]
async fn an_error_handler_that_panics_stops_nothing() {
    let server = server_with(&["a"]);
    server.fail(2);
    let informer = builder(&server).watch_error_handler(|_| panic!("the pager is off")).build();
    spawn(&informer);
    assert!(is_told(informer.synced()).await);
    assert_eq!(informer.panics(), 2);
}

/// A type whose reading panics.
#[derive(Clone, Debug)]
struct Unreadable(ConfigMap);

impl<'de> Deserialize<'de> for Unreadable {
    fn deserialize<D: serde::Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        let map = ConfigMap::deserialize(json)?;
        assert!(map.metadata.name.as_deref() != Some("b"), "an enum has one variant more");
        Ok(Self(map))
    }
}

impl kube::Resource for Unreadable {
    type DynamicType = ();
    type Scope = k8s_openapi::NamespaceResourceScope;

    fn kind((): &()) -> std::borrow::Cow<'_, str> {
        ConfigMap::kind(&())
    }

    fn group((): &()) -> std::borrow::Cow<'_, str> {
        ConfigMap::group(&())
    }

    fn version((): &()) -> std::borrow::Cow<'_, str> {
        ConfigMap::version(&())
    }

    fn plural((): &()) -> std::borrow::Cow<'_, str> {
        ConfigMap::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0.metadata
    }
}

#[tokio::test(start_paused = true)]
async fn an_informer_of_a_factory_that_has_ended_is_no_synced_cache_and_the_program_is_told() {
    let (log, _guard) = Log::of_this_thread();
    let server = server_with(&["a"]);
    let factory = SharedInformerFactory::new(server.client());
    let informer = factory.informer::<Unreadable>();
    factory.informer::<ConfigMap>();
    factory.start();
    assert!(factory.wait_for_cache_sync().await.iter().all(|cache| cache.synced));
    assert!(timeout(secs(3600), factory.failed()).await.is_err());
    server.put("ns/b", 1);
    let failed = timeout(secs(3600), factory.failed()).await.unwrap();
    assert_eq!(failed.panic, "an enum has one variant more");
    assert_eq!(
        failed.to_string(),
        "the informer of configmaps has ended: an enum has one variant more"
    );
    let synced: Vec<_> = factory.wait_for_cache_sync().await.iter().map(|c| c.synced).collect();
    assert_eq!(synced.iter().filter(|synced| **synced).count(), 1, "the other goes on");
    assert!(informer.is_stopped() && informer.synced().has_ended());
    assert!(!informer.wait_for_cache_sync().await);
    assert!(log.text().contains("a cache is no longer kept up to date"));
    factory.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_second_set_up_of_a_type_is_an_error() {
    let server = server_with(&["a"]);
    let factory = SharedInformerFactory::new(server.client());
    let first = factory.informer_with::<ConfigMap>(|builder| builder).unwrap();
    let indexers = || Indexers::new().with("all", |_: &ConfigMap| vec!["all".to_owned()]);
    let second = factory.informer_with::<ConfigMap>(|builder| builder.indexers(indexers()));
    let Err(AlreadySetUp(resource)) = second else { panic!("its index would be missing") };
    assert_eq!(resource.plural, "configmaps");
    // What it is told to do instead.
    first.store().add_indexers(indexers()).unwrap();
    factory.start();
    assert!(factory.wait_for_cache_sync().await[0].synced);
    assert_eq!(first.store().index_keys("all", "all").unwrap(), ["ns/a"]);
    factory.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn informers_that_never_start_end_their_waiters_with_the_factory() {
    let server = server_with(&["a"]);
    let factory = SharedInformerFactory::new(server.client());
    let not_started = factory.informer::<ConfigMap>();
    let told = Told::default();
    let registration = not_started.add_handler(told.handler()).unwrap();
    let waits = tokio::spawn(is_told(registration.synced()));
    settle().await;
    factory.shutdown().await;
    assert!(!waits.await.unwrap() && not_started.is_stopped() && told.handlers() == 0);

    let late = factory.informer_for(&ApiResource::erase::<ConfigMap>(&()));
    factory.start();
    assert!(!is_told(late.synced()).await && late.is_stopped());
    assert!(late.add_handler(HandlerFuncs::new()).is_err());
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_handler_ends_when_it_is_removed_before_the_first_list() {
    let server = server_with(&["a"]);
    server.fail(u32::MAX);
    let informer = builder(&server).build();
    let registration = informer.add_handler(Told::default().handler()).unwrap();
    spawn(&informer);
    let waits = tokio::spawn(is_told(registration.synced()));
    sleep(secs(5)).await;
    assert!(!waits.is_finished());
    informer.remove_handler(&registration);
    assert!(!waits.await.unwrap());
}

struct NeverReturns;

impl ResourceEventHandler<ConfigMap> for NeverReturns {
    async fn on_add(&mut self, _: Arc<ConfigMap>, _: bool) {
        std::future::pending::<()>().await;
    }

    async fn on_delete(&mut self, _: DeltaObject<ConfigMap>) {}
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_never_returns_cannot_hold_up_the_end() {
    let server = server_with(&["a"]);
    let factory = SharedInformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>();
    informer.add_handler(NeverReturns).unwrap();
    factory.start();
    assert!(is_told(informer.synced()).await);
    assert!(!factory.shutdown_within(secs(5)).await);
    assert!(informer.is_stopped() && informer.synced().has_ended());
    assert_eq!(server.open_watches(), 0);
    assert!(factory.shutdown_within(secs(5)).await, "nothing runs any more");
}

#[tokio::test(start_paused = true)]
async fn resyncs_do_not_gather_before_a_handler_that_is_slower() {
    let server = server_with(&["a", "b", "c", "d"]);
    let informer = builder(&server).resync_check_period(secs(10)).build();
    let told = Told::default();
    let registration = informer.add_handler(told.handler().takes(secs(30))).unwrap();
    spawn(&informer);
    for _ in 0..100 {
        sleep(secs(10)).await;
        assert!(registration.pending() <= 2 * 4, "{}", registration.pending());
    }
    // It is told each of them again all the same.
    let again = |object: &str| told.lines().iter().filter(|line| line.ends_with(object)).count();
    assert!(again("to ns/a@1") > 3 && again("to ns/d@4") > 3, "{:?}", told.lines());
}

#[tokio::test(start_paused = true)]
async fn objects_of_a_dynamic_informers_first_list_can_be_reported_on() {
    let server = server_with(&["a"]);
    let factory = SharedInformerFactory::new(server.client());
    let informer = factory.informer_for(&ApiResource::erase::<ConfigMap>(&()));
    factory.start();
    assert!(is_told(informer.synced()).await);
    server.put("ns/b", 1);
    settle().await;
    let broadcaster = EventBroadcaster::default();
    let recorder = broadcaster.new_recorder(EventSource::default());
    let objects: Vec<Arc<DynamicObject>> = informer.store().list();
    for object in &objects {
        let types = object.types.as_ref().unwrap();
        assert_eq!((&*types.api_version, &*types.kind), ("v1", "ConfigMap"));
        recorder.event(object, EventType::Normal, "Seen", "it is there");
    }
    let counts = recorder.counts();
    assert_eq!((objects.len(), counts.recorded, counts.dropped()), (2, 2, 0));
    factory.shutdown().await;
}

#[test]
fn a_refusal_names_the_resource_at_hand() {
    let refused = ListWatchError::Status {
        call: Call { verb: "list", resource: "secrets".into() },
        status: Box::new(Status { code: 403, ..Status::default() }),
        retry_after: None,
    };
    let hint = refused.hint().unwrap();
    assert!(hint.contains("list and watch on secrets"), "{hint}");
}

#[derive(Debug, thiserror::Error)]
#[error("cannot write the status")]
struct NotWritten(#[source] io::Error);

#[tokio::test(start_paused = true)]
async fn the_log_has_the_causes_of_what_a_worker_fails_with() {
    let (log, _guard) = Log::of_this_thread();
    let queue = RateLimitingQueue::default();
    queue.add("ns/a".to_owned());
    let (tries, one) = (Arc::new(AtomicU64::new(0)), NonZeroUsize::MIN);
    let workers = tokio::spawn(run_workers(queue.clone(), one, move |_: String| {
        let first = tries.fetch_add(1, Ordering::Relaxed) == 0;
        async move {
            let refused = io::Error::other("connection refused by 10.0.0.1");
            if first { Err(NotWritten(refused)) } else { Ok(Action::Done) }
        }
    }));
    sleep(secs(60)).await;
    queue.shut_down_with_drain().await;
    assert_eq!(workers.await.unwrap().failed, 1);
    let text = log.text();
    assert!(text.contains("cannot write the status: connection refused by 10.0.0.1"), "{text}");
}
