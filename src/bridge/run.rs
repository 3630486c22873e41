//! The bridge put together: journal, sources, sinks, and the keeper that saves what they reach.

mod control;
mod handle;
mod sink;

use std::{path::PathBuf, sync::Arc, time::Duration};

use tidings_kube::broadcaster::Broadcaster;
use tidings_log::OpenError as LogError;
use tokio::{
    sync::{mpsc, watch},
    task::spawn_blocking,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    BridgeOptions, BridgeView, Configuration, EventCounters, JournalOptions, OwnWrites, Sinks,
    TaskEnd, Watchdog,
    cluster::{ClusterError, Identity},
    control::Control,
    feed::{Feed, LIVE},
    ingest::{Desk, Ingest, IngestShared},
    intake::{Intake, SourceSetup},
    keeper::{self, Keeper},
    published::Published,
    redelivery::Retries,
    restore::Restored,
    stop::Stop,
    tasks::{Failing, Task, Tasks, answer_of, first_failure},
};
use crate::journal::OpenError;
use control::Common;
pub use control::SinkControl;
pub use handle::{SinkHandle, SinkHandleError};

/// Who has the journal for longer than this is there to stay.
const FREE_WITHIN: Duration = Duration::from_secs(2);
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// A file of it that cannot be read is read so often in all before the start gives up, this far apart.
const READS: u32 = 5;
const READ_AGAIN: Duration = Duration::from_millis(200);
/// Messages between reflectors and ingest: each at most a few hundred KiB.
const INGEST_QUEUE: usize = 4;
/// Frames between ingest and the broadcaster's loop.
const BROADCAST_QUEUE: usize = 8;
/// The last save may take so long; the end of the program does not wait for a disk that hangs.
const SAVED_WITHIN: Duration = Duration::from_secs(5);

/// Why a bridge does not start, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    /// The journal cannot be opened.
    #[error(transparent)]
    Journal(#[from] OpenError),
    /// A file beside the journal cannot be opened.
    #[error("cannot open {}: {error}\nhint: the journal directory must be writable", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's answer.
        error: std::io::Error,
    },
    /// The journal holds the events of another cluster.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// A task of the bridge has ended by itself, mostly by a panic, which is a bug.
    #[error(
        "{0}; this is a bug\nhint: what was settled is saved and nothing is lost, so start again; and please report it"
    )]
    Task(TaskEnd),
    /// The end of the program does not wait for ever for the disk.
    #[error(
        "the state could not be saved within {} s of the end: the disk does not answer\nhint: nothing is lost; what was delivered since the last save is delivered again, under the same ids",
        SAVED_WITHIN.as_secs()
    )]
    NotSaved,
}

/// A running bridge. It goes on until [`stop`](Self::stop); dropping it ends it as a crash would.
pub struct Bridge {
    view: BridgeView,
    stop: Stop,
    intake: Task,
    broadcaster: Broadcaster<Published>,
    /// One, that ends all of them with it.
    sinks: Tasks,
    sink_failures: mpsc::UnboundedReceiver<BridgeError>,
    /// What runs beside the way of an event, and ends with the bridge.
    aside: Tasks,
    keeper: Task,
    control: Control,
    sink_control: SinkControl,
    /// Ends the keeper and whatever has not ended before it: a thread that waits for a disk would keep
    /// the runtime from ending.
    ended: DropGuard,
}

/// Opens the journal. A command that works on that of a stopped bridge has it for a moment, and so
/// has a process that was just killed: neither is a reason not to start. A disk may take its time, so
/// that is done where blocking does no harm, and whoever starts the bridge may give up meanwhile.
async fn open_when_free(journal: &JournalOptions) -> Result<Restored, BridgeError> {
    let give_up = Instant::now() + FREE_WITHIN;
    let mut reads = 1;
    loop {
        let journal = journal.clone();
        match answer_of(spawn_blocking(move || Restored::open(&journal))).await {
            Err(BridgeError::Journal(OpenError::Log(LogError::Held { .. })))
                if Instant::now() < give_up =>
            {
                sleep(ASK_AGAIN).await;
            }
            // A disk that fails once may not fail twice.
            Err(BridgeError::Journal(OpenError::Unread { path, source })) if reads < READS => {
                reads += 1;
                tracing::warn!(file = %path.display(), error = %source, "the journal could not be read: trying again");
                sleep(READ_AGAIN).await;
            }
            opened => return opened,
        }
    }
}

