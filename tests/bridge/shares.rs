//! A namespace's share of the journal while a sink is away: who has more is cut, and then shed, and
//! nobody else is.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use jiff::Timestamp;
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
    MemorySink, Received, Setup, Tuning, create, retry, server, settled, sink_status, stop, until,
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

fn down() -> MemorySink {
    let sink = MemorySink::default();
    sink.refuse(|_| Some(retry(FailureClass::Unavailable)));
    sink
}

fn none() -> Tuning {
    Tuning { correlate: CorrelateMode::None, ..Tuning::default() }
}

fn ingest(view: &BridgeView) -> IngestStatus {
    status(view).ingest
}

async fn journalled(view: &BridgeView, count: u64) {
    until("it is journalled", || view.log.tail().ordinal() == count).await;
}

fn truncated(event: &Received) -> BTreeMap<String, u64> {
    Envelope::parse(event.envelope.as_bytes()).unwrap().truncated
}

fn is_of(event: &Received, namespace: &str) -> bool {
    let envelope = Envelope::parse(event.envelope.as_bytes()).unwrap();
    &*envelope.event().unwrap().metadata.namespace == namespace
}

/// Patches an Event of 250 KiB again and again, with one of another namespace each time, until so many
/// versions were shed. Answers how many were written of each.
async fn flood(server: &ApiServer, view: &BridgeView, loud: &Written, shed: u64) -> u64 {
    let (before, mut count) = (view.log.tail().ordinal(), 0);
    while ingest(view).shed < shed {
        patch(server, loud, count + 2);
        create(server, &format!("web-{count}"));
        count += 1;
        journalled(view, before + 2 * count).await;
        assert!(count < 900, "nothing is shed");
    }
    count
}

#[tokio::test(flavor = "multi_thread")]
async fn what_floods_the_journal_of_a_sink_that_is_away_is_shed_and_its_increments_come_later() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), down());
    let start = async || {
        let setup = Setup::new(&server, dir.path()).tuned("a", &sink, none());
        Setup { retention: SIZE, ..setup }.start().await
    };
    let bridge = start().await;
    until("a watch", || server.open_watches() == 1).await;
    let view = bridge.view();
    let loud = create_saying(&server, "loud", "loud", &"x".repeat(LARGE));
    journalled(&view, 1).await;
    let count = flood(&server, &view, &loud, 60).await;
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
    let bridge = start().await;
    let newest = patch(&server, &loud, 1000);
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
    let (server, dir) = (outer.block_on(async { server() }), tempfile::tempdir().unwrap());
    let sink = down();
    let start = || {
        let runtime = Runtime::new().unwrap();
        let setup = Setup::new(&server, dir.path()).tuned("a", &sink, none());
        let bridge = runtime.block_on(Setup { retention: SIZE, ..setup }.start());
        (runtime, bridge)
    };
    let (runtime, bridge) = start();
    let view = bridge.view();
    runtime.block_on(until("a watch", || server.open_watches() == 1));
    let loud = create_saying(&server, "loud", "loud", &"x".repeat(LARGE));
    runtime.block_on(journalled(&view, 1));
    let count = runtime.block_on(flood(&server, &view, &loud, 10));
    // Events of which the bridge has shed all that there is.
    let text = "y".repeat(LARGE);
    let new: Vec<_> =
        (0..20).map(|n| create_saying(&server, "loud", &format!("new-{n}"), &text)).collect();
    let all = 1 + 2 * count + 20;
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
    let (runtime, bridge) = start();
    let view = bridge.view();
    let listed =
        || status(&view).sources.iter().any(|source| source.lists > 0 && source.stream_open);
    runtime.block_on(until("a list", listed));
    let newest = patch(&server, &loud, 1000);
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
fn what_was_shed_is_known_after_a_stop_and_after_a_kill_and_no_list_brings_it_again() {
    for killed in [false, true] {
        shed_is_known(killed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_that_brings_events_which_are_shed_says_what_it_hid() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), down());
    let setup = Setup::new(&server, dir.path()).tuned("a", &sink, none());
    let bridge = Setup { retention: SIZE, ..setup }.start().await;
    until("a watch", || server.open_watches() == 1).await;
    let view = bridge.view();
    let loud = create_saying(&server, "loud", "loud", &"x".repeat(LARGE));
    journalled(&view, 1).await;
    let all = 1 + 2 * flood(&server, &view, &loud, 1).await;
    let outage = server.set_fault(On::Any, None, Fault::Unavailable);
    server.cut_connections();
    until("the outage is noticed", || server.fault_hits(outage) > 0).await;
    let new = create_saying(&server, "loud", "new", "of which four versions are one");
    let of_new = |count| server.patch_count("loud", &new.name, count, Timestamp::now()).unwrap();
    let listed = [2, 3, 4].map(of_new)[2].id();
    server.compact(server.revision());
    server.clear_faults();
    until("the gap is stated", || ingest(&view).gaps == 1).await;
    let told = ingest(&view);
    assert_eq!((told.shed, told.recent_gaps[0].replayed), (2, 1));
    assert_eq!((told.recent_gaps[0].skipped_increments, told.epochs), (3, 0));
    sink.accept_everything();
    let status = settled(&view, "a", all + 1).await;
    assert_eq!((status.lost, status.delivered), (2, all - 1));
    let next = of_new(5).id();
    until("the next version", || sink.ids().contains(&next)).await;
    let received = sink.received();
    assert!(received.iter().all(|event| event.id != listed), "it was shed");
    let next = received.iter().find(|event| event.id == next).unwrap();
    assert_eq!((next.delta, next.replayed), (5, false), "it brings the increments");
    stop(bridge).await;
}

