//! Sinks with `overflow: block`: intake stops for what they have not had, and nothing is lost.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    time::Duration,
};

use proptest::prelude::*;
use tidings::{
    admin::status,
    bridge::{BatchOptions, Bridge, BridgeView, FailureClass, Overflow},
};
use tidings_testkit::api_server::{ApiServer, EventObject, Written};
use tokio::runtime::Runtime;

use crate::support::{
    MemorySink, Setup, Tuning, bridge_cases, create, invalid, retry, server, settled, sink_status,
    stop, until,
};

pub(crate) const SIZE: u64 = 2 << 20;
/// A segment, a frame, and what is beside the log.
const SLACK: u64 = 1 << 20;

/// Two sinks: one that blocks, and a prompt one that does not.
struct Sinks {
    blocking: MemorySink,
    prompt: MemorySink,
}

impl Sinks {
    fn new() -> Self {
        let sinks = Self { blocking: MemorySink::default(), prompt: MemorySink::default() };
        sinks.blocking.hold(true);
        sinks
    }

    fn setup<'a>(&self, server: &'a ApiServer, journal: &'a Path) -> Setup<'a> {
        let mut setup = Setup::new(server, journal)
            .tuned("blocking", &self.blocking, blocking())
            .sink("prompt", &self.prompt);
        setup.retention = SIZE;
        setup
    }
}

pub(crate) fn blocking() -> Tuning {
    Tuning { overflow: Overflow::Block, timeout: Duration::from_secs(600), ..Tuning::default() }
}

/// Creates so many Events of 8 KiB.
pub(crate) fn fill(server: &ApiServer, count: usize) -> Vec<Written> {
    fill_about(server, 0..count)
}

/// The same, each about another Pod.
pub(crate) fn fill_about(server: &ApiServer, pods: std::ops::Range<usize>) -> Vec<Written> {
    let message = "x".repeat(8 << 10);
    let one = |n| {
        let event = EventObject::about_pod("shop", &format!("web-{n}"), "A", &message);
        server.create(event).unwrap()
    };
    pods.map(one).collect()
}

pub(crate) fn ids(events: &[Written]) -> Vec<String> {
    events.iter().map(Written::id).collect()
}

pub(crate) fn is_blocked(view: &BridgeView) -> bool {
    !status(view).journal.blocked_by.is_empty()
}

/// How many records the log has had.
pub(crate) fn journalled(view: &BridgeView) -> u64 {
    view.log.tail().ordinal()
}