impl Bridge {
    /// Opens the journal, starts the sinks on what it holds, and then reads from the API server.
    ///
    /// # Errors
    ///
    /// The journal cannot be used, or it is of another cluster. An API server or a sink that does
    /// not answer is no error: both are tried until they do.
    pub async fn start(client: kube::Client, options: BridgeOptions) -> Result<Self, BridgeError> {
        let BridgeOptions {
            cluster,
            source,
            journal,
            sinks,
            counters,
            objects,
            own_events,
            heartbeat,
        } = options;
        let restored = open_when_free(&journal).await?;
        let beats_in = heartbeat.as_ref().and_then(|heartbeat| heartbeat.about.namespace.clone());
        let own_writes = own_events.as_ref().map(|own_events| own_events.writes.clone());
        let own_writes = own_writes.or_else(|| beats_in.map(OwnWrites::in_namespace));
        if let Some(own_writes) = &own_writes {
            own_writes.know_heartbeats(restored.heartbeats.iter().cloned());
        }
        let mut identity = Identity::new(client.clone(), cluster, &restored, &journal.path);
        // With an answer, sinks start after the journal is known to be of this cluster.
        identity.ask_once().await?;

        let watchdog = Watchdog::default();
        let (broadcaster, handing_out) = Broadcaster::with_loop(BROADCAST_QUEUE, LIVE);
        let mut aside = Tasks::default();
        aside.spawn("the broadcaster", handing_out);
        aside.spawn("the watchdog", watchdog.clone().run());
        let log = restored.log.handle();
        let ended = CancellationToken::new();
        let stop = Stop::under(&ended);
        let objects = restored.objects(objects, &sinks);
        let (letters_changed, _) = watch::channel(Retries::default());
        let known = Sinks::default();
        let common = Common {
            log: log.clone(),
            broadcaster: broadcaster.clone(),
            keys: restored.sinks.keys.clone(),
            letters: restored.state.dead_letters(),
            letters_changed: letters_changed.subscribe(),
            own_writes: own_writes.clone(),
            watchdog: watchdog.clone(),
            sinks: known.clone(),
            saved: Arc::new(restored.sinks.emptied()),
            stop: stop.clone(),
        };
        let (mut watchers, mut begun) = (Tasks::default(), Vec::new());
        let mut enriching = 0;
        for sink in sinks {
            let enricher = objects.as_ref().zip(sink.enrich.clone()).map(|(objects, enrich)| {
                enriching += 1;
                objects.enricher(enriching - 1, enrich)
            });
            let restored_sink = restored.sinks.sink(&sink, enricher.as_ref());
            let from = restored_sink.map_err(|error| BridgeError::File {
                path: journal.path.join("delivered"),
                error,
            })?;
            let (sink, runner) = common.begin(sink, from, enricher);
            begun.push(sink);
            control::spawn(&mut watchers, runner);
        }
        let (sink_control, beginning) = SinkControl::new(common, begun);

        let counters = Arc::new(EventCounters::new(counters));
        let pulse = watchdog.pulse("the counters of events");
        let feed = Feed::new(log.clone(), broadcaster.clone(), log.tail(), pulse);
        aside.spawn("the counters of events", Arc::clone(&counters).run(feed));

        let view = BridgeView {
            sinks: known.clone(),
            counters,
            sources: Arc::default(),
            ingest: Arc::default(),
            log,
            state_error: Arc::default(),
            dead_letters: restored.state.dead_letters(),
            object_requests: objects.as_ref().map(|objects| objects.requests()),
            cluster: Arc::clone(&identity.cluster),
            not_identified: Arc::clone(&identity.complaint),
            configuration: Configuration::default(),
            watchdog: watchdog.clone(),
            runtime: tokio::runtime::Handle::current(),
        };
        let (to_keeper, letter_requests) = mpsc::channel(1);
        let control = Control::new(restored.state.dead_letters(), to_keeper, known.clone());
        let lost_before = restored.sinks.lost_before();
        let desk = Arc::<Desk>::default();
        let (to_ingest, messages) = mpsc::channel(INGEST_QUEUE);
        let Restored {
            log,
            state,
            directory,
            seen,
            mut sources,
            resume,
            applied,
            unstated,
            heartbeats,
            sinks,
            ..
        } = restored;
        let sources = source.sources(&mut sources, &resume);
        for gap in unstated {
            view.ingest.state_gap(gap);
        }
        let keeper = Keeper {
            state,
            directory,
            sinks: known.clone(),
            saving: Vec::new(),
            seen: Arc::clone(&seen),
            objects: objects.clone(),
            log: view.log.clone(),
            cluster: Arc::clone(&identity.cluster),
            sources: sources.iter().map(SourceSetup::marks).collect(),
            saved_cluster_uid: None,
            saved_heartbeats: heartbeats,
            own_writes: own_writes.clone(),
            applied,
            last_positions: Instant::now(),
            last_seen: Instant::now(),
            state_error: Arc::clone(&view.state_error),
            positions_failing: false,
            overflow_told: None,
            letters_changed,
            pulse: watchdog.pulse("the keeper"),
        };
        let sync = journal.log.sync;
        let at_desk = Arc::clone(&desk);
        let keeping =
            keeper::run(keeper, to_ingest.clone(), at_desk, sync, letter_requests, ended.clone());
        let keeper = Task::spawn("the keeper", async {
            keeping.await;
            Ok(())
        });
        let ingest = Ingest::new(
            log,
            broadcaster.clone(),
            &sinks.keys,
            journal.max_event,
            sources.iter().map(|setup| setup.ingest.clone()).collect(),
            IngestShared {
                counters: Arc::clone(&view.ingest),
                seen,
                objects: objects.clone(),
                sinks: known,
                desk,
                stop: stop.clone(),
                own_writes: own_writes.clone(),
                pulse: watchdog.pulse("ingest"),
            },
        );
        if let Some(own_events) = own_events {
            let speaking = own_events.run(view.clone(), journal.log.retention_size, lost_before);
            aside.spawn("the recording of own events", speaking);
        }
        if let Some((heartbeat, own_writes)) = heartbeat.zip(own_writes) {
            let beating = heartbeat.run(client.clone(), view.clone(), own_writes);
            aside.spawn("the heartbeat", beating);
        }
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
        let reading = intake.run(ingest, to_ingest, messages, stop.clone());
        let mut running = Tasks::default();
        let (failures, sink_failures) = mpsc::unbounded_channel();
        let sinks = control::run(watchers, beginning, failures, stop.clone());
        running.spawn_failing("the sinks", sinks);
        Ok(Self {
            view,
            stop,
            intake: Task::spawn("intake", reading),
            broadcaster,
            sinks: running,
            sink_failures,
            sink_control,
            aside,
            keeper,
            control,
            ended: ended.drop_guard(),
        })
    }

