//! Writers of config maps: each makes its own, changes some, deletes some and makes some of those
//! again, over restarts of the API server that it writes to.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::task::JoinSet;

use super::LABEL;
use crate::writers::{has_code, make_namespaces, namespaces};

/// How many write at a time.
const WRITERS: usize = 12;
/// How long a write is tried again when the API server is away.
const GIVE_UP_AFTER: Duration = Duration::from_mins(2);

#[derive(Clone, Copy, Debug)]
enum Write {
    Create,
    Change(u8),
    Delete,
}

/// The writes in their order, each of the object of a number: an eighth of the objects is changed
/// twice, a third is deleted, and of those every tenth made again.
fn plan(objects: usize) -> Vec<(usize, Write)> {
    let mut plan = Vec::new();
    for object in 0..objects {
        plan.push((object, object, Write::Create));
        if object % 8 == 0 {
            plan.push((object + 1 + object % 300, object, Write::Change(1)));
            plan.push((object + 301 + object % 2_000, object, Write::Change(2)));
        }
        if object % 3 == 0 {
            let deleted = object + 2_500 + object % 3_000;
            plan.push((deleted, object, Write::Delete));
            if object % 10 == 0 {
                plan.push((deleted + object % 500, object, Write::Create));
            }
        }
    }
    // Stable: the order of what is done to one object stays.
    plan.sort_by_key(|(when, ..)| *when);
    plan.into_iter().map(|(_, object, write)| (object, write)).collect()
}

/// Writers at work.
pub(super) struct Writing {
    writers: JoinSet<Vec<String>>,
    written: Arc<AtomicUsize>,
    planned: usize,
    started: Instant,
}

impl Writing {
    /// Begins to write so many objects, through these clients in turn.
    pub(super) async fn start(clients: &[kube::Client], objects: usize) -> Self {
        make_namespaces(&clients[0]).await;
        let (plan, written) = (plan(objects), Arc::<AtomicUsize>::default());
        let planned = plan.len();
        let mut plans = vec![Vec::new(); WRITERS];
        for (object, write) in plan {
            plans[object % WRITERS].push((object, write));
        }
        let mut writers = JoinSet::new();
        for (number, plan) in plans.into_iter().enumerate() {
            let namespaces = namespaces();
            let namespace = &namespaces[number % namespaces.len()];
            let client = clients[number % clients.len()].clone();
            let maps = Api::namespaced(client, namespace);
            let writer = Writer { maps, uids: HashMap::new(), deleted: Vec::new() };
            writers.spawn(writer.run(plan, Arc::clone(&written)));
        }
        Self { writers, written, planned, started: Instant::now() }
    }

    /// How much of it is written, in percent.
    pub(super) fn percent(&self) -> usize {
        self.written.load(Ordering::Relaxed) * 100 / self.planned
    }

    /// Waits until all is written; the uids of what was deleted.
    pub(super) async fn finish(mut self) -> Vec<String> {
        let mut deleted = Vec::new();
        while let Some(ended) = self.writers.join_next().await {
            deleted.extend(ended.expect("a writer that does not panic"));
        }
        eprintln!("  {} writes in {:.1} s", self.planned, self.started.elapsed().as_secs_f64());
        deleted
    }
}

struct Writer {
    maps: Api<ConfigMap>,
    /// Of the objects that it made.
    uids: HashMap<usize, String>,
    deleted: Vec<String>,
}

impl Writer {
    async fn run(mut self, plan: Vec<(usize, Write)>, written: Arc<AtomicUsize>) -> Vec<String> {
        for (object, write) in plan {
            let started = Instant::now();
            while let Err(error) = self.perform(object, write).await {
                assert!(started.elapsed() < GIVE_UP_AFTER, "{write:?} of {object}: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            written.fetch_add(1, Ordering::Relaxed);
        }
        self.deleted
    }

    /// Writes once. What an API server that went away half way has taken is as good.
    async fn perform(&mut self, object: usize, write: Write) -> kube::Result<()> {
        let name = format!("map-{object}");
        match write {
            Write::Create => {
                let map = json!({
                    "metadata": {"name": name, "labels": {LABEL: "true"}},
                    "data": {"number": object.to_string(), "version": "0"},
                });
                let map: ConfigMap = serde_json::from_value(map).expect("a ConfigMap");
                let created = self.maps.create(&PostParams::default(), &map).await;
                let taken = has_code(&created, 409);
                let map = if taken { self.maps.get(&name).await? } else { created? };
                self.uids.insert(object, map.uid().expect("every object has one"));
            }
            Write::Change(version) => {
                let patch = Patch::Merge(json!({"data": {"version": version.to_string()}}));
                self.maps.patch(&name, &PatchParams::default(), &patch).await?;
            }
            Write::Delete => {
                let deleted = self.maps.delete(&name, &DeleteParams::default()).await;
                if !has_code(&deleted, 404) {
                    deleted?;
                }
                self.deleted.extend(self.uids.remove(&object));
            }
        }
        Ok(())
    }
}
