//! What is told of the object that an event is about, on the real API server under the shipped
//! permissions: what is watched, what is fetched, what is gone and what is not permitted.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod, Service};
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Client, Resource};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::access::{apply, shipped_account};
use crate::bridge::Bridge;
use crate::parts::{ApiServerOptions, Part as _, kubectl, run};
use crate::receivers::{Mode, WebhookReceiver};
use crate::stage::{Cluster, accounts_for_everything, only_a_webhook};
use crate::wait::until;

pub(super) const PERMISSIONS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/rbac-enrichment.yaml");

/// Creates an object in the namespace `default`; answers its uid.
async fn create<K>(client: &Client, object: Value) -> String
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let object: K = serde_json::from_value(object).expect("an object");
    let api = Api::<K>::namespaced(client.clone(), "default");
    let made = api.create(&PostParams::default(), &object).await.expect("a creation");
    made.meta().uid.clone().expect("every object has one")
}

fn owned(name: &str, by: (&str, &str, &str, &str)) -> Value {
    let (api_version, kind, owner, uid) = by;
    json!({
        "name": name,
        "labels": {"app.kubernetes.io/name": "web", "team": "payments", "internal": "yes"},
        "ownerReferences": [{
            "apiVersion": api_version, "kind": kind, "name": owner, "uid": uid, "controller": true,
        }],
    })
}

fn pod(metadata: &Value) -> Value {
    let container = json!({"name": "web", "image": "web"});
    json!({"metadata": metadata, "spec": {"nodeName": "node-1", "containers": [container]}})
}

/// Writes an Event about an object; its reason is how it is found again.
pub(super) async fn tell(
    client: &Client,
    reason: &str,
    (api_version, kind): (&str, &str),
    name: &str,
    uid: &str,
) {
    let event = json!({
        "metadata": {"name": format!("{name}.{}", reason.to_lowercase())},
        "involvedObject": {
            "apiVersion": api_version, "kind": kind, "namespace": "default", "name": name, "uid": uid,
        },
        "reason": reason, "message": "it happened", "type": "Warning", "count": 1,
        "source": {"component": "default-scheduler"},
    });
    create::<Event>(client, event).await;
}

