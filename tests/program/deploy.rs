//! The chart in `deploy/chart`, and the manifests that are made from it: they hold what the program takes and asks for.
//!
//! `deploy/install.yaml` is looked at always, the chart where Helm is: on the `PATH`, or installed by
//! `tests/parts/install helm`.

mod alerts;
mod chart;
mod manifests;

use std::fs;

use serde_json::{Value, json};
use tidings::config::ServerDetail;

use manifests::{Manifests, granted, in_deploy};

/// `deploy/install.yaml`.
fn installed() -> Manifests {
    Manifests::read(&fs::read_to_string(in_deploy("install.yaml")).unwrap())
}

#[test]
fn the_manifests_hold_what_the_program_takes() {
    installed().check();
}

#[test]
fn the_configuration_writes_every_event_to_standard_output() {
    let (_, summary) = installed().configuration();
    assert!(summary.contains(": ok (1 sink: events → stdout)"), "{summary}");
}

#[test]
fn the_service_account_may_do_what_the_bridge_does_and_nothing_else() {
    let manifests = installed();
    assert_eq!(
        granted(&manifests),
        [
            "create events in tidings",
            "get namespaces [\"kube-system\"]",
            "list events",
            "patch events in tidings",
            "watch events",
        ]
    );
}

#[test]
fn the_probes_reach_the_pod_and_others_see_the_metrics_alone() {
    let manifests = installed();
    let (settings, _) = manifests.configuration();
    assert_eq!(settings.server.listen.to_string(), "[::]:8080");
    assert_eq!(settings.server.detail, ServerDetail::Metrics);
}

#[test]
fn the_image_has_an_invalid_registry_and_the_version_as_its_tag() {
    let image = installed().container()["image"].clone();
    assert_eq!(image, format!("registry.invalid/tidings:{}", env!("CARGO_PKG_VERSION")));
    let chart = Manifests::read(&fs::read_to_string(in_deploy("chart/Chart.yaml")).unwrap());
    for key in ["version", "appVersion"] {
        assert_eq!(chart.objects[0][key], env!("CARGO_PKG_VERSION"), "{key} of Chart.yaml");
    }
}

#[test]
fn the_pod_is_evicted_from_a_lost_node_after_30_s() {
    let manifests = installed();
    let tolerations = manifests.pod()["spec"]["tolerations"].as_array().unwrap();
    let mut of: Vec<_> = tolerations.iter().map(|t| (&t["key"], &t["tolerationSeconds"])).collect();
    of.sort_by_key(|(key, _)| key.to_string());
    let keys = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"].map(Value::from);
    assert_eq!(of, [(&keys[0], &30.into()), (&keys[1], &30.into())]);
}

#[test]
fn the_policy_lets_only_the_namespace_of_monitoring_to_the_one_port() {
    let manifests = installed();
    let policy = &manifests.one("NetworkPolicy")["spec"];
    assert_eq!(policy["policyTypes"], json!(["Ingress"]));
    let [rule] = policy["ingress"].as_array().unwrap().as_slice() else { panic!("one rule") };
    let monitoring = json!({"kubernetes.io/metadata.name": "monitoring"});
    let from = json!([{"namespaceSelector": {"matchLabels": monitoring}}]);
    assert_eq!(rule["from"], from);
    let port = &manifests.container()["ports"][0]["name"];
    assert_eq!(rule["ports"], json!([{"protocol": "TCP", "port": port}]));
}

#[test]
fn the_namespace_takes_only_pods_of_the_restricted_profile() {
    let manifests = installed();
    let labels = &manifests.one("Namespace")["metadata"]["labels"];
    for mode in ["enforce", "warn", "audit"] {
        assert_eq!(labels[format!("pod-security.kubernetes.io/{mode}")], "restricted");
        assert!(labels[format!("pod-security.kubernetes.io/{mode}-version")].is_string(), "{mode}");
    }
}

#[test]
fn the_image_runs_as_the_user_of_the_pod() {
    let containerfile = fs::read_to_string(in_deploy("Containerfile")).unwrap();
    let manifests = installed();
    let user = &manifests.pod()["spec"]["securityContext"];
    let user = format!("\nUSER {}:{}\n", user["runAsUser"], user["runAsGroup"]);
    assert!(containerfile.contains(&user), "{user}");
}
