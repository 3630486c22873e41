//! What a correlator decides on records that retention took, in a journal of another size, and where
//! `match` is another one.

use std::{collections::BTreeMap, time::Duration};

use tidings::bridge::{BatchOptions, BridgeView, CorrelateMode};
use tidings_testkit::api_server::EventObject;
use tokio::runtime::Runtime;

use super::{loud_saying, suppress};
use crate::support::{MemorySink, Setup, Tuning, server, settled, sink_status, stop, until};

async fn has_or_holds(view: &BridgeView, versions: u64) {
    until("all is had, held or lost", || {
        let status = sink_status(view, "pager");
        status.seen == versions && status.pending == status.held
    })
    .await;
}

#[test]
fn increments_add_up_where_a_sink_past_retention_takes_what_it_was_given_before_a_kill() {
    let outer = Runtime::new().unwrap();
    let (server, sink) = (outer.block_on(async { server() }), MemorySink::default());
    let journal = tempfile::tempdir().unwrap();
    let start = |events| {
        let runtime = Runtime::new().unwrap();
        let batch = BatchOptions { events, ..suppress().batch };
        let patient = Tuning { timeout: Duration::from_secs(600), batch, ..suppress() };
        let mut setup = Setup::new(&server, journal.path()).tuned("pager", &sink, patient);
        setup.retention = 1 << 20;
        let bridge = runtime.block_on(setup.start());
        (runtime, bridge)
    };
    let large = "large ".repeat(10_000);
    let mut versions = 0;
    for round in 0..4 {
        let (runtime, bridge) = start(if round % 2 == 0 { 500 } else { 1 });
        let view = bridge.view();
        let mut events = loud_saying(&server, &format!("web-{round}"), 0..30, "again");
        versions += 30;
        runtime.block_on(has_or_holds(&view, versions));
        std::thread::sleep(Duration::from_secs(2));
        sink.hold(true);
        let oldest = view.log.oldest().ordinal();
        // More than the 4 MiB that stay for a sink that moves, and what is held comes out with each.
        for at in 0..100 {
            events[25 + at % 5].again(&server);
            // None of these namespaces has so much of the journal that its Events are cut.
            let (namespace, pod) = (format!("team-{}", at % 8), format!("other-{round}-{at}"));
            server.create(EventObject::about_pod(&namespace, &pod, "A", &large)).unwrap();
            versions += 2;
        }
        runtime.block_on(until("what it was given goes", || {
            view.log.oldest().ordinal() > oldest + 100
        }));
        let had = sink.received().len();
        sink.hold(false);
        runtime.block_on(until("it takes some of that", || sink.received().len() > had + 3));
        runtime.shutdown_timeout(Duration::from_secs(10));
        drop((bridge, view));
    }
    let (runtime, bridge) = start(500);
    let view = bridge.view();
    runtime.block_on(has_or_holds(&view, versions));
    runtime.block_on(stop(bridge));
    let mut deltas = BTreeMap::new();
    for event in sink.received() {
        let before = deltas.insert(event.id.clone(), event.delta);
        assert!(before.is_none_or(|before| before == event.delta), "{}", event.id);
    }
    let (runtime, bridge) = start(500);
    let status = runtime.block_on(settled(&bridge.view(), "pager", versions));
    let (delivered, increments) = (deltas.len() as u64, deltas.values().sum::<u64>());
    assert!(status.lost > 0, "{status:?}");
    assert_eq!((status.delivered, increments + status.lost), (delivered, versions), "{status:?}");
    runtime.block_on(stop(bridge));
}

