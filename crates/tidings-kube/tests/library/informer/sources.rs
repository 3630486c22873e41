//! Sources other than an API server.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering},
};

use bytes::Bytes;
use futures_util::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, pending},
    stream,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{ApiResource, ObjectMeta, Status};
use serde_json::json;
use tidings_kube::{
    informer::SharedInformer,
    reflector::{
        Body, Call, InvalidObject, ListOptions, ListWatchError, ListerWatcher, LocalSource,
        ReflectorOptions, WatchEvent, WatchEventType, WatchOptions,
    },
};
use tokio::time::sleep;

use super::{
    informer_support::{Told, settle, spawn, stored},
    shared::secs,
};

fn of_config_maps() -> ApiResource {
    ApiResource::erase::<ConfigMap>(&())
}

fn map(name: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.into()),
            namespace: Some("ns".into()),
            ..ObjectMeta::default()
        },
        data: Some([("value".to_owned(), value.to_owned())].into()),
        ..ConfigMap::default()
    }
}

#[tokio::test(start_paused = true)]
async fn an_informer_follows_the_objects_of_this_process() {
    for streaming_lists in [false, true] {
        let source = LocalSource::new(&of_config_maps());
        source.set(&map("a", "1")).unwrap();
        let options = ReflectorOptions { streaming_lists, ..ReflectorOptions::default() };
        let informer = SharedInformer::builder(source.clone()).reflector(options).build();
        let told = Told::default();
        informer.add_handler(told.handler()).unwrap();
        let running = spawn(&informer);
        assert!(informer.wait_for_cache_sync().await);
        source.set(&map("b", "1")).unwrap();
        source.set(&map("a", "2")).unwrap();
        source.set(&map("a", "2")).unwrap();
        assert!(source.delete("ns", "b"));
        assert!(!source.delete("ns", "b"));
        settle().await;
        assert_eq!(
            told.lines(),
            ["add ns/a@2 initial", "add ns/b@3", "update ns/a@2 to ns/a@4", "delete ns/b@5",]
        );
        assert_eq!(stored(&informer), ["ns/a@4"]);
        // Watches end after some minutes, and are taken up again.
        sleep(secs(1200)).await;
        source.set(&map("c", "1")).unwrap();
        settle().await;
        assert_eq!(stored(&informer), ["ns/a@4", "ns/c@6"]);
        assert_eq!(informer.health().unwrap().lists, u64::from(!streaming_lists));
        informer.shutdown().await;
        running.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn objects_that_replace_others_are_told_as_what_differs() {
    let source = LocalSource::new(&of_config_maps());
    source.replace([map("a", "1"), map("b", "1"), map("c", "1")]).unwrap();
    let informer = SharedInformer::builder(source.clone()).build();
    let told = Told::default();
    spawn(&informer);
    assert!(informer.wait_for_cache_sync().await);
    informer.add_handler(told.handler()).unwrap();
    settle().await;
    let before = told.len();
    source.replace([map("a", "1"), map("b", "2"), map("d", "1")]).unwrap();
    settle().await;
    let lines = told.lines();
    assert_eq!(lines[before..], ["update ns/b@3 to ns/b@5", "add ns/d@6", "delete ns/c@7"]);
    let twice = source.replace([map("a", "1"), map("a", "2")]);
    assert!(matches!(twice, Err(InvalidObject::Twice { .. })), "{twice:?}");
    let nameless = source.set(&ConfigMap::default());
    assert!(matches!(nameless, Err(InvalidObject::Nameless { .. })), "{nameless:?}");
    let other =
        source.set(&json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "a"}}));
    let said = other.unwrap_err().to_string();
    assert!(said.starts_with("expected kind \"ConfigMap\", found \"Secret\"\nhint: "), "{said}");
    settle().await;
    assert_eq!(told.lines().len(), lines.len(), "nothing has changed");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_has_missed_too_much_is_told_by_a_list() {
    let source = LocalSource::new(&of_config_maps());
    source.set(&map("a", "0")).unwrap();
    let informer = SharedInformer::<ConfigMap>::builder(source.clone()).build();
    spawn(&informer);
    assert!(informer.wait_for_cache_sync().await);
    let large = "x".repeat(20_000);
    for value in 1..=1500 {
        source.set(&map("a", &format!("{value}{large}"))).unwrap();
    }
    source.delete("ns", "a");
    source.set(&map("b", "1")).unwrap();
    sleep(secs(60)).await;
    assert_eq!(stored(&informer), ["ns/b@1504"]);
    assert_eq!(informer.health().unwrap().lists, 2);
    for (resource_version, is_known) in
        [("2", false), ("1500", true), ("1504", true), ("1505", false), ("x", false)]
    {
        let options =
            WatchOptions { resource_version: resource_version.into(), ..Default::default() };
        let refused = source.watch(&options).await.err().map(|error| error.is_expired());
        assert_eq!(refused, (!is_known).then_some(true), "{resource_version}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_told_of_all_objects_that_change_at_once() {
    let source = LocalSource::new(&of_config_maps());
    let maps =
        |value: &str| -> Vec<_> { (0..3000).map(|n| map(&format!("m{n}"), value)).collect() };
    source.replace(maps("0")).unwrap();
    let informer = SharedInformer::<ConfigMap>::builder(source.clone()).build();
    spawn(&informer);
    assert!(informer.wait_for_cache_sync().await);
    let large = "x".repeat(10_000);
    source.replace(maps(&large)).unwrap();
    settle().await;
    let store = informer.store();
    assert!(store.list().iter().all(|map| map.data.as_ref().unwrap()["value"] == large));
    assert_eq!((store.len(), informer.health().unwrap().lists), (3000, 1));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_no_api_server_takes_is_refused() {
    let source = LocalSource::new(&of_config_maps());
    source.set(&json!({"metadata": {"name": "a", "namespace": null, "labels": null}})).unwrap();
    for (object, expected) in [
        (json!("a"), "expected an object with metadata.name, found \"a\"\nhint: "),
        (
            json!({"metadata": {"generateName": "a-"}}),
            "expected an object with metadata.name, found {",
        ),
        (
            json!({"metadata": {"name": "a/b"}}),
            "expected metadata.name to be text without a slash, found \"a/b\"\nhint: ",
        ),
        (
            json!({"metadata": {"name": "a", "namespace": 5}}),
            "expected metadata.namespace to be text without a slash, found 5\nhint: ",
        ),
        (
            json!({"kind": 5, "metadata": {"name": "a"}}),
            "expected kind \"ConfigMap\", found 5\nhint: ",
        ),
    ] {
        let said = source.set(&object).unwrap_err().to_string();
        assert!(said.starts_with(expected), "{said}");
    }
    let informer = SharedInformer::<ConfigMap>::builder(source).build();
    spawn(&informer);
    assert!(informer.wait_for_cache_sync().await);
    assert_eq!((stored(&informer), informer.unreadable()), (vec!["a@2".to_owned()], 0));
}

/// Its first list never comes, and the next ones panic and fail; then there is one object, and its deletion, and an ERROR in the watch.
#[derive(Default)]
struct Stubborn {
    lists: AtomicU32,
    watched: Mutex<Vec<String>>,
}

impl ListerWatcher for Stubborn {
    fn expected(&self) -> ApiResource {
        of_config_maps()
    }

    fn list<'a>(&'a self, _: &'a ListOptions) -> BoxFuture<'a, Result<Body, ListWatchError>> {
        let call = Call { verb: "list", resource: "configmaps".into() };
        let answer = match self.lists.fetch_add(1, Ordering::Relaxed) {
            0 => return pending().boxed(),
            1 => panic!("as it was told to"),
            2 => Err(ListWatchError::transport(call, &std::io::Error::other("no such file"))),
            3 => Ok(Body::list(&self.expected(), "7", &[object("a", "7")])),
            _ => Ok(Body::list(&self.expected(), "9", &[object("b", "9")])),
        };
        async { answer }.boxed()
    }

    fn watch<'a>(
        &'a self,
        options: &'a WatchOptions,
    ) -> BoxFuture<'a, Result<Body, ListWatchError>> {
        let mut watched = self.watched.lock().unwrap();
        watched.push(options.resource_version.clone());
        let mut events = Vec::new();
        if watched.len() == 1 {
            events.push(Ok(WatchEvent { kind: WatchEventType::Deleted, object: object("a", "8") }));
            let status = Status { code: 410, reason: "Expired".into(), ..Status::default() };
            let call = Call { verb: "watch", resource: "configmaps".into() };
            let status = Box::new(status);
            events.push(Err(ListWatchError::Status { call, status, retry_after: None }));
        }
        let events = stream::iter(events).chain(stream::pending());
        async { Ok(Body::events(events)) }.boxed()
    }
}

/// In several lines, as a file may have it.
fn object(name: &str, version: &str) -> Bytes {
    format!(
        "{{\"metadata\":\n{{\"name\":\"{name}\",\n\"namespace\":\"ns\",\"resourceVersion\":\"{version}\"}}}}"
    )
    .into()
}

#[tokio::test(start_paused = true)]
async fn an_informer_follows_a_source_of_ones_own_through_its_errors() {
    let source = Arc::new(Stubborn::default());
    let errors = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&errors);
    let informer = SharedInformer::<ConfigMap>::builder(Arc::clone(&source))
        .watch_error_handler(move |error| noted.lock().unwrap().push(error.to_string()))
        .build();
    let told = Told::default();
    informer.add_handler(told.handler()).unwrap();
    spawn(&informer);
    assert!(informer.wait_for_cache_sync().await);
    sleep(secs(60)).await;
    assert_eq!(told.lines(), ["add ns/a@7 initial", "delete ns/a@8", "add ns/b@9"]);
    let errors = errors.lock().unwrap();
    let stalled = "cannot list configmaps: the API server sent nothing for 300 s";
    let panicked = "cannot list configmaps: the source panicked: as it was told to";
    assert_eq!(*errors, [stalled, panicked, "cannot list configmaps: no such file"]);
    assert_eq!(*source.watched.lock().unwrap(), ["7", "9"]);
}

/// Always has another event at once.
struct Endless;

impl ListerWatcher for Endless {
    fn expected(&self) -> ApiResource {
        of_config_maps()
    }

    fn list<'a>(&'a self, _: &'a ListOptions) -> BoxFuture<'a, Result<Body, ListWatchError>> {
        async { Ok(Body::list(&self.expected(), "1", &[object("a", "1")])) }.boxed()
    }

    fn watch<'a>(&'a self, _: &'a WatchOptions) -> BoxFuture<'a, Result<Body, ListWatchError>> {
        let event = || Ok(WatchEvent { kind: WatchEventType::Modified, object: object("a", "2") });
        async move { Ok(Body::events(stream::repeat_with(event))) }.boxed()
    }
}

/// On the one thread that a test has.
#[tokio::test]
async fn an_informer_of_a_source_that_is_always_ready_can_be_stopped() {
    let informer = SharedInformer::<ConfigMap>::builder(Endless).build();
    let running = spawn(&informer);
    assert!(informer.wait_for_cache_sync().await);
    informer.shutdown().await;
    running.await.unwrap();
}
