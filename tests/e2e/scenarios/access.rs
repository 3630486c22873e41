//! What the API server lets the bridge do.

use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaimVolumeSource, Pod, Volume};
use kube::api::{Api, ObjectMeta, PostParams};
use kube::discovery::Discovery;
use serde_json::{Value, json};

use super::enrichment::{PERMISSIONS, tell, told};
use crate::bridge::Bridge;
use crate::parts::{ApiServerOptions, Part as _, kubectl, run};
use crate::receivers::WebhookReceiver;
use crate::stage::{Cluster, Stage, only_a_webhook};
use crate::wait::until;
use crate::writers::Load;

/// The manifests that are shipped.
const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy");

/// The role in them without which nothing is delivered.
const EVENTS: &str = "tidings-tidings-events";

/// Applies them, over whatever has been changed of them since.
pub(super) fn apply(admin: &Path) {
    let arguments = ["apply", "--server-side", "--force-conflicts", "-k", DEPLOY];
    run(kubectl(admin).args(arguments));
}

/// A kubeconfig of the account in them.
pub(super) fn shipped_account(cluster: &Cluster) -> PathBuf {
    let admin = cluster.server.kubeconfig("admin");
    let token = ["--namespace", "tidings", "create", "token", "tidings"];
    let token = run(kubectl(&admin).args(token));
    cluster.server.kubeconfig_with_token("tidings", token.trim())
}

