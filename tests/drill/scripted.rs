//! The scripted stage: the in-process API server, receivers that do as they are told, and a bridge
//! between them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tidings_testkit::api_server::{ApiServer, Options};

use crate::accounts::{SETTLES_WITHIN, add_up, number, settle, sink_of};
use crate::bridge::Bridge;
use crate::frame::Row;
use crate::judge::{self, Verdict};
use crate::load::{Record, Writer, Writing};
use crate::parts::Part as _;
use crate::receiver::Receiver;
use crate::wait::{until, until_within};

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
            "correlate": {"mode": mode},
        })
    }
}

/// Three sinks, of which one suppresses.
pub(crate) async fn three_sinks() -> Vec<Sink> {
    vec![Sink::new("audit").await, Sink::suppressing("pager").await, Sink::new("spare").await]
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

    /// Starts the bridge, and waits until its watch is open: what is written from then on is news.
    pub(crate) async fn open(&mut self) {
        self.bridge.launch().await;
        until("a stream is open", async || self.bridge.readiness().await.0).await;
    }

    /// Starts to write so many events a second.
    pub(crate) fn write(&self, rate: u32) -> Writing {
        Writing::start(self.writer(), rate)
    }

    /// Somebody to write by hand.
    pub(crate) fn writer(&self) -> Writer {
        Writer::new(&self.server, &self.record, self.seed)
    }

    /// Waits until everything that was produced has a fate at every sink, or is held by its
    /// correlator. Answers how long that took.
    ///
    /// A gap may have hidden versions, so they are not counted: what was written last has to have
    /// arrived where nothing is held back, so it is in the journal, and with it all before.
    pub(crate) async fn settle(&self) -> Duration {
        let started = Instant::now();
        let last = self.record.lock().last().expect("something was produced").id;
        let open = self.sinks.iter().find(|sink| !sink.suppress);
        let open = open.expect("a sink that holds nothing back");
        until_within(SETTLES_WITHIN, "what was written last has arrived", async || {
            open.receiver.arrivals().iter().rev().any(|arrival| arrival.id == last)
        })
        .await;
        settle(&self.bridge, 0).await;
        started.elapsed()
    }

    /// Waits until the journal has all that was produced.
    pub(crate) async fn journalled(&self) {
        let produced = self.record.len() as u64;
        until_within(Duration::from_mins(2), "everything is in the journal", async || {
            let status = self.bridge.status().await;
            number(&status["journal"], "nextSequence") >= produced
        })
        .await;
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
            let status = sink_of(&status, sink.name).clone();
            verdict.is_honest(sink.name);
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

impl Judged {
    /// Nothing is lost: each version arrived, but with `suppress`, where sums stand for some.
    pub(crate) fn has_all(&self, verdict: &Verdict, fault: &str) -> Row {
        self.saw_all(verdict);
        if self.suppress {
            verdict.adds_up(self.name);
        } else {
            verdict.lost_nothing(self.name);
        }
        self.row_of_sums(verdict, fault)
    }

    /// Nothing is lost, but a gap or `suppress` may have left versions to be part of later ones.
    pub(crate) fn has_all_increments(&self, verdict: &Verdict, fault: &str) -> Row {
        add_up(&self.status, verdict, verdict.delivered..=verdict.produced);
        verdict.adds_up(self.name);
        self.row_of_sums(verdict, fault)
    }

    /// The bridge has seen whatever was written.
    fn saw_all(&self, verdict: &Verdict) {
        add_up(&self.status, verdict, verdict.produced..=verdict.produced);
    }

    fn row_of_sums(&self, verdict: &Verdict, fault: &str) -> Row {
        let row = Row { caught_up: Some(self.caught_up), ..verdict.row(fault, self.name) };
        match verdict.missing {
            0 => row,
            part => Row { lost: Some(0), notes: format!("{part} as part of others"), ..row },
        }
    }
}
