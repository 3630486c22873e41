//! The sinks beside the stage's webhooks, one of each kind, and who receives what they send.

use std::collections::HashSet;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::judge::{Arrival, Key};
use crate::nasty::{Authority, Broker, Collects, Manner, NastyCollector, NastyWebhook, Produces};
use tidings_testkit::ledger::SharedLedger;
use tidings_testkit::receiver::{KafkaReceiver, PARTITIONS};

/// Their names.
pub(super) const SECURE: &str = "secure";
pub(super) const COLLECTORS: [&str; 2] = ["otel-grpc", "otel-http"];
pub(super) const TOPIC: &str = "topic";

/// See the [module](self).
pub(super) struct Others {
    pub(super) secure: NastyWebhook,
    pub(super) collectors: [NastyCollector; 2],
    pub(super) broker: Broker,
    /// What signs the certificate of `secure`.
    authority: Authority,
    reader: KafkaReceiver,
    /// What was received of late, by sink.
    arrived: [(&'static str, Vec<Arrival>); 4],
    folder: TempDir,
}

impl Others {
    pub(super) async fn start() -> Self {
        let authority = Authority::new();
        let broker = Broker::start(TOPIC, PARTITIONS);
        let [grpc, http] = COLLECTORS;
        Self {
            secure: NastyWebhook::start(Some(authority.valid())).await,
            collectors: [NastyCollector::start(), NastyCollector::start()],
            reader: KafkaReceiver::read(broker.bootstrap(), TOPIC, SharedLedger::default())
                .expect("a consumer"),
            broker,
            authority,
            arrived: [SECURE, grpc, http, TOPIC].map(|sink| (sink, Vec::new())),
            folder: tempfile::tempdir().expect("a temporary folder"),
        }
    }

    /// What the configuration says of them.
    pub(super) fn config(&self) -> Vec<(&'static str, Value)> {
        let ca = self.authority.write(self.folder.path());
        let [grpc, http] = COLLECTORS;
        let otlp = |endpoint: String, protocol| {
            json!({
                "otlp": {"endpoint": endpoint, "protocol": protocol},
                "batch": {"events": 200},
            })
        };
        let secure = json!({"url": self.secure.url(), "tls": {"ca": {"file": ca}}});
        // Compressed: the mock keeps 5 MiB a partition, and forgets what is older, read or not.
        let kafka = json!({
            "kafka": {"brokers": [self.broker.bootstrap()], "topic": TOPIC},
            "compression": "zstd",
        });
        vec![
            // Its receiver asks for time, and what else is under way would come all the same.
            (SECURE, json!({"webhook": secure, "concurrency": 1})),
            (grpc, otlp(self.collectors[0].grpc_url(), "grpc")),
            (http, otlp(self.collectors[1].http_url(), "http")),
            (TOPIC, kafka),
        ]
    }

    /// The certificate of `secure` has ended.
    pub(super) fn expire(&self) {
        self.secure.show(self.authority.expired());
    }

    /// The bridge that was asked to wait is no more.
    pub(super) fn forget_waits(&self) {
        self.secure.forget_waits();
        self.collectors.iter().for_each(NastyCollector::forget_waits);
    }

    /// All is well again.
    pub(super) fn heal(&self) {
        self.secure.set(Manner::Take);
        self.secure.show(self.authority.valid());
        for collector in &self.collectors {
            collector.set(Collects::All);
        }
        self.broker.set(Produces::All);
    }

    /// Takes down what was received, of which the ledgers keep every word.
    pub(super) fn note(&mut self) {
        let [grpc, http] = &self.collectors;
        let ledgers = [&self.secure.ledger, &grpc.ledger, &http.ledger, &self.reader.ledger];
        for ((sink, arrived), ledger) in self.arrived.iter_mut().zip(ledgers) {
            let mut ledger = ledger.lock();
            assert!(ledger.complaints.is_empty(), "{sink} complains: {:?}", ledger.complaints);
            arrived.extend(std::mem::take(&mut *ledger).deliveries.iter().map(Arrival::from));
        }
    }

    /// How many versions a sink has received of late.
    pub(super) fn distinct(&self, sink: &str) -> u64 {
        let (_, arrived) = self.arrived.iter().find(|(name, _)| *name == sink).expect("a sink");
        arrived.iter().map(|arrival| arrival.id).collect::<HashSet<Key>>().len() as u64
    }

    /// All that was received since this was last asked.
    pub(super) fn take(&mut self) -> Vec<(&'static str, Vec<Arrival>)> {
        self.arrived.iter_mut().map(|(sink, arrived)| (*sink, std::mem::take(arrived))).collect()
    }
}
