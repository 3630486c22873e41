//! The bridge put together: journal, sources, sinks, and the keeper that saves what they reach.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::OptionFuture;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::{JoinError, JoinHandle, JoinSet},
    time::timeout_at,
};

use super::{
    BatchOptions, CorrelateMode, Enrich, Filter, Heartbeat, IngestCounters, ObjectOptions,
    OwnEvents, RetryOptions, Sink, SinkProgress, SinkStart,
    cluster::{ClusterError, Identity},
    control::{Control, ReplayDesk},
    correlation::Stage,
    deliver::{Deliver, Stop},
    errands::{Courier, Errand, LetterRound, Replays},
    feed::{Feed, LIVE},
    gather::Gather,
    high_water::HighWater,
    ingest::{Ingest, IngestShared},
    intake::{Intake, SourceSetup},
    keeper::{self, Keeper},
    restore::Restored,
};
use crate::{
    cache::{Reconnect, SharedHealth},
    event::Cluster,
    journal::{DeadLettersReader, LogHandle, LogOptions, OpenError},
    watch::Broadcaster,
};

/// Messages between reflectors and ingest: each at most a few hundred KiB.
const INGEST_QUEUE: usize = 4;
/// Frames between ingest and the broadcaster's loop.
const BROADCAST_QUEUE: usize = 8;
/// Batches between gathering and delivery: the next one is ready when one has arrived.
const BATCHES_AHEAD: usize = 2;
/// The same where a batch is one event.
const EVENTS_AHEAD: usize = 16;
/// A sink may take so long to let go of its connections.
const CLOSE_WITHIN: Duration = Duration::from_secs(3);

/// Where a source without a resume point starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceStart {
    /// With every Event that exists.
    All,
    /// With what happens from now on.
    Now,
    /// With what occurred at most so long ago.
    Since(Duration),
}

/// What the bridge reads.
#[derive(Clone, Debug)]
pub struct SourceOptions {
    /// One source each; empty for one source of all namespaces.
    pub namespaces: Vec<String>,
    /// As in `kubectl --field-selector`; empty for none.
    pub field_selector: String,
    /// Where to start without a resume point.
    pub start: SourceStart,
}

/// Where the bridge keeps what it reads.
#[derive(Clone, Debug)]
pub struct JournalOptions {
    /// The directory.
    pub path: PathBuf,
    /// Retention and sync.
    pub log: LogOptions,
    /// How many bytes the dead letters may take; the oldest go first.
    pub dead_letters: u64,
}

/// One sink and how its watcher treats it.
pub struct SinkOptions {
    /// Its name; a plain file name too.
    pub name: String,
    /// Its transport, for the status page.
    pub kind: &'static str,
    /// The transport itself.
    pub sink: Box<dyn Sink>,
    /// What it wants; `None` for everything.
    pub filter: Option<Filter>,
    /// What it is told of the objects that events are about; `None` for nothing.
    pub enrich: Option<Enrich>,
    /// What is done about repeats.
    pub correlate: CorrelateMode,
    /// When a batch is full.
    pub batch: BatchOptions,
    /// The waits between attempts.
    pub retry: RetryOptions,
    /// How long one attempt may take.
    pub timeout: Duration,
    /// Where it starts in a journal with a past.
    pub start: SinkStart,
    /// The sink that its dead letters are sent to, beside being kept.
    pub forward_dead_letters: Option<String>,
}

/// Everything that a bridge is made of.
pub struct BridgeOptions {
    /// Which cluster; without a uid the API server is asked for it.
    pub cluster: Cluster,
    /// What to read.
    pub source: SourceOptions,
    /// Where to keep it.
    pub journal: JournalOptions,
    /// Where to send it.
    pub sinks: Vec<SinkOptions>,
    /// How objects are read that events are about, if a sink is told of them.
    pub objects: ObjectOptions,
    /// Where to record what the bridge says of itself; `None`: it is logged only.
    pub own_events: Option<OwnEvents>,
    /// By what it notices that a watch is dead; `None`: only the watch's own end tells.
    pub heartbeat: Option<Heartbeat>,
}

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
    /// A task of the bridge has ended by itself, which is a bug.
    #[error("the task {0} has ended unexpectedly; this is a bug")]
    Task(&'static str),
}

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
    /// The sinks, by name.
    pub sinks: Arc<[Arc<SinkProgress>]>,
    /// The sources; empty until the cluster has been identified.
    pub sources: Arc<Mutex<Vec<SourceView>>>,
    /// What ingest counts.
    pub ingest: Arc<IngestCounters>,
    /// The log, for its tail and its size on disk.
    pub log: LogHandle,
    /// The dead letters, for their counts.
    pub dead_letters: DeadLettersReader,
    /// How often the API server was asked for a single object, or for its kinds; nothing where no
    /// sink is told of objects.
    pub object_requests: Option<Arc<AtomicU64>>,
    /// The cluster as far as it is known.
    pub cluster: Arc<Mutex<Cluster>>,
    /// Why the API server had not said which cluster it is of when it was last asked.
    pub not_identified: Arc<Mutex<Option<String>>>,
}

