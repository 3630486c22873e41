//! A reflector under test, and a store that writes down what it is fed.
//!
//! These tests run in paused time, in which a runtime that has nothing to do jumps to its next
//! timer. It does so while an answer is on its way over a socket, too; so something has to tick, or
//! a timeout of a minute would pass between a request and its answer.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use k8s_openapi::api::core::v1::Event;
use kube::core::ApiResource;
use tidings_kube::reflector::{
    Applied, Follow, Reflector, ReflectorOptions, ReflectorStore, ReplaceReason, Replaced,
    ResourceApi, SharedHealth, SourceHealth, StartFrom, StoreClosed, WatchEvent, WatchEventType,
    Witnesses, resource_version_of,
};
use tidings_testkit::api_server::ApiServer;
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::support::client;

/// How fast paused time goes: this much for each turn of the runtime.
const TICK: Duration = Duration::from_millis(50);

/// What a store was told.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Call {
    Begin(ReplaceReason),
    Page(Vec<u64>),
    End(u64),
    Abort,
    Apply(Vec<(WatchEventType, u64)>),
    StartAt(u64),
}

/// What a store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    Changes,
    SignsOfLife,
}

/// A store that keeps the calls, and of the objects their resourceVersions and sizes.
#[derive(Clone, Default)]
pub(crate) struct Recording {
    calls: Arc<Mutex<Vec<Call>>>,
    largest: Arc<Mutex<usize>>,
    held: watch::Sender<Option<Held>>,
}

impl Recording {
    fn note(&self, call: Call) {
        self.calls.lock().unwrap().push(call);
    }

    fn version(&self, object: &Bytes) -> u64 {
        let mut largest = self.largest.lock().unwrap();
        *largest = object.len().max(*largest);
        resource_version_of(object).unwrap_or(0)
    }
}

impl ReflectorStore for Recording {
    async fn begin_replace(&mut self, reason: ReplaceReason) -> Result<(), StoreClosed> {
        self.note(Call::Begin(reason));
        Ok(())
    }

    async fn replace_page(&mut self, items: Vec<Bytes>) -> Result<(), StoreClosed> {
        self.note(Call::Page(items.iter().map(|item| self.version(item)).collect()));
        Ok(())
    }

    async fn end_replace(&mut self, resource_version: &str) -> Result<Replaced, StoreClosed> {
        self.note(Call::End(resource_version.parse().unwrap()));
        Ok(Replaced::Kept)
    }

    async fn abort(&mut self) -> Result<(), StoreClosed> {
        self.note(Call::Abort);
        Ok(())
    }

    async fn apply(&mut self, events: Vec<WatchEvent>) -> Result<Applied, StoreClosed> {
        let events = events.iter().map(|event| (event.kind, self.version(&event.object)));
        let events: Vec<_> = events.collect();
        let last = events.last().map(|(_, version)| version.to_string());
        let applied = Applied { taken: events.len() as u64, resource_version: last };
        self.note(Call::Apply(events));
        // An error would mean that the sender is gone, which `self` holds.
        let _ = self.held.subscribe().wait_for(|held| *held != Some(Held::Changes)).await;
        Ok(applied)
    }

    async fn caught_up(&mut self, _: u64) -> Result<(), StoreClosed> {
        let _ = self.held.subscribe().wait_for(|held| *held != Some(Held::SignsOfLife)).await;
        Ok(())
    }

    async fn resync(&mut self) -> Result<(), StoreClosed> {
        Ok(())
    }

    async fn start_at(&mut self, resource_version: &str) -> Result<(), StoreClosed> {
        self.note(Call::StartAt(resource_version.parse().unwrap()));
        Ok(())
    }
}

/// A reflector that runs until this is dropped.
pub(crate) struct Followed {
    store: Recording,
    health: SharedHealth,
    task: JoinHandle<()>,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts a reflector of all namespaces.
pub(crate) fn follow(server: &ApiServer, resume: Option<u64>, start: StartFrom) -> Followed {
    follow_with(server, resume, start, &Witnesses::default())
}

/// The same with what tells one history from another.
pub(crate) fn follow_with(
    server: &ApiServer,
    resume: Option<u64>,
    start: StartFrom,
    witnesses: &Witnesses,
) -> Followed {
    let store = Recording::default();
    let options = ReflectorOptions {
        name: "*".to_owned(),
        follow: Follow::Changes { resume, start },
        witnesses: witnesses.clone(),
        ..ReflectorOptions::default()
    };
    let api = ResourceApi::new(client(server), &ApiResource::erase::<Event>(&()));
    let reflector = Reflector::new(api, store.clone(), options);
    let health = reflector.health();
    Followed { store, health, task: tokio::spawn(reflector.run()) }
}

impl Followed {
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.store.calls.lock().unwrap().clone()
    }

    pub(crate) fn health(&self) -> SourceHealth {
        self.health.lock().unwrap().clone()
    }

    /// From now on the store does not answer this, until it does again.
    pub(crate) fn hold(&self, held: Option<Held>) {
        self.store.held.send_replace(held);
    }

    /// The size of the largest object so far, in bytes.
    pub(crate) fn largest(&self) -> usize {
        *self.store.largest.lock().unwrap()
    }

    /// The versions that changes brought, bookmarks left out, in order.
    pub(crate) fn changes(&self) -> Vec<u64> {
        let apply = |call: Call| match call {
            Call::Apply(events) => events,
            _ => Vec::new(),
        };
        let changes = self.calls().into_iter().flat_map(apply);
        changes.filter(|(kind, _)| *kind != WatchEventType::Bookmark).map(|(_, v)| v).collect()
    }

    /// The versions that the last list brought, sorted: a list is in the order of names.
    pub(crate) fn listed(&self) -> Vec<u64> {
        let calls = self.calls();
        let last = calls.iter().rposition(|call| matches!(call, Call::Begin(_))).unwrap_or(0);
        let page = |call: &Call| match call {
            Call::Page(items) => items.clone(),
            _ => Vec::new(),
        };
        let mut listed: Vec<u64> = calls[last..].iter().flat_map(page).collect();
        listed.sort_unstable();
        listed
    }

    /// Why lists were made, in order.
    pub(crate) fn reasons(&self) -> Vec<ReplaceReason> {
        let reason = |call| match call {
            Call::Begin(reason) => Some(reason),
            _ => None,
        };
        self.calls().into_iter().filter_map(reason).collect()
    }

    /// Lets time go until a condition holds.
    pub(crate) async fn until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(1200);
        while !holds(self) {
            assert!(Instant::now() < deadline, "still not: {what}; calls: {:?}", self.calls());
            sleep(TICK).await;
        }
    }

    /// Waits until a watch is open.
    pub(crate) async fn watching(&self) {
        self.until("watching", |f| f.health().stream_open).await;
    }
}

/// Lets so much time go.
pub(crate) async fn pass(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        sleep(TICK).await;
    }
}