/// By reason, what was told of the objects.
pub(super) fn told(receiver: &WebhookReceiver) -> BTreeMap<String, Value> {
    let ledger = receiver.ledger.lock();
    let envelopes = ledger.deliveries.iter().map(|delivery| {
        serde_json::from_str::<Value>(&delivery.body).expect("the ledger has read it already")
    });
    // The API server itself reports something now and then.
    let ours = envelopes.filter(|envelope| envelope["event"]["message"] == "it happened");
    ours.map(|mut envelope| {
        let reason = envelope["event"]["reason"].as_str().expect("a reason").to_owned();
        (reason, envelope["object"].take())
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: make e2e ARGS=--all"]
async fn events_are_told_with_what_their_objects_are() {
    // There is no controller manager, which would make the service accounts that Pods want.
    let flags = vec!["--disable-admission-plugins=ServiceAccount".to_owned()];
    let cluster = Cluster::start(ApiServerOptions { flags, ..ApiServerOptions::default() }).await;
    let admin = cluster.server.kubeconfig("admin");
    apply(&admin);
    run(kubectl(&admin).args(["apply", "-f", PERMISSIONS]));
    let client = cluster.admin().await;

    let labels = json!({"app": "web"});
    let template = json!({
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "web", "image": "web"}]},
    });
    let spec = json!({"selector": {"matchLabels": labels}, "template": template});
    let deployment = json!({"metadata": {"name": "web"}, "spec": spec});
    let deployment = create::<Deployment>(&client, deployment).await;
    let above = ("apps/v1", "Deployment", "web", &*deployment);
    let set = json!({"metadata": owned("web-5d8f", above), "spec": spec});
    let set = create::<ReplicaSet>(&client, set).await;
    let above = ("apps/v1", "ReplicaSet", "web-5d8f", &*set);
    let web = create::<Pod>(&client, pod(&owned("web-5d8f-a", above))).await;
    let doomed = create::<Pod>(&client, pod(&owned("web-5d8f-b", above))).await;
    let service = json!({
        "metadata": {"name": "web", "labels": {"team": "payments"}},
        "spec": {"ports": [{"port": 80}]},
    });
    let service = create::<Service>(&client, service).await;
    let secret = create::<ConfigMap>(&client, json!({"metadata": {"name": "web"}})).await;

    let (live, late) = (WebhookReceiver::start(), WebhookReceiver::start());
    late.set(Mode::Answer("503 Service Unavailable"));
    let mut sinks = only_a_webhook(&live);
    sinks["late"] = only_a_webhook(&late)["pager"].clone();
    for sink in ["pager", "late"] {
        sinks[sink]["enrich"] =
            json!({"labels": ["app.kubernetes.io/*", "team"], "owners": true, "node": true});
    }
    let mut bridge = Bridge::configured(&shipped_account(&cluster), &sinks, |config| {
        // The real API server is to have the time that a busy machine takes.
        config["objects"] = json!({"budget": "5s"});
    });
    bridge.launch().await;
    until("a stream is open", async || bridge.readiness().await.0).await;

    tell(&client, "Watched", ("v1", "Pod"), "web-5d8f-a", &web).await;
    tell(&client, "Above", ("apps/v1", "Deployment"), "web", &deployment).await;
    tell(&client, "Fetched", ("v1", "Service"), "web", &service).await;
    tell(&client, "Forbidden", ("v1", "ConfigMap"), "web", &secret).await;
    tell(&client, "Never", ("v1", "Pod"), "never", "11111111-2222-4333-8444-555555555555").await;
    tell(&client, "Another", ("v1", "Pod"), "web-5d8f-a", "11111111-2222-4333-8444-555555555556")
        .await;
    let pods = Api::<Pod>::namespaced(client.clone(), "default");
    let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    pods.delete("web-5d8f-b", &at_once).await.expect("a deletion");
    tell(&client, "Gone", ("v1", "Pod"), "web-5d8f-b", &doomed).await;
    until("all have been told", async || told(&live).len() == 7).await;

    let told_live = told(&live);
    eprintln!("{told_live:#?}");
    let owners = json!([
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d8f", "uid": set},
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": deployment},
    ]);
    let labels = json!({"app.kubernetes.io/name": "web", "team": "payments"});
    let whole = json!({"labels": labels, "owners": owners, "node": "node-1"});
    assert_eq!(told_live["Watched"], whole);
    assert_eq!(told_live["Gone"]["labels"], labels);
    assert_eq!(told_live["Gone"]["owners"], owners);
    assert_eq!(told_live["Fetched"]["labels"], json!({"team": "payments"}));
    assert_eq!(told_live["Forbidden"], json!({"missing": "forbidden"}));
    assert_eq!(told_live["Never"], json!({"missing": "notFound"}));
    assert_eq!(told_live["Another"], json!({"missing": "notFound"}));
    assert_eq!(told_live["Above"].get("missing"), None);

    // A sink that is late is told the same, in another run and when it is all gone.
    // The state is saved once a second, or when a slow disk lets it.
    tokio::time::sleep(Duration::from_secs(5)).await;
    bridge.kill9();
    bridge.launch().await;
    pods.delete("web-5d8f-a", &at_once).await.expect("a deletion");
    late.set(Mode::Take);
    until("the late one has been told", async || told(&late).len() == 7).await;
    assert_eq!(told(&late), told_live);
    until("every event has a fate", async || bridge.sink("late").await["pending"] == 0).await;
    for sink in ["pager", "late"] {
        accounts_for_everything(&bridge.sink(sink).await);
    }
    bridge.stop_in_order().await;
}
