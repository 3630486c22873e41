//! A running bridge whose disk takes nothing for a while.

use std::{fs, time::Duration};

use tidings::admin::status;
use tidings_testkit::api_server::EventObject;

use crate::support::{MemorySink, Setup, exchange, server, settled, sink_status, stop, until};

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_while_an_append_fails_comes_when_it_does_not_and_a_backlog_is_sent_meanwhile() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let (journal, away) = (dir.path().join("journal"), dir.path().join("away"));
    let (prompt, held) = (MemorySink::default(), MemorySink::default());
    let mut setup = Setup::new(&server, &journal).sink("prompt", &prompt).sink("held", &held);
    // Segments of 512 KiB: the next one is due soon, and cannot be begun.
    setup.retention = 8 << 20;
    held.hold(true);
    let bridge = setup.start().await;
    let view = bridge.view();
    until("a watch", || server.open_watches() == 1).await;
    let message = "x".repeat(8 << 10);
    let mut ids = Vec::new();
    let mut create = || {
        let pod = format!("web-{}", ids.len());
        let event = EventObject::about_pod("shop", &pod, "Started", &message);
        ids.push(server.create(event).unwrap().id());
        ids.len() as u64
    };
    create();
    prompt.wait_for(1).await;
    // Nothing can be made under the old name, and the directory not again.
    fs::write(&away, "in its place").unwrap();
    exchange(&journal, &away);
    let mut created = 1;
    while view.ingest.journal_error().is_none() {
        created = create();
        assert!(created < 2000, "every append succeeds");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let error = status(&view).journal.error.unwrap();
    assert!(error.contains("cannot write to the journal") && error.contains("hint: "), "{error}");
    let journalled = view.log.tail().ordinal();
    assert!(journalled < created);
    held.hold(false);
    let at_held = settled(&view, "held", journalled).await;
    assert_eq!(at_held.delivered, journalled, "what the journal has is delivered");
    assert!(view.ingest.journal_error().is_some(), "intake stands still all the while");
    exchange(&journal, &away);
    for name in ["prompt", "held"] {
        settled(&view, name, created).await;
    }
    assert_eq!(status(&view).journal.error, None);
    assert_eq!(sink_status(&view, "prompt").lost, 0);
    stop(bridge).await;
    for sink in [&prompt, &held] {
        assert_eq!(sink.ids(), ids, "each once, in order");
    }
}
