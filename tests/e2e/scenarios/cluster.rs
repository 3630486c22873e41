//! A whole cluster but for its kubelets: `make e2e-cluster`.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ListParams};
use serde_json::json;
use tokio::time::sleep;

use super::access::{apply, shipped_account};
use crate::bridge::Bridge;
use crate::oracle::Expected;
use crate::parts::{ApiServerOptions, Component, Part as _, kubectl, run, version};
use crate::receivers::WebhookReceiver;
use crate::stage::{Cluster, accounts_for_everything, only_a_webhook, sinks_of};
use crate::truth::Truth;
use crate::wait::until_within;

const WORKLOADS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/scenarios/cluster/workloads.yaml");
/// An Event that the bridge keeps to itself.
const HEARTBEAT: &str = "tidings-0.heartbeat";
/// How often, and after how long, workloads change.
const ROUNDS: usize = 18;
const ROUND: Duration = Duration::from_secs(10);
/// For controllers that look again only now and then, and for deliveries.
const PATIENCE: Duration = Duration::from_mins(5);
/// All of these have to have been reported.
const REASONS: &str = "Completed FailedBinding FailedGetResourceMetric FailedScheduling NodeNotReady \
    RegisteredNode SawCompletedJob ScalingReplicaSet Scheduled SuccessfulCreate SuccessfulDelete \
    TaintManagerEviction";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: make e2e-cluster"]
async fn a_bridge_that_is_killed_delivers_all_that_controllers_report() {
    // Pods leave a node that says nothing after this, not after five minutes.
    let flags = ["not-ready", "unreachable"]
        .map(|taint| format!("--default-{taint}-toleration-seconds=5"))
        .to_vec();
    let cluster = Cluster::start(ApiServerOptions { flags, ..ApiServerOptions::default() }).await;
    let (admin, client) = (cluster.server.kubeconfig("admin"), cluster.admin().await);
    let truth = Truth::start(client.clone()).await;
    let manager = Component::controller_manager(&cluster.server).await;
    let scheduler = Component::scheduler(&cluster.server).await;
    let mut nodes = Vec::new();
    for node in ["node-1", "node-2", "node-3"] {
        nodes.push(Component::kwok(&cluster.server, node).await);
    }
    apply(&admin);

    let (all, pager) = (WebhookReceiver::start(), WebhookReceiver::start());
    let mut sinks = only_a_webhook(&pager);
    sinks["all"] = only_a_webhook(&all)["pager"].clone();
    sinks["pager"]["match"] = r#"event.type == "Warning""#.into();
    sinks["pager"]["batch"] = json!({"events": 20, "linger": "1s"});
    let mut bridge = Bridge::configured(&shipped_account(&cluster), &sinks, |config| {
        config["source"]["heartbeat"] = "5s".into();
    });
    bridge.be_the_pod("tidings", "tidings-0");
    bridge.launch().await;
    // On the server, nodes would lose their status.
    run(kubectl(&admin).args(["create", "-f", WORKLOADS]));

    let pods = Api::<Pod>::namespaced(client.clone(), "tidings");
    let sets = Api::<StatefulSet>::namespaced(client.clone(), "tidings");
    until_within(PATIENCE, "the shipped Pod runs on a node", async || {
        let pod = pods.get_opt("tidings-0").await.expect("an answer");
        let node = pod.and_then(|pod| pod.spec?.node_name);
        let set = sets.get("tidings").await.expect("the StatefulSet");
        node.is_some() && set.status.and_then(|status| status.ready_replicas) == Some(1)
    })
    .await;

    for round in 0..ROUNDS {
        let replicas = format!("--replicas={}", if round % 2 == 0 { 12 } else { 3 });
        run(kubectl(&admin).args(["scale", "deployment/web", &replicas]));
        run(kubectl(&admin).args(["create", "job", &format!("job-{round}"), "--image=job"]));
        match round {
            3 => nodes[2].kill9(),
            7 => bridge.kill9(),
            9 => bridge.launch().await,
            _ => {}
        }
        // Asks for an eviction of each Pod.
        let evict = ["drain", "node-1", "--ignore-daemonsets", "--pod-selector=app=web"];
        run(kubectl(&admin).args(evict));
        run(kubectl(&admin).args(["uncordon", "node-1"]));
        sleep(ROUND).await;
    }
    let mut reasons = BTreeSet::new();
    until_within(PATIENCE, "every controller has reported", async || {
        reasons = events(&client).await.into_iter().filter_map(|event| event.reason).collect();
        REASONS.split(' ').all(|reason| reasons.contains(reason))
    })
    .await;

    // Nobody reports any longer.
    drop((manager, scheduler, nodes));
    let (mut last, mut warns) = (0, HashSet::new());
    for Event { metadata, type_, .. } in events(&client).await {
        let version = metadata.resource_version.and_then(|version| version.parse().ok());
        last = last.max(version.expect("every object has one"));
        warns.extend(metadata.uid.filter(|_| type_.as_deref() == Some("Warning")));
    }
    truth.has_seen(last).await;
    let (mut versions, mut warnings) = (Vec::new(), Vec::new());
    until_within(PATIENCE, "everything has arrived and has a fate", async || {
        versions = truth.versions();
        versions.retain(|version| version.name != HEARTBEAT);
        warnings = versions.clone();
        warnings.retain(|version| warns.contains(&version.uid));
        let status = bridge.status().await;
        Expected::every(&versions).arrived(&all.ledger.lock())
            && Expected::every(&warnings).arrived(&pager.ledger.lock())
            && sinks_of(&status).iter().all(|sink| sink["pending"] == 0)
    })
    .await;
    for sink in sinks_of(&bridge.status().await) {
        accounts_for_everything(sink);
        assert_eq!((&sink["lost"], &sink["deadLettered"]), (&0.into(), &0.into()), "{sink}");
    }
    bridge.stop_in_order().await;
    let every = Expected::every(&versions).judge("all", &all.ledger.lock());
    let warned = Expected::every(&warnings).judge("warnings", &pager.ledger.lock());
    eprintln!(
        "  etcd {}, Kubernetes {}, kwok {}: {} reasons, delivered {} and {} warnings, repeated {} and {}; {}",
        version("etcd"),
        version("controllers"),
        version("kwok"),
        reasons.len(),
        every.received,
        warned.received,
        every.repeated,
        warned.repeated,
        Vec::from_iter(reasons).join(", "),
    );
}

/// The Events that there are to deliver.
async fn events(client: &kube::Client) -> Vec<Event> {
    let list = Api::<Event>::all(client.clone()).list(&ListParams::default()).await;
    let mut events = list.expect("a list of all Events").items;
    events.retain(|event| event.metadata.name.as_deref() != Some(HEARTBEAT));
    events
}
