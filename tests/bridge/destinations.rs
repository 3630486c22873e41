//! The number of a sink's destinations in a day is bounded.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tidings::{
    bridge::{Outcome, Reason, Sink, SinkCondition},
    event::{Batch, Record},
};

use crate::support::{MemorySink, Setup, create, dead_letters, server, settled, stop};

/// A sink with a destination for each Pod.
struct ByPod(MemorySink);

impl Sink for ByPod {
    fn send<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Outcome> {
        self.0.send(batch)
    }

    fn destination(&self, record: &Record) -> Result<Option<String>, Reason> {
        let envelope: serde_json::Value = serde_json::from_slice(&record.envelope).unwrap();
        Ok(envelope["event"]["involvedObject"]["name"].as_str().map(str::to_owned))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_for_more_destinations_than_a_day_has_are_dead_letters_also_after_a_restart() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    for n in 0..30 {
        create(&server, &format!("web-{n}"));
    }
    let by_pod = || Arc::new(ByPod(sink.clone()));
    let bridge = Setup::new(&server, dir.path()).other("a", by_pod()).start().await;
    let status = settled(&bridge.view(), "a", 30).await;
    // A namespace has an eighth of 16. That many refusals in a row say nothing of the receiver.
    assert_eq!((status.delivered, status.dead_lettered), (2, 28));
    assert_ne!(status.state, SinkCondition::Misconfigured);
    stop(bridge).await;

    let bridge = Setup::new(&server, dir.path()).other("a", by_pod()).start().await;
    for pod in ["web-0", "web-99"] {
        create(&server, pod);
    }
    let status = settled(&bridge.view(), "a", 32).await;
    assert_eq!((status.delivered, status.dead_lettered), (3, 29));
    stop(bridge).await;
    let letters = dead_letters(dir.path());
    assert!(letters.iter().all(|letter| letter.class == "unsendable"));
    let reason = "expected at most 2 destinations a day by one namespace, found one more: see \
                  `maxDestinations`";
    assert_eq!(letters[0].reason, reason);
}
