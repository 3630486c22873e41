//! The manifests in `deploy/`: what they hold is what the program takes and asks for.

use std::{collections::BTreeSet, ffi::OsString, fs, path::Path};

use serde_json::Value;
use tidings::config::{self, CheckSecrets, ServerDetail};

/// Every object that `deploy/kustomization.yaml` names.
fn objects() -> Vec<Value> {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
    let read = |name: &str| fs::read_to_string(deploy.join(name)).unwrap();
    let kustomization: Value = serde_saphyr::from_str(&read("kustomization.yaml")).unwrap();
    let files = kustomization["resources"].as_array().unwrap();
    files
        .iter()
        .flat_map(|file| {
            serde_saphyr::from_multiple::<Value>(&read(file.as_str().unwrap())).unwrap()
        })
        .collect()
}

fn one(kind: &str) -> Value {
    let mut found: Vec<_> = objects().into_iter().filter(|object| object["kind"] == kind).collect();
    assert_eq!(found.len(), 1, "{kind}");
    found.remove(0)
}

fn container(stateful_set: &Value) -> &Value {
    &stateful_set["spec"]["template"]["spec"]["containers"][0]
}

/// The variables that the Pod gives the program, but for those that it takes from itself.
fn variables() -> Vec<(OsString, OsString)> {
    let stateful_set = one("StatefulSet");
    let env = container(&stateful_set)["env"].as_array().unwrap();
    let pair = |variable: &Value| {
        Some((variable["name"].as_str()?.into(), variable["value"].as_str()?.into()))
    };
    env.iter().filter_map(pair).collect()
}

/// The configuration of the ConfigMap, in a file.
fn configuration(change: impl Fn(&str) -> String) -> tempfile::NamedTempFile {
    let map = one("ConfigMap");
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), change(map["data"]["tidings.yaml"].as_str().unwrap())).unwrap();
    file
}

#[test]
fn the_configuration_passes_the_check() {
    let file = configuration(str::to_owned);
    let summary = config::check(file.path(), [], CheckSecrets::Required).unwrap();
    assert!(summary.contains(": ok (1 sink: events → stdout)"), "{summary}");
}

#[test]
fn what_is_commented_out_passes_it_too() {
    // Prose has one space after its sign.
    let is_prose = |line: &str| line.starts_with(' ') && !line.starts_with("  ");
    let file = configuration(|text| {
        let lines = text.lines().map(|line| match line.split_once('#') {
            Some((indent, rest)) if indent.trim().is_empty() && !is_prose(rest) => {
                format!("{indent}{rest}\n")
            }
            _ => format!("{line}\n"),
        });
        lines.collect()
    });
    let summary = config::check(file.path(), [], CheckSecrets::Optional).unwrap();
    let sinks = "events → stdout, audit → kafka, otel → otlp, pager → webhook";
    assert!(summary.contains(&format!(": ok (4 sinks: {sinks})")), "{summary}");
}

#[test]
fn the_service_account_may_do_what_the_bridge_does_and_nothing_else() {
    let mut granted = BTreeSet::new();
    let roles = objects();
    for role in roles.iter().filter(|o| matches!(o["kind"].as_str(), Some("Role" | "ClusterRole")))
    {
        for rule in role["rules"].as_array().unwrap() {
            let list = |key: &str| rule[key].as_array().cloned().unwrap_or_default();
            assert_eq!(rule["apiGroups"], serde_json::json!([""]));
            for (resource, verb) in list("resources")
                .iter()
                .flat_map(|resource| list("verbs").into_iter().map(move |verb| (resource, verb)))
                .map(|(resource, verb)| (resource.to_string(), verb.to_string()))
            {
                let within = &role["metadata"]["namespace"];
                granted.insert(format!(
                    "{verb} {resource} {:?} in {within}",
                    rule.get("resourceNames")
                ));
            }
        }
        // Each role is bound, once, to the one account.
        let name = &role["metadata"]["name"];
        let bindings: Vec<_> =
            roles.iter().filter(|object| object["roleRef"]["name"] == *name).collect();
        assert_eq!(bindings.len(), 1, "{name}");
        let account = serde_json::json!(
            [{"kind": "ServiceAccount", "name": "tidings", "namespace": "tidings"}]
        );
        assert_eq!(bindings[0]["subjects"], account);
    }
    let granted: Vec<_> = granted.into_iter().collect();
    assert_eq!(
        granted,
        [
            r#""create" "events" None in "tidings""#,
            r#""get" "namespaces" Some(Array [String("kube-system")]) in null"#,
            r#""list" "events" None in null"#,
            r#""patch" "events" None in "tidings""#,
            r#""watch" "events" None in null"#,
        ]
    );
}

