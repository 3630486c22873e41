//! The chart, rendered by Helm with values as people set them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};
use tidings::config;

use super::manifests::{Manifests, granted, in_deploy};

const IMAGE: &str = "image: {repository: registry.example.com/tidings}\n";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Helm, if `tests/parts/install helm` has installed it; without it there is nothing to test here.
fn helm() -> Option<PathBuf> {
    let versions = fs::read_to_string(root().join("tests/parts/versions")).unwrap();
    let version = versions.lines().find_map(|line| line.strip_prefix("helm ")).unwrap();
    let parts = Command::new(root().join("tests/parts/install")).arg("--where").output().unwrap();
    let parts = String::from_utf8(parts.stdout).unwrap();
    let helm = Path::new(parts.trim()).join(format!("helm-{version}/bin/helm"));
    helm.exists().then_some(helm)
}

/// The objects that the chart makes of values; the error is Helm's.
fn render(helm: &Path, values: &str) -> Result<Manifests, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), values).unwrap();
    let output = Command::new(helm)
        .args(["template", "tidings", "--namespace", "tidings", "--values"])
        .arg(file.path())
        .arg(in_deploy("chart"))
        .output()
        .unwrap();
    if !output.status.success() {
        return Err(String::from_utf8(output.stderr).unwrap());
    }
    Ok(Manifests::read(&String::from_utf8(output.stdout).unwrap()))
}

/// Renders values that are in order, on top of the image, and checks what holds for all.
fn rendered(helm: &Path, values: &str) -> Manifests {
    let manifests = render(helm, &format!("{IMAGE}{values}")).unwrap_or_else(|e| panic!("{e}"));
    manifests.check();
    manifests
}

#[test]
fn the_manifests_are_what_the_chart_makes_of_its_default_values() {
    if helm().is_none() {
        return;
    }
    let made = tempfile::tempdir().unwrap();
    let script = root().join("scripts/install-yaml");
    assert!(Command::new(script).arg(made.path()).status().unwrap().success());
    for name in ["install.yaml", "rbac-enrichment.yaml"] {
        let made = fs::read_to_string(made.path().join(name)).unwrap();
        assert!(made == fs::read_to_string(in_deploy(name)).unwrap(), "run: make install-yaml");
    }
}

#[test]
fn namespaced_grants_nothing_outside_the_namespaces() {
    let Some(helm) = helm() else { return };
    let values = "
namespaced: true
enrichment: {enabled: true}
config: {source: {namespaces: [shop, payments]}}
";
    let manifests = rendered(&helm, values);
    assert!(manifests.all("ClusterRole").is_empty());
    let granted = granted(&manifests);
    for one in ["list events in shop", "watch events in payments", "get pods in shop"] {
        assert!(granted.iter().any(|grant| grant == one), "{one}: {granted:?}");
    }
    assert!(granted.iter().all(|grant| grant.contains(" in ")), "{granted:?}");
    assert!(!granted.iter().any(|grant| grant.contains("nodes")), "{granted:?}");
    assert_eq!(manifests.configuration().0.source.events.namespaces, ["shop", "payments"]);
}

#[test]
fn ephemeral_is_a_deployment_without_a_claim() {
    let Some(helm) = helm() else { return };
    let manifests = rendered(&helm, "ephemeral: true\npersistence: {size: 1500Mi}\n");
    let workload = manifests.one("Deployment");
    assert_eq!(workload["spec"]["strategy"]["type"], "Recreate");
    let volumes = manifests.pod()["spec"]["volumes"].as_array().unwrap();
    let journal = volumes.iter().find(|volume| volume["name"] == "journal").unwrap();
    assert_eq!(journal["emptyDir"]["sizeLimit"], "1500Mi");
    // The kubelet counts the journal too, and would evict the Pod at the limit for the log.
    let resources = &manifests.container()["resources"];
    assert!(resources["limits"].get("ephemeral-storage").is_none());
    assert_eq!(resources["requests"]["ephemeral-storage"], "1500Mi");
}