/// Gives a role these rules.
fn allow(admin: &Path, role: &str, rules: &Value) {
    let patch = json!({"rules": rules}).to_string();
    let arguments = ["--namespace", "tidings", "patch", role, "--type=merge", "-p", &patch];
    run(kubectl(admin).args(arguments));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: make e2e ARGS=--all"]
async fn the_shipped_account_may_do_all_that_the_bridge_does() {
    let mut stage = Stage::set_with(|config, cluster, _| {
        let admin = cluster.server.kubeconfig("admin");
        apply(&admin);
        let kubeconfig = shipped_account(cluster);
        config["source"]["kubeconfig"] = kubeconfig.display().to_string().into();
    })
    .await;
    let admin = stage.cluster.server.kubeconfig("admin");
    check_the_shipped_configuration(&admin);
    stage.bridge.launch().await;
    let load = Load { events: 300, repeated: 60, ..Load::default() };
    load.write(&stage.cluster.admin().await, &stage.truth).await;
    stage.all_has_arrived().await;
    assert!(stage.bridge.logged("uid is not known").is_none(), "it may ask for the cluster's uid");

    let list = json!({"apiGroups": [""], "resources": ["events"], "verbs": ["list"]});
    for (lacking, allowed, load) in [
        ("list", json!([]), Load { occurrences: 5..=6, ..load.clone() }),
        ("watch", json!([list]), Load { occurrences: 7..=8, ..load.clone() }),
    ] {
        allow(&admin, &format!("clusterrole/{EVENTS}"), &allowed);
        // A watch that is open goes on; the next one is refused.
        stage.bridge.kill9();
        load.write(&stage.cluster.admin().await, &stage.truth).await;
        stage.bridge.launch().await;
        let words = format!("cannot {lacking} resource \"events\"");
        until("it says what it lacks", async || {
            stage.bridge.logged("the API server cannot be followed").is_some_and(|line| {
                line["error"].as_str().is_some_and(|error| error.contains(&words))
                    && line["hint"]
                        .as_str()
                        .is_some_and(|hint| hint.contains("deploy/install.yaml"))
            })
        })
        .await;
        let (ready, why) = stage.bridge.readiness().await;
        assert!(!ready && why.contains(&words), "{why}");
        let asked = async || {
            let source = &stage.bridge.status().await["sources"][0];
            source["lists"].as_u64().max(source["watches"].as_u64())
        };
        let before = asked().await;
        until("it asks again", async || asked().await > before).await;

        apply(&admin);
        stage.all_has_arrived().await;
        assert!(stage.bridge.readiness().await.0);
    }
    stage.finish().await;
}

/// `tidings check` on the ConfigMap, as the API server has it.
fn check_the_shipped_configuration(admin: &Path) {
    let get = ["--namespace", "tidings", "get", "configmap", "tidings"];
    let text = run(kubectl(admin).args(get).args(["-o", r"jsonpath={.data.tidings\.yaml}"]));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("tidings.yaml");
    std::fs::write(&file, text).expect("the configuration");
    run(Command::new(env!("CARGO_BIN_EXE_tidings")).args(["check", "--config"]).arg(file));
}

/// No controller runs here that would make the Pod, so whether its namespace takes it is asked too.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: make e2e ARGS=--all"]
async fn the_manifests_are_taken_to_the_letter_and_so_is_the_pod() {
    let cluster = Cluster::start(ApiServerOptions::default()).await;
    let admin = cluster.server.kubeconfig("admin");
    // The others are in the namespace, which has to be there.
    apply(&admin);
    for file in ["install.yaml", "rbac-enrichment.yaml"] {
        let strict = ["--dry-run=server", "--validate=strict", "--warnings-as-errors"];
        let arguments = ["apply", "--server-side", "--force-conflicts"];
        run(kubectl(&admin).args(arguments).args(strict).arg("-f").arg(format!("{DEPLOY}/{file}")));
    }

    let client = cluster.admin().await;
    let sets = Api::<StatefulSet>::namespaced(client.clone(), "tidings");
    let set = sets.get("tidings").await.expect("the StatefulSet").spec.expect("its specification");
    let mut pod = Pod { metadata: ObjectMeta::default(), spec: set.template.spec, status: None };
    pod.metadata.name = Some("tidings-0".to_owned());
    let claimed = set.volume_claim_templates.into_iter().flatten().map(|claim| {
        let name = claim.metadata.name.expect("the name of a volume");
        let claim_name = format!("{name}-tidings-0");
        let source = PersistentVolumeClaimVolumeSource { claim_name, read_only: None };
        Volume { name, persistent_volume_claim: Some(source), ..Volume::default() }
    });
    let spec = pod.spec.as_mut().expect("the specification of the Pod");
    spec.volumes.get_or_insert_default().extend(claimed);
    let asked = PostParams { dry_run: true, ..PostParams::default() };
    let pods = Api::<Pod>::namespaced(client, "tidings");
    pods.create(&asked, &pod).await.expect("the namespace takes the Pod");
    pod.spec.as_mut().expect("as before").host_network = Some(true);
    let refused = pods.create(&asked, &pod).await.expect_err("it takes no Pod that may do more");
    assert!(refused.to_string().contains("violates PodSecurity"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: make e2e ARGS=--all"]
async fn an_api_server_that_refuses_is_quoted_and_asked_again() {
    let users = vec!["nobody".to_owned()];
    let cluster = Cluster::start(ApiServerOptions { users, ..Default::default() }).await;
    let receiver = WebhookReceiver::start();
    let sinks = only_a_webhook(&receiver);

    let kubeconfig = cluster.server.kubeconfig_with_token("stranger", "a-token-of-nobody");
    let mut stranger = Bridge::new(&kubeconfig, &sinks);
    stranger.launch().await;
    until("it says that it is not known", async || {
        stranger.log().iter().any(|line| {
            line.to_string().contains("401")
                && line["hint"].as_str().is_some_and(|hint| hint.contains("kubeconfig"))
        })
    })
    .await;
    assert!(!stranger.readiness().await.0);
    stranger.stop_in_order().await;

    let mut nobody = Bridge::new(&cluster.server.kubeconfig("nobody"), &sinks);
    nobody.launch().await;
    until("it says what it lacks", async || {
        nobody.logged("the API server cannot be followed").is_some_and(|line| {
            let error = line["error"].as_str().unwrap_or_default();
            error.contains(r#"User "nobody" cannot list resource "events""#)
                && error.contains("403")
                && line["hint"].as_str().is_some_and(|hint| hint.contains("deploy/install.yaml"))
        })
    })
    .await;
    let unknown = nobody.logged("uid is not known").expect("it may not ask for that either");
    assert!(unknown["hint"].as_str().is_some_and(|hint| hint.contains("cluster.uid")), "{unknown}");
    assert!(!nobody.readiness().await.0);
    nobody.stop_in_order().await;
}

/// Each verb of each rule, but `list` and `watch` of Events: they are above.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: make e2e ARGS=--all"]
async fn a_permission_that_is_missing_is_named_and_the_rest_goes_on() {
    let cluster = Cluster::start(ApiServerOptions::default()).await;
    let admin = cluster.server.kubeconfig("admin");
    apply(&admin);
    run(kubectl(&admin).args(["apply", "-f", PERMISSIONS]));
    let kubeconfig = shipped_account(&cluster);
    let get = ["get", "clusterroles,roles", "-A", "-l", "app.kubernetes.io/name=tidings"];
    let roles = run(kubectl(&admin).args(get).args(["-o", "json"]));
    let roles: Value = serde_json::from_str(&roles).expect("JSON");
    let roles = roles["items"].as_array().expect("a list").iter();
    let mut case = 0;
    for role in roles.filter(|role| role["metadata"]["name"] != EVENTS) {
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let name = format!("{}/{}", text(&role["kind"]), text(&role["metadata"]["name"]));
        for (index, rule) in role["rules"].as_array().expect("rules").iter().enumerate() {
            for verb in texts(&rule["verbs"]) {
                let mut rules = role["rules"].as_array().expect("rules").clone();
                let verbs = rules[index]["verbs"].as_array_mut().expect("verbs");
                verbs.retain(|other| *other != verb);
                rules.retain(|rule| rule["verbs"] != json!([]));
                allow(&admin, &name, &rules.into());
                case += 1;
                is_named(&cluster, &kubeconfig, rule, verb, case).await;
                allow(&admin, &name, &role["rules"]);
            }
        }
    }
}

/// Runs a new bridge that lacks a verb of a rule. For each resource the log names both, and Events about all of them
/// arrive.
async fn is_named(cluster: &Cluster, kubeconfig: &Path, rule: &Value, verb: &str, case: usize) {
    let receiver = WebhookReceiver::start();
    let mut sinks = only_a_webhook(&receiver);
    sinks["pager"]["enrich"] = json!({"labels": ["team"], "owners": true, "node": true});
    let mut bridge = Bridge::configured(kubeconfig, &sinks, |config| {
        config["objects"] = json!({"budget": "5s"});
        config["source"]["heartbeat"] = "1s".into();
    });
    bridge.be_the_pod("tidings", &format!("tidings-{case}"));
    bridge.launch().await;

    let client = cluster.admin().await;
    let resources = texts(&rule["resources"]);
    let reason = |resource: &str| format!("{resource}-{case}");
    let discovery = Discovery::new(client.clone()).run().await.expect("the resources");
    for group in texts(&rule["apiGroups"]) {
        let known = discovery.get(group).expect("a group").recommended_resources();
        for (about, _) in known.iter().filter(|(about, _)| resources.contains(&&*about.plural)) {
            let kind = (&*about.api_version, &*about.kind);
            tell(&client, &reason(&about.plural), kind, "web", "uid-of-web").await;
        }
    }
    for resource in resources {
        let words = format!("cannot {verb} resource \"{resource}\"");
        let names = |line: &Value| {
            let mut texts = ["error", "reason"].into_iter().filter_map(|key| line[key].as_str());
            line["hint"].is_string() && texts.any(|text| text.contains(&words))
        };
        until(&format!("an Event arrives, and it is said that one {words}"), async || {
            told(&receiver).contains_key(&reason(resource)) && bridge.log().iter().any(names)
        })
        .await;
    }
    bridge.stop_in_order().await;
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}
