//! What a gap hides, and what is said of it.

use std::{path::Path, time::Duration};

use jiff::Timestamp;
use tidings::{
    admin::{IngestStatus, status},
    bridge::{Bridge, BridgeView},
    demo::api_server::{ApiServer, EventObject, Fault, On, Written, seconds},
};

use crate::support::{MemorySink, Received, Setup, create, server, stop, until};

async fn start(server: &ApiServer, journal: &Path, sink: &MemorySink) -> Bridge {
    Setup::new(server, journal).sink("a", sink).start().await
}

fn ingest(view: &BridgeView) -> IngestStatus {
    status(view).ingest
}

fn patch(server: &ApiServer, event: &Written, count: i32) -> Written {
    server.patch_count("shop", &event.name, count, Timestamp::now()).unwrap()
}

fn short(events: &[Received]) -> Vec<(String, u64, bool)> {
    events.iter().map(|event| (event.id.clone(), event.delta, event.replayed)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_gives_the_newest_versions_and_says_what_it_hid() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let bridge = start(&server, dir.path(), &sink).await;
    let [known, quiet, gone] = ["known", "quiet", "gone"].map(|pod| create(&server, pod));
    sink.wait_for(3).await;
    stop(bridge).await;
    let down = Timestamp::now();

    let new = create(&server, "new");
    let new = [2, 3, 4].map(|count| patch(&server, &new, count))[2].clone();
    let known = [2, 3, 7].map(|count| patch(&server, &known, count))[2].clone();
    let single = create(&server, "single");
    server.delete("shop", &gone.name).unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.compact(server.revision());

    let bridge = start(&server, dir.path(), &sink).await;
    let received = sink.wait_for(6).await;
    until("the gap is stated", || ingest(&bridge.view()).gaps == 1).await;
    let ingest = ingest(&bridge.view());
    let missed = (Timestamp::now() - down).total(jiff::Unit::Second).unwrap();
    // In the order of their versions; `new` was created after the first start, so all is news.
    let expected = [(new.id(), 4, true), (known.id(), 6, true), (single.id(), 1, true)];
    assert_eq!(short(&received[3..]), expected);
    assert_eq!(ingest.skipped_increments, 3 + 5);
    assert!((0.3..=missed + 5.0).contains(&ingest.gap_seconds), "{ingest:?}, {missed} s");
    assert_eq!(ingest.epochs, 0);

    // What the gap took is forgotten; what it left is not.
    let mut again = EventObject::about_pod("shop", "gone", "Started", "another, of the same uid");
    again.metadata.uid = gone.uid;
    again.count = 3;
    let again = server.create(again).unwrap();
    let quiet = patch(&server, &quiet, 2);
    let received = sink.wait_for(8).await;
    assert_eq!(short(&received[6..]), [(again.id(), 3, false), (quiet.id(), 1, false)]);
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_with_nothing_newer_is_none() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    create(&server, "one");
    let bridge = start(&server, dir.path(), &sink).await;
    sink.wait_for(1).await;
    stop(bridge).await;
    server.skip_revisions(100);
    server.compact(server.revision());
    let bridge = start(&server, dir.path(), &sink).await;
    // The probe, the watch that is told so, and the list.
    until("a watch after a list", || {
        let sources = status(&bridge.view()).sources;
        sources.iter().any(|source| source.lists == 2 && source.stream_open)
    })
    .await;
    let next = create(&server, "two");
    let received = sink.wait_for(2).await;
    assert_eq!(short(&received[1..]), [(next.id(), 1, false)]);
    let ingest = ingest(&bridge.view());
    assert_eq!((ingest.gaps, ingest.skipped_increments), (0, 0), "{ingest:?}");
    assert!(ingest.gap_seconds < f64::EPSILON, "{ingest:?}");
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_under_a_running_bridge_is_measured_from_the_last_sign_of_life() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let bridge = start(&server, dir.path(), &sink).await;
    until("a watch", || server.open_watches() == 1).await;
    let event = create(&server, "one");
    sink.wait_for(1).await;
    let outage = server.set_fault(On::Any, None, Fault::Unavailable);
    server.cut_connections();
    until("the outage is noticed", || server.fault_hits(outage) > 0).await;
    let patched = [2, 3, 4].map(|count| patch(&server, &event, count))[2].clone();
    server.compact(server.revision());
    server.clear_faults();
    let received = sink.wait_for(2).await;
    assert_eq!(short(&received[1..]), [(patched.id(), 3, true)]);
    until("the gap is stated", || ingest(&bridge.view()).gaps == 1).await;
    let ingest = ingest(&bridge.view());
    assert_eq!(ingest.skipped_increments, 2);
    // The first wait after the cut is of 0.8 s at the least.
    assert!((0.8..60.0).contains(&ingest.gap_seconds), "{ingest:?}");
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn increments_are_of_what_happened_since_the_first_start() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let counted = |pod: &str, count, created: Timestamp| {
        let mut event = EventObject::about_pod("shop", pod, "BackOff", "Back-off restarting");
        event.count = count;
        event.metadata.creation_timestamp = Some(seconds(created));
        server.create(event).unwrap()
    };
    let before = Timestamp::now() - Duration::from_secs(3600);
    let old = counted("old", 50, before);
    let bridge = start(&server, dir.path(), &sink).await;
    sink.wait_for(1).await;
    let steps = [
        (old.id(), 1),
        (patch(&server, &old, 53).id(), 3),
        // A recorder that started over, and what follows.
        (patch(&server, &old, 2).id(), 0),
        (patch(&server, &old, 4).id(), 2),
        (counted("found late", 9, before).id(), 1),
        (counted("new", 9, Timestamp::now() + Duration::from_secs(1)).id(), 9),
    ];
    let received = sink.wait_for(steps.len()).await;
    let deltas: Vec<_> = received.into_iter().map(|event| (event.id, event.delta)).collect();
    assert_eq!(deltas, steps);
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_of_thousands_is_in_order_and_survives_a_list_that_breaks_off() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let bridge = start(&server, dir.path(), &sink).await;
    let first = create(&server, "first");
    sink.wait_for(1).await;
    stop(bridge).await;
    let written: Vec<_> = (0..1800).map(|n| create(&server, &format!("web-{}", n % 7))).collect();
    patch(&server, &first, 2);
    server.compact(server.revision());
    // The probe, then two pages, then an answer that is none.
    for _ in 0..3 {
        server.fail_once(On::List, Fault::Delay(Duration::ZERO));
    }
    server.fail_once(On::List, Fault::Html { code: 200 });
    let bridge = start(&server, dir.path(), &sink).await;
    let received = sink.wait_for(1802).await;
    stop(bridge).await;
    assert_eq!(received.len(), 1802);
    let ids: Vec<_> = written.iter().map(Written::id).collect();
    assert_eq!(received[1..1801].iter().map(|event| event.id.clone()).collect::<Vec<_>>(), ids);
    assert!(received[1..].iter().all(|event| event.replayed && event.delta == 1));
    assert!(
        std::fs::read_dir(dir.path())
            .unwrap()
            .flatten()
            .all(|entry| { !entry.file_name().to_string_lossy().starts_with("staging-") })
    );
}
