//! A namespace's share of the journal while a sink is away: who has more is cut, and then shed, and
//! nobody else is.

use std::{
    collections::{BTreeMap, HashSet},
    ops::RangeInclusive,
    time::Duration,
};

use jiff::Timestamp;
use tempfile::TempDir;
use tidings::{
    admin::{IngestStatus, status},
    bridge::{
        Bridge, BridgeView, CorrelateMode, FailureClass, Overflow, Replay, ReplayFrom, ReplayState,
    },
    demo::api_server::{ApiServer, EventObject, Fault, On, Written},
    event::Envelope,
};
use tokio::runtime::Runtime;

use crate::support::{
    MemorySink, Received, Setup, Tuning, create, retry, server, settled, sink_status, started,
    stop, until,
};

/// An Event that takes so much is as large as one may be.
const LARGE: usize = 250 << 10;
const SIZE: u64 = 16 << 20;

fn create_saying(server: &ApiServer, namespace: &str, pod: &str, message: &str) -> Written {
    server.create(EventObject::about_pod(namespace, pod, "Noise", message)).unwrap()
}

fn patch(server: &ApiServer, event: &Written, count: u64) -> String {
    let count = i32::try_from(count).unwrap();
    server.patch_count("loud", &event.name, count, Timestamp::now()).unwrap().id()
}

/// A journal of 16 MiB, and a sink that is away.
struct Stand {
    server: ApiServer,
    dir: TempDir,
    sink: MemorySink,
}

impl Stand {
    fn new() -> Self {
        let sink = MemorySink::default();
        sink.refuse(|_| Some(retry(FailureClass::Unavailable)));
        Self { server: server(), dir: tempfile::tempdir().unwrap(), sink }
    }

    fn setup(&self, tuning: Tuning) -> Setup<'_> {
        let setup = Setup::new(&self.server, self.dir.path()).tuned("a", &self.sink, tuning);
        Setup { retention: SIZE, ..setup }
    }

    async fn start(&self) -> Bridge {
        self.setup(none()).start().await
    }

    /// Creates the Event of 250 KiB that is patched in floods, once a watch brings all of its versions.
    async fn create_loud(&self, view: &BridgeView) -> Written {
        until("a watch", || self.server.open_watches() == 1).await;
        let loud = create_saying(&self.server, "loud", "loud", &"x".repeat(LARGE));
        journalled(view, 1).await;
        loud
    }
}

fn none() -> Tuning {
    Tuning { correlate: CorrelateMode::None, ..Tuning::default() }
}

fn ingest(view: &BridgeView) -> IngestStatus {
    status(view).ingest
}

async fn journalled(view: &BridgeView, count: u64) {
    until("it is journalled", || view.log().tail().ordinal() == count).await;
}

fn truncated(event: &Received) -> BTreeMap<String, u64> {
    Envelope::parse(event.envelope.as_bytes()).unwrap().truncated
}

fn is_of(event: &Received, namespace: &str) -> bool {
    let envelope = Envelope::parse(event.envelope.as_bytes()).unwrap();
    &*envelope.event().unwrap().metadata.namespace == namespace
}