    /// What can be seen of it.
    pub fn view(&self) -> BridgeView {
        self.view.clone()
    }

    /// What may be asked of it.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// By what one sink is stopped and started alone; nothing if there is none of that name.
    pub fn sink(&self, name: &str) -> Option<SinkHandle> {
        self.sink_control.handle(name)
    }

    /// By what sinks are added, changed and removed.
    pub fn sinks(&self) -> SinkControl {
        self.sink_control.clone()
    }

    /// Completes when the bridge cannot go on by itself, with what caused it;
    /// [`stop`](Self::stop) is still due then.
    pub async fn failed(&mut self) -> BridgeError {
        first_failure(self).await
    }

    /// Stops reading, delivers what has been read until `deadline` has passed, and saves. A sink
    /// that fails is not waited for; what it has not had is pending in the journal.
    ///
    /// # Errors
    ///
    /// A task panicked on the way, or the disk did not answer in the end. The rest was stopped in
    /// order all the same.
    pub async fn stop(self, deadline: Duration) -> Result<(), BridgeError> {
        let Self { stop, mut intake, broadcaster, mut sinks, mut aside, mut keeper, ended, .. } =
            self;
        let mut sink_failures = self.sink_failures;
        let mut fault = None;
        let in_order = async {
            let read = tokio::select! {
                read = intake.ended() => read,
                // The disk takes nothing. What is not in the journal is with the API server.
                () = stop.over() => {
                    intake.abort();
                    Ok(())
                }
            };
            // Intake has done so, unless it ended before its time.
            stop.ends_in_time(broadcaster.shutdown()).await;
            sinks.all_ended(&mut fault).await;
            // The sink that failed first is the cause.
            fault = sink_failures.try_recv().ok().or(fault.take());
            read
        };
        let read = stop.drain(deadline, in_order).await;
        aside.shutdown(&mut fault).await;
        drop(ended);
        let saved = timeout(SAVED_WITHIN, keeper.ended()).await;
        read?;
        fault.map_or(Ok(()), Err)?;
        saved.unwrap_or(Err(BridgeError::NotSaved))
    }
}

impl Failing for Bridge {
    async fn next_failure(&mut self) -> BridgeError {
        tokio::select! {
            error = self.intake.next_failure() => error,
            error = self.keeper.next_failure() => error,
            Some(error) = self.sink_failures.recv() => error,
            error = self.sinks.next_failure() => error,
            error = self.aside.next_failure() => error,
        }
    }
}
