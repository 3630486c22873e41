//! The chart in `deploy/chart`, and the manifests that are made from it: they hold what the program takes and asks for.
//!
//! `deploy/install.yaml` is looked at always, the chart where Helm is: on the `PATH`, or installed by
//! `tests/parts/install helm`.

mod chart;
mod manifests;

use std::{fs, path::Path};

use serde_json::json;
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
fn nobody_can_own_the_image_and_its_tag_is_the_version() {
    let image = installed().container()["image"].clone();
    assert_eq!(image, format!("registry.invalid/tidings:{}", env!("CARGO_PKG_VERSION")));
    let kustomization = fs::read_to_string(in_deploy("kustomization.yaml")).unwrap();
    let named = format!("registry.example.com/tidings:{}\n", env!("CARGO_PKG_VERSION"));
    assert!(kustomization.contains(&named), "{kustomization}");
    let chart = Manifests::read(&fs::read_to_string(in_deploy("chart/Chart.yaml")).unwrap());
    for key in ["version", "appVersion"] {
        assert_eq!(chart.objects[0][key], env!("CARGO_PKG_VERSION"), "{key} of Chart.yaml");
    }
}

#[test]
fn little_of_the_node_is_taken_and_a_lost_one_is_left_soon() {
    let manifests = installed();
    for of in ["requests", "limits"] {
        for what in ["memory", "ephemeral-storage"] {
            assert!(manifests.container()["resources"][of][what].is_string(), "{of} {what}");
        }
    }
    let tolerations = manifests.pod()["spec"]["tolerations"].as_array().unwrap();
    assert!(tolerations.iter().all(|t| t["tolerationSeconds"] == 30), "{tolerations:?}");
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
fn the_image_runs_the_program_as_the_user_of_the_pod() {
    let containerfile = fs::read_to_string(in_deploy("Containerfile")).unwrap();
    let manifests = installed();
    let user = &manifests.pod()["spec"]["securityContext"];
    let user = format!("\nUSER {}:{}\n", user["runAsUser"], user["runAsGroup"]);
    for line in [&*user, "\nFROM scratch\n", "\nENTRYPOINT [\"tidings\"]\n"] {
        assert!(containerfile.contains(line), "{line}");
    }
    let makefile = Path::new(env!("CARGO_MANIFEST_DIR")).join("Makefile");
    assert!(fs::read_to_string(makefile).unwrap().contains("\tdeploy/image\n"));
}
