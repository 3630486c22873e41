//! The scripted stage: the in-process API server, receivers that do as they are told, and a bridge
//! between them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tidings::demo::api_server::{ApiServer, Options};

use crate::bridge::Bridge;
use crate::judge::{self, Verdict};
use crate::load::{Record, Writing};
use crate::parts::Part as _;
use crate::receiver::Receiver;
use crate::wait::{until, until_within};

/// How long it may take until everything has arrived and is settled, on a busy machine.
const SETTLES_WITHIN: Duration = Duration::from_mins(5);

/// A sink of the stage: a webhook in batches to a receiver of its own.
pub(crate) struct Sink {
    pub(crate) name: &'static str,
    /// With `suppress`: what is too much comes out in sums.
    pub(crate) suppress: bool,
    pub(crate) receiver: Receiver,
}

impl Sink {
    pub(crate) async fn new(name: &'static str) -> Self {
        Self { name, suppress: false, receiver: Receiver::start().await }
    }

    pub(crate) async fn suppressing(name: &'static str) -> Self {
        Self { suppress: true, ..Self::new(name).await }
    }

    fn config(&self) -> Value {
        let mode = if self.suppress { "suppress" } else { "annotate" };
        json!({
            "webhook": {"url": self.receiver.url()},
            "batch": {"events": 200},
            // After an outage a drill does not wait for half a minute.
            "retry": {"max": "1s"},
            "timeout": "2s",
            "correlate": {"mode": mode},
        })
    }
}

/// See the [module](self).
pub(crate) struct Stage {
    // First, so that it ends before what it is connected to.
    pub(crate) bridge: Bridge,
    pub(crate) server: Arc<ApiServer>,
    pub(crate) sinks: Vec<Sink>,
    pub(crate) record: Record,
    seed: u64,
    _kubeconfig: TempDir,
}

impl Stage {
    /// Starts everything but the bridge, in whose configuration `change` has the last word.
    pub(crate) fn set(sinks: Vec<Sink>, seed: u64, change: impl FnOnce(&mut Value)) -> Self {
        let server = Arc::new(ApiServer::start(Options::default()).expect("a port"));
        let folder = tempfile::tempdir().expect("a temporary folder");
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, server.kubeconfig()).expect("the kubeconfig");
        let config = sinks.iter().map(|sink| (sink.name.to_owned(), sink.config())).collect();
        let bridge = Bridge::configured(&kubeconfig, &Value::Object(config), change);
        Self { bridge, server, sinks, record: Record::default(), seed, _kubeconfig: folder }
    }

    /// A sink that annotates, one that suppresses and one that waits for both.
    pub(crate) async fn three_sinks() -> Vec<Sink> {
        vec![Sink::new("audit").await, Sink::suppressing("pager").await, Sink::new("spare").await]
    }

    /// Starts the bridge, and waits until its watch is open: what is written from then on is news.
    pub(crate) async fn open(&mut self) {
        self.bridge.launch().await;
        until("a stream is open", async || self.bridge.readiness().await.0).await;
    }

    /// Starts to write so many events a second.
    pub(crate) fn write(&self, rate: u32) -> Writing {
        Writing::start(&self.server, &self.record, rate, self.seed)
    }

    /// Waits until everything that was produced has a fate at every sink, or is held by its
    /// correlator. Answers how long that took.
    pub(crate) async fn settle(&self) -> Duration {
        let started = Instant::now();
        let produced = self.record.len() as u64;
        until_within(SETTLES_WITHIN, "every event has a fate", async || {
            let status = self.bridge.status().await;
            let sinks = status["sinks"].as_array().expect("a list of sinks");
            sinks.iter().all(|sink| {
                let number = |name: &str| sink[name].as_u64().unwrap_or_default();
                number("seen") >= produced && number("pending") == number("held")
            })
        })
        .await;
        started.elapsed()
    }

    /// Lets everything settle, stops the bridge in order, which makes it send what it holds, starts
    /// it again to ask for its accounts, and judges each sink.
    pub(crate) async fn finish(&mut self) -> Vec<(Judged, Verdict)> {
        let caught_up = self.settle().await;
        self.bridge.stop_in_order().await;
        self.open().await;
        let status = self.bridge.status().await;
        let verdicts = self.sinks.iter().map(|sink| {
            let verdict = judge::judge(&self.record.lock(), &sink.receiver.arrivals());
            let sinks = status["sinks"].as_array().into_iter().flatten();
            let status = sinks.clone().find(|status| status["name"] == sink.name);
            let status = status.expect("a sink of this name").clone();
            verdict.is_honest(sink.name);
            judge::identity(&status, &verdict);
            (Judged { name: sink.name, suppress: sink.suppress, status, caught_up }, verdict)
        });
        let verdicts = verdicts.collect();
        self.bridge.stop_in_order().await;
        verdicts
    }
}

/// A sink at the end of a drill.
pub(crate) struct Judged {
    pub(crate) name: &'static str,
    pub(crate) suppress: bool,
    /// What the bridge says of it.
    pub(crate) status: Value,
    pub(crate) caught_up: Duration,
}
