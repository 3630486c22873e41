//! The bridge when nothing goes wrong.

use crate::support::{MemorySink, Setup, create, server, stop};

#[tokio::test(flavor = "multi_thread")]
async fn each_version_arrives_once_and_in_order_at_every_sink() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let before = create(&server, "old");
    let (a, b) = (MemorySink::default(), MemorySink::default());
    let bridge = Setup::new(&server, dir.path()).sink("a", &a).sink("b", &b).start().await;
    a.wait_for(1).await;
    let mut ids = vec![before.id()];
    for n in 0..20 {
        let written = create(&server, &format!("web-{n}"));
        ids.push(written.id());
        for count in 2..4 {
            let at = jiff::Timestamp::now();
            ids.push(server.patch_count("shop", &written.name, count, at).unwrap().id());
        }
    }
    assert_eq!(a.wait_for(61).await.len(), 61);
    b.wait_for(61).await;
    stop(bridge).await;
    assert_eq!(a.ids(), ids);
    assert_eq!(b.ids(), ids);
    let received = a.received();
    assert_eq!(received.iter().map(|e| e.seq).collect::<Vec<_>>(), (1..=61).collect::<Vec<_>>());
    assert_eq!(received.iter().map(|e| e.delta).sum::<u64>(), 61);
    assert_eq!(received[0].change, "created");
    assert_eq!((received[3].change.as_str(), received[3].occurrences), ("updated", 3));
    assert!(received.iter().all(|e| !e.replayed && !e.envelope.contains("managedFields")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_goes_on_where_it_was_without_a_list() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let sink = MemorySink::default();
    let first = create(&server, "one");
    let bridge = Setup::new(&server, dir.path()).sink("a", &sink).start().await;
    sink.wait_for(1).await;
    stop(bridge).await;
    let second = create(&server, "two");
    let patched = server.patch_count("shop", &first.name, 5, jiff::Timestamp::now()).unwrap();
    server.forget_requests();
    let bridge = Setup::new(&server, dir.path()).sink("a", &sink).start().await;
    sink.wait_for(3).await;
    stop(bridge).await;
    assert_eq!(sink.ids(), [first.id(), second.id(), patched.id()]);
    assert_eq!(sink.received()[2].delta, 4);
    let lists = server
        .requests()
        .into_iter()
        .filter(|r| r.request.path.ends_with("/events") && !r.request.flag("watch"));
    for list in lists {
        assert_eq!(list.request.param("limit"), "1", "only the probe lists");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_in_which_nothing_happens_moves_nothing() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let sink = MemorySink::default();
    let first = create(&server, "one");
    for _ in 0..3 {
        let bridge = Setup::new(&server, dir.path()).sink("a", &sink).start().await;
        sink.wait_for(1).await;
        stop(bridge).await;
    }
    let second = create(&server, "two");
    let bridge = Setup::new(&server, dir.path()).sink("a", &sink).start().await;
    sink.wait_for(2).await;
    let status = tidings::admin::status(&bridge.view());
    stop(bridge).await;
    assert_eq!(sink.ids(), [first.id(), second.id()]);
    assert!(status.sinks[0].seen <= 2, "{:?}", status.sinks[0]);
}