/// A running bridge. It goes on until [`stop`](Self::stop); dropping it ends it as a crash would.
pub struct Bridge {
    view: BridgeView,
    stop_intake: oneshot::Sender<()>,
    /// `None` once it has ended by itself.
    intake: Option<JoinHandle<Result<(), BridgeError>>>,
    stop_delivery: watch::Sender<Stop>,
    watchers: JoinSet<()>,
    /// Ends with the bridge.
    speaker: JoinSet<()>,
    stop_keeper: oneshot::Sender<()>,
    keeper: Option<JoinHandle<()>>,
    give_up: GiveUp,
    control: Control,
}

/// Tells ingest not to wait for the disk any longer; at the latest when it is dropped, or a thread
/// that waits for a disk would keep the runtime from ending.
struct GiveUp(Arc<AtomicBool>);

impl GiveUp {
    fn now(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Drop for GiveUp {
    fn drop(&mut self) {
        self.now();
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
        let BridgeOptions { cluster, source, journal, sinks, objects, own_events, heartbeat } =
            options;
        let restored = Restored::open(&journal)?;
        let mut identity = Identity::new(client.clone(), cluster, &restored, &journal.path);
        // With an answer, sinks start after the journal is known to be of this cluster.
        identity.ask_once().await?;

        let broadcaster = Broadcaster::new(BROADCAST_QUEUE, LIVE);
        let log = restored.log.handle();
        let (stop_delivery, stop) = watch::channel(Stop::No);
        let mut watchers = JoinSet::new();
        let mut progresses = Vec::new();
        let objects = restored.objects(objects, &sinks);
        let mut enriching = 0;
        let mut correlates = false;
        let mut desks = BTreeMap::new();
        let (letters_changed, _) = watch::channel(());
        for sink in sinks {
            let enricher = objects.as_ref().zip(sink.enrich.clone()).map(|(objects, enrich)| {
                enriching += 1;
                objects.enricher(enriching - 1, enrich)
            });
            let (saved, correlator) = restored.sink(&sink, enricher.as_ref());
            let feed = Feed::new(log.clone(), broadcaster.clone(), saved.position);
            let progress = SinkProgress::new(&sink.name, sink.kind, saved, correlator.as_ref());
            let progress = Arc::new(progress);
            progresses.push(Arc::clone(&progress));
            let high_water = HighWater::open(&journal.path, &sink.name).map_err(|error| {
                BridgeError::File { path: journal.path.join("delivered"), error }
            })?;
            let (desk, orders) = ReplayDesk::new();
            desks.insert(sink.name.clone(), desk);
            let (courier, queue) = Courier::new(sink.retry, Arc::clone(&progress));
            let errands = Errands {
                letters: LetterRound {
                    sink: sink.name.clone(),
                    letters: restored.state.dead_letters(),
                    changed: letters_changed.subscribe(),
                    progress: Arc::clone(&progress),
                    courier: courier.clone(),
                },
                replays: Replays {
                    sink: sink.name.clone(),
                    orders,
                    log: log.clone(),
                    progress: Arc::clone(&progress),
                    courier,
                    batch: sink.batch,
                    filter: sink.filter.clone(),
                    enricher: enricher.clone(),
                },
                queue,
            };
            let keys = &restored.keys;
            let stage = Stage::new(correlator, enricher, keys, log.clone(), &progress);
            correlates |= stage.has_correlator();
            let stop = stop.clone();
            watchers.spawn(watch_sink(sink, feed, stage, progress, high_water, stop, errands));
        }

        let view = BridgeView {
            sinks: progresses.clone().into(),
            sources: Arc::default(),
            ingest: Arc::default(),
            log,
            dead_letters: restored.state.dead_letters(),
            object_requests: objects.as_ref().map(|objects| objects.requests()),
            cluster: Arc::clone(&identity.cluster),
            not_identified: Arc::clone(&identity.complaint),
        };
        let (to_keeper, letter_requests) = mpsc::channel(1);
        let control = Control::new(restored.state.dead_letters(), to_keeper, desks);
        let give_up = Arc::new(AtomicBool::new(false));
        let (to_ingest, messages) = mpsc::channel(INGEST_QUEUE);
        let (stop_keeper, keeper_stops) = oneshot::channel();
        let Restored {
            log,
            state,
            directory,
            seen,
            mut sources,
            resume,
            applied,
            last_heard_ms,
            keys,
            ..
        } = restored;
        let sources = source.sources(&mut sources, &resume, last_heard_ms);
        let keeper = Keeper {
            state,
            directory,
            sinks: progresses,
            seen: Arc::clone(&seen),
            objects: objects.clone(),
            log: view.log.clone(),
            cluster: Arc::clone(&identity.cluster),
            sources: sources.iter().map(SourceSetup::state).collect(),
            saved_cluster_uid: None,
            applied,
            last_positions: Instant::now(),
            last_seen: Instant::now(),
            failing: false,
            letters_changed,
        };
        let sync = journal.log.sync;
        let keeper = tokio::spawn(keeper::run(
            keeper,
            to_ingest.clone(),
            sync,
            letter_requests,
            keeper_stops,
        ));
        let ingest = Ingest::new(
            log,
            broadcaster.clone(),
            correlates.then_some(keys),
            sources.iter().map(|setup| setup.ingest.clone()).collect(),
            IngestShared {
                counters: Arc::clone(&view.ingest),
                seen,
                objects: objects.clone(),
                give_up: Arc::clone(&give_up),
            },
        );
        let mut speaker = JoinSet::new();
        if let Some(own_events) = own_events {
            speaker.spawn(own_events.run(view.clone(), journal.log.retention_size));
        }
        if let Some(heartbeat) = heartbeat {
            speaker.spawn(heartbeat.run(client.clone(), view.clone()));
        }
        let (stop_intake, intake_stops) = oneshot::channel();
        let intake = Intake {
            client,
            field_selector: source.field_selector,
            identity,
            sources,
            objects,
            view: view.clone(),
            broadcaster,
        };
        let intake = tokio::spawn(intake.run(ingest, to_ingest, messages, intake_stops));
        Ok(Self {
            view,
            stop_intake,
            intake: Some(intake),
            stop_delivery,
            watchers,
            speaker,
            stop_keeper,
            keeper: Some(keeper),
            give_up: GiveUp(give_up),
            control,
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

    /// Completes when the bridge cannot go on by itself; [`stop`](Self::stop) is still due then.
    pub async fn failed(&mut self) -> BridgeError {
        tokio::select! {
            intake = end_of(&mut self.intake) => match intake {
                Ok(Err(error)) => error,
                Ok(Ok(())) | Err(_) => BridgeError::Task("intake"),
            },
            Some(_) = self.watchers.join_next() => BridgeError::Task("sink watcher"),
            Some(_) = self.speaker.join_next() => BridgeError::Task("own events or heartbeat"),
            _ = end_of(&mut self.keeper) => BridgeError::Task("keeper"),
        }
    }

    /// Stops reading, delivers what has been read until `deadline` has passed, and saves. A sink
    /// that fails is not waited for; what it has not had is pending in the journal.
    pub async fn stop(mut self, deadline: Duration) {
        let until = tokio::time::Instant::now() + deadline;
        // Nothing of these is missed when the other end has gone already.
        let _ = self.stop_delivery.send(Stop::DrainUntil(until));
        let _ = self.stop_intake.send(());
        if let Some(mut intake) = self.intake.take()
            && timeout_at(until, &mut intake).await.is_err()
        {
            // The disk takes nothing. What is not in the journal is with the API server.
            self.give_up.now();
            intake.abort();
        }
        let drained = async { while self.watchers.join_next().await.is_some() {} };
        // They end by themselves at the deadline; closing a sink may take a moment beyond it.
        if timeout_at(until + CLOSE_WITHIN, drained).await.is_err() {
            tracing::warn!("a sink could not be closed in time");
        }
        self.speaker.shutdown().await;
        let _ = self.stop_keeper.send(());
        if let Some(Err(error)) = OptionFuture::from(self.keeper).await {
            tracing::error!(%error, "the state was not saved at the end");
        }
    }
}

/// Waits for a task to end, and forgets it then; for ever, when it was forgotten before.
async fn end_of<T>(task: &mut Option<JoinHandle<T>>) -> Result<T, JoinError> {
    let Some(handle) = task else { return std::future::pending().await };
    let end = handle.await;
    *task = None;
    end
}

/// What a sink is sent beside the journal's order.
struct Errands {
    letters: LetterRound,
    replays: Replays,
    /// Where delivery has them from.
    queue: mpsc::Receiver<Errand>,
}

async fn watch_sink(
    sink: SinkOptions,
    feed: Feed,
    stage: Stage,
    progress: Arc<SinkProgress>,
    high_water: HighWater,
    stop: watch::Receiver<Stop>,
    Errands { letters, replays, queue }: Errands,
) {
    let ahead = if sink.batch.events == 1 { EVENTS_AHEAD } else { BATCHES_AHEAD };
    let (out, works) = mpsc::channel(ahead);
    let gather = Gather::new(sink.batch, sink.filter, stage, Arc::clone(&progress), out);
    let deliver = Deliver {
        name: sink.name,
        sink: sink.sink,
        retry: sink.retry,
        timeout: sink.timeout,
        progress,
        high_water,
        stop,
        errands: queue,
        live_in_a_row: 0,
        forward: sink.forward_dead_letters,
        refusals_in_a_row: 0,
        from: 0,
    };
    // Tasks of their own, so that the next batch is made while one is on its way; one fate, so that
    // none outlives the other.
    let gathering = tokio::spawn(gather.run(feed));
    let errands = tokio::spawn(async { tokio::join!(letters.run(), replays.run()) });
    deliver.run(works).await;
    gathering.abort();
    // They end with it, and what they know by then is still to be saved.
    if let Err(error) = errands.await {
        tracing::error!(%error, "the errands of a sink ended in a way not foreseen");
    }
}
