//! Manifests, read, and what has to hold for all of them, whatever the values of the chart were.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use tidings::config::{self, CheckSecrets, Settings};

/// A file of `deploy/`.
pub(super) fn in_deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(name)
}

/// The objects of a YAML file.
pub(super) struct Manifests {
    pub(super) objects: Vec<Value>,
}

impl Manifests {
    pub(super) fn read(text: &str) -> Self {
        let mut objects: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
        objects.retain(|object| !object.is_null());
        Self { objects }
    }

    pub(super) fn all(&self, kind: &str) -> Vec<&Value> {
        self.objects.iter().filter(|object| object["kind"] == kind).collect()
    }

    pub(super) fn one(&self, kind: &str) -> &Value {
        let found = self.all(kind);
        assert_eq!(found.len(), 1, "{kind}");
        found[0]
    }

    /// That of the configuration.
    pub(super) fn configmap(&self) -> &Value {
        let has_it = |map: &&Value| map["data"]["tidings.yaml"].is_string();
        self.all("ConfigMap").into_iter().find(has_it).unwrap()
    }

    /// The object that makes the Pod: a StatefulSet, or a Deployment.
    pub(super) fn workload(&self) -> &Value {
        let kind = if self.all("Deployment").is_empty() { "StatefulSet" } else { "Deployment" };
        self.one(kind)
    }

    pub(super) fn pod(&self) -> &Value {
        &self.workload()["spec"]["template"]
    }

    pub(super) fn container(&self) -> &Value {
        let containers = self.pod()["spec"]["containers"].as_array().unwrap();
        assert_eq!(containers.len(), 1);
        &containers[0]
    }

    /// The variables that the Pod gives the program, except for those that the Pod takes from itself.
    fn variables(&self) -> Vec<(OsString, OsString)> {
        let env = self.container()["env"].as_array().unwrap();
        let pair = |variable: &Value| {
            Some((variable["name"].as_str()?.into(), variable["value"].as_str()?.into()))
        };
        env.iter().filter_map(pair).collect()
    }

