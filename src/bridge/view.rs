//! The view of a running bridge from outside.

use std::sync::{Arc, Mutex, atomic::AtomicU64};

use tokio::runtime::Handle;

use super::{IngestCounters, SinkProgress, Watchdog, shared::lock};
use crate::{
    cache::{Reconnect, SharedHealth},
    event::Cluster,
    journal::{DeadLettersReader, LogHandle},
};

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

/// The view of a running bridge; clones are cheap.
#[derive(Clone)]
pub struct BridgeView {
    pub(crate) sinks: Arc<[Arc<SinkProgress>]>,
    /// The sources; empty until the cluster has been identified.
    pub(crate) sources: Arc<Mutex<Vec<SourceView>>>,
    pub(crate) ingest: Arc<IngestCounters>,
    /// The log, for its tail and its size on disk.
    pub(crate) log: LogHandle,
    /// The dead letters, for their counts.
    pub(crate) dead_letters: DeadLettersReader,
    /// How often the API server was asked for a single object, or for its kinds; nothing where no
    /// sink is told of objects.
    pub(crate) object_requests: Option<Arc<AtomicU64>>,
    /// The cluster as far as it is known.
    pub(crate) cluster: Arc<Mutex<Cluster>>,
    /// Why the API server had not said which cluster it is of when it was last asked.
    pub(crate) not_identified: Arc<Mutex<Option<String>>>,
    pub(crate) watchdog: Watchdog,
    /// The runtime that its tasks are on.
    pub(crate) runtime: Handle,
}

impl BridgeView {
    /// The sinks, by name.
    pub fn sinks(&self) -> &[Arc<SinkProgress>] {
        &self.sinks
    }

    /// The sources; none until the cluster has been identified.
    pub fn sources(&self) -> Vec<SourceView> {
        lock(&self.sources).clone()
    }

    /// The state of ingest.
    pub fn ingest(&self) -> &IngestCounters {
        &self.ingest
    }

    /// The log.
    pub fn log(&self) -> &LogHandle {
        &self.log
    }

    /// The dead letters.
    pub fn dead_letters(&self) -> &DeadLettersReader {
        &self.dead_letters
    }

    pub(super) fn new(
        sinks: Vec<Arc<SinkProgress>>,
        log: LogHandle,
        dead_letters: DeadLettersReader,
        object_requests: Option<Arc<AtomicU64>>,
        (cluster, not_identified): (Arc<Mutex<Cluster>>, Arc<Mutex<Option<String>>>),
        watchdog: Watchdog,
    ) -> Self {
        Self {
            sinks: sinks.into(),
            sources: Arc::default(),
            ingest: Arc::default(),
            log,
            dead_letters,
            object_requests,
            cluster,
            not_identified,
            watchdog,
            runtime: Handle::current(),
        }
    }
}
