//! What can be seen of a running bridge from outside.

use std::sync::{Arc, Mutex, atomic::AtomicU64};

use tidings_kube::reflector::{Reconnect, SharedHealth};
use tidings_log::LogHandle;
use tokio::runtime::Handle;

use super::{Configuration, EventCounters, IngestCounters, Sinks, Watchdog};
use crate::{event::Cluster, journal::DeadLettersReader};

/// A source as the status page shows it.
#[derive(Clone)]
pub struct SourceView {
    /// `*` or the namespace, and `?fieldSelector` where there is one.
    pub key: Arc<str>,
    /// How it does.
    pub health: SharedHealth,
    /// Has its watch opened anew.
    pub reconnect: Reconnect,
    /// `None` for all.
    pub(super) namespace: Option<String>,
    /// Without a field selector.
    pub(super) all_events: bool,
}

impl SourceView {
    /// Whether every Event of a namespace comes by it.
    pub(super) fn covers(&self, namespace: &str) -> bool {
        self.all_events && self.namespace.as_deref().is_none_or(|own| own == namespace)
    }
}

/// What can be seen of a running bridge; clones are cheap.
#[derive(Clone)]
pub struct BridgeView {
    /// The sinks.
    pub sinks: Sinks,
    /// The sources; empty until the cluster has been identified.
    pub sources: Arc<Mutex<Vec<SourceView>>>,
    /// What ingest counts.
    pub ingest: Arc<IngestCounters>,
    /// The counters that are made of Events.
    pub counters: Arc<EventCounters>,
    /// The log, for its tail and its size on disk.
    pub log: LogHandle,
    /// Why the state could not be saved when that was last tried.
    pub state_error: Arc<Mutex<Option<String>>>,
    /// The dead letters, for their counts.
    pub dead_letters: DeadLettersReader,
    /// How often the API server was asked for a single object, or for its kinds; nothing where no
    /// sink is told of objects.
    pub object_requests: Option<Arc<AtomicU64>>,
    /// The cluster as far as it is known.
    pub cluster: Arc<Mutex<Cluster>>,
    /// Why the API server had not said which cluster it is of when it was last asked.
    pub not_identified: Arc<Mutex<Option<String>>>,
    /// The configuration that it runs by.
    pub configuration: Configuration,
    /// Which parts are stuck.
    pub watchdog: Watchdog,
    /// The runtime that its tasks are on.
    pub runtime: Handle,
}