#[test]
fn sinks_and_other_keys_arrive_as_they_are_written() {
    let Some(helm) = helm() else { return };
    let values = r#"
config:
  cluster: {name: prod-eu-1, labels: {env: "yes", "tier": "1e3"}}
  journal: {retention: {size: 1500000000, age: 24h}}
  sinks:
    elastic:
      elasticsearch: {urls: ["https://es:9200"], index: "k8s-events-{{ day }}", auth: {apiKey: {env: KEY}}}
      match: 'event.reason == "OOM" && !(event.message.contains("''"))'
    relay: {syslog: {address: "rsyslog:6514", transport: tls}}
  server: {detail: all}
  log: {level: debug}
extraEnv: [{name: KEY, value: secret}]
"#;
    let manifests = rendered(&helm, values);
    let (settings, summary) = manifests.configuration();
    assert!(summary.contains("elastic → elasticsearch, relay → syslog"), "{summary}");
    let written = manifests.configmap()["data"]["tidings.yaml"].as_str().unwrap();
    let mut written: Value = serde_saphyr::from_str(written).unwrap();
    let values: Value = serde_saphyr::from_str(values).unwrap();
    assert_eq!(written["log"].as_object_mut().unwrap().remove("format"), Some(json!("json")));
    assert_eq!(written, values["config"]);
    assert_eq!(settings.server.detail, config::ServerDetail::All);
}

#[test]
fn values_of_a_site_reach_the_objects() {
    let Some(helm) = helm() else { return };
    let digest = format!("sha256:{}", "0".repeat(64));
    let values = r#"
fullnameOverride: bridge
secretName: siem
persistence: {size: 10Gi, storageClass: fast}
enrichment: {enabled: true, rules: [{apiGroups: [argoproj.io], resources: [rollouts], verbs: [get]}]}
monitoring:
  serviceMonitor: {enabled: true, labels: {release: prometheus}}
  prometheusRule: {enabled: true, labels: {release: prometheus}}
  dashboard: {enabled: true, labels: {folder: kubernetes}}
networkPolicy: {enabled: false}
priorityClassName: important
imagePullSecrets: [{name: registry}]
serviceAccount: {name: events, annotations: {role: reader}}
podLabels: {team: ops, app.kubernetes.io/name: mine}
podAnnotations: {sidecar: "no", checksum/config: mine}
extraEnvFrom: [{secretRef: {name: tokens}}]
podSecurityContext: {runAsUser: null, runAsGroup: null, fsGroup: null}
nodeSelector: {disk: ssd}
extraVolumes: [{name: ca, configMap: {name: ca}}]
extraVolumeMounts: [{name: ca, mountPath: /etc/ca}]
"#;
    let manifests =
        render(&helm, &format!("image: {{repository: r/tidings, digest: \"{digest}\"}}\n{values}"))
            .unwrap_or_else(|error| panic!("{error}"));
    manifests.check();
    assert_eq!(manifests.container()["image"], format!("r/tidings@{digest}"));
    assert_eq!(manifests.workload()["metadata"]["name"], "bridge");
    assert!(manifests.all("NetworkPolicy").is_empty());
    assert!(granted(&manifests).contains(&"get rollouts.argoproj.io".to_owned()));
    let monitor = manifests.one("ServiceMonitor");
    assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
    assert_eq!(monitor["spec"]["endpoints"][0]["port"], manifests.container()["ports"][0]["name"]);
    let rule = manifests.one("PrometheusRule");
    assert_eq!(rule["metadata"]["labels"]["release"], "prometheus");
    assert!(rule["spec"]["groups"][0]["rules"].as_array().is_some_and(|rules| rules.len() > 5));
    let maps = manifests.all("ConfigMap");
    let dashboard = maps.iter().find(|map| map["data"]["tidings.json"].is_string()).unwrap();
    assert_eq!(dashboard["metadata"]["labels"]["grafana_dashboard"], "1");
    let dashboard = dashboard["data"]["tidings.json"].as_str().unwrap();
    assert!(serde_json::from_str::<Value>(dashboard).is_ok());
    let pod = manifests.pod();
    for (key, value) in [
        ("/metadata/labels/team", "ops"),
        ("/metadata/annotations/sidecar", "no"),
        ("/spec/priorityClassName", "important"),
        ("/spec/imagePullSecrets/0/name", "registry"),
        ("/spec/nodeSelector/disk", "ssd"),
        ("/spec/containers/0/envFrom/0/secretRef/name", "tokens"),
        ("/spec/volumes/1/secret/secretName", "siem"),
    ] {
        assert_eq!(pod.pointer(key).unwrap(), value, "{key}");
    }
    assert!(pod["spec"]["securityContext"].get("fsGroup").is_none());
    let claim = &manifests.workload()["spec"]["volumeClaimTemplates"][0]["spec"];
    assert_eq!(claim["storageClassName"], "fast");
    assert_eq!(claim["resources"]["requests"]["storage"], "10Gi");
}

