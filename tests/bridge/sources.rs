//! Which Events are read, and from where on.

use std::{path::Path, time::Duration};

use jiff::Timestamp;
use tidings::{
    admin::status,
    bridge::{Bridge, FailureClass, SourceStart},
};
use tidings_testkit::api_server::{EventObject, Fault, On, Written, seconds};
use tokio::runtime::Runtime;

use crate::support::{
    MemorySink, Received, Setup, create, health, push_time, retry, server, settled, sink_status,
    stop, stop_unpushed, until,
};

fn about(namespace: &str, pod: &str) -> EventObject {
    EventObject::about_pod(namespace, pod, "Started", "Started container web")
}

fn names(received: &[Received]) -> Vec<String> {
    let event = |event: &Received| {
        let json: serde_json::Value = serde_json::from_str(&event.envelope).unwrap();
        json["event"]["involvedObject"]["name"].as_str().unwrap().to_owned()
    };
    let mut names: Vec<_> = received.iter().map(event).collect();
    names.sort();
    names
}

/// Keys of messages begin with the uid, so it must not come and go.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_whose_uid_is_refused_is_the_one_that_the_journal_remembers() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    for run in 1..=2 {
        create(&server, &format!("web-{run}"));
        let bridge = Setup::new(&server, dir.path()).sink("a", &sink).start().await;
        sink.wait_for(run).await;
        stop(bridge).await;
        server.set_fault(On::Get.of("namespaces"), None, Fault::Forbidden);
    }
    let uids: Vec<_> = sink.received().iter().map(uid_of_cluster).collect();
    assert!(uids[0].is_some() && uids[0] == uids[1], "{uids:?}");
}

