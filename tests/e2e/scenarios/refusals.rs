//! Sinks that refuse: from the start, for a while, or one event.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use crate::bridge::Bridge;
use crate::oracle::Expected;
use crate::parts::{ApiServerOptions, Kafka, Part as _};
use crate::receivers::{Mode, WebhookReceiver};
use crate::stage::{Cluster, Stage, accounts_for_everything, only_a_webhook};
use crate::truth::Truth;
use crate::wait::until;
use crate::writers::Load;

/// How long a webhook does not know us.
const UNKNOWN: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: make e2e ARGS=--all"]
async fn a_kafka_that_is_not_there_yet_is_waited_for_while_others_are_served() {
    let mut stage = Stage::set().await;
    stage.kafka.stop().await;
    stage.bridge.launch().await;
    let load = Load { events: 300, repeated: 60, ..Load::default() };
    load.write(&stage.cluster.admin().await, &stage.truth).await;
    let expected = Expected::every(&stage.truth.versions());
    until("the other two have everything", async || {
        [&stage.otel.ledger, &stage.pager.ledger].iter().all(|l| expected.arrived(&l.lock()))
    })
    .await;
    until("the bridge says why Kafka has nothing", async || {
        let sink = stage.bridge.sink("audit").await;
        sink["state"] == "retrying" && sink["lastError"].is_string()
    })
    .await;
    eprintln!("  said of it: {}", stage.bridge.sink("audit").await["lastError"]);
    assert_eq!(stage.audit.ledger.distinct(), 0);
    assert!(stage.bridge.readiness().await.0, "a sink that is down does not make it unready");
    stage.kafka.launch().await;
    stage.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: make e2e ARGS=--all"]
async fn a_webhook_that_does_not_know_us_gets_everything_later() {
    let cluster = Cluster::start(ApiServerOptions::default()).await;
    let admin = cluster.admin().await;
    let truth = Truth::start(admin.clone()).await;
    let pager = WebhookReceiver::start();
    pager.set(Mode::Answer("401 Unauthorized"));
    let mut bridge = Bridge::new(&cluster.server.kubeconfig("admin"), &only_a_webhook(&pager));
    bridge.launch().await;
    let load = Load { events: 200, repeated: 40, rate: 100, ..Load::default() };
    load.write(&admin, &truth).await;

    until("the sink is known to be misconfigured", async || {
        bridge.sink("pager").await["state"] == "misconfigured"
    })
    .await;
    let said = bridge.logged("the sink is misconfigured").expect("it is said loudly");
    assert_eq!(said["level"], "ERROR", "{said}");
    assert!(said["reason"].as_str().is_some_and(|reason| reason.contains("401")), "{said}");
    sleep(UNKNOWN).await;
    let sink = bridge.sink("pager").await;
    assert_eq!((&sink["delivered"], &sink["deadLettered"]), (&0.into(), &0.into()), "{sink}");
    pager.set(Mode::Take);

    let expected = Expected::every(&truth.versions());
    until("everything has arrived", async || expected.arrived(&pager.ledger.lock())).await;
    until("the sink is healthy", async || bridge.sink("pager").await["state"] == "healthy").await;
    bridge.stop_in_order().await;
    expected.judge("webhook", &pager.ledger.lock());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: make e2e ARGS=--all"]
async fn one_event_of_500_that_is_refused_costs_no_other() {
    const REFUSED: &str = "event-250";
    let cluster = Cluster::start(ApiServerOptions::default()).await;
    let admin = cluster.admin().await;
    let truth = Truth::start(admin.clone()).await;
    // All there before the bridge, so that they come as one list.
    let load = Load { events: 500, repeated: 0, rate: 300, ..Load::default() };
    load.write(&admin, &truth).await;

    let pager = WebhookReceiver::start();
    pager.set(Mode::Refuse(REFUSED));
    let sinks = only_a_webhook(&pager);
    let mut bridge = Bridge::configured(&cluster.server.kubeconfig("admin"), &sinks, |config| {
        config["sinks"]["pager"]["batch"] = json!({"events": 500, "size": "4MiB"});
        // Now and then the API server itself reports something there, which would be the 501st.
        config["source"]["fieldSelector"] = "metadata.namespace!=default".into();
    });
    bridge.launch().await;
    let written = truth.versions().into_iter().filter(|version| version.name.starts_with("event-"));
    let (refused, taken): (Vec<_>, Vec<_>) = written.partition(|version| version.name == REFUSED);
    let expected = Expected::every(&taken);
    until("all others have arrived", async || expected.arrived(&pager.ledger.lock())).await;
    until("every event has a fate", async || bridge.sink("pager").await["pending"] == 0).await;

    let sink = bridge.sink("pager").await;
    accounts_for_everything(&sink);
    let fates = (&sink["delivered"], &sink["deadLettered"], &sink["lost"]);
    assert_eq!(fates, (&499.into(), &1.into(), &0.into()), "{sink}");
    assert_eq!(pager.requests().largest, 500, "they were sent as one batch");
    let said = bridge.logged("dead-lettered").expect("it is said");
    assert_eq!(said["id"], refused[0].id(), "{said}");
    assert!(said["reason"].as_str().is_some_and(|reason| reason.contains("400")), "{said}");
    bridge.stop_in_order().await;
    expected.judge("webhook", &pager.ledger.lock());
}

/// A broker holds its limit against what comes together, and refuses all of it; what comes behind it
/// is taken, and would be out of order.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: make e2e ARGS=--all"]
async fn a_backlog_goes_into_a_topic_that_takes_less_than_a_batch() {
    const TOPIC: &str = "k8s-events";
    let cluster = Cluster::start(ApiServerOptions::default()).await;
    let admin = cluster.admin().await;
    let truth = Truth::start(admin.clone()).await;
    // All there before the bridge, so that they come as one list.
    let load = Load { events: 1_000, repeated: 0, rate: 300, ..Load::default() };
    load.write(&admin, &truth).await;

    let kafka = Kafka::start(&[("message.max.bytes", "100000")]).await;
    let audit = kafka.read(TOPIC).await;
    let sinks = json!({"audit": {
        "kafka": {"brokers": [kafka.bootstrap()], "topic": TOPIC},
        "compression": "none",
        "batch": {"events": 1000, "size": "4MiB"},
    }});
    let mut bridge = Bridge::new(&cluster.server.kubeconfig("admin"), &sinks);
    bridge.launch().await;
    let expected = Expected::every(&truth.versions());
    until("everything has arrived", async || expected.arrived(&audit.ledger.lock())).await;
    until("every event has a fate", async || bridge.sink("audit").await["pending"] == 0).await;
    let sink = bridge.sink("audit").await;
    accounts_for_everything(&sink);
    assert_eq!(sink["failedAttempts"], 0, "nothing was refused: {sink}");
    bridge.stop_in_order().await;
    let score = expected.judge("kafka", &audit.finish().await.lock());
    assert_eq!(score.repeated, 0, "{score:?}");
}