/// Patches an Event of 250 KiB again and again, with one of another namespace each time, until so many
/// versions were shed. Answers how many were written of each. The bridge counts a frame once that is in
/// the journal: the other Event has a frame of its own behind, so all that was shed before is counted.
async fn flood(server: &ApiServer, view: &BridgeView, loud: &Written, shed: u64) -> u64 {
    let (before, mut count) = (view.log().tail().ordinal(), 0);
    while ingest(view).shed < shed {
        patch(server, loud, count + 2);
        journalled(view, before + 2 * count + 1).await;
        create(server, &format!("web-{count}"));
        count += 1;
        journalled(view, before + 2 * count).await;
        assert!(count < 900, "nothing is shed");
    }
    count
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_for_a_sink_that_is_away_is_shed_and_its_increments_come_later() {
    let stand = Stand::new();
    let Stand { server, sink, .. } = &stand;
    let bridge = stand.start().await;
    let view = bridge.view();
    let loud = stand.create_loud(&view).await;
    let count = flood(server, &view, &loud, 60).await;
    let all = 1 + 2 * count;
    let told = ingest(&view);
    assert_eq!(told.namespaces.len(), 1);
    assert_eq!((&*told.namespaces[0].namespace, told.namespaces[0].shed), ("loud", told.shed));
    let status = sink_status(&view, "a");
    assert_eq!((status.pending, status.overrun, status.lost), (all, 0, 0));
    sink.accept_everything();
    let status = settled(&view, "a", all).await;
    assert_eq!((status.lost, status.delivered), (told.shed, all - told.shed));
    let others = sink.received().iter().filter(|event| is_of(event, "shop")).count() as u64;
    assert_eq!(others, count, "nothing of others is lost");
    // A replay has what is there.
    let replay = Replay { sink: "a".to_owned(), from: ReplayFrom::Time(0), filter: None };
    let mut run = bridge.control().replay(replay).unwrap();
    let mut last = None;
    while let Some(progress) = run.next().await {
        last = Some(progress);
    }
    let last = last.unwrap();
    assert_eq!(last.state, ReplayState::Done);
    assert_eq!((last.delivered, last.gone), (all - told.shed, told.shed));
    stop(bridge).await;
    // What was counted stays, and the next version brings what was not delivered.
    let received = sink.received().len();
    let bridge = stand.start().await;
    let newest = patch(server, &loud, 1000);
    until("the last", || sink.ids().contains(&newest)).await;
    let status = settled(&bridge.view(), "a", all + 1).await;
    assert_eq!((status.lost, status.delivered), (told.shed, all + 1 - told.shed));
    let live = |event: &&Received| is_of(event, "loud") && !event.replayed;
    let deltas = sink.received().iter().filter(live).map(|event| event.delta).sum::<u64>();
    assert_eq!((sink.received().len(), deltas), (received + 1, 1000));
    stop(bridge).await;
}

/// Events are shed, the bridge is stopped or killed, and what it knows of them is found in the state or
/// in the log. Then history is gone, and all of them are listed.
fn shed_is_known(killed: bool) {
    let outer = Runtime::new().unwrap();
    let stand = outer.block_on(async { Stand::new() });
    let Stand { server, sink, .. } = &stand;
    let (runtime, bridge) = started(stand.setup(none()));
    let view = bridge.view();
    let loud = runtime.block_on(stand.create_loud(&view));
    let count = runtime.block_on(flood(server, &view, &loud, 10));
    // Events of which the bridge has shed all that there is.
    let text = "y".repeat(LARGE);
    let new: Vec<_> =
        (0..20).map(|n| create_saying(server, "loud", &format!("new-{n}"), &text)).collect();
    let all = 1 + 2 * count + 20 + 1;
    runtime.block_on(journalled(&view, all - 1));
    create(server, "last");
    runtime.block_on(journalled(&view, all));
    let shed = ingest(&view).shed;
    assert!(shed >= 30);
    if killed {
        runtime.shutdown_timeout(Duration::from_secs(10));
        drop(bridge);
    } else {
        runtime.block_on(stop(bridge));
        drop(runtime);
    }
    server.skip_revisions(100);
    server.compact(server.revision());
    sink.accept_everything();
    let (runtime, bridge) = started(stand.setup(none()));
    let view = bridge.view();
    // The first watch is told that its history is gone, and the second follows the list.
    let listed =
        || status(&view).sources.iter().any(|source| source.watches >= 2 && source.stream_open);
    runtime.block_on(until("a watch behind a list", listed));
    let newest = patch(server, &loud, 1000);
    let again = server.patch_count("loud", &new[7].name, 5, Timestamp::now()).unwrap().id();
    runtime.block_on(until("the last", || sink.ids().contains(&again)));
    let told = runtime.block_on(settled(&view, "a", all + 2));
    assert_eq!((told.lost, told.delivered), (shed, all + 2 - shed), "killed: {killed}");
    let ingest = ingest(&view);
    assert_eq!((ingest.epochs, ingest.gaps, ingest.events), (0, 0, 2), "killed: {killed}");
    let ids = sink.ids();
    assert!(new.iter().all(|event| !ids.contains(&event.id())), "they were shed for good");
    let received = sink.received();
    let delta = |id: &String| received.iter().find(|event| event.id == *id).unwrap().delta;
    assert_eq!(delta(&again), 5);
    let of_loud = received.iter().filter(|e| is_of(e, "loud") && e.id != again);
    assert_eq!(of_loud.map(|event| event.delta).sum::<u64>(), 1000, "{}", delta(&newest));
    runtime.block_on(stop(bridge));
}

#[test]
fn shed_events_are_known_after_a_stop_and_after_a_kill_and_no_list_brings_them_again() {
    for killed in [false, true] {
        shed_is_known(killed);
    }
}

/// Three gaps over one Event: it is shed behind the first and the second, and the third is found by a start.
#[tokio::test(flavor = "multi_thread")]
async fn a_gap_says_what_it_hid_of_events_that_are_shed_and_not_what_one_before_it_hid() {
    let stand = Stand::new();
    let Stand { server, sink, .. } = &stand;
    let bridge = stand.start().await;
    let view = bridge.view();
    let loud = stand.create_loud(&view).await;
    let all = 1 + 2 * flood(server, &view, &loud, 1).await;
    let go_dark = async || {
        let outage = server.set_fault(On::Any, None, Fault::Unavailable);
        server.cut_connections();
        until("the outage is noticed", || server.fault_hits(outage) > 0).await;
    };
    let newest_gap = |view: &BridgeView| {
        let gap = ingest(view).recent_gaps.pop().unwrap();
        (gap.replayed, gap.skipped_increments)
    };
    go_dark().await;
    let new = create_saying(server, "loud", "new", "of which four versions are one");
    let occurs = |counts: RangeInclusive<i32>| {
        let patch = |count| server.patch_count("loud", &new.name, count, Timestamp::now()).unwrap();
        let listed = counts.map(patch).last().unwrap().id();
        server.compact(server.revision());
        server.clear_faults();
        listed
    };
    let first = occurs(2..=4);
    until("the gap is stated", || ingest(&view).gaps == 1).await;
    assert_eq!((ingest(&view).shed, newest_gap(&view)), (2, (1, 3)));
    go_dark().await;
    let second = occurs(5..=6);
    until("the next one is stated", || ingest(&view).gaps == 2).await;
    let told = ingest(&view);
    assert_eq!((told.shed, newest_gap(&view)), (3, (1, 1)));
    assert_eq!((told.skipped_increments, told.epochs), (4, 0));
    stop(bridge).await;
    let third = occurs(7..=9);
    let bridge = stand.start().await;
    let view = bridge.view();
    until("the third one is stated", || ingest(&view).gaps == 1).await;
    assert_eq!(newest_gap(&view), (1, 2));
    let lost = 3 + ingest(&view).shed;
    sink.accept_everything();
    let status = settled(&view, "a", all + 3).await;
    assert_eq!((status.lost, status.delivered), (lost, all + 3 - lost));
    let next = occurs(10..=10);
    until("the next version", || sink.ids().contains(&next)).await;
    let received = sink.received();
    assert!(received.iter().all(|event| event.id != first && event.id != second));
    let of_new = received.iter().filter(|event| event.id == third || event.id == next);
    assert_eq!(of_new.map(|event| event.delta).sum::<u64>(), 10, "later ones bring the increments");
    stop(bridge).await;
}

/// A namespace floods a journal of 16 MiB while a sink is away and another one is not, with a stop and a start
/// amidst.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_small_events_is_shed_for_every_sink_and_a_start_takes_nobody_else_for_it() {
    const ROUNDS: u64 = 60;
    const FLOOD: u64 = 300;
    let (stand, prompt) = (Stand::new(), MemorySink::default());
    let Stand { server, sink: away, .. } = &stand;
    let start = async || stand.setup(none()).tuned("prompt", &prompt, none()).start().await;
    let mut bridge: Bridge = start().await;
    let (text, mut others, mut shed) = ("x".repeat(700), Vec::new(), 0);
    for round in 0..ROUNDS {
        others.push(create(server, &format!("web-{round}")).id());
        for n in 0..FLOOD {
            create_saying(server, "loud", &format!("loud-{round}-{n}"), &text);
        }
        journalled(&bridge.view(), (round + 1) * (FLOOD + 1)).await;
        if round == ROUNDS / 4 * 3 {
            shed = ingest(&bridge.view()).shed;
            assert!(shed > 10 * FLOOD, "{shed}");
            stop(bridge).await;
            bridge = start().await;
        }
    }
    let view = bridge.view();
    let told = ingest(&view);
    assert!(told.shed > 5 * FLOOD, "{told:?}");
    assert_eq!(told.namespaces.len(), 1, "{told:?}");
    assert_eq!((&*told.namespaces[0].namespace, told.namespaces[0].shed), ("loud", told.shed));
    away.accept_everything();
    let all = ROUNDS * (FLOOD + 1);
    for (name, sink) in [("a", away), ("prompt", &prompt)] {
        let status = settled(&view, name, all).await;
        assert_eq!((status.lost, status.delivered), (shed + told.shed, all - shed - told.shed));
        let ids: HashSet<_> = sink.ids().into_iter().collect();
        assert!(others.iter().all(|id| ids.contains(id)), "{name}");
    }
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn flood_is_cut_and_not_shed_where_a_sink_is_to_lose_nothing() {
    let stand = Stand::new();
    let Stand { server, sink, .. } = &stand;
    let bridge = stand.setup(Tuning { overflow: Overflow::Block, ..none() }).start().await;
    until("a watch", || server.open_watches() == 1).await;
    let view = bridge.view();
    let other = create(server, "first").id();
    journalled(&view, 1).await;
    let text = "x".repeat(LARGE);
    for n in 0..60 {
        create_saying(server, "loud", &format!("loud-{n}"), &text);
        journalled(&view, n + 2).await;
    }
    let told = ingest(&view);
    assert!(told.shed == 0 && told.truncated > 20, "{told:?}");
    sink.accept_everything();
    let status = settled(&view, "a", 61).await;
    assert_eq!((status.delivered, status.lost), (61, 0));
    assert_eq!(sink.ids()[0], other);
    let cut: Vec<_> = sink.received().into_iter().filter(|e| !truncated(e).is_empty()).collect();
    assert_eq!(cut.len() as u64, told.truncated);
    for event in &cut {
        assert!(is_of(event, "loud") && event.envelope.len() <= 2 << 10);
    }
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_is_alone_has_the_whole_journal_after_a_start_too() {
    let stand = Stand::new();
    let mut bridge = stand.start().await;
    let text = "x".repeat(LARGE);
    for n in 0..90 {
        create_saying(&stand.server, "loud", &format!("loud-{n}"), &text);
        journalled(&bridge.view(), n + 1).await;
        if n == 40 {
            stop(bridge).await;
            bridge = stand.start().await;
        }
    }
    let told = ingest(&bridge.view());
    assert_eq!((told.shed, told.truncated), (0, 0));
    let view = bridge.view();
    until("old ones are gone", || sink_status(&view, "a").overrun > 0).await;
    stop(bridge).await;
}
