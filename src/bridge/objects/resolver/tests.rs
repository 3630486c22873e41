//! What asking for objects leaves at hand.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::BoxFuture;
use serde_json::json;

use super::*;
use crate::{
    bridge::{Enrich, KeyPatterns, ObjectOptions},
    journal::State,
};

/// Jobs of a CronJob, with an annotation that nobody asks for.
#[derive(Default)]
struct Jobs(AtomicUsize);

impl Api for Jobs {
    fn get<'a>(&'a self, object: Ref<'a>, _: bool) -> BoxFuture<'a, Result<Got, NotGot>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let owners = match object.kind {
            "Job" => json!([{"apiVersion": "batch/v1", "kind": "CronJob", "name": "cron",
                             "uid": "2", "controller": true}]),
            _ => json!([]),
        };
        let metadata = json!({
            "name": object.name, "namespace": "shop", "uid": object.uid, "resourceVersion": "1",
            "ownerReferences": owners, "labels": {"app": "a"}, "annotations": {"big": "text"},
        });
        let object = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        // As a real one it does not answer at once.
        Box::pin(async {
            tokio::task::yield_now().await;
            Ok(Got { object, node: None })
        })
    }
}

#[tokio::test(start_paused = true)]
async fn each_object_is_asked_for_once_and_only_what_is_wanted_of_it_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let directory = crate::journal::open(folder.path()).unwrap();
    let (state, _) = State::open(&directory, 0, 0).unwrap();
    let options = ObjectOptions { watch: Vec::new(), cache: 1, ..ObjectOptions::default() };
    let labels = KeyPatterns::new(["app".to_owned()]);
    let enrich = Enrich { labels, owners: true, ..Enrich::default() };
    let objects = Arc::new(Objects::new(options, vec![enrich], None, state.objects(), 1));
    let api = Arc::new(Jobs::default());
    let resolver = Resolver {
        objects: Arc::clone(&objects),
        api: Arc::clone(&api) as _,
        rate: Arc::new(Rate::new(10.0, 10, Arc::default())),
        choosing: Arc::default(),
    };
    let job =
        Ref { api_version: "batch/v1", kind: "Job", namespace: "shop", name: "job", uid: "1" };
    let asked = tokio::time::timeout(Duration::from_secs(1), async {
        tokio::select! {
            found = resolver.ask(job) => found.unwrap(),
            // The time that is paused does not pass while there is something to do.
            () = async { while api.0.load(Ordering::Relaxed) < 10 { tokio::task::yield_now().await } } => {
                panic!("they push each other out")
            }
        }
    });
    let found = asked.await.unwrap();
    assert_eq!(api.0.load(Ordering::Relaxed), 2);
    assert_eq!(found.known.info.owners[0].name, "cron");
    let Found::Object(kept) = objects.at_hand.find(job) else { panic!("it is not at hand") };
    assert_eq!((kept.label("app"), kept.annotation("big")), (Some("a"), None));
}
