//! A handler that writes down what it is told, and holds each word against the one before.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use tidings_kube::{
    informer::{DeltaObject, HandlerRegistration, ResourceEventHandler, SharedInformer},
    object::{Object, meta_namespace_key},
};

/// Which object, in which version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    uid: String,
    resource_version: u64,
}

impl Version {
    pub(super) fn of(map: &ConfigMap) -> Self {
        let resource_version = map.resource_version().parse().expect("a number");
        Self { uid: map.uid().expect("every object has one").to_owned(), resource_version }
    }
}

/// What a handler knows.
#[derive(Default)]
pub(super) struct Known {
    pub(super) maps: BTreeMap<String, Version>,
    /// The uids that it was told of …
    pub(super) seen: HashSet<String>,
    /// … and those that it was told the end of.
    pub(super) ended: HashSet<String>,
    pub(super) tombstones: usize,
    /// What cannot follow from what was told before.
    pub(super) contradictions: Vec<String>,
}

impl Known {
    fn exists(&mut self, key: String, before: Option<Version>, now: Version) {
        let known = self.maps.get(&key);
        let grows = before.as_ref().is_none_or(|old| old.resource_version <= now.resource_version);
        if known != before.as_ref() || !grows {
            self.contradictions.push(format!("{key}: {known:?}, told {before:?} to {now:?}"));
        }
        if let Some(before) = before.filter(|before| before.uid != now.uid) {
            self.ended.insert(before.uid);
        }
        self.seen.insert(now.uid.clone());
        self.maps.insert(key, now);
    }

    fn ends(&mut self, map: &DeltaObject<ConfigMap>) {
        let key = map.key();
        let last = map.object().map(|map| Version::of(map));
        let known = self.maps.remove(&key);
        let same = known.as_ref().map(|known| &known.uid) == last.as_ref().map(|last| &last.uid);
        if known.is_none() || !same {
            self.contradictions.push(format!("{key}: {known:?}, told the end of {last:?}"));
        }
        self.ended.extend(last.map(|last| last.uid));
        self.tombstones += usize::from(map.is_tombstone());
    }
}

/// One handler of an informer.
pub(super) struct Observer {
    pub(super) name: &'static str,
    pub(super) registration: HandlerRegistration,
    known: Arc<Mutex<Known>>,
}

impl Observer {
    /// Adds a handler that takes so long for every tenth notification.
    pub(super) fn add(
        informer: &SharedInformer<ConfigMap>,
        name: &'static str,
        takes: Duration,
    ) -> Self {
        let known = Arc::<Mutex<Known>>::default();
        let handler = Handler { takes, told: 0, known: Arc::clone(&known) };
        let registration = informer.add_handler(handler).expect("an informer that runs");
        Self { name, registration, known }
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Handler {
    takes: Duration,
    told: usize,
    known: Arc<Mutex<Known>>,
}

impl Handler {
    async fn note(&mut self, tell: impl FnOnce(&mut Known)) {
        self.told += 1;
        if self.told.is_multiple_of(10) && !self.takes.is_zero() {
            tokio::time::sleep(self.takes).await;
        }
        tell(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl ResourceEventHandler<ConfigMap> for Handler {
    async fn on_add(&mut self, map: Arc<ConfigMap>, _is_in_initial_list: bool) {
        let key = meta_namespace_key(&*map);
        self.note(|known| known.exists(key, None, Version::of(&map))).await;
    }

    async fn on_update(&mut self, old: Arc<ConfigMap>, new: Arc<ConfigMap>) {
        let key = meta_namespace_key(&*new);
        self.note(|known| known.exists(key, Some(Version::of(&old)), Version::of(&new))).await;
    }

    async fn on_delete(&mut self, map: DeltaObject<ConfigMap>) {
        self.note(|known| known.ends(&map)).await;
    }
}
