//! Facts about kinds of objects and types of Events that several formats state.

#[cfg(feature = "otlp")]
use crate::event::ObjectReference;

/// The severity number of OpenTelemetry; an unknown type has none, only its text.
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

/// The kinds that the semantic conventions have attributes for: the kind, its group, and the keys of name and uid.
const KINDS: [(&str, &str, &str, &str); 15] = {
    macro_rules! kind {
        ($kind:literal, $group:literal, $word:literal) => {
            ($kind, $group, concat!("k8s.", $word, ".name"), concat!("k8s.", $word, ".uid"))
        };
    }
    [
        kind!("Pod", "", "pod"),
        kind!("Node", "", "node"),
        kind!("Namespace", "", "namespace"),
        kind!("ReplicationController", "", "replicationcontroller"),
        kind!("Service", "", "service"),
        kind!("PersistentVolume", "", "persistentvolume"),
        kind!("PersistentVolumeClaim", "", "persistentvolumeclaim"),
        kind!("ResourceQuota", "", "resourcequota"),
        kind!("Deployment", "apps", "deployment"),
        kind!("ReplicaSet", "apps", "replicaset"),
        kind!("StatefulSet", "apps", "statefulset"),
        kind!("DaemonSet", "apps", "daemonset"),
        kind!("Job", "batch", "job"),
        kind!("CronJob", "batch", "cronjob"),
        kind!("HorizontalPodAutoscaler", "autoscaling", "hpa"),
    ]
};

/// The attributes that the semantic conventions have for a kind.
///
/// The group counts too: a Job of another group than `batch` is something else. Some reporters
/// leave the version out, and then mean the kind that everyone knows.
pub(super) fn kind_keys(kind: &str, api_version: &str) -> Option<(&'static str, &'static str)> {
    let (_, group, name, uid) = KINDS.into_iter().find(|(known, ..)| *known == kind)?;
    let stated = api_version.rsplit_once('/').map_or("", |(group, _)| group);
    (api_version.is_empty() || stated == group).then_some((name, uid))
}

/// The word by which metrics and documents call a kind: `pod`, `deployment`; nothing for one that has none.
pub(super) fn kind_word(kind: &str, api_version: &str) -> Option<&'static str> {
    let (name, _) = kind_keys(kind, api_version)?;
    word(name)
}

/// All such words.
pub(crate) fn kind_words() -> impl Iterator<Item = &'static str> {
    KINDS.into_iter().filter_map(|(_, _, name, _)| word(name))
}

fn word(name: &'static str) -> Option<&'static str> {
    name.strip_prefix("k8s.")?.strip_suffix(".name")
}
