//! A source of config maps that is no API server: objects in memory, changed by the test.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard},
};

use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ApiResource;
use kube_machinery::cache::{
    Answer, Call, ListOptions, ListWatchError, ListerWatcher, WatchEvent, WatchEventType,
    WatchOptions,
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

type Event = Result<WatchEvent, ListWatchError>;

#[derive(Default)]
struct State {
    version: u64,
    objects: BTreeMap<String, Value>,
    watches: Vec<mpsc::UnboundedSender<Event>>,
    lists: u64,
    /// The next list fails.
    broken: bool,
}

/// Clones are one source. It keeps no history.
#[derive(Clone)]
pub(crate) struct MadeSource {
    resource: ApiResource,
    state: Arc<Mutex<State>>,
}

impl MadeSource {
    pub(crate) fn new() -> Self {
        Self { resource: ApiResource::erase::<ConfigMap>(&()), state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn lists(&self) -> u64 {
        self.state().lists
    }

    pub(crate) fn break_next_list(&self) {
        self.state().broken = true;
    }

    pub(crate) fn set(&self, name: &str) {
        self.change(name, false);
    }

    pub(crate) fn delete(&self, name: &str) {
        self.change(name, true);
    }

    fn change(&self, name: &str, gone: bool) {
        let mut state = self.state();
        state.version += 1;
        let object = json!({
            "metadata": {"namespace": "ns", "name": name, "resourceVersion": state.version.to_string()},
        });
        let kind = match (gone, state.objects.insert(name.to_owned(), object.clone())) {
            (true, _) => WatchEventType::Deleted,
            (false, Some(_)) => WatchEventType::Modified,
            (false, None) => WatchEventType::Added,
        };
        if gone {
            state.objects.remove(name);
        }
        // On several lines, as people write it.
        let object = serde_json::to_vec_pretty(&object).unwrap().into();
        let event = WatchEvent { kind, object };
        state.watches.retain(|watch| watch.send(Ok(event.clone())).is_ok());
    }

    /// Ends every watch, with an error or without, and forgets what has happened until now.
    pub(crate) fn end_watches(&self, error: Option<ListWatchError>) {
        let mut state = self.state();
        state.version += 1;
        let watches = std::mem::take(&mut state.watches);
        if let (Some(error), [watch]) = (error, &*watches) {
            watch.send(Err(error)).unwrap();
        }
    }

    pub(crate) fn call(&self, verb: &'static str) -> Call {
        Call::new(verb, &self.resource)
    }
}

impl ListerWatcher for MadeSource {
    fn resource(&self) -> &ApiResource {
        &self.resource
    }

    async fn list(&self, _: &ListOptions) -> Result<Answer, ListWatchError> {
        let mut state = self.state();
        state.lists += 1;
        if std::mem::take(&mut state.broken) {
            let gone = io::Error::other("the disk is away");
            return Err(ListWatchError::transport(self.call("list"), &gone));
        }
        let items = state.objects.values().map(Value::to_string);
        Answer::list(&self.resource, items, &state.version.to_string())
    }

    async fn watch(&self, options: &WatchOptions) -> Result<Answer, ListWatchError> {
        let mut state = self.state();
        if options.resource_version != state.version.to_string() {
            return Err(ListWatchError::expired(self.call("watch")));
        }
        let (watch, mut events) = mpsc::unbounded_channel();
        state.watches.push(watch);
        let events = stream::poll_fn(move |context| events.poll_recv(context));
        Ok(Answer::watch(&self.resource, events.boxed()))
    }
}
