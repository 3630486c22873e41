//! Facts about kinds of objects and types of Events that several formats state.

#[cfg(feature = "otlp")]
use crate::event::ObjectReference;

/// The severity number; an unknown type has none, only its text.
pub(super) fn severity(event_type: &str) -> u64 {
    [("Normal", 9), ("Warning", 13), ("Error", 17), ("Critical", 21)]
        .into_iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(event_type))
        .map_or(0, |(_, number)| number)
}

/// The container in `spec.containers{app}`, `spec.initContainers{…}` or
/// `spec.ephemeralContainers{…}`.
pub(super) fn container_name(field_path: &str) -> &str {
    field_path
        .strip_prefix("spec.")
        .and_then(|rest| rest.strip_suffix('}')?.split_once('{'))
        .filter(|(list, _)| {
            matches!(*list, "containers" | "initContainers" | "ephemeralContainers")
        })
        .map_or("", |(_, name)| name)
}

#[cfg(feature = "otlp")]
pub(super) fn is_node(object: &ObjectReference<'_>) -> bool {
    &*object.kind == "Node" && matches!(&*object.api_version, "" | "v1")
}

/// The attributes that the semantic conventions have for a kind.
///
/// The group counts too: a Job of another group than `batch` is something else. Some reporters
/// leave the version out, and then mean the kind that everyone knows.
pub(super) fn kind_keys(kind: &str, api_version: &str) -> Option<(&'static str, &'static str)> {
    macro_rules! keys {
        ($kind:literal) => {
            (concat!("k8s.", $kind, ".name"), concat!("k8s.", $kind, ".uid"))
        };
    }
    let (group, keys) = match kind {
        "Pod" => ("", keys!("pod")),
        "Node" => ("", keys!("node")),
        "Namespace" => ("", keys!("namespace")),
        "ReplicationController" => ("", keys!("replicationcontroller")),
        "Service" => ("", keys!("service")),
        "PersistentVolume" => ("", keys!("persistentvolume")),
        "PersistentVolumeClaim" => ("", keys!("persistentvolumeclaim")),
        "ResourceQuota" => ("", keys!("resourcequota")),
        "Deployment" => ("apps", keys!("deployment")),
        "ReplicaSet" => ("apps", keys!("replicaset")),
        "StatefulSet" => ("apps", keys!("statefulset")),
        "DaemonSet" => ("apps", keys!("daemonset")),
        "Job" => ("batch", keys!("job")),
        "CronJob" => ("batch", keys!("cronjob")),
        "HorizontalPodAutoscaler" => ("autoscaling", keys!("hpa")),
        _ => return None,
    };
    let stated = api_version.rsplit_once('/').map_or("", |(group, _)| group);
    (api_version.is_empty() || stated == group).then_some(keys)
}

/// The word by which metrics and documents call a kind: `pod`, `deployment`; nothing for one that has none.
pub(super) fn kind_word(kind: &str, api_version: &str) -> Option<&'static str> {
    let (name, _) = kind_keys(kind, api_version)?;
    name.strip_prefix("k8s.")?.strip_suffix(".name")
}
