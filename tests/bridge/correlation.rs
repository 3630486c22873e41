//! Correlation in a sink's watcher: what is held back comes out, whatever happens in between.

mod messages;
mod retention;

use std::{collections::BTreeMap, path::Path, time::Duration};

use bytes::Bytes;
use proptest::prelude::*;
use tidings::{
    bridge::{BatchOptions, Bridge, CorrelateMode, FailureClass, Overflow, OwnEvents},
    event::{Correlation, CorrelationAction, Envelope},
    journal::{SavedCorrelator, State, StateCommit},
};
use tidings_testkit::api_server::{ApiServer, EventObject};
use tokio::runtime::Runtime;

use crate::own_events::{fake, next};
use crate::support::{
    MemorySink, Received, Setup, Tuning, bridge_cases, create, retry, saved, server, settled,
    sink_status, stop, until,
};

fn suppress() -> Tuning {
    Tuning { correlate: CorrelateMode::Suppress, ..Tuning::default() }
}

fn correlation(event: &Received) -> Correlation {
    Envelope::parse(event.envelope.as_bytes()).unwrap().correlation.unwrap()
}

/// An Event of the API server, and how often it occurred.
#[derive(Clone, Debug)]
struct Repeated(String, i32);

impl Repeated {
    /// It occurs once more.
    fn again(&mut self, server: &ApiServer) {
        self.1 += 1;
        server.patch_count("shop", &self.0, self.1, jiff::Timestamp::now()).unwrap();
    }
}

/// A loud Pod: so many Events for reasons of their own.
fn loud(server: &ApiServer, pod: &str, events: std::ops::Range<usize>) -> Vec<Repeated> {
    loud_saying(server, pod, events, "again")
}

fn loud_saying(
    server: &ApiServer,
    pod: &str,
    events: std::ops::Range<usize>,
    message: &str,
) -> Vec<Repeated> {
    let one = |n| EventObject::about_pod("shop", pod, &format!("Reason{n}"), message);
    events.map(|n| Repeated(server.create(one(n)).unwrap().name, 1)).collect()
}

#[tokio::test]
async fn annotating_sends_everything_and_says_what_a_recorder_would_have_done() {
    let (server, sink) = (server(), MemorySink::default());
    let journal = tempfile::tempdir().unwrap();
    let bridge = Setup::new(&server, journal.path()).sink("audit", &sink).start().await;
    loud(&server, "web", 0..30);
    let received = sink.wait_for(30).await;
    let actions: Vec<_> = received.iter().map(|event| correlation(event).action).collect();
    assert_eq!(actions[..25], [CorrelationAction::Create; 25]);
    assert_eq!(actions[25..], [CorrelationAction::Skip; 5]);
    stop(bridge).await;
}

#[tokio::test]
async fn what_is_suppressed_is_pending_until_a_stop_lets_it_out() {
    let (server, sink) = (server(), MemorySink::default());
    let journal = tempfile::tempdir().unwrap();
    let setup = || Setup::new(&server, journal.path()).tuned("pager", &sink, suppress());
    let bridge = setup().start().await;
    let view = bridge.view();
    let mut events = loud(&server, "web", 0..30);
    until("all is read", || sink_status(&view, "pager").seen == 30).await;
    // The last one twice more: three versions without a token.
    for _ in 0..2 {
        events[29].again(&server);
    }
    until("what is repeated is held", || sink_status(&view, "pager").held == 7).await;
    let status = sink_status(&view, "pager");
    assert_eq!((status.delivered, status.correlated_away, status.pending), (25, 0, 7));
    stop(bridge).await;

    let received = sink.wait_for(30).await;
    assert_eq!(received.len(), 30);
    let last = received.last().unwrap();
    let expected = Correlation {
        action: CorrelationAction::Summary,
        aggregated: false,
        count: 3,
        summarises: Some(3),
        ..Correlation::default()
    };
    assert_eq!((last.delta, last.occurrences, correlation(last)), (3, 3, expected));

    let bridge = setup().start().await;
    let status = settled(&bridge.view(), "pager", 32).await;
    assert_eq!((status.delivered, status.correlated_away, status.held), (30, 2, 0));
    stop(bridge).await;
    assert_eq!(sink.received().len(), 30);
}

