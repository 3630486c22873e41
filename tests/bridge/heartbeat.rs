//! The bridge's own Event by which it notices a dead watch: never exported, always watched for.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use tidings::{
    admin::status,
    bridge::Heartbeat,
    demo::api_server::{ApiServer, Fault, On, Recorded, StreamFault},
};

use crate::support::{MemorySink, Setup, create, server, stop, until};

fn heartbeat() -> Heartbeat {
    let about = ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: Some("tidings".to_owned()),
        name: Some("tidings-0".to_owned()),
        ..ObjectReference::default()
    };
    Heartbeat { about, every: Duration::from_secs(1) }
}

fn count(server: &ApiServer, which: impl Fn(&Recorded) -> bool) -> usize {
    server.requests().iter().filter(|recorded| which(recorded)).count()
}

fn beating<'a>(
    server: &'a ApiServer,
    journal: &'a std::path::Path,
    sink: &MemorySink,
) -> Setup<'a> {
    let mut setup = Setup::new(server, journal).sink("audit", sink);
    setup.heartbeat = Some(heartbeat());
    setup
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_moves_the_resume_point_and_nothing_else() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let bridge = beating(&server, dir.path(), &sink).start().await;
    let view = bridge.view();
    until("three beats", || status(&view).ingest.heartbeats >= 3).await;
    create(&server, "web");
    sink.wait_for(1).await;
    assert_eq!(server.live_events(), 2, "one Event, patched");
    assert_eq!(view.log.tail().next, 2, "no heartbeat is journalled");
    assert_eq!(status(&view).ingest.heartbeats_missed, 0);
    stop(bridge).await;

    // A list shows it too, and the history before the last beat is not needed any more.
    server.compact(server.revision());
    let lists = || count(&server, |r| r.request.param("limit") == "500");
    let before = lists();
    let bridge = beating(&server, dir.path(), &sink).start().await;
    create(&server, "db");
    sink.wait_for(2).await;
    assert_eq!(lists(), before, "no gap: the resume point is that of the last beat");
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_does_not_bring_it_is_opened_anew() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let dead =
        server.set_fault(On::Watch, Some(1), Fault::Stream { after: 0, then: StreamFault::Stall });
    let bridge = beating(&server, dir.path(), &sink).start().await;
    let view = bridge.view();
    until("the dead watch", || server.fault_hits(dead) == 1).await;
    create(&server, "web");
    sink.wait_for(1).await;
    assert_eq!(status(&view).ingest.heartbeats_missed, 1);
    assert_eq!(status(&view).ingest.gaps, 0);
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_of_another_namespace_or_of_some_events_is_left_alone() {
    for (namespaces, selector) in [(vec!["shop".to_owned()], ""), (vec![], "type=Warning")] {
        let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
        let mut setup = beating(&server, dir.path(), &sink);
        setup.namespaces = namespaces;
        setup.field_selector = selector.to_owned();
        let bridge = setup.start().await;
        let view = bridge.view();
        until("a watch", || server.open_watches() == 1).await;
        let before = server.revision();
        until("three beats", || server.revision() >= before + 3).await;
        let watches = count(&server, |r| r.request.flag("watch"));
        assert_eq!((watches, status(&view).ingest.heartbeats_missed), (1, 0), "{selector}");
        stop(bridge).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_heartbeat_of_another_bridge_is_not_exported_either() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let other_dir = tempfile::tempdir().unwrap();
    let other = beating(&server, other_dir.path(), &MemorySink::default()).start().await;
    until("a beat before the list", || status(&other.view()).ingest.heartbeats >= 1).await;
    // It has none of its own.
    let bridge = Setup::new(&server, dir.path()).sink("audit", &sink).start().await;
    let view = bridge.view();
    until("a beat by the watch", || status(&view).ingest.heartbeats >= 1).await;
    create(&server, "web");
    sink.wait_for(1).await;
    assert_eq!(sink.received().len(), 1);
    stop(bridge).await;
    stop(other).await;
}