/// Runs that end by a kill with a second's deliveries unsaved, each with a size of the journal and a
/// `match`: every id has one sum, and the sums are what was written less what was filtered.
fn sums_stay_the_same(runs: [(u64, Option<&'static str>); 4]) {
    let outer = Runtime::new().unwrap();
    let (server, sink) = (outer.block_on(async { server() }), MemorySink::default());
    let journal = tempfile::tempdir().unwrap();
    let start = |(size, filter)| {
        let runtime = Runtime::new().unwrap();
        let tuning = Tuning { filter, ..suppress() };
        let mut setup = Setup::new(&server, journal.path()).tuned("pager", &sink, tuning);
        setup.retention = size;
        let bridge = runtime.block_on(setup.start());
        (runtime, bridge)
    };
    let large = "large ".repeat(500);
    let mut versions = 0;
    for run in runs {
        let (runtime, bridge) = start(run);
        let view = bridge.view();
        runtime.block_on(has_or_holds(&view, versions));
        let mut events = loud_saying(&server, &format!("web-{versions}"), 0..30, "again");
        versions += 30;
        runtime.block_on(has_or_holds(&view, versions));
        // So that all of that is saved, and little of what follows.
        std::thread::sleep(Duration::from_millis(1500));
        for at in 0..200 {
            events[25 + at % 5].again(&server);
            let pod = format!("other-{versions}");
            server.create(EventObject::about_pod("shop", &pod, "A", &large)).unwrap();
            versions += 2;
        }
        runtime.block_on(has_or_holds(&view, versions));
        runtime.shutdown_timeout(Duration::from_secs(10));
        drop((bridge, view));
    }
    let (runtime, bridge) = start(runs[0]);
    runtime.block_on(has_or_holds(&bridge.view(), versions));
    runtime.block_on(stop(bridge));
    let mut deltas = BTreeMap::new();
    for event in sink.received() {
        let before = deltas.insert(event.id.clone(), event.delta);
        assert!(before.is_none_or(|before| before == event.delta), "{}", event.id);
    }
    let (runtime, bridge) = start(runs[0]);
    let status = runtime.block_on(settled(&bridge.view(), "pager", versions));
    let increments = deltas.values().sum::<u64>();
    let told = (status.delivered, increments + status.filtered, status.lost);
    assert_eq!(told, (deltas.len() as u64, versions, 0), "{status:?}");
    runtime.block_on(stop(bridge));
}

#[test]
fn a_journal_of_another_size_changes_nothing_that_was_delivered_before_a_kill() {
    sums_stay_the_same([1 << 20, 8 << 20, 1 << 20, 8 << 20].map(|size| (size, None)));
}

#[test]
fn another_match_changes_no_sum_that_was_delivered_before_a_kill() {
    let odd = Some("event.count % 2 == 1");
    sums_stay_the_same([None, odd, None, odd].map(|filter| (1 << 20, filter)));
}

#[test]
fn what_the_receiver_took_stays_delivered_where_the_match_is_changed_after_a_kill() {
    for correlate in [CorrelateMode::None, CorrelateMode::Suppress] {
        let outer = Runtime::new().unwrap();
        let (server, sink) = (outer.block_on(async { server() }), MemorySink::default());
        let journal = tempfile::tempdir().unwrap();
        let start = |filter| {
            let runtime = Runtime::new().unwrap();
            let tuning = Tuning { filter, correlate, ..suppress() };
            let setup = Setup::new(&server, journal.path()).tuned("pager", &sink, tuning);
            let bridge = runtime.block_on(setup.start());
            (runtime, bridge)
        };
        let (runtime, bridge) = start(None);
        let view = bridge.view();
        // So that what follows is not saved when it is delivered.
        std::thread::sleep(Duration::from_millis(1500));
        loud_saying(&server, "web", 0..30, "again");
        for at in 0..50 {
            let pod = format!("other-{at}");
            server.create(EventObject::about_pod("shop", &pod, "A", "m")).unwrap();
        }
        runtime.block_on(has_or_holds(&view, 80));
        runtime.shutdown_timeout(Duration::from_secs(10));
        drop((bridge, view));
        let arrived = |increments: &mut u64| {
            let deltas: BTreeMap<_, _> =
                sink.received().into_iter().map(|event| (event.id, event.delta)).collect();
            *increments = deltas.values().sum();
            deltas.len() as u64
        };
        let mut increments = 0;
        let before = arrived(&mut increments);

        let other = Some("event.reason == 'B'");
        let (runtime, bridge) = start(other);
        runtime.block_on(has_or_holds(&bridge.view(), 80));
        runtime.block_on(stop(bridge));
        let delivered = arrived(&mut increments);
        let (runtime, bridge) = start(other);
        let status = runtime.block_on(settled(&bridge.view(), "pager", 80));
        runtime.block_on(stop(bridge));
        assert_eq!((status.delivered, status.lost), (delivered, 0), "{correlate:?} {status:?}");
        let told = status.filtered + status.delivered + status.correlated_away;
        assert!(told == 80 && delivered >= before, "{correlate:?} {status:?}");
        assert_eq!(increments + status.filtered, 80, "{correlate:?} {status:?}");
    }
}

/// The first position of a run is saved at its start, and the next one up to a second later.
#[test]
fn a_kill_right_after_a_start_with_another_size_keeps_what_was_decided_by_that_size() {
    let outer = Runtime::new().unwrap();
    let (server, sink) = (outer.block_on(async { server() }), MemorySink::default());
    let journal = tempfile::tempdir().unwrap();
    let start = |size| {
        let runtime = Runtime::new().unwrap();
        let mut setup = Setup::new(&server, journal.path()).tuned("pager", &sink, suppress());
        setup.retention = size;
        let bridge = runtime.block_on(setup.start());
        (runtime, bridge)
    };
    let (runtime, bridge) = start(1 << 30);
    runtime.block_on(until("a watch", || server.open_watches() == 1));
    runtime.block_on(stop(bridge));
    drop(runtime);
    let (runtime, bridge) = start(8 << 20);
    let mut events = loud_saying(&server, "web", 0..30, "again");
    // More than an eighth of the journal: what is held comes out.
    let message = "x".repeat(80 << 10);
    for n in 0..16 {
        let pod = format!("other-{n}");
        server.create(EventObject::about_pod("shop", &pod, "A", &message)).unwrap();
    }
    runtime.block_on(sink.wait_for(46));
    runtime.shutdown_timeout(Duration::from_secs(10));
    drop(bridge);
    for event in &mut events[25..] {
        event.again(&server);
    }
    let (runtime, bridge) = start(1 << 30);
    runtime.block_on(has_or_holds(&bridge.view(), 51));
    runtime.block_on(stop(bridge));
    let deltas: BTreeMap<_, _> =
        sink.received().into_iter().map(|event| (event.id, event.delta)).collect();
    assert_eq!(deltas.values().sum::<u64>(), 51);
}