#[tokio::test]
async fn what_is_held_behind_a_frame_without_records_comes_out() {
    let (server, sink) = (server(), MemorySink::default());
    let journal = tempfile::tempdir().unwrap();
    let setup = || Setup::new(&server, journal.path()).tuned("pager", &sink, suppress());
    let bridge = setup().start().await;
    let view = bridge.view();
    let mut events = loud(&server, "web", 0..29);
    until("four are held", || sink_status(&view, "pager").held == 4).await;
    let before = view.log.bytes_from(1);
    server.delete_object("events", "shop", &events[0].0).unwrap();
    until("the deletion is journalled", || view.log.bytes_from(1) > before).await;
    events[28].again(&server);
    until("five are held", || sink_status(&view, "pager").held == 5).await;
    stop(bridge).await;

    let bridge = setup().start().await;
    let status = settled(&bridge.view(), "pager", 30).await;
    assert_eq!((status.delivered, status.correlated_away, status.lost), (29, 1, 0));
    let told = sink.received().iter().map(|event| event.delta).sum::<u64>();
    assert_eq!(told, 30, "the increments add up");
    stop(bridge).await;
}

#[test]
fn what_is_held_when_the_mode_is_changed_comes_out_first() {
    let outer = Runtime::new().unwrap();
    let (server, sink) = (outer.block_on(async { server() }), MemorySink::default());
    let journal = tempfile::tempdir().unwrap();
    let start = |correlate| {
        let runtime = Runtime::new().unwrap();
        let tuning = Tuning { correlate, ..Tuning::default() };
        let setup = Setup::new(&server, journal.path()).tuned("pager", &sink, tuning);
        let bridge = runtime.block_on(setup.start());
        (runtime, bridge)
    };
    let (runtime, bridge) = start(CorrelateMode::Suppress);
    loud(&server, "web", 0..30);
    let view = bridge.view();
    runtime.block_on(async {
        until("five are held", || sink_status(&view, "pager").held == 5).await;
        // Then a crash, with all of it held.
        saved(journal.path(), "pager", |sink| sink.held == 5).await;
    });
    runtime.shutdown_timeout(Duration::from_secs(10));
    drop((bridge, view));
    let (runtime, bridge) = start(CorrelateMode::None);
    let status = runtime.block_on(settled(&bridge.view(), "pager", 30));
    assert_eq!((status.delivered, status.held, status.lost), (30, 0, 0));
    // From then on there is no correlator.
    loud(&server, "web", 30..31);
    let last = runtime.block_on(sink.wait_for(31)).pop().unwrap();
    assert_eq!(Envelope::parse(last.envelope.as_bytes()).unwrap().correlation, None);
    runtime.block_on(stop(bridge));
    drop(runtime);
    assert!(saved_correlator(journal.path()).is_empty());
}

#[test]
fn what_comes_out_early_says_the_same_after_a_crash_in_the_midst_of_it() {
    let outer = Runtime::new().unwrap();
    let (server, sink) = (outer.block_on(async { server() }), MemorySink::default());
    let journal = tempfile::tempdir().unwrap();
    let start = || {
        let runtime = Runtime::new().unwrap();
        let batch = BatchOptions { events: 1, ..Tuning::default().batch };
        // What is brought up has to be there.
        let tuning = Tuning { batch, overflow: Overflow::Block, ..suppress() };
        let mut setup = Setup::new(&server, journal.path()).tuned("pager", &sink, tuning);
        setup.retention = 1 << 20;
        let bridge = runtime.block_on(setup.start());
        (runtime, bridge)
    };
    let (runtime, bridge) = start();
    let view = bridge.view();
    runtime.block_on(until("a watch", || server.open_watches() == 1));
    let mut events = loud(&server, "web", 0..30);
    for event in &mut events[25..] {
        event.again(&server);
    }
    runtime.block_on(until("all is held", || {
        let status = sink_status(&view, "pager");
        (status.held, status.correlated_away, status.pending) == (10, 0, 10)
    }));
    let is_summary = |event: &Received| correlation(event).summarises == Some(2);
    let third = events[27].0.clone();
    sink.refuse(move |event| {
        let stays = event.envelope.contains(&format!("\"name\":\"{third}\"")) && is_summary(event);
        stays.then(|| retry(FailureClass::Unavailable))
    });
    // As much as an eighth of the journal, about others.
    let message = "x".repeat(8 << 10);
    for n in 0..16 {
        let pod = format!("other-{n}");
        server.create(EventObject::about_pod("shop", &pod, "A", &message)).unwrap();
    }
    runtime.block_on(until("two are out, and a third is tried", || {
        sink.received().iter().filter(|event| is_summary(event)).count() == 2
            && sink_status(&view, "pager").last_error.is_some()
    }));
    runtime.shutdown_timeout(Duration::from_secs(10));
    drop((bridge, view));
    sink.accept_everything();
    // What comes now is not added to what was on its way.
    for event in &mut events[25..] {
        event.again(&server);
    }
    let (runtime, bridge) = start();
    create(&server, "last");
    runtime.block_on(until("all is read", || sink_status(&bridge.view(), "pager").seen == 57));
    runtime.block_on(stop(bridge));
    let mut deltas = BTreeMap::new();
    for event in sink.received() {
        let before = deltas.insert(event.id.clone(), event.delta);
        assert!(before.is_none_or(|before| before == event.delta), "{}", event.id);
    }
    let twice = sink.received().iter().filter(|event| is_summary(event)).count();
    assert_eq!((twice, deltas.values().sum::<u64>()), (7, 57));
    let (runtime, bridge) = start();
    let status = runtime.block_on(settled(&bridge.view(), "pager", 57));
    assert_eq!((status.lost, status.held), (0, 0));
    runtime.block_on(stop(bridge));
}

