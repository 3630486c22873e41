//! Measures of a reflector.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube_machinery::cache::{ReflectorMetrics, ReflectorOptions, SharedInformer};
use tokio::time::sleep;

use crate::{
    informer_support::{settle, spawn},
    made_source::MadeSource,
};

#[derive(Default)]
struct Measured(Mutex<Vec<String>>);

impl ReflectorMetrics for Measured {
    fn listed(&self, took: Duration, items: usize) {
        self.0.lock().unwrap().push(format!("listed {items} in {} s", took.as_secs()));
    }

    fn watched(&self, lasted: Duration, events: u64) {
        self.0.lock().unwrap().push(format!("watched {events} in {} s", lasted.as_secs()));
    }
}

#[tokio::test(start_paused = true)]
async fn lists_and_watches_are_measured() {
    let (source, measured) = (MadeSource::new(), Arc::new(Measured::default()));
    source.set("a");
    source.set("b");
    let options = ReflectorOptions {
        metrics: Some(Arc::clone(&measured) as _),
        ..ReflectorOptions::default()
    };
    let informer = SharedInformer::<ConfigMap>::builder(source.clone()).reflector(options).build();
    let _running = spawn(&informer);
    assert!(informer.wait_for_cache_sync().await);
    settle().await;
    source.set("c");
    sleep(Duration::from_secs(20)).await;
    source.end_watches(None);
    settle().await;
    let expected = ["listed 2 in 0 s", "watched 1 in 20 s", "watched 0 in 0 s"];
    assert_eq!(measured.0.lock().unwrap()[..3], expected, "the last was refused as expired");
}
