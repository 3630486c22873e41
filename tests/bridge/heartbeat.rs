//! The bridge's own Event by which it notices a dead watch: never exported, always watched for.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use tidings::{admin::status, bridge::Heartbeat};
use tidings_testkit::api_server::{
    ApiServer, EventObject, Fault, On, Recorded, StreamFault, Written, seconds,
};

use crate::support::{MemorySink, Setup, Tuning, create, server, stop, until};

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
async fn the_heartbeat_of_another_bridge_is_an_event_like_any_other() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let pager = MemorySink::default();
    let other_dir = tempfile::tempdir().unwrap();
    let other = beating(&server, other_dir.path(), &MemorySink::default()).start().await;
    until("a beat before the list", || status(&other.view()).ingest.heartbeats >= 1).await;
    // How the manual leaves them out.
    let filter = r#"!(event.reason == "Heartbeat" && event.source.component == "tidings")"#;
    let tuning = Tuning { filter: Some(filter), ..Tuning::default() };
    let setup = Setup::new(&server, dir.path()).sink("audit", &sink).tuned("pager", &pager, tuning);
    let bridge = setup.start().await;
    let received = sink.wait_for(2).await;
    assert!(received.iter().all(|event| event.envelope.contains("tidings-0.heartbeat")));
    create(&server, "web");
    pager.wait_for(1).await;
    assert!(pager.received()[0].envelope.contains("\"name\":\"web\""));
    assert_eq!(status(&bridge.view()).ingest.heartbeats, 0);
    stop(bridge).await;
    stop(other).await;
}

/// Our heartbeat as an earlier run left it.
fn left_over(server: &ApiServer) -> Written {
    let mut event = EventObject::about_pod("tidings", "tidings-0", "Heartbeat", "of a run before");
    "tidings-0.heartbeat".clone_into(&mut event.metadata.name);
    "tidings".clone_into(&mut event.source.component);
    server.create(event).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_of_a_build_that_did_not_note_it_is_known_by_the_answer_to_the_first_beat() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    left_over(&server);
    server.fail_once(On::Write, Fault::Delay(Duration::from_secs(1)));
    let bridge = beating(&server, dir.path(), &sink).start().await;
    let view = bridge.view();
    until("two beats", || status(&view).ingest.heartbeats >= 2).await;
    let web = create(&server, "web").id();
    assert_eq!(sink.wait_for(1).await[0].id, web);
    stop(bridge).await;
    assert_eq!(sink.ids(), [web]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_is_known_in_the_next_run_before_it_is_written_again() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let bridge = beating(&server, dir.path(), &sink).start().await;
    let view = bridge.view();
    until("a beat", || status(&view).ingest.heartbeats >= 1).await;
    stop(bridge).await;
    // Written on its way down, and read by the next run, whose own writes all fail.
    let now = seconds(jiff::Timestamp::now());
    let beat = serde_json::json!({"lastTimestamp": now, "message": "the last"});
    server.patch("tidings", "tidings-0.heartbeat", &beat).unwrap();
    server.set_fault(On::Write, None, Fault::Forbidden);
    let bridge = beating(&server, dir.path(), &sink).start().await;
    let view = bridge.view();
    until("it is read", || status(&view).ingest.heartbeats >= 1).await;
    let web = create(&server, "web").id();
    assert_eq!(sink.wait_for(1).await[0].id, web);
    stop(bridge).await;
}