#[test]
fn names_that_look_like_numbers_are_texts() {
    let Some(helm) = helm() else { return };
    let values = "
secretName: '1e3'
priorityClassName: 'yes'
persistence: {storageClass: '010'}
serviceAccount: {name: '123'}
namespaced: true
config: {source: {namespaces: ['7', 'true']}}
";
    let manifests = rendered(&helm, values);
    assert_eq!(manifests.pod()["spec"]["priorityClassName"], "yes");
    let namespaces = manifests.all("Role").into_iter().map(|role| &role["metadata"]["namespace"]);
    assert_eq!(namespaces.collect::<Vec<_>>(), ["7", "true", "tidings"]);
}

#[test]
fn a_change_of_the_configuration_makes_another_pod() {
    let Some(helm) = helm() else { return };
    let sum = |values: &str| {
        let manifests = rendered(&helm, values);
        manifests.pod()["metadata"]["annotations"]["checksum/config"].to_string()
    };
    let one = sum("config: {cluster: {name: a}}");
    assert_eq!(one, sum("config: {cluster: {name: a}}"));
    assert_ne!(one, sum("config: {cluster: {name: b}}"));
}

#[test]
fn what_is_null_or_empty_is_left_out() {
    let Some(helm) = helm() else { return };
    rendered(&helm, "config:\nresources:\ntolerations: []\nnetworkPolicy: {from: []}\n");
    let manifests = rendered(&helm, "rbac: {create: false}");
    assert!(manifests.all("ClusterRole").is_empty() && manifests.all("Role").is_empty());
    let account = "serviceAccount: {create: false, name: mine}";
    let manifests = render(&helm, &format!("{IMAGE}{account}")).unwrap_or_else(|e| panic!("{e}"));
    assert!(manifests.all("ServiceAccount").is_empty());
    assert_eq!(manifests.pod()["spec"]["serviceAccountName"], "mine");
}

#[test]
fn a_mistake_in_the_values_is_said_with_its_place() {
    let Some(helm) = helm() else { return };
    let refused = |values: &str, words: &[&str]| {
        let Err(error) = render(&helm, values) else { panic!("{values} is taken") };
        for word in words {
            assert!(error.contains(word), "{values}: {error}");
        }
    };
    refused("{}", &["expected image.repository", "make image"]);
    let config = |config: &str| format!("{IMAGE}config: {config}");
    refused(&config("{sink: {}}"), &["/config", "sink"]);
    refused(&config("{sinks: {a: {webhook: {uri: x}}}}"), &["/config/sinks/a", "uri"]);
    refused(&config("{sinks: {a: {stdout: {}, timeout: soon}}}"), &["/config/sinks/a/timeout"]);
    refused(&config("{journal: {path: /data}}"), &["config.journal.path, found /data"]);
    refused(&config("{server: {listen: \"[::]:80\"}}"), &["config.server.listen"]);
    let small = "ephemeral: true\npersistence: {size: 512Mi}";
    refused(&format!("{IMAGE}{small}"), &["persistence.size, found 1GiB and 512Mi"]);
    let large = config("{journal: {retention: {size: 3000000000}}}");
    refused(&large, &["expected config.journal.retention.size below persistence.size"]);
    refused(&format!("{IMAGE}namespaced: true"), &["config.source.namespaces"]);
    refused(&format!("{IMAGE}persistance: {{size: 1Gi}}"), &["persistance"]);
    refused(&format!("{IMAGE}persistence: {{size: 1GiB}}"), &["/persistence/size"]);
}

/// The schema of the values holds the schema of the configuration, but that sinks may be left out.
#[test]
fn the_schema_of_the_values_knows_each_key_of_the_configuration() {
    let path = in_deploy("chart/values.schema.json");
    let shipped: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let mut configuration: Value = serde_json::from_str(&config::schema()).unwrap();
    let keys = configuration.as_object_mut().unwrap();
    keys.remove("required");
    // References within it are to its own definitions.
    keys.insert("$id".to_owned(), json!("urn:tidings:configuration"));
    let mut wanted = shipped.clone();
    wanted["properties"]["config"] = configuration;
    if std::env::var_os("WRITE_SCHEMA").is_some() {
        fs::write(&path, format!("{wanted:#}\n")).unwrap();
    } else {
        assert!(shipped == wanted, "run: make schema");
    }
}
