//! From the API server into the journal: the cluster is identified, then each source gets a
//! reflector, and all of them feed the one ingest thread.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Event;
use kube::core::ApiResource;
use tokio::{
    sync::{mpsc, oneshot},
    task::{JoinSet, spawn_blocking},
    time::MissedTickBehavior,
};

use super::{
    BridgeError, BridgeView, SourceOptions, SourceStart, SourceView,
    cluster::Identity,
    ingest::{Ingest, IngestSource, JournalStore, Message},
    objects::Objects,
    published::Published,
    shared::{lock, now_ms},
};
use crate::{
    cache::{Follow, Reflector, ReflectorOptions, ResourceApi, StartFrom},
    journal::{Resume, SourceState},
    watch::Broadcaster,
};

/// The wait between two questions for the cluster's uid.
const ASK_EVERY: Duration = Duration::from_secs(2);
/// Retention is looked after so often.
const TICK: Duration = Duration::from_secs(1);

/// One source, set up.
pub(super) struct SourceSetup {
    namespace: Option<String>,
    start: SourceStart,
    pub(super) ingest: IngestSource,
}

impl SourceSetup {
    /// What is stored of it.
    pub(super) fn state(&self) -> (String, SourceState) {
        let IngestSource { key, id, first_start_ms, .. } = &self.ingest;
        (key.to_string(), SourceState { id: *id, first_start_ms: *first_start_ms })
    }
}

impl SourceOptions {
    /// The sources that the options name, each with what is known of it. A source that is new is
    /// numbered and gets now as its first start.
    pub(super) fn sources(
        &self,
        known: &mut BTreeMap<String, SourceState>,
        resume: &BTreeMap<Arc<str>, Resume>,
        last_heard_ms: Option<u64>,
    ) -> Vec<SourceSetup> {
        let namespaces: Vec<Option<&str>> = match &*self.namespaces {
            [] => vec![None],
            some => some.iter().map(|namespace| Some(&**namespace)).collect(),
        };
        let mut sources = Vec::new();
        for namespace in namespaces {
            let mut key = namespace.unwrap_or("*").to_owned();
            if !self.field_selector.is_empty() {
                key = format!("{key}?{}", self.field_selector);
            }
            let free = known.values().map(|state| state.id + 1).max().unwrap_or(0);
            let state = *known
                .entry(key.clone())
                .or_insert_with(|| SourceState { id: free, first_start_ms: now_ms() });
            let since = match self.start {
                SourceStart::Since(since) => Some(since),
                SourceStart::All | SourceStart::Now => None,
            };
            let resume = resume.get(&*key).copied().unwrap_or_default();
            let ingest = IngestSource {
                key: key.into(),
                id: state.id,
                first_start_ms: state.first_start_ms,
                resume,
                last_heard_ms,
                first_since: since,
            };
            let namespace = namespace.map(str::to_owned);
            sources.push(SourceSetup { namespace, start: self.start, ingest });
        }
        sources
    }
}

/// See the [module](self).
pub(super) struct Intake {
    pub(super) client: kube::Client,
    pub(super) field_selector: String,
    pub(super) identity: Identity,
    pub(super) sources: Vec<SourceSetup>,
    /// Nothing where no sink is told of objects.
    pub(super) objects: Option<Arc<Objects>>,
    pub(super) view: BridgeView,
    pub(super) broadcaster: Broadcaster<Published>,
}

impl Intake {
    /// Runs until it is told to stop; then everything that was read is in the journal and the
    /// broadcaster has handed it out.
    pub(super) async fn run(
        mut self,
        ingest: Ingest,
        to_ingest: mpsc::Sender<Message>,
        messages: mpsc::Receiver<Message>,
        mut stop: oneshot::Receiver<()>,
    ) -> Result<(), BridgeError> {
        let identified = tokio::select! {
            identified = self.identify() => identified.map(Some),
            _ = &mut stop => Ok(None),
        };
        let cluster = lock(&self.view.cluster).clone();
        let mut ingesting = spawn_blocking(move || ingest.run(&cluster, messages));
        let Some(()) = identified? else {
            return self.end(&to_ingest, ingesting).await;
        };
        // Ends with intake.
        let mut watching = JoinSet::new();
        if let Some(objects) = &self.objects {
            let namespaces: Vec<_> =
                self.sources.iter().filter_map(|source| source.namespace.clone()).collect();
            tokio::select! {
                () = objects.start(&self.client, &namespaces, &self.view.log, &mut watching) => {}
                _ = &mut stop => return self.end(&to_ingest, ingesting).await,
            }
        }
        let mut reflectors = self.start_reflectors(&to_ingest);
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // Ingest may end before it is told to, once everything else stops.
                biased;
                _ = &mut stop => break,
                _ = &mut ingesting => return Err(BridgeError::Task("ingest")),
                _ = reflectors.join_next() => return Err(BridgeError::Task("reflector")),
                _ = ticks.tick() => {
                    // A full channel means that ingest has more pressing work.
                    let _ = to_ingest.try_send(Message::Tick);
                }
            }
        }
        reflectors.shutdown().await;
        self.end(&to_ingest, ingesting).await
    }

    async fn end(
        &self,
        to_ingest: &mpsc::Sender<Message>,
        ingesting: tokio::task::JoinHandle<()>,
    ) -> Result<(), BridgeError> {
        let _ = to_ingest.send(Message::Stop).await;
        let ended = ingesting.await;
        self.broadcaster.shutdown().await;
        ended.map_err(|_| BridgeError::Task("ingest"))
    }

    /// Asks until the API server says which cluster it is of, or will not tell.
    async fn identify(&mut self) -> Result<(), BridgeError> {
        while !self.identity.ask_once().await? {
            tokio::time::sleep(ASK_EVERY).await;
        }
        Ok(())
    }

    fn start_reflectors(&self, to_ingest: &mpsc::Sender<Message>) -> JoinSet<()> {
        let mut reflectors = JoinSet::new();
        let mut views = Vec::new();
        let events = ApiResource::erase::<Event>(&());
        for (source, setup) in self.sources.iter().enumerate() {
            let api = ResourceApi::new(self.client.clone(), &events)
                .namespace(setup.namespace.as_deref().unwrap_or_default())
                .fields(&self.field_selector);
            let store = JournalStore { source, messages: to_ingest.clone() };
            let resume = setup.ingest.resume.resource_version;
            let resume = (resume > 0).then_some(resume);
            let start = match setup.start {
                SourceStart::Now => StartFrom::Now,
                SourceStart::All | SourceStart::Since(_) => StartFrom::List,
            };
            let options = ReflectorOptions {
                name: setup.ingest.key.to_string(),
                follow: Follow::Changes { resume, start },
                ..ReflectorOptions::default()
            };
            tracing::info!(source = &*setup.ingest.key, resume_point = resume, "following events");
            let reflector = Reflector::new(api, store, options);
            views.push(SourceView {
                key: Arc::clone(&setup.ingest.key),
                health: reflector.health(),
                reconnect: reflector.reconnect(),
                namespace: setup.namespace.clone(),
                all_events: self.field_selector.is_empty(),
            });
            reflectors.spawn(reflector.run());
        }
        *lock(&self.view.sources) = views;
        reflectors
    }
}