    /// The configuration, as the program reads it, and the verdict of `check`.
    pub(super) fn configuration(&self) -> (Settings, String) {
        let map = self.configmap();
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), map["data"]["tidings.yaml"].as_str().unwrap()).unwrap();
        let summary = config::check(file.path(), self.variables(), CheckSecrets::Optional);
        let summary = summary.unwrap_or_else(|error| panic!("{error}"));
        (config::load(file.path(), self.variables()).unwrap(), summary)
    }

    /// Checks that hold for every set of values.
    pub(super) fn check(&self) {
        let (settings, _) = self.configuration();
        let (workload, pod, container) = (self.workload(), self.pod(), self.container());
        assert_eq!(container["command"], json!(["tidings"]));
        assert_eq!(container["args"], json!(["run", "--config", "/etc/tidings/tidings.yaml"]));

        // Each volume is mounted, and each mount has a volume.
        let mounts = container["volumeMounts"].as_array().unwrap();
        let mount = |name: &str| {
            let of = mounts.iter().find(|mount| mount["name"] == name);
            of.map_or(&Value::Null, |mount| &mount["mountPath"])
        };
        assert_eq!(mount("config"), "/etc/tidings");
        assert_eq!(mount("secrets"), "/run/secrets/tidings");
        assert_eq!(mount("journal"), settings.journal.path.to_str().unwrap());
        let volumes = pod["spec"]["volumes"].as_array().unwrap().iter().map(|v| &v["name"]);
        let claims = workload["spec"]["volumeClaimTemplates"].as_array();
        let claims = claims.into_iter().flatten().map(|claim| &claim["metadata"]["name"]);
        let volumes: BTreeSet<_> = volumes.chain(claims).map(ToString::to_string).collect();
        let mounted: BTreeSet<_> = mounts.iter().map(|mount| mount["name"].to_string()).collect();
        assert_eq!(volumes, mounted);

        // Probes, the Service and the policy find the one port of the one Pod.
        assert_eq!(container["ports"][0]["containerPort"], settings.server.listen.port());
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            assert_eq!(container[probe]["httpGet"]["port"], container["ports"][0]["name"]);
        }
        let service = self.one("Service");
        let labels = &pod["metadata"]["labels"];
        let mut selectors =
            vec![&workload["spec"]["selector"]["matchLabels"], &service["spec"]["selector"]];
        let policies = self.all("NetworkPolicy");
        selectors
            .extend(policies.iter().map(|policy| &policy["spec"]["podSelector"]["matchLabels"]));
        for selector in selectors {
            for (key, value) in selector.as_object().unwrap() {
                assert_eq!(&labels[key], value, "{selector}");
            }
        }
        if workload["kind"] == "StatefulSet" {
            assert_eq!(workload["spec"]["serviceName"], service["metadata"]["name"]);
        }
        assert_eq!(workload["spec"]["replicas"], 1);

        // Variables that describe Services begin with TIDINGS_ too, and would be refused.
        assert_eq!(pod["spec"]["enableServiceLinks"], false);

        // The restricted profile.
        let security = &pod["spec"]["securityContext"];
        assert_eq!(security["runAsNonRoot"], true);
        assert_eq!(security["seccompProfile"]["type"], "RuntimeDefault");
        let security = &container["securityContext"];
        assert_eq!(security["allowPrivilegeEscalation"], false);
        assert_eq!(security["readOnlyRootFilesystem"], true);
        assert_eq!(security["capabilities"]["drop"], json!(["ALL"]));

        // Each role is bound, once, to the account of the Pod.
        let account = self.one("ServiceAccount");
        assert_eq!(pod["spec"]["serviceAccountName"], account["metadata"]["name"]);
        assert_eq!(account["automountServiceAccountToken"], false);
        for role in self.roles() {
            let (kind, metadata) = (role["kind"].as_str().unwrap(), &role["metadata"]);
            let bindings = self.all(&format!("{kind}Binding"));
            let bindings: Vec<_> = bindings
                .into_iter()
                .filter(|binding| {
                    binding["roleRef"]["name"] == metadata["name"]
                        && binding["metadata"]["namespace"] == metadata["namespace"]
                })
                .collect();
            assert_eq!(bindings.len(), 1, "{metadata}");
            assert_eq!(bindings[0]["roleRef"]["kind"], kind);
            let subject = json!([{
                "kind": "ServiceAccount",
                "name": account["metadata"]["name"],
                "namespace": account["metadata"]["namespace"],
            }]);
            assert_eq!(bindings[0]["subjects"], subject);
        }
    }

    fn roles(&self) -> impl Iterator<Item = &Value> {
        self.all("Role").into_iter().chain(self.all("ClusterRole"))
    }
}

/// The permissions of the account: verb, resource, names, and the namespace if it is one.
pub(super) fn granted(manifests: &Manifests) -> Vec<String> {
    let mut granted = BTreeSet::new();
    for role in manifests.roles() {
        let within = role["metadata"]["namespace"].as_str();
        let within = within.map(|namespace| format!(" in {namespace}")).unwrap_or_default();
        for rule in role["rules"].as_array().unwrap() {
            let list = |key: &str| -> Vec<String> {
                let list = rule[key].as_array().into_iter().flatten();
                list.map(|value| value.as_str().unwrap().to_owned()).collect()
            };
            let names = rule.get("resourceNames").map(|names| format!(" {names}"));
            let names = names.unwrap_or_default();
            assert!(rule.get("nonResourceURLs").is_none(), "{rule}");
            for group in list("apiGroups") {
                let group = if group.is_empty() { group } else { format!(".{group}") };
                for verb in list("verbs") {
                    for resource in list("resources") {
                        granted.insert(format!("{verb} {resource}{group}{names}{within}"));
                    }
                }
            }
        }
    }
    granted.into_iter().collect()
}
