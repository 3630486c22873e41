//! A bridge under test, and a sink that answers as it is told and remembers what it was sent.

use std::{
    collections::VecDeque,
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use futures_util::future::BoxFuture;
use proptest::prelude::ProptestConfig;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use tidings::{
    admin::{SinkStatus, status},
    bridge::{
        BatchOptions, Bridge, BridgeError, BridgeOptions, BridgeView, CorrelateMode, Enrich,
        EventCounter, EventFate, Failure, FailureClass, Heartbeat, JournalOptions, ObjectOptions,
        Outcome, Overflow, OwnEvents, RefusedClass, RetryOptions, Secrets, Sink, SinkOptions,
        SinkStart, SourceOptions, SourceStart,
    },
    event::{Batch, Cluster, Envelope},
    journal::{DeadLetter, LetterQuery, SinkSurvey, State, Survey},
};
use tidings_kube::reflector::SourceHealth;
use tidings_log::{LogOptions, Sync as LogSync};
use tidings_testkit::api_server::{ApiServer, EventObject, Options, Written};
use tokio::{sync::watch, task::JoinHandle, time::Instant};

/// One event as a sink received it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Received {
    pub(crate) id: String,
    pub(crate) seq: u64,
    pub(crate) delta: u64,
    pub(crate) occurrences: u64,
    pub(crate) change: String,
    pub(crate) replayed: bool,
    pub(crate) envelope: String,
}

/// Answers a batch; `None` is `Delivered`.
type Rule = Box<dyn FnMut(&[Received]) -> Option<Outcome> + Send>;

#[derive(Default)]
struct Memory {
    received: Vec<Received>,
    attempts: Vec<(Instant, Vec<String>)>,
    batches: Vec<usize>,
    answers: VecDeque<Outcome>,
    rule: Option<Rule>,
}

/// A sink in memory; clones are the same sink.
#[derive(Clone, Default)]
pub(crate) struct MemorySink {
    memory: Arc<Mutex<Memory>>,
    held: watch::Sender<bool>,
}

impl MemorySink {
    /// The next attempts are answered so.
    pub(crate) fn answer(&self, answers: impl IntoIterator<Item = Outcome>) {
        self.locked().answers.extend(answers);
    }

    /// Attempts are answered by this rule.
    pub(crate) fn respond(
        &self,
        rule: impl FnMut(&[Received]) -> Option<Outcome> + Send + 'static,
    ) {
        self.locked().rule = Some(Box::new(rule));
    }

    /// Whatever attempt holds an event for which this answers is answered so.
    pub(crate) fn refuse(&self, rule: impl Fn(&Received) -> Option<Outcome> + Send + 'static) {
        self.respond(move |events| events.iter().find_map(&rule));
    }

    pub(crate) fn accept_everything(&self) {
        let mut memory = self.locked();
        memory.rule = None;
        memory.answers.clear();
    }

    /// From now on attempts are not answered, until they are again.
    pub(crate) fn hold(&self, held: bool) {
        self.held.send_replace(held);
    }

    /// When which ids were sent, taken or not.
    pub(crate) fn attempts(&self) -> Vec<(Instant, Vec<String>)> {
        self.locked().attempts.clone()
    }

    fn locked(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap()
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.locked().received.clone()
    }

    pub(crate) fn ids(&self) -> Vec<String> {
        self.received().into_iter().map(|event| event.id).collect()
    }

    /// The sizes of the batches taken.
    pub(crate) fn batches(&self) -> Vec<usize> {
        self.locked().batches.clone()
    }

    /// Waits until so many events have been received.
    pub(crate) async fn wait_for(&self, count: usize) -> Vec<Received> {
        let arrived = async {
            while self.locked().received.len() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(60), arrived).await.is_err() {
            panic!("{} of {count} events after a minute", self.received().len());
        }
        self.received()
    }
}

fn read(batch: &Batch) -> Vec<Received> {
    let one = |record: &tidings::event::Record| {
        let envelope = Envelope::parse(&record.envelope).unwrap();
        Received {
            id: record.id().to_owned(),
            seq: record.seq,
            delta: envelope.delta,
            occurrences: envelope.occurrences,
            change: envelope.change.to_string(),
            replayed: envelope.replayed,
            envelope: String::from_utf8(record.envelope.to_vec()).unwrap(),
        }
    };
    batch.records.iter().map(one).collect()
}

