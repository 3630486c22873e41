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

use super::{
    Options, Recorded,
    faults::Faults,
    http::Request,
    object::EventObject,
    serve::event_of,
    state::{State, Written},
    status::ApiStatus,
};

/// How many requests are remembered.
const REQUESTS: usize = 10_000;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: Options,
    pub(super) state: Mutex<State>,
    pub(super) faults: Mutex<Faults>,
    pub(super) requests: Mutex<VecDeque<Recorded>>,
    /// Rung after each write.
    pub(super) pulse: signal::Sender<()>,
    /// Rung to end all connections.
    pub(super) cut: signal::Sender<()>,
    pub(super) watches: AtomicUsize,
    pub(super) events_sent: AtomicU64,
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

    pub(super) fn count_event(&self) {
        self.events_sent.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn watch_opened(&self) -> OpenWatch<'_> {
        self.watches.fetch_add(1, Ordering::Relaxed);
        OpenWatch(&self.watches)
    }

    /// Changes the state and wakes the watches.
    pub(super) fn write<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.pulse.send_replace(());
        result
    }

    pub(super) fn create(&self, event: EventObject) -> Result<Written, ApiStatus> {
        self.write(|state| state.create(event))
    }

    /// A merge patch; for the members of an Event a strategic one means the same.
    pub(super) fn merge(
        &self,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Written, ApiStatus> {
        self.write(|state| {
            state.update(namespace, name, |event| {
                let mut value = serde_json::to_value(event)
                    .map_err(|error| ApiStatus::new(500, "", error.to_string()))?;
                merge(&mut value, patch);
                event_of(value)
            })
        })
    }

    pub(super) fn delete(&self, namespace: &str, name: &str) -> Result<Written, ApiStatus> {
        self.write(|state| state.delete(namespace, name))
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
                target.remove(key);
            } else {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
    }
}
