//! What is held back, and what the bridge says of itself.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::access::{apply, shipped_account};
use crate::bridge::Bridge;
use crate::parts::{ApiServerOptions, Part as _, kubectl, run};
use crate::receivers::{Mode, WebhookReceiver};
use crate::stage::{Cluster, accounts_for_everything, only_a_webhook};
use crate::wait::until;

/// One Event about a loud Pod, for a reason of its own.
fn of_a_loud_pod(n: usize) -> Event {
    let event = json!({
        "metadata": {"name": format!("loud.{n}"), "namespace": "default"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "loud", "uid": "loud-1"},
        "reason": format!("Reason{n}"), "message": "again", "type": "Warning", "count": 1,
        "source": {"component": "loud"},
    });
    serde_json::from_value(event).expect("an Event")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: make e2e ARGS=--all"]
async fn what_is_suppressed_comes_out_in_sum_over_three_kills() {
    let cluster = Cluster::start(ApiServerOptions::default()).await;
    let pager = WebhookReceiver::start();
    let mut sinks = only_a_webhook(&pager);
    sinks["pager"]["correlate"] = json!({"mode": "suppress"});
    let mut bridge = Bridge::new(&cluster.server.kubeconfig("admin"), &sinks);
    bridge.launch().await;
    until("a stream is open", async || bridge.readiness().await.0).await;

    let events = Api::<Event>::namespaced(cluster.admin().await, "default");
    let mut versions = 0;
    for round in 1..=4 {
        for n in 0..40 {
            if round == 1 {
                let event = of_a_loud_pod(n);
                events.create(&PostParams::default(), &event).await.expect("a creation");
            } else {
                let patch = Patch::Merge(json!({"count": round}));
                let name = format!("loud.{n}");
                events.patch(&name, &PatchParams::default(), &patch).await.expect("a patch");
            }
            versions += 1;
        }
        if round < 4 {
            // The state is saved once a second; a kill may come before or after.
            sleep(Duration::from_millis(700 * round)).await;
            bridge.kill9();
            bridge.launch().await;
        }
    }
    let own = |sink: &Value| sink["seen"].as_u64().unwrap_or_default() >= versions;
    until("all is read, and held or settled", async || {
        let sink = bridge.sink("pager").await;
        own(&sink) && sink["pending"] == sink["held"]
    })
    .await;
    let sink = bridge.sink("pager").await;
    eprintln!("  {versions} versions: {sink}");
    assert!(sink["held"].as_u64() > Some(0));
    bridge.stop_in_order().await;

    let mut deltas = BTreeMap::new();
    for delivery in &pager.ledger.lock().deliveries {
        // The API server may write an Event of its own.
        if delivery.object == "loud-1" {
            let before = deltas.insert(delivery.id.clone(), delivery.delta);
            assert!(before.is_none_or(|before| before == delivery.delta), "{}", delivery.id);
        }
    }
    eprintln!("  {} deliveries stand for them", deltas.len());
    assert_eq!(deltas.values().sum::<u64>(), versions);
    assert!(deltas.len() < 100, "40 reasons, of which 25 had a token, and 40 summaries");

    bridge.launch().await;
    until("its accounts are open", async || bridge.sink("pager").await["held"] == 0).await;
    let sink = bridge.sink("pager").await;
    accounts_for_everything(&sink);
    assert_eq!((&sink["lost"], &sink["deadLettered"]), (&0.into(), &0.into()), "{sink}");
    bridge.stop_in_order().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: make e2e ARGS=--all"]
async fn what_ails_a_sink_is_an_event_about_the_pod_and_reaches_the_others() {
    let cluster = Cluster::start(ApiServerOptions::default()).await;
    let admin = cluster.server.kubeconfig("admin");
    apply(&admin);
    let (pager, broken) = (WebhookReceiver::start(), WebhookReceiver::start());
    let mut sinks = only_a_webhook(&pager);
    sinks["broken"] = only_a_webhook(&broken)["pager"].clone();
    let mut bridge = Bridge::configured(&shipped_account(&cluster), &sinks, |config| {
        config["source"]["heartbeat"] = "2s".into();
    });
    bridge.be_the_pod("tidings", "tidings-0");
    broken.set(Mode::Answer("503 Service Unavailable"));
    bridge.launch().await;
    let events = Api::<Event>::namespaced(cluster.admin().await, "default");
    events.create(&PostParams::default(), &of_a_loud_pod(1)).await.expect("a creation");

    let told = |receiver: &WebhookReceiver, reason: &str| {
        let reason = format!("\"reason\":\"{reason}\"");
        let ledger = receiver.ledger.lock();
        ledger.deliveries.iter().filter(|delivery| delivery.body.contains(&reason)).count()
    };
    until("the other sink has it", async || told(&pager, "SinkUnavailable") == 1).await;
    broken.set(Mode::Take);
    until("the recovery, too", async || told(&pager, "SinkRecovered") == 1).await;
    until("the sink itself has both", async || {
        told(&broken, "SinkUnavailable") == 1 && told(&broken, "SinkRecovered") == 1
    })
    .await;
    let get = |reason: &str| {
        let selector = format!("--field-selector=reason{reason}Heartbeat");
        let get = ["--namespace", "tidings", "get", "events", "--no-headers", &selector];
        run(kubectl(&admin).args(get))
    };
    let listed = get("!=");
    eprintln!("{listed}");
    assert_eq!(listed.lines().count(), 2, "{listed}");
    assert!(listed.contains("pod/tidings-0") && listed.contains("Sink broken"), "{listed}");

    // The heartbeat is one Event, which each watch brings and no sink gets.
    until("ten beats", async || bridge.status().await["ingest"]["heartbeats"].as_u64() >= Some(10))
        .await;
    assert_eq!(bridge.status().await["ingest"]["heartbeatsMissed"], 0);
    let listed = get("=");
    assert_eq!(listed.lines().count(), 1, "{listed}");
    assert!(listed.contains("pod/tidings-0"), "{listed}");
    assert_eq!(told(&pager, "Heartbeat") + told(&broken, "Heartbeat"), 0);
    bridge.stop_in_order().await;
}
