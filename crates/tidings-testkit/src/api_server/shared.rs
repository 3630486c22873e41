//! What connections and the handle of the server share.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Instant,
};

use serde_json::{Value, json};
use tokio::sync::watch as signal;

use super::object_key;
use super::{
    Options, Recorded,
    faults::Faults,
    object::EventObject,
    resource::{Catalogue, EVENTS, PerResource, ResourceId},
    route::Verb,
    serve::event_of,
    state::{State, Written},
    status::ApiStatus,
    stored::AnyObject,
};
use crate::http::Request;

/// How many requests are remembered.
const REQUESTS: usize = 10_000;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: Options,
    pub(super) catalogue: Catalogue,
    pub(super) state: Mutex<State>,
    pub(super) faults: Mutex<Faults>,
    pub(super) requests: Mutex<VecDeque<Recorded>>,
    pub(super) feeds: PerResource<Feed>,
    /// Rung to end all connections.
    pub(super) cut: signal::Sender<()>,
}

/// What goes out of one resource: what its watches wait for, and the counts.
#[derive(Debug, Default)]
pub(super) struct Feed {
    /// Rung after each write.
    pub(super) pulse: signal::Sender<()>,
    /// Rung for a bookmark on each watch that takes them.
    pub(super) bookmark: signal::Sender<()>,
    /// Rung to end its watches.
    pub(super) cut: signal::Sender<()>,
    pub(super) watches: AtomicUsize,
    pub(super) events_sent: AtomicU64,
    requests: [AtomicU64; Verb::ALL.len()],
}

impl Feed {
    pub(super) fn count_event(&self) {
        self.events_sent.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn watch_opened(&self) -> OpenWatch<'_> {
        self.watches.fetch_add(1, Ordering::Relaxed);
        OpenWatch(&self.watches)
    }

    pub(super) fn count_request(&self, verb: Verb) {
        self.requests[verb as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn requests(&self, verb: Verb) -> u64 {
        self.requests[verb as usize].load(Ordering::Relaxed)
    }
}

/// Counts a watch as open while it lives.
pub(super) struct OpenWatch<'a>(&'a AtomicUsize);

impl Drop for OpenWatch<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// No code panics while it holds one of these locks; were it to, the data is still whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) fn faults(&self) -> MutexGuard<'_, Faults> {
        lock(&self.faults)
    }

    pub(super) fn record(&self, request: &Request) {
        let mut requests = lock(&self.requests);
        if requests.len() == REQUESTS {
            requests.pop_front();
        }
        requests.push_back(Recorded { at: Instant::now(), request: request.clone() });
    }

    /// Changes the state and wakes the watches of a resource.
    pub(super) fn write<T>(&self, resource: ResourceId, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.feeds[resource].pulse.send_replace(());
        result
    }

    /// Changes the state as a whole and wakes all watches.
    pub(super) fn rewrite<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.feeds.iter().for_each(|feed| {
            feed.pulse.send_replace(());
        });
        result
    }

    pub(super) fn create_event(&self, event: EventObject) -> Result<Written, ApiStatus> {
        self.write(EVENTS, |state| state.create(EVENTS, event))
    }

    /// Creates an object; of an Event the members are checked.
    pub(super) fn create(
        &self,
        resource: ResourceId,
        namespace: &str,
        object: Value,
    ) -> Result<Written, ApiStatus> {
        if resource == EVENTS {
            return self.create_event(event_of(object)?);
        }
        let mut object = AnyObject::from_json(object)?;
        namespace.clone_into(&mut object.metadata.namespace);
        self.write(resource, |state| state.create(resource, object))
    }

    /// Replaces an object by what `change` makes of its JSON, unless that names another version than
    /// the one that is there.
    fn update(
        &self,
        resource: ResourceId,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut Value),
    ) -> Result<Written, ApiStatus> {
        fn json_of(object: impl serde::Serialize) -> Result<Value, ApiStatus> {
            serde_json::to_value(object).map_err(|error| ApiStatus::new(500, "", error.to_string()))
        }
        let changed = |mut object: Value| {
            let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
            let before = version(&object);
            change(&mut object);
            let given = version(&object);
            if given.as_str().is_some_and(|given| !given.is_empty()) && given != before {
                return Err(ApiStatus::conflict(&self.catalogue[resource], name));
            }
            Ok(object)
        };
        let key = object_key(namespace, name);
        self.write(resource, |state| {
            if resource == EVENTS {
                state.update(EVENTS, key, |event: EventObject| event_of(changed(json_of(event)?)?))
            } else {
                state.update(resource, key, |object: AnyObject| {
                    AnyObject::from_json(changed(json_of(object)?)?)
                })
            }
        })
    }

    /// A merge patch. Strategic ones are taken as such: they mean the same but for lists.
    pub(super) fn merge(
        &self,
        resource: ResourceId,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Written, ApiStatus> {
        self.update(resource, namespace, name, |object| merge(object, patch))
    }

    /// Puts another object in the place of one.
    pub(super) fn replace(
        &self,
        resource: ResourceId,
        namespace: &str,
        name: &str,
        new: Value,
    ) -> Result<Written, ApiStatus> {
        self.update(resource, namespace, name, |object| *object = new)
    }

    pub(super) fn delete(
        &self,
        resource: ResourceId,
        namespace: &str,
        name: &str,
    ) -> Result<Written, ApiStatus> {
        self.write(resource, |state| state.delete(resource, object_key(namespace, name)))
    }

    pub(super) fn namespace_uid(&self, name: &str) -> String {
        if name == "kube-system" {
            return self.options.cluster_uid.clone();
        }
        let mut random = fastrand::Rng::with_seed(name.bytes().map(u64::from).sum());
        format!("9b1f{:04x}-3c5d-4a7e-8b2f-{:012x}", random.u16(..), random.u64(..) >> 16)
    }
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    if let Value::Object(target) = target {
        for (key, value) in patch {
            if value.is_null() {
                target.retain(|member, _| member != key);
            } else {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
    }
}