impl Sink for MemorySink {
    fn send<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let events = read(batch);
            let ids = events.iter().map(|event| event.id.clone()).collect();
            self.locked().attempts.push((Instant::now(), ids));
            // An error would mean that the sender is gone, which `self` holds.
            let _ = self.held.subscribe().wait_for(|held| !held).await;
            let mut memory = self.locked();
            let mut answer = memory.answers.pop_front();
            if answer.is_none() {
                answer = memory.rule.as_mut().and_then(|rule| rule(&events));
            }
            let answer = answer.unwrap_or(Outcome::Delivered);
            let taken: Vec<Received> = match &answer {
                Outcome::Delivered => events,
                Outcome::Partial { rejected, .. } => {
                    events.into_iter().skip(usize::try_from(*rejected).unwrap()).collect()
                }
                Outcome::PerEvent(fates) => {
                    let fates = events.into_iter().zip(fates);
                    fates.filter(|(_, f)| **f == EventFate::Delivered).map(|(e, _)| e).collect()
                }
                Outcome::Failed(_) => Vec::new(),
            };
            if !taken.is_empty() {
                memory.batches.push(taken.len());
                memory.received.extend(taken);
            }
            answer
        })
    }
}

/// How a bridge under test is set up; the defaults suit most tests.
pub(crate) struct Setup<'a> {
    pub(crate) server: &'a ApiServer,
    pub(crate) journal: &'a Path,
    pub(crate) start: SourceStart,
    pub(crate) namespaces: Vec<String>,
    pub(crate) field_selector: String,
    pub(crate) retention: u64,
    pub(crate) age: Duration,
    pub(crate) dead_letters: u64,
    pub(crate) max_event: usize,
    pub(crate) sinks: Vec<(&'static str, Arc<dyn Sink>, Tuning)>,
    pub(crate) counters: Vec<EventCounter>,
    pub(crate) objects: ObjectOptions,
    pub(crate) own_events: Option<OwnEvents>,
    pub(crate) heartbeat: Option<Heartbeat>,
}

/// What differs between the sinks of a test.
#[derive(Clone)]
pub(crate) struct Tuning {
    pub(crate) batch: BatchOptions,
    pub(crate) retry: RetryOptions,
    pub(crate) timeout: Duration,
    pub(crate) concurrency: usize,
    pub(crate) max_event: Option<usize>,
    pub(crate) start: SinkStart,
    pub(crate) overflow: Overflow,
    pub(crate) filter: Option<&'static str>,
    pub(crate) correlate: CorrelateMode,
    pub(crate) enrich: Option<Enrich>,
    pub(crate) forward: Option<&'static str>,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            batch: BatchOptions { linger: Duration::from_millis(5), ..BatchOptions::default() },
            retry: RetryOptions {
                initial: Duration::from_millis(5),
                max: Duration::from_millis(50),
                max_attempts: None,
            },
            timeout: Duration::from_secs(5),
            concurrency: 1,
            max_event: None,
            start: SinkStart::default(),
            overflow: Overflow::default(),
            filter: None,
            correlate: CorrelateMode::default(),
            enrich: None,
            forward: None,
        }
    }
}

impl Tuning {
    /// The options of a sink that is tuned so.
    pub(crate) fn options(self, name: &str, sink: Arc<dyn Sink>) -> SinkOptions {
        SinkOptions {
            filter: self.filter.map(|text| tidings::bridge::Filter::compile(text).unwrap()),
            correlate: self.correlate,
            enrich: self.enrich,
            batch: self.batch,
            retry: self.retry,
            timeout: self.timeout,
            concurrency: self.concurrency,
            max_event: self.max_event,
            // Of no sink but that of `destinations.rs`.
            max_destinations: 16,
            start: self.start,
            overflow: self.overflow,
            forward_dead_letters: self.forward.map(str::to_owned),
            ..SinkOptions::new(name, "memory", sink)
        }
    }
}

