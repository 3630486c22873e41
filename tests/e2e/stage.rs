//! Everything that a scenario needs: an API server with its etcd, the truth about it, and a bridge
//! to a Kafka, a Collector and a webhook, each with its receiver.

use std::time::Duration;

use serde_json::{Value, json};
use tidings_testkit::receiver::KafkaReceiver;

use crate::bridge::Bridge;
use crate::oracle::{Expected, Score};
use crate::parts::{ApiServer, ApiServerOptions, Collector, Etcd, Kafka};
use crate::receivers::{CollectorReceiver, SECRET, WebhookReceiver};
use crate::truth::{Truth, Version};
use crate::wait::{until, until_within};

/// How long it may take until what is written has arrived everywhere. The webhook takes its events
/// one by one, and after an outage all of it.
pub(crate) const ARRIVES_WITHIN: Duration = Duration::from_mins(2);

const TOPIC: &str = "k8s-events";

/// An API server with its etcd.
pub(crate) struct Cluster {
    pub(crate) etcd: Etcd,
    pub(crate) server: ApiServer,
}

impl Cluster {
    pub(crate) async fn start(options: ApiServerOptions) -> Self {
        let etcd = Etcd::start().await;
        let server = ApiServer::start(&etcd, options).await;
        Self { etcd, server }
    }

    /// Who may do everything.
    pub(crate) async fn admin(&self) -> kube::Client {
        self.server.client("admin").await
    }
}

/// See the [module](self).
pub(crate) struct Stage {
    // First, so that it ends before what it is connected to.
    pub(crate) bridge: Bridge,
    pub(crate) truth: Truth,
    pub(crate) audit: KafkaReceiver,
    pub(crate) otel: CollectorReceiver,
    pub(crate) pager: WebhookReceiver,
    pub(crate) cluster: Cluster,
    pub(crate) kafka: Kafka,
    pub(crate) collector: Collector,
}

impl Stage {
    /// Starts everything but the bridge, which follows all Events and speaks OTLP over gRPC.
    pub(crate) async fn set() -> Self {
        Self::set_with(|_, _, _| {}).await
    }

    /// The same, with a configuration that `change` has the last word on.
    pub(crate) async fn set_with(change: impl FnOnce(&mut Value, &Cluster, &Collector)) -> Self {
        let (cluster, kafka, collector) = tokio::join!(
            Cluster::start(ApiServerOptions::default()),
            Kafka::start(&[]),
            Collector::start(),
        );
        let pager = WebhookReceiver::start();
        let truth = Truth::start(cluster.admin().await).await;
        let audit = kafka.read(TOPIC).await;
        let otel = CollectorReceiver::start(&collector);
        let sinks = sinks(&kafka, &collector, &pager);
        let kubeconfig = cluster.server.kubeconfig("admin");
        let bridge =
            Bridge::configured(&kubeconfig, &sinks, |config| change(config, &cluster, &collector));
        Self { bridge, truth, audit, otel, pager, cluster, kafka, collector }
    }

    /// Waits until all that the API server has shown until now has arrived everywhere.
    pub(crate) async fn all_has_arrived(&self) {
        self.has_arrived(&Expected::every(&self.truth.versions())).await;
    }

    /// Waits until this has arrived everywhere.
    pub(crate) async fn has_arrived(&self, expected: &Expected) {
        until_within(ARRIVES_WITHIN, "everything has arrived everywhere", async || {
            [&self.audit.ledger, &self.otel.ledger, &self.pager.ledger]
                .into_iter()
                .all(|ledger| expected.arrived(&ledger.lock()))
        })
        .await;
    }

    /// Waits for all versions, ends everything, and judges.
    pub(crate) async fn finish(self) -> Scores {
        self.finish_with(Expected::every).await
    }

    /// The same where not just every version is expected.
    pub(crate) async fn finish_with(mut self, expected: impl Fn(&[Version]) -> Expected) -> Scores {
        self.has_arrived(&expected(&self.truth.versions())).await;
        // The acknowledgement follows the arrival.
        until_within(ARRIVES_WITHIN, "every event has a fate", async || {
            let status = self.bridge.status().await;
            sinks_of(&status).iter().all(|sink| sink["pending"] == 0)
        })
        .await;
        let status = self.bridge.status().await;
        for sink in sinks_of(&status) {
            accounts_for_everything(sink);
        }
        // What is on its way when the bridge has ended has come too when a receiver has finished.
        self.bridge.stop_in_order().await;
        let audit = self.audit.finish().await;
        let otel = self.otel.finish(&mut self.collector).await;
        // Now and then the API server writes an Event of its own, also between those and the stop.
        let ledgers = [&audit, &otel, &self.pager.ledger];
        until("what has arrived was produced", async || {
            let expected = expected(&self.truth.versions());
            ledgers.iter().all(|ledger| expected.knows(&ledger.lock()))
        })
        .await;
        let versions = self.truth.versions();
        let arrived = |version: &Version| audit.lock().ids.contains(&version.id());
        let until_the_stop = versions.iter().rposition(arrived).map_or(0, |last| last + 1);
        let expected = expected(&versions[..until_the_stop]);
        Scores {
            audit: expected.judge("kafka", &audit.lock()),
            otel: expected.judge("otlp", &otel.lock()),
            pager: expected.judge("webhook", &self.pager.ledger.lock()),
            status,
        }
    }
}

/// How each sink did.
pub(crate) struct Scores {
    pub(crate) audit: Score,
    pub(crate) otel: Score,
    pub(crate) pager: Score,
    /// The last status of the bridge.
    pub(crate) status: Value,
}

fn sinks(kafka: &Kafka, collector: &Collector, pager: &WebhookReceiver) -> Value {
    let mut sinks = only_a_webhook(pager);
    sinks["audit"] = json!({"kafka": {"brokers": [kafka.bootstrap()], "topic": TOPIC}});
    sinks["otel"] = json!({"otlp": {"endpoint": collector.grpc_url(), "protocol": "grpc"}});
    sinks["audit"]["retry"] = sinks["pager"]["retry"].clone();
    sinks["otel"]["retry"] = sinks["pager"]["retry"].clone();
    sinks
}

/// A webhook and no other sink.
pub(crate) fn only_a_webhook(pager: &WebhookReceiver) -> Value {
    json!({
        "pager": {
            "webhook": {"url": pager.url(), "signing": {"secret": SECRET}},
            // After an outage a test does not wait for half a minute.
            "retry": {"max": "2s"},
        },
    })
}

/// The sinks of a status.
pub(crate) fn sinks_of(status: &Value) -> &[Value] {
    status["sinks"].as_array().map_or(&[], Vec::as_slice)
}

/// Every event that a sink has seen has exactly one fate.
pub(crate) fn accounts_for_everything(sink: &Value) {
    let number = |name: &str| sink[name].as_u64().unwrap_or_else(|| panic!("{name} in {sink}"));
    let fates = ["delivered", "filtered", "correlatedAway", "deadLettered", "lost", "pending"];
    let sum: u64 = fates.into_iter().map(number).sum();
    assert_eq!(number("seen"), sum, "{sink}");
}