/// What a journal that no bridge holds has of the correlator of the sink "pager".
fn saved_correlator(journal: &Path) -> Bytes {
    let (_, loaded) = State::open(&tidings::journal::open(journal).unwrap(), 1 << 30, 0).unwrap();
    loaded.correlators["pager"].bytes.clone()
}

#[tokio::test]
async fn a_damaged_correlator_is_begun_anew() {
    let (server, sink) = (server(), MemorySink::default());
    let journal = tempfile::tempdir().unwrap();
    let setup = || Setup::new(&server, journal.path()).sink("pager", &sink);
    let bridge = setup().start().await;
    loud(&server, "web", 0..1);
    sink.wait_for(1).await;
    stop(bridge).await;
    let (mut state, loaded) =
        State::open(&tidings::journal::open(journal.path()).unwrap(), 1 << 30, 0).unwrap();
    let position = loaded.correlators["pager"].position;
    let damaged = SavedCorrelator { position, bytes: Bytes::from_static(b"?") };
    let correlators = [("pager".to_owned(), damaged)].into();
    let commit = StateCommit { correlators, applied: loaded.applied, ..StateCommit::default() };
    state.commit(&commit).unwrap();
    drop(state);

    let bridge = setup().start().await;
    loud(&server, "web", 1..2);
    let received = sink.wait_for(2).await;
    assert_eq!(correlation(&received[1]).action, CorrelationAction::Create);
    stop(bridge).await;
    assert!(saved_correlator(journal.path()).len() > 1);
}

/// Runs that end in a crash, with a loud Pod of which seven versions are held in between, and another
/// `match` in the second one.
struct Changed {
    server: ApiServer,
    sink: MemorySink,
    journal: tempfile::TempDir,
    _outer: Runtime,
}

impl Changed {
    /// A first run with a `match`; it ends when the journal's state holds what is held.
    fn after_a_crash(tuning: Tuning) -> Self {
        let outer = Runtime::new().unwrap();
        let (server, sink) = (outer.block_on(async { server() }), MemorySink::default());
        let journal = tempfile::tempdir().unwrap();
        let changed = Self { server, sink, journal, _outer: outer };
        let (runtime, bridge) = changed.start(tuning, None);
        let view = bridge.view();
        runtime.block_on(until("a watch", || changed.server.open_watches() == 1));
        let mut events = loud(&changed.server, "web", 0..30);
        for _ in 0..2 {
            events[29].again(&changed.server);
        }
        runtime.block_on(async {
            until("seven are held", || sink_status(&view, "pager").held == 7).await;
            saved(changed.journal.path(), "pager", |sink| sink.held == 7).await;
        });
        runtime.shutdown_timeout(Duration::from_secs(10));
        changed
    }

    fn start(&self, tuning: Tuning, own_events: Option<OwnEvents>) -> (Runtime, Bridge) {
        let runtime = Runtime::new().unwrap();
        let mut setup =
            Setup::new(&self.server, self.journal.path()).tuned("pager", &self.sink, tuning);
        setup.own_events = own_events;
        let bridge = runtime.block_on(setup.start());
        (runtime, bridge)
    }

    /// The deltas that came out, each id once.
    fn told(&self) -> u64 {
        let received = self.sink.received().into_iter();
        received.map(|event| (event.id, event.delta)).collect::<BTreeMap<_, _>>().values().sum()
    }
}

fn matching(filter: Option<&'static str>) -> Tuning {
    Tuning { filter, ..suppress() }
}

