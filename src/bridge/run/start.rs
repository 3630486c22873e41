//! The start of a bridge: the sinks go on with what an earlier one left, and then the API server is read.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kube::Client;
use tokio::{
    sync::mpsc,
    task::spawn_blocking,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{
    Bridge, Running, SinkHandle,
    handle::SinkRunner,
    sink::{Shared, SinkParts},
};
use crate::{
    bridge::{
        BridgeError, BridgeOptions, BridgeView, Heartbeat, JournalOptions, OwnEvents, OwnWrites,
        SinkOptions, SinkProgress, SourceOptions,
        control::{Control, SinkRequests},
        objects::{Enricher, Objects},
        source::{
            cluster::Identity,
            ingest::{Ingest, IngestShared, SyncRequests},
            intake::{Intake, SourceSetup},
        },
        state::{
            checkpointer::{Checkpointer, Stores},
            restore::{Restored, RestoredSink, SavedSinks},
        },
        stop::Stop,
        tasks::{Task, Tasks, answer_of},
    },
    journal::OpenError,
};

/// A process that has the journal for longer than this is there to stay.
const FREE_WITHIN: Duration = Duration::from_secs(2);
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// Messages between reflectors and ingest: each at most a few hundred KiB.
const INGEST_QUEUE: usize = 4;

/// Opens the journal. A command that works on that of a stopped bridge has it for a moment, and so
/// has a process that was just killed: neither is a reason not to start. A disk may take its time, so
/// that is done where blocking does no harm, and whoever starts the bridge may give up meanwhile.
async fn open_when_free(journal: &JournalOptions) -> Result<Restored, BridgeError> {
    let give_up = Instant::now() + FREE_WITHIN;
    loop {
        let journal = journal.clone();
        match answer_of(spawn_blocking(move || Restored::open(&journal))).await {
            Err(BridgeError::Journal(OpenError::Held { .. })) if Instant::now() < give_up => {
                sleep(ASK_AGAIN).await;
            }
            opened => return opened,
        }
    }
}

/// A sink with what it is told of objects, and the state that it goes on with.
type RestorableSink = (SinkOptions, Option<Enricher>, RestoredSink);

/// Restores the sinks. As with the journal, blocking does no harm.
async fn restore_sinks(
    sinks: Vec<SinkOptions>,
    saved: Arc<SavedSinks>,
    objects: Option<Arc<Objects>>,
) -> Result<Vec<RestorableSink>, BridgeError> {
    let restoring = spawn_blocking(move || {
        let mut enriching = 0;
        let restored = sinks.into_iter().map(|sink| {
            let enricher = objects.as_ref().zip(sink.enrich.clone()).map(|(objects, enrich)| {
                enriching += 1;
                objects.enricher(enriching - 1, enrich)
            });
            let from = saved.sink(&sink, enricher.as_ref())?;
            Ok((sink, enricher, from))
        });
        restored.collect()
    });
    answer_of(restoring).await
}

/// The writes of the bridge itself, if it makes any, with the heartbeats of earlier runs.
fn own_writes(options: &BridgeOptions, heartbeats: &[String]) -> Option<OwnWrites> {
    let of_events = options.own_events.as_ref().map(|own_events| own_events.writes.clone());
    let own_writes = of_events.or_else(|| {
        let beats_in = options.heartbeat.as_ref()?.about.namespace.clone()?;
        Some(OwnWrites::in_namespace(beats_in))
    })?;
    own_writes.know_heartbeats(heartbeats.iter().cloned());
    Some(own_writes)
}

#[derive(Default)]
struct Sinks {
    tasks: Tasks,
    progresses: Vec<Arc<SinkProgress>>,
    handles: Vec<SinkHandle>,
    requests: BTreeMap<String, Arc<SinkRequests>>,
    /// Whether any of them has a correlator.
    correlate: bool,
}

impl Sinks {
    /// Starts each of them on what was restored.
    fn start(sinks: Vec<RestorableSink>, restored: &Restored, shared: &Shared) -> Self {
        let saved = Arc::new(restored.sinks.emptied());
        let mut started = Self::default();
        for sink in sinks {
            started.start_one(sink, restored, &saved, shared);
        }
        started
    }

    fn start_one(
        &mut self,
        (sink, enricher, from): RestorableSink,
        restored: &Restored,
        saved: &Arc<SavedSinks>,
        shared: &Shared,
    ) {
        let (name, correlator) = (sink.name.clone(), from.correlator.as_ref());
        self.correlate |= correlator.is_some();
        let progress =
            SinkProgress::new(&name, sink.kind, sink.overflow, from.state.clone(), correlator);
        let progress = Arc::new(progress);
        self.progresses.push(Arc::clone(&progress));
        let (handle, requests) = SinkHandle::new(&name);
        self.handles.push(handle);
        let parts = SinkParts::new(progress, &sink, enricher, restored, shared);
        self.requests.insert(name.clone(), Arc::clone(&parts.asked));
        let runner = SinkRunner {
            name: name.clone(),
            overflow: sink.overflow,
            enrich: sink.enrich.clone(),
            saved: Arc::clone(saved),
            requests,
            run: Some(parts.spawn(sink, from)),
            unsaved: false,
            parts,
        };
        self.tasks.spawn_failing(format!("sink {name}"), runner.run());
    }
}

impl Bridge {
    /// Opens the journal, starts the sinks on what it holds, and then reads from the API server.
    ///
    /// # Errors
    ///
    /// The journal cannot be used, or it is of another cluster. An API server or a sink that does
    /// not answer is no error: both are tried until they do.
    pub async fn start(client: Client, options: BridgeOptions) -> Result<Self, BridgeError> {
        let restored = open_when_free(&options.journal).await?;
        let own_writes = own_writes(&options, &restored.heartbeats);
        let BridgeOptions { cluster, source, journal, sinks, objects, own_events, heartbeat } =
            options;
        let of_journal = restored.cluster_uid.clone();
        let mut identity = Identity::new(client.clone(), cluster, of_journal, &journal.path);
        // With an answer, sinks start after the journal is known to be of this cluster.
        identity.ask_once().await?;
        let objects = restored.objects(objects, &sinks);
        let sinks = restore_sinks(sinks, Arc::clone(&restored.sinks), objects.clone()).await?;

        let mut aside = Tasks::default();
        let ended = CancellationToken::new();
        let shared = Shared::new(own_writes, Stop::under(&ended), &mut aside);
        let sinks = Sinks::start(sinks, &restored, &shared);
        let view = BridgeView::new(
            sinks.progresses.clone(),
            restored.log.handle(),
            restored.state.dead_letters(),
            objects.as_ref().map(|objects| objects.requests()),
            (Arc::clone(&identity.cluster), Arc::clone(&identity.complaint)),
            shared.watchdog.clone(),
        );
        let mut begun = Begun { restored, identity, shared, objects, sinks, view, aside, ended };
        begun.write_own(own_events, heartbeat, &client);
        Ok(begun.read(client, source, &journal))
    }
}

struct Begun {
    restored: Restored,
    identity: Identity,
    shared: Shared,
    /// Nothing where no sink is told of objects.
    objects: Option<Arc<Objects>>,
    sinks: Sinks,
    view: BridgeView,
    aside: Tasks,
    ended: CancellationToken,
}

impl Begun {
    /// Starts the tasks that write Events of the bridge's own.
    fn write_own(
        &mut self,
        own_events: Option<OwnEvents>,
        heartbeat: Option<Heartbeat>,
        client: &Client,
    ) {
        let Self { restored, shared, view, aside, .. } = self;
        if let Some(own_events) = own_events {
            let recording = own_events.run(view.clone(), restored.sinks.lost_before());
            aside.spawn("the recording of own events", recording);
        }
        if let Some((heartbeat, own_writes)) = heartbeat.zip(shared.own_writes.clone()) {
            let beating = heartbeat.run(client.clone(), view.clone(), own_writes);
            aside.spawn("the heartbeat", beating);
        }
    }

    /// Starts what saves, and what reads from the API server.
    fn read(self, client: Client, source: SourceOptions, journal: &JournalOptions) -> Bridge {
        let Self { restored, identity, shared, objects, sinks, view, aside, ended } = self;
        let Restored { log, mut sources, resume, seen, .. } = restored;
        let sources = source.sources(&mut sources, &resume);
        restored.unstated.into_iter().for_each(|gap| view.ingest.state_gap(gap));
        let (to_checkpointer, letter_requests) = mpsc::channel(1);
        let control = Control::new(view.dead_letters.clone(), to_checkpointer, sinks.requests);
        let (to_ingest, messages) = mpsc::channel(INGEST_QUEUE);
        let sync_requests = Arc::<SyncRequests>::default();
        let checkpointer = Checkpointer::new(
            Stores {
                state: restored.state,
                directory: restored.directory,
                seen: Arc::clone(&seen),
                objects: objects.clone(),
                applied: restored.applied,
                heartbeats: restored.heartbeats,
            },
            &view,
            sources.iter().map(SourceSetup::marks).collect(),
            shared.own_writes.clone(),
            shared.letters_changed.clone(),
        );
        let checkpointer = checkpointer.spawn(
            to_ingest.clone(),
            Arc::clone(&sync_requests),
            journal.log.sync,
            letter_requests,
            ended.clone(),
        );
        let Shared { watchdog, broadcaster, stop, own_writes, .. } = shared;
        let ingest = Ingest::new(
            log,
            broadcaster.clone(),
            sinks.correlate.then(|| restored.sinks.keys.clone()),
            journal.max_event,
            sources.iter().map(|setup| setup.ingest.clone()).collect(),
            IngestShared {
                counters: Arc::clone(&view.ingest),
                seen,
                objects: objects.clone(),
                sinks: sinks.progresses,
                sync_requests,
                stop: stop.clone(),
                own_writes,
                pulse: watchdog.pulse("ingest"),
            },
        );
        let intake = Intake {
            client,
            field_selector: source.field_selector,
            identity,
            sources,
            objects,
            view: view.clone(),
            broadcaster: broadcaster.clone(),
            pulse: watchdog.pulse("intake"),
        };
        let intake = intake.run(ingest, to_ingest, messages, stop.clone());
        Bridge {
            view,
            stop,
            broadcaster,
            running: Running {
                intake: Task::spawn("intake", intake),
                sinks: sinks.tasks,
                aside,
                checkpointer,
            },
            control,
            handles: sinks.handles,
            ended: ended.drop_guard(),
        }
    }
}
