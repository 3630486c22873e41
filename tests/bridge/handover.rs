//! One sink of a running bridge is stopped and started again, and goes on as if it never had been.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use tidings::{
    bridge::{
        BatchOptions, CorrelateMode, Enrich, FailureClass, Outcome, Replay, ReplayFrom, Sink,
        SinkCondition, SinkHandle, SinkHandleError, SinkStart,
    },
    event::{Batch, Envelope},
};
use tidings_testkit::api_server::{ApiServer, EventObject};
use tokio::task::JoinHandle;

use crate::{
    overflow::{SIZE, blocking, fill},
    support::{
        MemorySink, Received, Setup, Tuning, create, retry, server, settled, sink_status, stop,
        until,
    },
};

const LONG: Duration = Duration::from_secs(30);

fn suppressing() -> Tuning {
    Tuning { correlate: CorrelateMode::Suppress, ..Tuning::default() }
}

/// A load of Events about a few Pods, some hundred a second, until it is stopped.
struct Load {
    goes_on: Arc<AtomicBool>,
    task: JoinHandle<u64>,
}

impl Load {
    fn on(server: &Arc<ApiServer>) -> Self {
        let goes_on = Arc::new(AtomicBool::new(true));
        let (server, more) = (Arc::clone(server), Arc::clone(&goes_on));
        let task = tokio::spawn(async move {
            let mut created = 0;
            while more.load(Ordering::Relaxed) {
                let pod = format!("web-{}", created % 7);
                let event = EventObject::about_pod("shop", &pod, "BackOff", "restarting");
                server.create(event).unwrap();
                created += 1;
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
            created
        });
        Self { goes_on, task }
    }

    /// Answers how many Events there were.
    async fn stop(self) -> u64 {
        self.goes_on.store(false, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

/// What was received about each object came in the order of the journal.
fn assert_in_order(received: &[Received]) {
    let mut last = HashMap::<String, u64>::new();
    for event in received {
        let envelope = Envelope::parse(event.envelope.as_bytes()).unwrap();
        let inner: serde_json::Value = serde_json::from_str(envelope.event_json.get()).unwrap();
        let object = inner["involvedObject"]["name"].as_str().unwrap().to_owned();
        let before = last.insert(object, event.seq);
        assert!(before.is_none_or(|before| before < event.seq), "{before:?} before {event:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_is_stopped_and_started_under_load_has_each_event_once_and_in_order() {
    let (server, dir) = (Arc::new(server()), tempfile::tempdir().unwrap());
    let [plain, pager, other] = [(); 3].map(|()| MemorySink::default());
    let bridge = Setup::new(&server, dir.path())
        .sink("plain", &plain)
        .tuned("pager", &pager, suppressing())
        .sink("other", &other)
        .start()
        .await;
    let view = bridge.view();
    let load = Load::on(&server);
    let stopping_and_starting = async |name: &str, sink: &MemorySink, tuning: Tuning| {
        let handle = bridge.sink(name).unwrap();
        for _ in 0..20 {
            let saved = handle.stop(LONG).await.unwrap();
            let status = sink_status(&view, name);
            assert_eq!(status.state, SinkCondition::Stopped);
            assert_eq!(status.next_sequence, saved.standing.position.next);
            assert_eq!(status.held, saved.standing.held.versions);
            handle.start(tuning.clone().options(name, Arc::new(sink.clone()))).await.unwrap();
        }
    };
    tokio::join!(
        stopping_and_starting("plain", &plain, Tuning::default()),
        stopping_and_starting("pager", &pager, suppressing()),
    );
    let created = load.stop().await;
    settled(&view, "plain", created).await;
    settled(&view, "other", created).await;
    stop(bridge).await;
    for (name, sink) in [("plain", &plain), ("pager", &pager), ("other", &other)] {
        let (received, status) = (sink.received(), sink_status(&view, name));
        assert_in_order(&received);
        let deltas: u64 = received.iter().map(|event| event.delta).sum();
        assert_eq!(deltas, created, "{name}: {status:?}");
        assert_eq!((status.seen, status.pending), (created, 0), "{name}: {status:?}");
        assert_eq!(status.delivered, received.len() as u64, "{name}: {status:?}");
        assert_eq!(status.delivered + status.correlated_away, created, "{name}: {status:?}");
        assert_eq!((status.redelivered, status.failed_attempts), (0, 0), "{name}: {status:?}");
    }
    assert!(sink_status(&view, "pager").correlated_away > 0, "it was held back over the stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_is_stopped_amid_a_long_frame_goes_on_from_there() {
    const EVENTS: u64 = 2000;
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    for number in 0..EVENTS {
        create(&server, &format!("web-{}", number % 7));
    }
    let [plain, pager] = [(); 2].map(|()| MemorySink::default());
    let one = BatchOptions { events: 1, ..BatchOptions::default() };
    let (tuning, suppressing) =
        (Tuning { batch: one, ..Tuning::default() }, Tuning { batch: one, ..suppressing() });
    let bridge = Setup::new(&server, dir.path())
        .tuned("plain", &plain, tuning.clone())
        .tuned("pager", &pager, suppressing.clone())
        .start()
        .await;
    let view = bridge.view();
    let stopping_and_starting = async |name: &str, sink: &MemorySink, tuning: Tuning| {
        let handle = bridge.sink(name).unwrap();
        for _ in 0..10 {
            handle.stop(LONG).await.unwrap();
            handle.start(tuning.clone().options(name, Arc::new(sink.clone()))).await.unwrap();
        }
    };
    tokio::join!(
        stopping_and_starting("plain", &plain, tuning),
        stopping_and_starting("pager", &pager, suppressing),
    );
    settled(&view, "plain", EVENTS).await;
    stop(bridge).await;
    for (name, sink) in [("plain", &plain), ("pager", &pager)] {
        let (received, status) = (sink.received(), sink_status(&view, name));
        assert_in_order(&received);
        assert_eq!(
            received.iter().map(|event| event.delta).sum::<u64>(),
            EVENTS,
            "{name}: {status:?}"
        );
        assert_eq!((status.seen, status.pending), (EVENTS, 0), "{name}: {status:?}");
        assert_eq!((status.redelivered, status.failed_attempts), (0, 0), "{name}: {status:?}");
    }
}

/// Waits until an attempt of a sink is under way.
async fn until_sent(sink: &MemorySink, attempts: usize) {
    until("an attempt", || sink.attempts().len() >= attempts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_whose_receiver_hangs_is_not_waited_for_beyond_the_time_given() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let (hangs, other) = (MemorySink::default(), MemorySink::default());
    hangs.hold(true);
    let tuning = Tuning { timeout: Duration::from_secs(600), ..Tuning::default() };
    let bridge = Setup::new(&server, dir.path())
        .tuned("hangs", &hangs, tuning.clone())
        .sink("other", &other)
        .start()
        .await;
    let (view, handle) = (bridge.view(), bridge.sink("hangs").unwrap());
    create(&server, "web-0");
    until_sent(&hangs, 1).await;
    let saved = handle.stop(Duration::from_millis(50)).await.unwrap();
    assert_eq!((saved.standing.position.next, saved.totals.delivered), (1, 0));
    create(&server, "web-1");
    settled(&view, "other", 2).await;
    assert_eq!(sink_status(&view, "hangs").pending, 2);
    hangs.hold(false);
    handle.start(tuning.options("hangs", Arc::new(hangs.clone()))).await.unwrap();
    let status = settled(&view, "hangs", 2).await;
    assert_eq!((status.delivered, status.state), (2, SinkCondition::Healthy));
    stop(bridge).await;
    assert_eq!((hangs.received().len(), other.received().len()), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_fails_is_stopped_with_what_it_has_had_and_its_dead_letters() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let sink = MemorySink::default();
    let bridge = Setup::new(&server, dir.path()).sink("a", &sink).start().await;
    let (view, handle) = (bridge.view(), bridge.sink("a").unwrap());
    sink.answer([crate::support::invalid("never")]);
    create(&server, "web-0");
    settled(&view, "a", 1).await;
    sink.respond(|_| Some(retry(FailureClass::Unavailable)));
    create(&server, "web-1");
    until_sent(&sink, 3).await;
    let saved = handle.stop(LONG).await.unwrap();
    assert_eq!((saved.standing.position.next, saved.totals.dead_lettered), (2, 1));
    assert_eq!(bridge.view().dead_letters.counts()["a"].letters, 1);
    sink.accept_everything();
    handle.start(Tuning::default().options("a", Arc::new(sink.clone()))).await.unwrap();
    let status = settled(&view, "a", 2).await;
    assert_eq!((status.delivered, status.dead_lettered), (1, 1));
    stop(bridge).await;
}

fn message(error: &SinkHandleError) -> String {
    error.to_string().lines().next().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_asked_of_a_sink_is_an_error_that_says_so() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let sink = MemorySink::default();
    let bridge = Setup::new(&server, dir.path()).sink("a", &sink).start().await;
    assert!(bridge.sink("b").is_none());
    let (handle, control) = (bridge.sink("a").unwrap(), bridge.control());
    let start = async |tuning: Tuning, name: &str| {
        let error = handle.start(tuning.options(name, Arc::new(sink.clone()))).await.unwrap_err();
        message(&error)
    };
    assert_eq!(start(Tuning::default(), "a").await, "the sink `a` runs already");
    handle.stop(LONG).await.unwrap();
    let again = handle.stop(LONG).await.unwrap_err();
    assert_eq!(message(&again), "the sink `a` is stopped already");
    let refused = control.replay(replay_to("a")).unwrap_err().to_string();
    assert!(refused.starts_with("the sink `a` is stopped\nhint: "), "{refused}");
    let other = start(Tuning::default(), "b").await;
    assert_eq!(other, "expected options of the sink `a`, found those of `b`");
    let enriches = Tuning { enrich: Some(Enrich::default()), ..Tuning::default() };
    let fixed = start(enriches, "a").await;
    assert_eq!(fixed, "`enrich` of the sink `a` cannot change while the bridge runs");
    stop(bridge).await;
    assert_eq!(message(&handle.stop(LONG).await.unwrap_err()), "the bridge is stopping");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_goes_on_under_other_options_with_what_its_correlator_held() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let sink = MemorySink::default();
    let bridge = Setup::new(&server, dir.path()).tuned("pager", &sink, suppressing()).start().await;
    let (view, handle) = (bridge.view(), bridge.sink("pager").unwrap());
    for _ in 0..30 {
        create(&server, "web-0");
    }
    until("some are held", || sink_status(&view, "pager").held == 5).await;
    let saved = handle.stop(LONG).await.unwrap();
    assert_eq!((saved.standing.held.versions, saved.totals.delivered), (5, 25));
    let annotating = Tuning::default().options("pager", Arc::new(sink.clone()));
    handle.start(annotating).await.unwrap();
    create(&server, "web-1");
    let status = settled(&view, "pager", 31).await;
    assert_eq!((status.delivered, status.correlated_away), (27, 4));
    stop(bridge).await;
    assert_eq!(sink.received().iter().map(|event| event.delta).sum::<u64>(), 31);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_journal_keeps_for_a_stopped_sink_what_it_keeps_for_one_that_is_down() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let sink = MemorySink::default();
    let mut setup = Setup::new(&server, dir.path()).tuned("a", &sink, blocking());
    setup.retention = SIZE;
    let bridge = setup.start().await;
    let (view, handle) = (bridge.view(), bridge.sink("a").unwrap());
    handle.stop(LONG).await.unwrap();
    fill(&server, 400);
    until("intake stands still", || !view.ingest.blocked().is_empty()).await;
    handle.start(blocking().options("a", Arc::new(sink.clone()))).await.unwrap();
    let status = settled(&view, "a", 400).await;
    assert_eq!((status.delivered, status.lost), (400, 0));
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_is_removed_or_blocks_no_longer_lets_intake_go_on() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let (sink, other) = (MemorySink::default(), MemorySink::default());
    sink.respond(|_| Some(retry(FailureClass::Unavailable)));
    let mut setup =
        Setup::new(&server, dir.path()).tuned("a", &sink, blocking()).sink("other", &other);
    setup.retention = SIZE;
    let bridge = setup.start().await;
    let (view, sinks) = (bridge.view(), bridge.sinks());
    let put = async |tuning: Tuning| {
        sinks.put(tuning.options("a", Arc::new(sink.clone())), LONG).await.unwrap();
    };
    fill(&server, 400);
    until("intake stands still", || !view.ingest.blocked().is_empty()).await;
    sinks.remove("a", LONG).await.unwrap();
    settled(&view, "other", 400).await;
    put(blocking()).await;
    fill(&server, 400);
    until("intake stands still again", || !view.ingest.blocked().is_empty()).await;
    put(Tuning::default()).await;
    settled(&view, "other", 800).await;
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sinks_that_come_change_and_go_under_load_have_each_event_that_is_theirs_once() {
    let (server, dir) = (Arc::new(server()), tempfile::tempdir().unwrap());
    let [stays, comes, moves, moved] = [(); 4].map(|()| MemorySink::default());
    let bridge = Setup::new(&server, dir.path())
        .sink("stays", &stays)
        .tuned("moves", &moves, suppressing())
        .start()
        .await;
    let (view, sinks) = (bridge.view(), bridge.sinks());
    let names = || view.sinks.now().iter().map(|s| s.snapshot().name).collect::<Vec<_>>();
    let load = Load::on(&server);
    until("some events", || stays.received().len() > 10).await;
    let oldest = Tuning { start: SinkStart::Oldest, ..Tuning::default() };
    let put = async |name: &str, sink: &MemorySink, tuning: &Tuning| {
        let options = tuning.clone().options(name, Arc::new(sink.clone()));
        sinks.put(options, LONG).await.unwrap();
    };
    for round in 0..5 {
        put("comes", &comes, &oldest).await;
        sinks.arrange(&["comes", "stays", "moves"]);
        assert_eq!(names(), ["comes", "stays", "moves"]);
        put("moves", if round % 2 == 0 { &moved } else { &moves }, &suppressing()).await;
        sinks.remove("comes", LONG).await.unwrap();
        assert_eq!(names(), ["stays", "moves"]);
        assert!(bridge.control().replay(replay_to("comes")).is_err(), "it is gone");
    }
    put("comes", &comes, &oldest).await;
    let created = load.stop().await;
    for name in ["stays", "comes"] {
        settled(&view, name, created).await;
    }
    stop(bridge).await;
    let of = |sink: &MemorySink| sink.received().iter().map(|event| event.delta).sum::<u64>();
    assert_eq!((of(&stays), of(&comes), of(&moves) + of(&moved)), (created, created, created));
    for (name, sink) in [("stays", &stays), ("comes", &comes)] {
        assert_in_order(&sink.received());
        let status = sink_status(&view, name);
        assert_eq!((status.delivered, status.redelivered), (created, 0), "{status:?}");
    }
}

fn replay_to(sink: &str) -> Replay {
    Replay { sink: sink.to_owned(), from: ReplayFrom::Position(1), filter: None }
}

/// A sink with a bug.
struct Broken;

impl Sink for Broken {
    fn send<'a>(&'a self, _: &'a Batch) -> BoxFuture<'a, Outcome> {
        Box::pin(async { panic!("no idea what to do") })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_a_sink_that_was_started_alone_ends_the_bridge_by_name() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let (sink, other) = (MemorySink::default(), MemorySink::default());
    let mut bridge =
        Setup::new(&server, dir.path()).sink("a", &sink).sink("other", &other).start().await;
    let handle = bridge.sink("a").unwrap();
    handle.stop(LONG).await.unwrap();
    handle.start(Tuning::default().options("a", Arc::new(Broken))).await.unwrap();
    create(&server, "web-0");
    let error = bridge.failed().await.to_string();
    assert!(error.starts_with("delivery to sink a panicked: no idea what to do;"), "{error}");
    stop(bridge).await;
    assert_eq!(other.received().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_one_sink_lets_the_others_deliver_what_is_on_its_way() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let (sink, other) = (MemorySink::default(), MemorySink::default());
    sink.respond(|_| panic!("no idea what to do"));
    other.hold(true);
    let mut bridge =
        Setup::new(&server, dir.path()).sink("a", &sink).sink("other", &other).start().await;
    create(&server, "web-0");
    until_sent(&other, 1).await;
    let error = bridge.failed().await.to_string();
    assert!(error.starts_with("delivery to sink a panicked: no idea"), "{error}");
    other.hold(false);
    let view = bridge.view();
    stop(bridge).await;
    let status = sink_status(&view, "other");
    assert_eq!((status.delivered, status.attempts), (1, 1), "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_while_a_sink_is_stopped_ends_the_bridge_by_name() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let sink = MemorySink::default();
    sink.hold(true);
    sink.respond(|_| panic!("too late"));
    let mut bridge = Setup::new(&server, dir.path()).sink("a", &sink).start().await;
    create(&server, "web-0");
    until_sent(&sink, 1).await;
    let stopping = asked_to_stop(&bridge.sink("a").unwrap()).await;
    sink.hold(false);
    assert_eq!(message(&stopping.await.unwrap().unwrap_err()), "the bridge is stopping");
    let error = bridge.failed().await.to_string();
    assert!(error.starts_with("delivery to sink a panicked: too late;"), "{error}");
    stop(bridge).await;
}

/// A stop that has been asked for, and has not come to its end.
async fn asked_to_stop(
    handle: &SinkHandle,
) -> JoinHandle<Result<tidings::journal::SinkState, SinkHandleError>> {
    let handle = handle.clone();
    let stopping = tokio::spawn(async move { handle.stop(LONG).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    stopping
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bridge_that_stops_takes_along_a_sink_that_is_being_stopped() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let (hangs, other) = (MemorySink::default(), MemorySink::default());
    hangs.hold(true);
    let tuning = Tuning { timeout: Duration::from_secs(600), ..Tuning::default() };
    let setup = || {
        Setup::new(&server, dir.path()).tuned("hangs", &hangs, tuning.clone()).sink("other", &other)
    };
    let bridge = setup().start().await;
    create(&server, "web-0");
    settled(&bridge.view(), "other", 1).await;
    until_sent(&hangs, 1).await;
    let stopping = asked_to_stop(&bridge.sink("hangs").unwrap()).await;
    bridge.stop(Duration::from_millis(50)).await.unwrap();
    let stopped = stopping.await.unwrap().unwrap();
    assert_eq!((stopped.standing.position.next, stopped.totals.delivered), (1, 0));
    hangs.hold(false);
    let bridge = setup().start().await;
    let status = settled(&bridge.view(), "hangs", 1).await;
    assert_eq!((status.delivered, status.redelivered), (1, 0));
    stop(bridge).await;
    assert_eq!((hangs.received().len(), other.received().len()), (1, 1));
}