#[test]
fn what_is_held_when_the_match_is_changed_after_a_crash_comes_out() {
    for (before, after) in [
        (None, Some("event.count < 3")),
        (Some("event.type == 'Normal'"), None),
        (Some("event.type == 'Normal'"), Some("false")),
    ] {
        let changed = Changed::after_a_crash(matching(before));
        let (runtime, bridge) = changed.start(matching(after), None);
        let status = sink_status(&bridge.view(), "pager");
        assert_eq!((status.lost, status.held, status.correlated_away), (0, 7, 0));
        runtime.block_on(stop(bridge));
        assert_eq!(changed.told(), 32, "{before:?} {after:?}");
        let (runtime, bridge) = changed.start(matching(after), None);
        let status = runtime.block_on(settled(&bridge.view(), "pager", 32));
        assert_eq!((status.delivered, status.lost, status.correlated_away), (30, 0, 2));
        runtime.block_on(stop(bridge));
    }
}

#[test]
fn what_was_held_is_lost_and_stated_where_the_state_of_its_correlator_is_damaged() {
    let changed = Changed::after_a_crash(suppress());
    let directory = changed.journal.path();
    let (mut state, loaded) =
        State::open(&tidings::journal::open(directory).unwrap(), 1 << 30, 0).unwrap();
    let position = loaded.correlators["pager"].position;
    let damaged = SavedCorrelator { position, bytes: Bytes::from_static(b"?") };
    let correlators = [("pager".to_owned(), damaged)].into();
    let applied = loaded.applied;
    state.commit(&StateCommit { correlators, applied, ..StateCommit::default() }).unwrap();
    drop(state);
    let (own_events, mut told) = fake();
    let (runtime, bridge) = changed.start(suppress(), Some(own_events));
    let status = sink_status(&bridge.view(), "pager");
    assert_eq!((status.seen, status.lost, status.held), (32, 7, 0));
    let (reason, message) = runtime.block_on(next(&mut told));
    assert_eq!(reason, "EventsLost");
    assert!(message.starts_with("7 events were lost for sink pager"), "{message}");
    runtime.block_on(stop(bridge));
}

#[test]
fn what_comes_out_adds_up_over_kills_in_a_journal_that_holds_less_than_comes_between_two_saves() {
    let outer = Runtime::new().unwrap();
    let (server, sink) = (outer.block_on(async { server() }), MemorySink::default());
    let journal = tempfile::tempdir().unwrap();
    let start = || {
        let runtime = Runtime::new().unwrap();
        let mut setup = Setup::new(&server, journal.path()).tuned("pager", &sink, suppress());
        setup.retention = 1 << 20;
        let bridge = runtime.block_on(setup.start());
        (runtime, bridge)
    };
    let message = "again".repeat(400);
    let mut versions = 0;
    for round in 0..4 {
        let (runtime, bridge) = start();
        let view = bridge.view();
        runtime.block_on(until("a watch", || server.open_watches() == 1));
        let mut events = loud_saying(&server, &format!("web-{round}"), 0..30, &message);
        versions += 30;
        // Some 4 MiB in all.
        for at in 0..2000 {
            events[25 + at % 5].again(&server);
            versions += 1;
            if at % 20 == 0 {
                runtime.block_on(until("it is had, or held", || {
                    let status = sink_status(&view, "pager");
                    status.seen == versions && status.pending == status.held
                }));
            }
        }
        if round == 0 {
            runtime.block_on(until("old segments go", || view.log.oldest().ordinal() > 30));
        }
        runtime.shutdown_timeout(Duration::from_secs(10));
        drop((bridge, view));
    }
    let (runtime, bridge) = start();
    let status = sink_status(&bridge.view(), "pager");
    assert_eq!(status.lost, 0, "{status:?}");
    runtime
        .block_on(until("all is read", || sink_status(&bridge.view(), "pager").seen == versions));
    runtime.block_on(stop(bridge));
    let mut deltas = BTreeMap::new();
    for event in sink.received() {
        let before = deltas.insert(event.id.clone(), event.delta);
        assert!(before.is_none_or(|before| before == event.delta), "{}", event.id);
    }
    assert_eq!(deltas.values().sum::<u64>(), versions);
}

#[derive(Clone, Debug)]
enum Step {
    /// Events about one of three Pods.
    Create(u8, u8),
    /// An Event that exists occurs once more.
    Again(prop::sample::Index),
    Wait(u64),
    Stop(Run),
    /// Everything ends where it is: nothing is drained, nothing is saved.
    Crash(Run),
}

