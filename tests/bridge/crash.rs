//! A bridge is whole or it ends: what panics ends it, by name, and the rest is saved.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tidings::{
    bridge::{Outcome, Sink},
    event::Batch,
};

use crate::support::{MemorySink, Setup, create, server, settled, sink_status, stop};

/// A sink with a bug.
struct Broken;

impl Sink for Broken {
    fn send<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Outcome> {
        Box::pin(async { panic!("no idea what to do with {} events", batch.records.len()) })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_ends_the_bridge_by_name_and_what_is_settled_is_saved() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let whole = MemorySink::default();
    let mut bridge = Setup::new(&server, dir.path())
        .sink("whole", &whole)
        .other("broken", Arc::new(Broken))
        .start()
        .await;
    create(&server, "web-0");
    settled(&bridge.view(), "whole", 1).await;
    let error = bridge.failed().await.to_string();
    assert!(
        error.starts_with(
            "delivery to sink broken panicked: no idea what to do with 1 events; this is a bug\nhint: "
        ),
        "{error}"
    );
    bridge.stop(Duration::from_secs(10)).await.unwrap();

    let patient = MemorySink::default();
    let bridge = Setup::new(&server, dir.path())
        .sink("whole", &whole)
        .sink("broken", &patient)
        .start()
        .await;
    patient.wait_for(1).await;
    let status = sink_status(&bridge.view(), "whole");
    assert_eq!((status.delivered, status.redelivered), (1, 0));
    stop(bridge).await;
    assert_eq!(whole.received().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_at_the_end_is_no_quiet_end() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let held = MemorySink::default();
    held.hold(true);
    held.respond(|_| panic!("too late"));
    let bridge = Setup::new(&server, dir.path()).sink("a", &held).start().await;
    create(&server, "web-0");
    while held.attempts().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let stopping = tokio::spawn(bridge.stop(Duration::from_secs(10)));
    tokio::task::yield_now().await;
    held.hold(false);
    let error = stopping.await.unwrap().unwrap_err().to_string();
    assert!(error.starts_with("delivery to sink a panicked: too late"), "{error}");
}
