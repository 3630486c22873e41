//! A reflector over a source that is no API server.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ApiResource;
use kube_machinery::cache::{Answer, ListWatchError, SharedInformer};
use tokio::time::sleep;

use crate::{
    informer_support::{Told, settle, spawn, stored},
    made_source::MadeSource,
};

/// Longer than any pause of the reflector here.
async fn pauses() {
    sleep(Duration::from_secs(70)).await;
}

#[tokio::test(start_paused = true)]
async fn an_informer_stands_on_any_source() {
    let (source, told) = (MadeSource::new(), Told::default());
    source.set("a");
    let informer = SharedInformer::<ConfigMap>::builder(source.clone()).build();
    informer.add_handler(told.handler()).unwrap();
    let running = spawn(&informer);
    assert!(informer.wait_for_cache_sync().await);
    settle().await;
    source.set("a");
    source.set("b");
    source.delete("a");
    settle().await;
    let expected = ["add ns/a@1 initial", "update ns/a@1 to ns/a@2", "add ns/b@3", "delete ns/a@4"];
    assert_eq!(told.lines(), expected);
    assert_eq!((stored(&informer), source.lists()), (vec!["ns/b@3".to_owned()], 1));
    informer.shutdown().await;
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_source_without_history_is_listed_again() {
    let source = MadeSource::new();
    let informer = SharedInformer::<ConfigMap>::builder(source.clone()).build();
    let _running = spawn(&informer);
    assert!(informer.wait_for_cache_sync().await);
    settle().await;
    let expired = ListWatchError::expired(source.call("watch"));
    assert!(expired.is_expired());
    for (lists, end) in [(2, None), (3, Some(expired))] {
        source.end_watches(end);
        source.set("missed");
        pauses().await;
        assert_eq!((source.lists(), stored(&informer).len()), (lists, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_cannot_do_something_answers_as_an_api_server() {
    let source = MadeSource::new();
    source.set("a");
    source.break_next_list();
    let errors = Arc::new(Mutex::new(Vec::new()));
    let informer = SharedInformer::<ConfigMap>::builder(source.clone())
        .watch_error_handler({
            let errors = Arc::clone(&errors);
            move |error| errors.lock().unwrap().push(error.to_string())
        })
        .build();
    let _running = spawn(&informer);
    assert!(informer.wait_for_cache_sync().await);
    assert_eq!(*errors.lock().unwrap(), ["cannot list configmaps: the disk is away"]);
    assert_eq!(stored(&informer), ["ns/a@1"]);
}

#[test]
fn a_list_of_what_is_no_json_is_none() {
    let maps = ApiResource::erase::<ConfigMap>(&());
    assert!(Answer::list(&maps, ["{}"], "1").is_ok());
    assert!(Answer::list(&maps, ["{}", "apiVersion: v1"], "1").is_err());
}