/// The configuration of the next run.
#[derive(Clone, Copy, Debug)]
struct Run {
    filter: Option<&'static str>,
    /// Held versions come out when some fifteen long versions are behind it.
    small: bool,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0u8..3, 1u8..25).prop_map(|(pod, events)| Step::Create(pod, events)),
        6 => any::<prop::sample::Index>().prop_map(Step::Again),
        4 => (1u64..1200).prop_map(Step::Wait),
        1 => run().prop_map(Step::Stop),
        2 => run().prop_map(Step::Crash),
    ]
}

fn run() -> impl Strategy<Value = Run> {
    let filters = [None, None, Some("event.count % 2 == 1"), Some("event.type == 'Normal'")];
    (prop::sample::select(filters.to_vec()), any::<bool>())
        .prop_map(|(filter, small)| Run { filter, small })
}

proptest! {
    #![proptest_config(bridge_cases())]

    #[test]
    fn the_increments_that_come_out_are_those_that_went_in(
        steps in prop::collection::vec(step(), 1..20),
        batch in prop::sample::select(vec![1usize, 7, 500]),
        concurrency in prop::sample::select(vec![1usize, 4]),
        long in any::<bool>(),
        first in run(),
    ) {
        let batch = BatchOptions { events: batch, ..Tuning::default().batch };
        adds_up(steps, &Tuning { batch, concurrency, ..suppress() }, long, first);
    }
}

/// Of runs with one `match` and size of the journal after another, and messages that are `long` or not.
fn adds_up(steps: Vec<Step>, tuning: &Tuning, long: bool, first: Run) {
    let outer = Runtime::new().unwrap();
    let (server, sink) = (outer.block_on(async { server() }), MemorySink::default());
    let journal = tempfile::tempdir().unwrap();
    let start = |Run { filter, small }| {
        let runtime = Runtime::new().unwrap();
        let tuning = Tuning { filter, ..tuning.clone() };
        let mut setup = Setup::new(&server, journal.path()).tuned("pager", &sink, tuning);
        if small {
            setup.retention = 1 << 20;
        }
        let bridge = runtime.block_on(setup.start());
        (runtime, bridge)
    };
    let message = "again".repeat(if long { 1600 } else { 1 });
    let (mut runtime, mut bridge) = start(first);
    // From here on each version is seen; a first list shows the newest ones only.
    runtime.block_on(until("a watch", || server.open_watches() == 1));
    let (mut events, mut versions) = (Vec::<Repeated>::new(), 0);
    for step in steps {
        match step {
            Step::Create(pod, count) => {
                let range = events.len()..events.len() + usize::from(count);
                events.extend(loud_saying(&server, &format!("pod-{pod}"), range, &message));
                versions += u64::from(count);
                // Not more than a small journal holds is outstanding.
                let view = bridge.view();
                runtime.block_on(until("it is had, or held", || {
                    let status = sink_status(&view, "pager");
                    status.seen == versions && status.pending == status.held
                }));
            }
            Step::Again(_) if events.is_empty() => {}
            Step::Again(which) => {
                let which = which.index(events.len());
                events[which].again(&server);
                versions += 1;
            }
            Step::Wait(ms) => std::thread::sleep(Duration::from_millis(ms)),
            Step::Stop(next) => {
                runtime.block_on(stop(bridge));
                drop(runtime);
                (runtime, bridge) = start(next);
            }
            Step::Crash(next) => {
                runtime.shutdown_timeout(Duration::from_secs(10));
                drop(bridge);
                (runtime, bridge) = start(next);
            }
        }
    }
    let view = bridge.view();
    let read = || {
        let status = sink_status(&view, "pager");
        status.seen == versions && status.pending == status.held
    };
    runtime.block_on(until("everything is read", read));
    runtime.block_on(stop(bridge));
    drop((view, runtime));
    // A stop waits 3 s for the disk; what is held where that is slower comes out after the start.
    let (runtime, bridge) = start(first);
    let status = runtime.block_on(settled(&bridge.view(), "pager", versions));
    // What came twice came under the same id, and said the same.
    let mut deltas = BTreeMap::new();
    for event in sink.received() {
        let before = deltas.insert(event.id.clone(), event.delta);
        assert!(before.is_none_or(|before| before == event.delta), "{}", event.id);
    }
    assert_eq!(deltas.values().sum::<u64>() + status.filtered, versions, "{status:?}");
    assert_eq!((status.lost, status.dead_lettered, status.held), (0, 0, 0));
    assert_eq!(status.delivered, deltas.len() as u64);
    runtime.block_on(stop(bridge));
}