#[test]
fn the_pod_runs_by_that_configuration_with_a_volume_for_the_journal() {
    let file = configuration(str::to_owned);
    let settings = config::load(file.path(), variables()).unwrap();
    let stateful_set = one("StatefulSet");
    let container = container(&stateful_set);
    assert_eq!(
        container["args"],
        serde_json::json!(["run", "--config", "/etc/tidings/tidings.yaml"])
    );
    let mounts = container["volumeMounts"].as_array().unwrap();
    let mount =
        |name: &str| mounts.iter().find(|m| m["name"] == name).unwrap()["mountPath"].clone();
    assert_eq!(mount("config"), "/etc/tidings");
    assert_eq!(mount("journal"), settings.journal.path.to_str().unwrap());
    let claims = stateful_set["spec"]["volumeClaimTemplates"].as_array().unwrap();
    assert_eq!(claims[0]["metadata"]["name"], "journal");
    assert_eq!(settings.server.listen.to_string(), "[::]:8080");
    assert_eq!(settings.server.detail, ServerDetail::Metrics);
    assert_eq!(container["ports"][0]["containerPort"], settings.server.listen.port());
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        assert_eq!(container[probe]["httpGet"]["port"], container["ports"][0]["name"], "{probe}");
    }
    assert_eq!(stateful_set["spec"]["serviceName"], one("Service")["metadata"]["name"]);
    // Variables that describe Services begin with TIDINGS_ too, and would be refused.
    assert_eq!(stateful_set["spec"]["template"]["spec"]["enableServiceLinks"], false);
}

/// A ConfigMap is its owner's: one of before, or one that says otherwise, goes on under this template.
#[test]
fn the_probes_reach_the_pod_whatever_its_configmap_says() {
    for server in
        ["", "server: {listen: \"0.0.0.0:8080\"}\n", "server: {listen: \"127.0.0.1:9\"}\n"]
    {
        let file = configuration(|text| format!("{text}\n{server}"));
        let settings = config::load(file.path(), variables()).unwrap();
        assert_eq!(settings.server.listen.to_string(), "[::]:8080", "{server}");
    }
}

#[test]
fn nobody_can_own_the_image_and_little_of_the_node_is_taken() {
    let stateful_set = one("StatefulSet");
    let container = container(&stateful_set);
    assert!(container["image"].as_str().unwrap().starts_with("registry.invalid/"));
    for of in ["requests", "limits"] {
        for what in ["memory", "ephemeral-storage"] {
            assert!(container["resources"][of][what].is_string(), "{of} {what}");
        }
    }
}

#[test]
fn the_policy_lets_only_the_namespace_of_monitoring_to_the_one_port() {
    let (policy, stateful_set) = (one("NetworkPolicy"), one("StatefulSet"));
    let (policy, pod) = (&policy["spec"], &stateful_set["spec"]["template"]);
    assert_eq!(policy["podSelector"]["matchLabels"], pod["metadata"]["labels"]);
    assert_eq!(policy["policyTypes"], serde_json::json!(["Ingress"]));
    let [rule] = policy["ingress"].as_array().unwrap().as_slice() else { panic!("one rule") };
    let monitoring = serde_json::json!({"kubernetes.io/metadata.name": "monitoring"});
    let from = serde_json::json!([{"namespaceSelector": {"matchLabels": monitoring}}]);
    assert_eq!(rule["from"], from);
    let port = &container(&stateful_set)["ports"][0]["name"];
    assert_eq!(rule["ports"], serde_json::json!([{"protocol": "TCP", "port": port}]));
}

#[test]
fn the_pod_fits_the_restricted_profile() {
    let labels = &one("Namespace")["metadata"]["labels"];
    for mode in ["enforce", "warn", "audit"] {
        assert_eq!(labels[format!("pod-security.kubernetes.io/{mode}")], "restricted");
        assert!(labels[format!("pod-security.kubernetes.io/{mode}-version")].is_string(), "{mode}");
    }

    let stateful_set = one("StatefulSet");
    let pod = &stateful_set["spec"]["template"]["spec"]["securityContext"];
    assert_eq!(
        (&pod["runAsNonRoot"], &pod["seccompProfile"]["type"]),
        (&true.into(), &"RuntimeDefault".into())
    );
    let container = &container(&stateful_set)["securityContext"];
    assert_eq!(container["allowPrivilegeEscalation"], false);
    assert_eq!(container["readOnlyRootFilesystem"], true);
    assert_eq!(container["capabilities"]["drop"], serde_json::json!(["ALL"]));
}