impl<'a> Setup<'a> {
    pub(crate) fn new(server: &'a ApiServer, journal: &'a Path) -> Self {
        Self {
            server,
            journal,
            start: SourceStart::All,
            namespaces: Vec::new(),
            field_selector: String::new(),
            retention: 64 << 20,
            age: Duration::from_secs(3600),
            dead_letters: 64 << 20,
            max_event: 256 << 10,
            sinks: Vec::new(),
            counters: Vec::new(),
            objects: ObjectOptions::default(),
            own_events: None,
            heartbeat: None,
        }
    }

    pub(crate) fn sink(self, name: &'static str, sink: &MemorySink) -> Self {
        self.tuned(name, sink, Tuning::default())
    }

    pub(crate) fn tuned(mut self, name: &'static str, sink: &MemorySink, tuning: Tuning) -> Self {
        self.sinks.push((name, Arc::new(sink.clone()), tuning));
        self
    }

    /// A sink that is none in memory.
    pub(crate) fn other(mut self, name: &'static str, sink: Arc<dyn Sink>) -> Self {
        self.sinks.push((name, sink, Tuning::default()));
        self
    }

    pub(crate) async fn try_start(self) -> Result<Bridge, BridgeError> {
        let sinks = self.sinks.into_iter().map(|(name, sink, tuning)| tuning.options(name, sink));
        let options = BridgeOptions {
            cluster: Cluster { name: Some("test".to_owned()), ..Cluster::default() },
            source: SourceOptions {
                namespaces: self.namespaces,
                field_selector: self.field_selector,
                start: self.start,
            },
            journal: JournalOptions {
                path: self.journal.to_owned(),
                log: LogOptions {
                    retention_size: self.retention,
                    retention_age: self.age,
                    sync: LogSync::Interval(Duration::from_secs(1)),
                },
                dead_letters: self.dead_letters,
                max_event: self.max_event,
            },
            sinks: sinks.collect(),
            counters: self.counters,
            objects: self.objects,
            own_events: self.own_events,
            heartbeat: self.heartbeat,
        };
        Bridge::start(client(self.server), options).await
    }

    pub(crate) async fn start(self) -> Bridge {
        self.try_start().await.unwrap()
    }
}

pub(crate) fn client(server: &ApiServer) -> kube::Client {
    let mut config = kube::Config::new(server.url().parse().unwrap());
    config.default_retry = false;
    kube::Client::try_from(config).unwrap()
}

pub(crate) fn server() -> ApiServer {
    ApiServer::start(Options::default()).unwrap()
}

/// Creates an Event about a Pod.
pub(crate) fn create(server: &ApiServer, pod: &str) -> Written {
    server.create(EventObject::about_pod("shop", pod, "Started", "Started container web")).unwrap()
}

pub(crate) async fn stop(bridge: Bridge) {
    bridge.stop(Duration::from_secs(10)).await.unwrap();
}

pub(crate) fn invalid(reason: &str) -> Outcome {
    Outcome::Failed(Failure::refused(RefusedClass::Invalid, Secrets::none().reason(reason)))
}

pub(crate) fn retry(class: FailureClass) -> Outcome {
    Outcome::Failed(failure(class))
}

pub(crate) fn failure(class: FailureClass) -> Failure {
    Failure::new(class, Secrets::none().reason(format_args!("{class:?}")))
}

/// A sink's part of the status document.
pub(crate) fn sink_status(view: &BridgeView, name: &str) -> SinkStatus {
    status(view).sinks.into_iter().find(|sink| sink.name == name).unwrap()
}

/// How the only source does.
pub(crate) fn health(view: &BridgeView) -> SourceHealth {
    view.sources.lock().unwrap()[0].health.lock().unwrap().clone()
}

/// Waits until so many records have been journalled, each has a fate at a sink, and none is to come again.
pub(crate) async fn settled(view: &BridgeView, name: &str, seen: u64) -> SinkStatus {
    let end = || view.log.tail().next;
    let all =
        |sink: &SinkStatus| (sink.seen, sink.pending) == (seen, 0) && sink.next_sequence >= end();
    let last = || format!("{seen} seen and settled: {:?}", sink_status(view, name));
    until_said(last, || all(&sink_status(view, name))).await;
    sink_status(view, name)
}