fn uid_of_cluster(event: &Received) -> Option<String> {
    let json: serde_json::Value = serde_json::from_str(&event.envelope).unwrap();
    json["cluster"]["uid"].as_str().map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_namespace_is_a_source_of_its_own() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    for namespace in ["blue", "green", "grey"] {
        server.create(about(namespace, namespace)).unwrap();
    }
    let setup = || {
        let mut setup = Setup::new(&server, dir.path()).sink("a", &sink);
        setup.namespaces = vec!["blue".to_owned(), "green".to_owned()];
        setup
    };
    let bridge = setup().start().await;
    until("two watches", || server.open_watches() == 2).await;
    for namespace in ["blue", "green", "grey"] {
        server.create(about(namespace, &format!("{namespace}-2"))).unwrap();
    }
    assert_eq!(names(&sink.wait_for(4).await), ["blue", "blue-2", "green", "green-2"]);
    let sources: Vec<_> = status(&bridge.view()).sources.into_iter().map(|s| s.source).collect();
    assert_eq!(sources, ["blue", "green"]);
    stop(bridge).await;
    for namespace in ["blue", "green", "grey"] {
        server.create(about(namespace, &format!("{namespace}-3"))).unwrap();
    }
    server.forget_requests();
    let bridge = setup().start().await;
    sink.wait_for(6).await;
    stop(bridge).await;
    assert_eq!(names(&sink.received()[4..]), ["blue-3", "green-3"]);
    let lists = server.requests().into_iter().filter(|r| r.request.path.ends_with("/events"));
    let lists = lists.filter(|r| !r.request.flag("watch"));
    assert!(
        lists.into_iter().all(|r| r.request.param("limit") == "1"),
        "each has its resume point"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_selector_selects_on_the_server() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    server.create(about("shop", "normal")).unwrap();
    server.create(about("shop", "listed").warning()).unwrap();
    let mut setup = Setup::new(&server, dir.path()).sink("a", &sink);
    setup.field_selector = "type=Warning".to_owned();
    let bridge = setup.start().await;
    until("a watch", || server.open_watches() == 1).await;
    server.create(about("shop", "normal-2")).unwrap();
    server.create(about("shop", "watched").warning()).unwrap();
    assert_eq!(names(&sink.wait_for(2).await), ["listed", "watched"]);
    assert_eq!(status(&bridge.view()).sources[0].source, "*?type=Warning");
    stop(bridge).await;
}

/// Stops a bridge and takes its state, so that the next one brings its views up from the log.
async fn stop_without_state(bridge: Bridge, journal: &Path) {
    stop(bridge).await;
    std::fs::remove_file(journal.join("state.redb")).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_seen_last_is_brought_up_from_the_log() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let start = || async {
        let mut setup = Setup::new(&server, dir.path()).sink("a", &sink);
        setup.field_selector = "type=Warning".to_owned();
        setup.start().await
    };
    let set = |event: &Written, kind: &str, count: i32| {
        let patch = serde_json::json!({"type": kind, "count": count});
        server.patch("shop", &event.name, &patch).unwrap()
    };
    let bridge = start().await;
    let event = server.create(about("shop", "web").warning()).unwrap();
    sink.wait_for(1).await;
    stop(bridge).await;
    // One read, and so one frame, in which one Event leaves the selection and comes back, and
    // another comes and goes.
    set(&event, "Normal", 2);
    set(&event, "Warning", 3);
    let brief = server.create(about("shop", "brief").warning()).unwrap();
    server.delete("shop", &brief.name).unwrap();
    let bridge = start().await;
    let received = sink.wait_for(3).await;
    assert_eq!((received[1].delta, &*received[1].change), (3, "created"));
    stop_without_state(bridge, dir.path()).await;
    let bridge = start().await;
    let last = set(&event, "Warning", 5);
    let mut again = about("shop", "brief").warning();
    again.metadata.uid = brief.uid;
    again.count = 4;
    let again = server.create(again).unwrap();
    until("the last two", || sink.ids().contains(&again.id())).await;
    stop(bridge).await;
    let received = sink.received();
    let of = |id: String| {
        let event = received.iter().rfind(|event| event.id == id).unwrap();
        (event.delta, event.change.clone())
    };
    assert_eq!(of(last.id()), (2, "updated".to_owned()));
    assert_eq!(of(again.id()), (4, "created".to_owned()));
}

#[test]
fn what_was_brought_up_after_a_crash_is_known_in_the_run_after_the_next() {
    let outer = Runtime::new().unwrap();
    let (server, dir) = (outer.block_on(async { server() }), tempfile::tempdir().unwrap());
    let sink = MemorySink::default();
    let start = || {
        let runtime = Runtime::new().unwrap();
        let bridge = runtime.block_on(Setup::new(&server, dir.path()).sink("a", &sink).start());
        (runtime, bridge)
    };
    let again = |event: &Written, count: i32| {
        server.patch_count("shop", &event.name, count, Timestamp::now()).unwrap()
    };
    let (runtime, bridge) = start();
    let early = server.create(about("shop", "early")).unwrap();
    runtime.block_on(sink.wait_for(1));
    // The crash comes before the view has been saved.
    runtime.shutdown_timeout(Duration::from_secs(10));
    drop(bridge);
    let (runtime, bridge) = start();
    let late = server.create(about("shop", "late")).unwrap();
    let view = bridge.view();
    runtime.block_on(settled(&view, "a", 2));
    runtime.block_on(stop(bridge));
    drop((view, runtime));
    let (runtime, bridge) = start();
    let changed = [again(&early, 2), again(&late, 2)].map(|event| event.id());
    runtime.block_on(settled(&bridge.view(), "a", 4));
    runtime.block_on(stop(bridge));
    let deltas =
        changed.map(|id| sink.received().iter().find(|event| event.id == id).unwrap().delta);
    assert_eq!(deltas, [1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_with_now_or_lately_leaves_out_what_was_before() {
    let server = server();
    let hours_ago = seconds(Timestamp::now() - Duration::from_secs(7200));
    let mut old = about("shop", "old");
    old.metadata.creation_timestamp = Some(hours_ago.clone());
    old.first_timestamp = Some(hours_ago.clone());
    old.last_timestamp = Some(hours_ago.clone());
    let mut again = about("shop", "old but again");
    again.metadata.creation_timestamp = Some(hours_ago.clone());
    again.first_timestamp = Some(hours_ago);
    again.count = 7;
    let old = server.create(old).unwrap();
    server.create(again).unwrap();
    for (start, expected) in [
        (SourceStart::All, &["live", "old", "old", "old but again"][..]),
        (SourceStart::Since(Duration::from_secs(3600)), &["live", "old", "old but again"]),
        (SourceStart::Now, &["live", "old"]),
    ] {
        let (dir, sink) = (tempfile::tempdir().unwrap(), MemorySink::default());
        let mut setup = Setup::new(&server, dir.path()).sink("a", &sink);
        setup.start = start;
        let bridge = setup.start().await;
        until("a watch", || server.open_watches() == 1).await;
        let live = create(&server, "live");
        let count = 2 + i32::try_from(server.revision()).unwrap();
        let patched = server.patch_count("shop", &old.name, count, Timestamp::now()).unwrap();
        let received = sink.wait_for(expected.len()).await;
        assert_eq!(names(&received), expected, "{start:?}");
        let last = received.last().unwrap();
        assert_eq!(last.id, patched.id());
        if start != SourceStart::All {
            // What happened to it before the start is not ours to announce.
            assert_eq!((last.delta, &*last.change), (1, "created"), "{start:?}");
        }
        stop(bridge).await;
        server.delete("shop", &live.name).unwrap();
        server
            .patch_count("shop", &old.name, 1, Timestamp::now() - Duration::from_secs(7200))
            .unwrap();
        until("no watch", || server.open_watches() == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_is_no_news_but_is_taken_note_of() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let setup = || Setup::new(&server, dir.path()).sink("a", &sink);
    let event = create(&server, "web");
    let bridge = setup().start().await;
    sink.wait_for(1).await;
    until("a watch", || server.open_watches() == 1).await;
    assert_eq!(server.expire_ttl(Duration::ZERO), 1);
    let mut again = about("shop", "web");
    again.metadata.uid = event.uid;
    again.count = 3;
    server.create(again).unwrap();
    let received = sink.wait_for(2).await;
    assert_eq!((received[1].delta, &*received[1].change), (3, "created"));
    server.expire_ttl(Duration::ZERO);
    let deleted_at = server.revision().to_string();
    let view = bridge.view();
    let read = || health(&view).last_sync_resource_version == deleted_at;
    until("the deletion is read", read).await;
    stop(bridge).await;
    server.forget_requests();
    let bridge = setup().start().await;
    until("a watch", || server.open_watches() == 1).await;
    stop(bridge).await;
    let watch = server.requests().into_iter().find(|r| r.request.flag("watch")).unwrap();
    assert_eq!(watch.request.param("resourceVersion"), deleted_at);
    assert_eq!(sink.received().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_restored_etcd_is_a_new_epoch_and_all_of_it_comes_again_under_the_same_ids() {
    let time = tokio::spawn(push_time(Duration::from_millis(20)));
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let setup = || Setup::new(&server, dir.path()).sink("a", &sink);
    let kept = [create(&server, "one").id(), create(&server, "two").id()];
    let snapshot = server.snapshot();
    for n in 0..5 {
        create(&server, &format!("lost-{n}"));
    }
    let bridge = setup().start().await;
    sink.wait_for(7).await;
    stop(bridge).await;
    server.restore(&snapshot);
    let after = create(&server, "after").id();
    let bridge = setup().start().await;
    sink.wait_for(10).await;
    assert_eq!(sink.ids()[7..], [&kept[..], &[after]].concat());
    assert!(sink.received()[7..].iter().all(|event| event.replayed));
    let ingest = status(&bridge.view()).ingest;
    assert_eq!((ingest.epochs, ingest.gaps), (1, 0));
    let next = create(&server, "next").id();
    sink.wait_for(11).await;
    stop_unpushed(time, bridge).await;
    assert_eq!(sink.ids()[10..], [next]);
}

#[tokio::test(start_paused = true)]
async fn the_gap_of_a_new_epoch_starts_when_the_source_was_last_heard_of() {
    let time = tokio::spawn(push_time(Duration::from_millis(20)));
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    create(&server, "kept");
    let snapshot = server.snapshot();
    let bridge = Setup::new(&server, dir.path()).sink("a", &sink).start().await;
    sink.wait_for(1).await;
    let heard = Timestamp::now().as_millisecond().cast_unsigned();
    create(&server, "lost");
    sink.wait_for(2).await;
    // On a busy machine the time that is pushed makes what came history: until one comes that is
    // not.
    let view = bridge.view();
    while health(&view).caught_up_ms < Some(heard) {
        create(&server, "lost, too");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let restored = Timestamp::now().as_millisecond().cast_unsigned();
    server.restore(&snapshot);
    until("a new epoch", || !view.ingest.recent_gaps().is_empty()).await;
    let gap = view.ingest.recent_gaps().remove(0);
    assert!(gap.epoch);
    // It begins a second before the last sign of life.
    assert!((heard - 1_000..=restored).contains(&gap.from_ms), "{heard} {restored} {gap:?}");
    stop_unpushed(time, bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_is_new_after_a_restore_is_not_taken_for_had_when_the_state_is_lost() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let start = |namespaces: &[&str]| {
        let mut setup = Setup::new(&server, dir.path()).sink("a", &sink);
        setup.namespaces = namespaces.iter().map(|&namespace| namespace.to_owned()).collect();
        setup.start()
    };
    let snapshot = server.snapshot();
    let bridge = start(&["shop"]).await;
    create(&server, "lost");
    sink.wait_for(1).await;
    stop(bridge).await;
    server.restore(&snapshot);
    // Past where it was, of which an API server is given time to tell.
    let after = [(); 2].map(|()| create(&server, "after").id());
    let bridge = start(&["shop"]).await;
    until("a new epoch", || status(&bridge.view()).ingest.epochs == 1).await;
    until("they have arrived", || after.iter().all(|id| sink.ids().contains(id))).await;
    stop(bridge).await;

    let news: Vec<_> = (0..3).map(|_| server.create(about("bank", "web")).unwrap().id()).collect();
    sink.respond(|_| Some(retry(FailureClass::Misconfigured)));
    let bridge = start(&["shop", "bank"]).await;
    until("they are journalled", || sink_status(&bridge.view(), "a").seen == 6).await;
    stop(bridge).await;
    std::fs::remove_file(dir.path().join("state.redb")).unwrap();
    sink.accept_everything();
    let bridge = start(&["shop", "bank"]).await;
    until("they have arrived", || news.iter().all(|id| sink.ids().contains(id))).await;
    stop(bridge).await;
}
