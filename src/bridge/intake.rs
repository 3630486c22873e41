//! From the API server into the journal: the cluster is identified, then each source gets a
//! reflector, and all of them feed the one ingest thread.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Event;
use kube::core::ApiResource;
use tidings_kube::{
    broadcaster::Broadcaster,
    reflector::{Follow, Reflector, ReflectorOptions, ResourceApi, StartFrom, Witnesses},
};
use tidings_log::Resume;
use tokio::{sync::mpsc, task::spawn_blocking, time::MissedTickBehavior};

use super::{
    BridgeError, BridgeView, SourceOptions, SourceStart, SourceView,
    cluster::Identity,
    ingest::{Ingest, IngestSource, JournalStore, Message, NotKept},
    marks::SourceMarks,
    objects::Objects,
    past::{Ended, Past, deleted_known_until_ms, own_resume},
    published::Published,
    shared::{lock, now_ms},
    stop::Stop,
    tasks::{Failing, Task, Tasks, answer_of, first_failure},
    watchdog::Pulse,
};
use crate::journal::SourceState;

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
    /// What is to be saved of it.
    pub(super) fn marks(&self) -> Arc<SourceMarks> {
        Arc::clone(&self.ingest.marks)
    }
}

impl SourceOptions {
    /// The sources that the options name, each with what is known of it. A source that is new is
    /// numbered; its first start is that of the journal.
    pub(super) fn sources(
        &self,
        known: &mut BTreeMap<String, SourceState>,
        resume: &BTreeMap<Arc<str>, Resume>,
    ) -> Vec<SourceSetup> {
        let namespaces: Vec<Option<&str>> = match &*self.namespaces {
            [] => vec![None],
            some => some.iter().map(|namespace| Some(&**namespace)).collect(),
        };
        let first_start = known.values().map(|state| state.first_start_ms).min();
        let first_start_ms = first_start.unwrap_or_else(now_ms);
        let key_of = |namespace: Option<&str>| {
            let mut key = namespace.unwrap_or("*").to_owned();
            if !self.field_selector.is_empty() {
                key = format!("{key}?{}", self.field_selector);
            }
            key
        };
        let keys: Vec<_> = namespaces.iter().copied().map(key_of).collect();
        let mut sources = Vec::new();
        for (namespace, key) in namespaces.into_iter().zip(keys.iter().cloned()) {
            let deleted_known_until_ms =
                deleted_known_until_ms(&key, &keys, known, resume, now_ms());
            let own = own_resume(&key, resume);
            let past = Past::of(&key, known, resume, now_ms());
            let free = known.values().map(|state| state.id + 1).max().unwrap_or(0);
            let state = known
                .entry(key.clone())
                .or_insert_with(|| SourceState { id: free, ..SourceState::default() });
            state.first_start_ms = first_start_ms;
            if own.resource_version > 0 {
                // Of a state that did not know: from here on it does.
                state.whole_from.get_or_insert(own.resource_version);
            }
            let (mut resume, mut start, mut part) = (own, self.start, false);
            let inherits = matches!(past, Past::Whole(_));
            // A crash has cut its first list short.
            let begun = own.resource_version == 0 && state.unfinished.is_some();
            match past {
                Past::None => {}
                Past::Part { last_heard_ms } => {
                    part = true;
                    resume.resource_version = 0;
                    // A list that was to bring the rest has begun then.
                    if !begun {
                        state.last_heard_ms = Some(last_heard_ms);
                    }
                }
                Past::Whole(whole) => {
                    let Ended { last_heard_ms, whole_from, witness, unfinished, .. } = whole;
                    resume = whole.resume;
                    state.last_heard_ms = last_heard_ms;
                    state.whole_from = Some(whole_from.unwrap_or(resume.resource_version));
                    state.witness = witness;
                    state.unfinished = unfinished.or(state.unfinished);
                }
            }
            // What was missed is not what was before.
            if start == SourceStart::Now && (part || begun) {
                start = SourceStart::Since(Duration::ZERO);
            }
            let since = match start {
                SourceStart::Since(since) => Some(since),
                SourceStart::All | SourceStart::Now => None,
            };
            let key: Arc<str> = key.into();
            let ingest = IngestSource {
                id: state.id,
                first_start_ms: state.first_start_ms,
                resume,
                inherits,
                part,
                last_heard_ms: state.last_heard_ms,
                whole_from: state.whole_from,
                witness: state.witness.clone(),
                unfinished: state.unfinished,
                first_since: since,
                marks: Arc::new(SourceMarks::new(Arc::clone(&key), state.clone())),
                deleted_known_until_ms,
                witnesses: Witnesses::default(),
                not_kept: NotKept::default(),
                key,
            };
            let namespace = namespace.map(str::to_owned);
            sources.push(SourceSetup { namespace, start, ingest });
        }
        sources
    }
}

