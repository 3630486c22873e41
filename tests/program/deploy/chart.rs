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

/// Helm, if it is here.
fn helm() -> Option<PathBuf> {
    let install = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/parts/install");
    let parts = Command::new(install).arg("--where").output().unwrap().stdout;
    let parts = fs::read_dir(String::from_utf8(parts).unwrap().trim()).into_iter().flatten();
    let part = parts
        .map(|part| part.unwrap())
        .find(|part| part.file_name().to_string_lossy().starts_with("helm-"))
        .map(|part| part.path().join("bin/helm"));
    let helm = part.unwrap_or_else(|| "helm".into());
    let runs = Command::new(&helm).arg("version").output().is_ok();
    if !runs {
        eprintln!("skipped: Helm is not here (tests/parts/install helm)");
    }
    runs.then_some(helm)
}

/// What the chart makes of values; the error is Helm's.
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
    let Some(helm) = helm() else { return };
    let values = "image: {repository: registry.invalid/tidings}\n";
    let read = |name: &str| Manifests::read(&fs::read_to_string(in_deploy(name)).unwrap()).objects;
    let made = render(&helm, values).unwrap().objects;
    let mut shipped = read("namespace.yaml");
    shipped.extend(made.clone());
    assert_eq!(read("install.yaml"), shipped, "run: make install-yaml");

    let mut enriched =
        render(&helm, &format!("{values}enrichment: {{enabled: true}}")).unwrap().objects;
    enriched.retain(|object| !made.contains(object));
    assert_eq!(read("rbac-enrichment.yaml"), enriched, "run: make install-yaml");
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
    let manifests = rendered(&helm, "ephemeral: true\npersistence: {size: 500Mi}\n");
    let workload = manifests.one("Deployment");
    assert_eq!(workload["spec"]["strategy"]["type"], "Recreate");
    let volumes = manifests.pod()["spec"]["volumes"].as_array().unwrap();
    let journal = volumes.iter().find(|volume| volume["name"] == "journal").unwrap();
    assert_eq!(journal["emptyDir"]["sizeLimit"], "500Mi");
    // The kubelet counts the journal too, and would evict the Pod at the limit for the log.
    assert!(manifests.container()["resources"]["limits"].get("ephemeral-storage").is_none());
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
    let written = manifests.one("ConfigMap")["data"]["tidings.yaml"].as_str().unwrap();
    let mut written: Value = serde_saphyr::from_str(written).unwrap();
    let values: Value = serde_saphyr::from_str(values).unwrap();
    assert_eq!(written["log"].as_object_mut().unwrap().remove("format"), Some(json!("json")));
    assert_eq!(written, values["config"]);
    assert_eq!(settings.server.detail, config::ServerDetail::All);
}

#[test]
fn what_a_site_adds_is_in_the_objects() {
    let Some(helm) = helm() else { return };
    let digest = format!("sha256:{}", "0".repeat(64));
    let values = format!(
        r#"
fullnameOverride: bridge
secretName: siem
persistence: {{size: 10Gi, storageClass: fast}}
enrichment: {{enabled: true, rules: [{{apiGroups: [argoproj.io], resources: [rollouts], verbs: [get]}}]}}
monitoring: {{serviceMonitor: {{enabled: true, labels: {{release: prometheus}}}}}}
networkPolicy: {{enabled: false}}
priorityClassName: important
imagePullSecrets: [{{name: registry}}]
serviceAccount: {{name: events, annotations: {{role: reader}}}}
podLabels: {{team: ops}}
podAnnotations: {{sidecar: "no"}}
nodeSelector: {{disk: ssd}}
extraVolumes: [{{name: ca, configMap: {{name: ca}}}}]
extraVolumeMounts: [{{name: ca, mountPath: /etc/ca}}]
"#
    );
    let manifests =
        render(&helm, &format!("image: {{repository: r/tidings, digest: \"{digest}\"}}\n{values}"))
            .unwrap_or_else(|error| panic!("{error}"));
    manifests.check();
    assert_eq!(manifests.container()["image"], format!("r/tidings@{digest}"));
    assert_eq!(manifests.workload()["metadata"]["name"], "bridge");
    assert!(manifests.all("NetworkPolicy").is_empty());
    assert!(granted(&manifests).contains(&"get rollouts".to_owned()));
    let monitor = manifests.one("ServiceMonitor");
    assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
    assert_eq!(monitor["spec"]["endpoints"][0]["port"], manifests.container()["ports"][0]["name"]);
    let pod = manifests.pod();
    for (key, value) in [
        ("/metadata/labels/team", "ops"),
        ("/metadata/annotations/sidecar", "no"),
        ("/spec/priorityClassName", "important"),
        ("/spec/imagePullSecrets/0/name", "registry"),
        ("/spec/nodeSelector/disk", "ssd"),
        ("/spec/volumes/1/secret/secretName", "siem"),
    ] {
        assert_eq!(pod.pointer(key).unwrap(), value, "{key}");
    }
    let claim = &manifests.workload()["spec"]["volumeClaimTemplates"][0]["spec"];
    assert_eq!(claim["storageClassName"], "fast");
    assert_eq!(claim["resources"]["requests"]["storage"], "10Gi");
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
fn a_mistake_in_the_values_is_said_with_its_place() {
    let Some(helm) = helm() else { return };
    let refused = |values: &str, words: &[&str]| {
        let Err(error) = render(&helm, values) else { panic!("{values} is taken") };
        for word in words {
            assert!(error.contains(word), "{values}: {error}");
        }
    };
    refused("{}", &["image.repository is not set", "make image"]);
    let config = |config: &str| format!("{IMAGE}config: {config}");
    refused(&config("{sink: {}}"), &["/config", "sink"]);
    refused(&config("{sinks: {a: {webhook: {uri: x}}}}"), &["/config/sinks/a", "uri"]);
    refused(&config("{sinks: {a: {stdout: {}, timeout: soon}}}"), &["/config/sinks/a/timeout"]);
    refused(&config("{journal: {path: /data}}"), &["config.journal.path"]);
    refused(&config("{server: {listen: \"[::]:80\"}}"), &["config.server.listen"]);
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