/// A namespace floods a journal of 16 MiB while a sink is away and another one is not, with a stop and a start
/// amidst.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_small_events_is_shed_for_every_sink_and_a_start_takes_nobody_else_for_it() {
    const ROUNDS: u64 = 60;
    const FLOOD: u64 = 300;
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let (away, prompt) = (down(), MemorySink::default());
    let start = async || {
        let setup = Setup::new(&server, dir.path());
        let setup = setup.tuned("away", &away, none()).tuned("prompt", &prompt, none());
        Setup { retention: SIZE, ..setup }.start().await
    };
    let mut bridge: Bridge = start().await;
    let (text, mut others, mut shed) = ("x".repeat(700), Vec::new(), 0);
    for round in 0..ROUNDS {
        others.push(create(&server, &format!("web-{round}")).id());
        for n in 0..FLOOD {
            create_saying(&server, "loud", &format!("loud-{round}-{n}"), &text);
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
    for (name, sink) in [("away", &away), ("prompt", &prompt)] {
        let status = settled(&view, name, all).await;
        assert_eq!((status.lost, status.delivered), (shed + told.shed, all - shed - told.shed));
        let ids: HashSet<_> = sink.ids().into_iter().collect();
        assert!(others.iter().all(|id| ids.contains(id)), "{name}");
    }
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_sink_is_to_lose_nothing_a_flood_is_cut_and_not_shed() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), down());
    let block = Tuning { overflow: Overflow::Block, ..none() };
    let setup = Setup::new(&server, dir.path()).tuned("a", &sink, block);
    let bridge = Setup { retention: SIZE, ..setup }.start().await;
    until("a watch", || server.open_watches() == 1).await;
    let view = bridge.view();
    let other = create(&server, "first").id();
    journalled(&view, 1).await;
    let text = "x".repeat(LARGE);
    for n in 0..60 {
        create_saying(&server, "loud", &format!("loud-{n}"), &text);
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
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), down());
    let start = async || {
        let setup = Setup::new(&server, dir.path()).tuned("a", &sink, none());
        Setup { retention: SIZE, ..setup }.start().await
    };
    let mut bridge = start().await;
    let text = "x".repeat(LARGE);
    for n in 0..90 {
        create_saying(&server, "loud", &format!("loud-{n}"), &text);
        journalled(&bridge.view(), n + 1).await;
        if n == 40 {
            stop(bridge).await;
            bridge = start().await;
        }
    }
    let told = ingest(&bridge.view());
    assert_eq!((told.shed, told.truncated), (0, 0));
    let view = bridge.view();
    until("old ones are gone", || sink_status(&view, "a").overrun > 0).await;
    stop(bridge).await;
}