#[tokio::test(flavor = "multi_thread")]
async fn intake_stops_for_all_and_goes_on_with_nothing_lost() {
    let (server, dir, sinks) = (server(), tempfile::tempdir().unwrap(), Sinks::new());
    let stalled = MemorySink::default();
    stalled.hold(true);
    // What it has in hand is not lost.
    let batch = BatchOptions { bytes: 64 << 10, ..Tuning::default().batch };
    let patient = Tuning { timeout: Duration::from_secs(600), batch, ..Tuning::default() };
    let setup = sinks.setup(&server, dir.path()).tuned("stalled", &stalled, patient);
    let bridge = setup.start().await;
    let view = bridge.view();
    let created = fill(&server, 1000);
    until("intake stops", || is_blocked(&view)).await;
    let before = journalled(&view);
    settled(&view, "prompt", before).await;
    assert_eq!(journalled(&view), before, "nothing is read");
    let now = status(&view);
    assert_eq!(now.journal.blocked_by[0].sink, "blocking");
    assert!(now.journal.blocked_by[0].bytes >= SIZE / 2, "{now:?}");
    assert!(now.journal.bytes < SIZE + SLACK, "{now:?}");
    assert_eq!(sink_status(&view, "blocking").pending, before);

    sinks.blocking.hold(false);
    settled(&view, "blocking", 1000).await;
    settled(&view, "prompt", 1000).await;
    until("it is said no longer", || !is_blocked(&view)).await;
    for sink in [&sinks.blocking, &sinks.prompt] {
        assert_eq!(sink.ids(), ids(&created), "each once, in order");
    }
    assert_eq!(status(&view).ingest.gaps, 0);
    // What does not block loses what the other no longer needs, and it is counted.
    until("old segments go", || view.log.oldest().ordinal() > 700).await;
    stalled.hold(false);
    let counts = settled(&view, "stalled", 1000).await;
    assert!(counts.lost > 0, "{counts:?}");
    assert_eq!(counts.delivered, stalled.received().len() as u64);
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_api_server_no_longer_has_by_then_is_stated() {
    let (server, dir, sinks) = (server(), tempfile::tempdir().unwrap(), Sinks::new());
    let bridge = sinks.setup(&server, dir.path()).start().await;
    let view = bridge.view();
    let mut created = fill(&server, 1000);
    until("intake stops", || is_blocked(&view)).await;
    // What was sent already is with the bridge; what comes now is not.
    server.cut_connections();
    until("they are cut", || server.open_watches() == 0).await;
    let gone = create(&server, "gone");
    server.delete("shop", &gone.name).unwrap();
    created.push(create(&server, "last"));
    server.compact(server.revision());
    sinks.blocking.hold(false);
    until("a gap", || status(&view).ingest.gaps == 1).await;
    for (name, sink) in [("blocking", &sinks.blocking), ("prompt", &sinks.prompt)] {
        let counts = settled(&view, name, 1001).await;
        assert_eq!((counts.delivered, counts.lost), (1001, 0));
        let had: HashSet<_> = sink.ids().into_iter().collect();
        assert_eq!(had, ids(&created).into_iter().collect(), "{name}: all that there still is");
    }
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_or_a_stop_while_intake_stands_still_loses_nothing() {
    for kill in [true, false] {
        let (server, dir, sinks) = (server(), tempfile::tempdir().unwrap(), Sinks::new());
        sinks.blocking.refuse(|_| Some(retry(FailureClass::Unavailable)));
        sinks.blocking.hold(false);
        let bridge = sinks.setup(&server, dir.path()).start().await;
        let created = fill(&server, 1000);
        until("intake stops", || is_blocked(&bridge.view())).await;
        let before = journalled(&bridge.view());
        if kill {
            drop(bridge);
        } else {
            // The deadline is not for a sink that blocks.
            let stopped = bridge.stop(Duration::from_secs(600));
            tokio::time::timeout(Duration::from_secs(60), stopped).await.unwrap().unwrap();
        }
        let bridge = restarted(|| sinks.setup(&server, dir.path())).await;
        let view = bridge.view();
        until("intake stops again", || is_blocked(&view)).await;
        assert!(journalled(&view) <= before + 500, "there was no room for more");
        sinks.blocking.accept_everything();
        let counts = settled(&view, "blocking", 1000).await;
        assert_eq!((counts.delivered, counts.lost), (1000, 0));
        assert_eq!(settled(&view, "prompt", 1000).await.lost, 0);
        let (mut blocking, mut created) = (sinks.blocking.ids(), ids(&created));
        blocking.sort();
        created.sort();
        assert_eq!(blocking, created, "each once");
        let prompt: HashSet<_> = sinks.prompt.ids().into_iter().collect();
        assert_eq!(prompt.len(), 1000);
        stop(bridge).await;
    }
}

/// A bridge that was dropped lets go of its journal a moment later.
pub(crate) async fn restarted<'a>(setup: impl Fn() -> Setup<'a>) -> Bridge {
    let mut tries = 0;
    loop {
        match setup().try_start().await {
            Ok(bridge) => return bridge,
            Err(error) if tries == 500 => panic!("{error}"),
            Err(_) => tries += 1,
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn age_does_not_apply_to_what_a_blocking_sink_has_not_had() {
    let (server, dir, sinks) = (server(), tempfile::tempdir().unwrap(), Sinks::new());
    let mut setup = sinks.setup(&server, dir.path());
    setup.age = Duration::ZERO;
    let bridge = setup.start().await;
    let view = bridge.view();
    let created = fill(&server, 200);
    settled(&view, "prompt", 200).await;
    // A frame that is written now comes after retention has looked at all the others.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(view.log.oldest().ordinal(), 0);
    sinks.blocking.hold(false);
    settled(&view, "blocking", 200).await;
    until("it had them: now they go", || view.log.oldest().ordinal() > 0).await;
    assert_eq!(sinks.blocking.ids(), ids(&created));
    stop(bridge).await;
}

/// What happens while a sink that loses the oldest comes and goes.
#[derive(Clone, Debug)]
enum Step {
    /// So many Events of so many bytes.
    Create(usize, usize),
    Hold(bool),
    Stop,
    Crash,
    /// A crash that takes with it whatever was saved since the last stop.
    Forget,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..80usize, 10..16_000usize).prop_map(|(count, bytes)| Step::Create(count, bytes)),
        2 => any::<bool>().prop_map(Step::Hold),
        1 => Just(Step::Stop),
        1 => Just(Step::Crash),
        1 => Just(Step::Forget),
    ]
}

/// The state of a journal that no bridge holds, to be put back as if nothing had been saved since.
struct SavedState(PathBuf, Vec<u8>);

impl SavedState {
    fn of(journal: &Path) -> Self {
        let path = journal.join("state.redb");
        let bytes = std::fs::read(&path).unwrap();
        Self(path, bytes)
    }

    fn put_back(&self) {
        std::fs::write(&self.0, &self.1).unwrap();
    }
}

/// What has a message that begins with a `y` is not wanted.
const WANTED: &str = "!event.message.startsWith('y')";

async fn exactly_what_it_did_not_get(steps: Vec<Step>) {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let timeout = Duration::from_secs(600);
    let patient = Tuning { timeout, filter: Some(WANTED), ..Tuning::default() };
    let setup = || {
        let mut setup = Setup::new(&server, dir.path()).tuned("lossy", &sink, patient.clone());
        setup.retention = 1 << 20;
        setup
    };
    let start = || restarted(setup);
    let mut bridge = start().await;
    let mut created = Vec::new();
    let mut saved = None;
    sink.hold(true);
    for step in steps {
        match step {
            Step::Create(count, bytes) => {
                for n in 0..count {
                    let message = if n % 3 == 2 { "y" } else { "x" }.repeat(bytes);
                    let pod = format!("web-{}", created.len());
                    let event = EventObject::about_pod("shop", &pod, "A", &message);
                    created.push(server.create(event).unwrap());
                }
                let count = created.len() as u64;
                let view = bridge.view();
                until("all is journalled", || journalled(&view) == count).await;
            }
            Step::Hold(held) => sink.hold(held),
            Step::Stop => {
                let _ = bridge.stop(Duration::from_millis(50)).await;
                saved = Some(SavedState::of(dir.path()));
                bridge = start().await;
            }
            Step::Crash => {
                drop(bridge);
                bridge = start().await;
            }
            Step::Forget => {
                let _ = bridge.stop(Duration::from_millis(50)).await;
                if let Some(saved) = &saved {
                    saved.put_back();
                }
                bridge = start().await;
            }
        }
    }
    sink.hold(false);
    let counts = settled(&bridge.view(), "lossy", created.len() as u64).await;
    let received = sink.ids();
    let had: HashSet<_> = received.iter().cloned().collect();
    assert_eq!(counts.delivered, had.len() as u64);
    assert_eq!(counts.lost + counts.filtered, created.len() as u64 - counts.delivered);
    assert_eq!(counts.redelivered, (received.len() - had.len()) as u64);
    stop(bridge).await;
}

proptest! {
    #![proptest_config(bridge_cases())]

    #[test]
    fn the_count_of_lost_is_the_truth(steps in prop::collection::vec(step(), 4..20)) {
        Runtime::new().unwrap().block_on(exactly_what_it_did_not_get(steps));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_crash_kept_from_being_saved_and_retention_took_was_delivered() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let start = async || {
        let mut setup = Setup::new(&server, dir.path()).sink("prompt", &sink);
        setup.retention = 1 << 20;
        setup.start().await
    };
    let bridge = start().await;
    fill(&server, 1);
    settled(&bridge.view(), "prompt", 1).await;
    stop(bridge).await;
    let saved = SavedState::of(dir.path());
    let bridge = start().await;
    let view = bridge.view();
    fill(&server, 400);
    settled(&view, "prompt", 401).await;
    until("old segments go", || view.log.oldest().ordinal() > 100).await;
    stop(bridge).await;
    // As after a crash before anything was saved of that.
    saved.put_back();
    let bridge = start().await;
    let counts = settled(&bridge.view(), "prompt", 401).await;
    assert_eq!((counts.delivered, counts.lost), (401, 0));
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_lost_before_a_kill_is_lost_after_it() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let start = async || {
        let patient = Tuning { timeout: Duration::from_secs(600), ..Tuning::default() };
        let mut setup = Setup::new(&server, dir.path()).tuned("lossy", &sink, patient);
        setup.retention = 1 << 20;
        setup.start().await
    };
    let bridge = start().await;
    fill(&server, 1);
    settled(&bridge.view(), "lossy", 1).await;
    stop(bridge).await;
    let saved = SavedState::of(dir.path());
    sink.hold(true);
    let bridge = start().await;
    let view = bridge.view();
    // More than is read ahead of a sink that stands still.
    fill(&server, 1800);
    until("all is journalled", || journalled(&view) == 1801).await;
    until("old segments go", || view.log.oldest().ordinal() > 1400).await;
    sink.hold(false);
    let before = settled(&view, "lossy", 1801).await;
    assert_eq!(before.delivered, sink.received().len() as u64);
    assert!(before.lost > 0, "{before:?}");
    stop(bridge).await;
    // As after a kill before anything was saved of that.
    saved.put_back();
    let bridge = start().await;
    let after = settled(&bridge.view(), "lossy", 1801).await;
    assert_eq!((after.delivered, after.lost), (before.delivered, before.lost));
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_filtered_or_refused_before_a_kill_is_not_delivered_after_it() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let start = async || {
        let tuning = Tuning { filter: Some(WANTED), ..Tuning::default() };
        let mut setup = Setup::new(&server, dir.path()).tuned("picky", &sink, tuning);
        setup.retention = 1 << 20;
        setup.start().await
    };
    let bridge = start().await;
    fill(&server, 1);
    settled(&bridge.view(), "picky", 1).await;
    stop(bridge).await;
    let saved = SavedState::of(dir.path());
    sink.refuse(|event| (event.seq % 10 == 1).then(|| invalid("not this one")));
    let bridge = start().await;
    let view = bridge.view();
    for n in 0..400 {
        let message = if n % 2 == 0 { "y" } else { "x" }.repeat(8 << 10);
        let pod = format!("web-{n}");
        server.create(EventObject::about_pod("shop", &pod, "A", &message)).unwrap();
    }
    let before = settled(&view, "picky", 401).await;
    assert!(before.filtered == 200 && before.dead_lettered > 0, "{before:?}");
    until("old segments go", || view.log.oldest().ordinal() > 100).await;
    stop(bridge).await;
    saved.put_back();
    let bridge = start().await;
    let after = settled(&bridge.view(), "picky", 401).await;
    assert_eq!(after.delivered, before.delivered);
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_count_of_redelivered_survives_kills() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let start = async || Setup::new(&server, dir.path()).sink("a", &sink).start().await;
    let bridge = start().await;
    fill(&server, 1);
    settled(&bridge.view(), "a", 1).await;
    stop(bridge).await;
    let saved = SavedState::of(dir.path());
    fill_about(&server, 1..101);
    for again in 0..4 {
        let bridge = start().await;
        assert_eq!(settled(&bridge.view(), "a", 101).await.redelivered, 100 * again);
        stop(bridge).await;
        // As after a kill before anything was saved of that.
        saved.put_back();
    }
    assert_eq!(sink.received().len(), 401);
}