/// Creates Events while a receiver fails in each of some ways, which puts its sink in a condition, and lets it take them
/// again. Answers the number of the Events, all of which are delivered.
#[cfg(any(feature = "elasticsearch", feature = "loki", feature = "splunk"))]
pub(crate) async fn costs_no_event(
    server: &ApiServer,
    sink: Arc<dyn Sink>,
    requests: impl Fn() -> usize,
    takes: impl Fn(),
    ways: &[(&dyn Fn(), tidings::bridge::SinkCondition)],
) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let bridge = Setup::new(server, dir.path()).other("a", sink).start().await;
    let view = bridge.view();
    let mut seen = 0;
    for (fails, condition) in ways {
        fails();
        for n in 0..30 {
            create(server, &format!("web-{seen}-{n}"));
        }
        seen += 30;
        let before = requests();
        until("it was asked often", || requests() > before + 5).await;
        until("the state is said", || sink_status(&view, "a").state == *condition).await;
        takes();
        let status = settled(&view, "a", seen).await;
        assert_eq!((status.delivered, status.dead_lettered), (seen, 0));
        assert_eq!(status.state, tidings::bridge::SinkCondition::Healthy);
    }
    stop(bridge).await;
    seen
}

/// The dead letters of a journal that no bridge holds, oldest first.
pub(crate) fn dead_letters(journal: &Path) -> Vec<DeadLetter> {
    let (state, _) = State::open(&tidings::journal::open(journal).unwrap(), 1 << 30, 0).unwrap();
    let query = LetterQuery { limit: usize::MAX, ..LetterQuery::default() };
    let mut letters = state.dead_letters().list(&query).unwrap();
    letters.reverse();
    letters
}

/// Waits until no bridge holds a journal: one that is dropped lets go of it a little later.
pub(crate) async fn free(journal: &Path) {
    until("nobody holds the journal", || tidings::journal::open(journal).is_ok()).await;
}

/// Waits until the saved state of a sink meets a condition. Reads a copy, because the running bridge holds the file.
pub(crate) async fn saved(journal: &Path, sink: &str, wanted: impl Fn(&SinkSurvey) -> bool) {
    let in_copy = || {
        let copy = tempfile::tempdir().unwrap();
        std::fs::copy(journal.join("state.redb"), copy.path().join("state.redb")).unwrap();
        Survey::of(copy.path()).ok()?.state?.sinks.remove(sink)
    };
    until("it is saved", || in_copy().is_some_and(|sink| wanted(&sink))).await;
}

/// Has two paths change places, in one step.
pub(crate) fn exchange(one: &Path, other: &Path) {
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
}

/// Removes a directory under a bridge that writes to it: what it makes meanwhile is in another one.
pub(crate) fn take_away(directory: &Path) {
    let gone = directory.with_extension("gone");
    std::fs::rename(directory, &gone).unwrap();
    std::fs::remove_dir_all(gone).unwrap();
}

/// The cases of a property test of whole bridges: two, or as many as `BRIDGE_CASES` says. A failure is not shrunk, as it
/// depends on timing, too.
pub(crate) fn bridge_cases() -> ProptestConfig {
    let cases = std::env::var("BRIDGE_CASES").map_or(2, |cases| cases.parse().unwrap());
    ProptestConfig {
        cases,
        max_shrink_iters: 0,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, condition: impl FnMut() -> bool) {
    until_said(|| what.to_owned(), condition).await;
}

/// The same, with more to say when it never does.
async fn until_said(what: impl Fn() -> String, mut condition: impl FnMut() -> bool) {
    let holds = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(60), holds).await.is_err() {
        panic!("after a minute still not: {}", what());
    }
}

/// Paused time stands still while ingest has its thread: so it is pushed, by so much in each
/// millisecond.
pub(crate) async fn push_time(by: Duration) {
    loop {
        tokio::time::advance(by).await;
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Ends that, and then the bridge: how long a stop may take is real time.
pub(crate) async fn stop_unpushed(pushing: JoinHandle<()>, bridge: Bridge) {
    pushing.abort();
    tokio::time::resume();
    stop(bridge).await;
}