/// The tasks of intake.
struct Reading {
    ingesting: Task,
    reflectors: Tasks,
    watching: Tasks,
}

impl Failing for Reading {
    async fn next_failure(&mut self) -> BridgeError {
        tokio::select! {
            error = self.ingesting.next_failure() => error,
            error = self.reflectors.next_failure() => error,
            error = self.watching.next_failure() => error,
        }
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
    /// Of its ticks.
    pub(super) pulse: Pulse,
}

impl Intake {
    /// Runs until it is told to stop; then everything that was read is in the journal and the
    /// broadcaster has handed it out.
    pub(super) async fn run(
        mut self,
        ingest: Ingest,
        to_ingest: mpsc::Sender<Message>,
        messages: mpsc::Receiver<Message>,
        stop: Stop,
    ) -> Result<(), BridgeError> {
        let identified = tokio::select! {
            identified = self.identify() => identified.map(Some),
            () = stop.draining() => Ok(None),
        };
        let cluster = lock(&self.view.cluster).clone();
        let ingesting = Task::spawn("ingest", async {
            answer_of(spawn_blocking(move || ingest.run(&cluster, messages))).await;
            Ok(())
        });
        let Some(()) = identified? else {
            return self.end(&to_ingest, ingesting).await;
        };
        // Ends with intake.
        let mut watching = Tasks::default();
        if let Some(objects) = &self.objects {
            let namespaces: Vec<_> =
                self.sources.iter().filter_map(|source| source.namespace.clone()).collect();
            tokio::select! {
                () = objects.start(&self.client, &namespaces, &self.view.log, &mut watching) => {}
                () = stop.draining() => return self.end(&to_ingest, ingesting).await,
            }
        }
        let reflectors = self.start_reflectors(&to_ingest);
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let ticking = async {
            loop {
                ticks.tick().await;
                self.pulse.works("its next tick");
                // A full channel means that ingest has more pressing work.
                let _ = to_ingest.try_send(Message::Tick);
            }
        };
        let mut reading = Reading { ingesting, reflectors, watching };
        tokio::select! {
            () = stop.draining() => {}
            error = first_failure(&mut reading) => return Err(error),
            () = ticking => {}
        }
        self.pulse.rests();
        let Reading { ingesting, mut reflectors, mut watching } = reading;
        let mut fault = None;
        reflectors.shutdown(&mut fault).await;
        watching.shutdown(&mut fault).await;
        self.end(&to_ingest, ingesting).await?;
        fault.map_or(Ok(()), Err)
    }

    async fn end(
        &self,
        to_ingest: &mpsc::Sender<Message>,
        mut ingesting: Task,
    ) -> Result<(), BridgeError> {
        let _ = to_ingest.send(Message::Stop).await;
        let ended = ingesting.ended().await;
        self.broadcaster.shutdown().await;
        ended
    }

    /// Asks until the API server says which cluster it is of, or will not tell.
    async fn identify(&mut self) -> Result<(), BridgeError> {
        while !self.identity.ask_once().await? {
            tokio::time::sleep(ASK_EVERY).await;
        }
        Ok(())
    }

    fn start_reflectors(&self, to_ingest: &mpsc::Sender<Message>) -> Tasks {
        let mut reflectors = Tasks::default();
        let mut views = Vec::new();
        let events = ApiResource::erase::<Event>(&());
        for (source, setup) in self.sources.iter().enumerate() {
            let api = ResourceApi::new(self.client.clone(), &events)
                .namespace(setup.namespace.as_deref().unwrap_or_default())
                .fields(&self.field_selector);
            let not_kept = setup.ingest.not_kept.clone();
            let store = JournalStore::new(source, to_ingest.clone(), not_kept);
            let resume = setup.ingest.resume.resource_version;
            let resume = (resume > 0).then_some(resume);
            let start = match setup.start {
                SourceStart::Now => StartFrom::Now,
                SourceStart::All | SourceStart::Since(_) => StartFrom::List,
            };
            let options = ReflectorOptions {
                name: setup.ingest.key.to_string(),
                follow: Follow::Changes { resume, start },
                has_part_of_list: setup.ingest.unfinished.is_some(),
                witnesses: setup.ingest.witnesses.clone(),
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
            reflectors.spawn(format!("the reflector of {}", setup.ingest.key), reflector.run());
        }
        *lock(&self.view.sources) = views;
        reflectors
    }
}
