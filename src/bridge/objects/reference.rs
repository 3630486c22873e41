//! Which object: what an Event says of the object that it is about, and an object of its owner.

use tidings_kube::correlator::{Key, Keys};

use crate::event::EventFields;

/// An object by kind, place and, where it is stated, identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ref<'a> {
    pub(super) api_version: &'a str,
    pub(super) kind: &'a str,
    /// Empty for what has none.
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    /// Empty where it is not stated: whatever has the name.
    pub(super) uid: &'a str,
}

/// A [`Ref`] that owns its texts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Reference {
    pub(super) api_version: Box<str>,
    pub(super) kind: Box<str>,
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
    pub(super) uid: Box<str>,
}

impl<'a> Ref<'a> {
    /// The object that an Event is about; nothing if it names none.
    pub(super) fn of(event: &'a EventFields<'_>) -> Option<Self> {
        let object = &event.involved_object;
        let (kind, name): (&str, &str) = (&object.kind, &object.name);
        if kind.is_empty() || name.is_empty() {
            return None;
        }
        // Some reporters leave the version out, and then mean the kind that everyone knows.
        let api_version = match &*object.api_version {
            "" => api_version_of(kind),
            stated => stated,
        };
        // The kubelet writes the name of its Node where the uid belongs.
        let uid = match &*object.uid {
            uid if kind == "Node" && uid == name => "",
            uid => uid,
        };
        // What has no namespace is reported about in the namespace `default`, but says it of itself.
        Some(Self { api_version, kind, namespace: &object.namespace, name, uid })
    }

    /// An owner, which is in the namespace of what it owns or in none.
    pub(super) fn of_owner(
        api_version: &'a str,
        kind: &'a str,
        name: &'a str,
        uid: &'a str,
        namespace: &'a str,
    ) -> Self {
        let namespace = if is_clustered(api_version, kind) { "" } else { namespace };
        Self { api_version, kind, namespace, name, uid }
    }

    /// What it is kept under.
    pub(super) fn key(&self, keys: &Keys) -> Key {
        keys.separated(&[self.api_version, self.kind, self.namespace, self.name, self.uid])
    }

    /// Empty for the core group.
    pub(super) fn group(&self) -> &'a str {
        group_version(self.api_version).0
    }

    pub(super) fn is_pod(&self) -> bool {
        self.kind == "Pod" && self.group().is_empty()
    }

    pub(super) fn is_node(&self) -> bool {
        self.kind == "Node" && self.group().is_empty()
    }

    pub(super) fn to_owned(self) -> Reference {
        Reference {
            api_version: self.api_version.into(),
            kind: self.kind.into(),
            namespace: self.namespace.into(),
            name: self.name.into(),
            uid: self.uid.into(),
        }
    }
}

impl Reference {
    pub(super) fn as_ref(&self) -> Ref<'_> {
        Ref {
            api_version: &self.api_version,
            kind: &self.kind,
            namespace: &self.namespace,
            name: &self.name,
            uid: &self.uid,
        }
    }
}

/// The group, empty for the core group, and the version in an apiVersion.
pub(super) fn group_version(api_version: &str) -> (&str, &str) {
    api_version.rsplit_once('/').unwrap_or(("", api_version))
}

/// The node that an Event says its Pod is on: the kubelet reports about what it runs.
pub(super) fn reporting_node<'a>(event: &'a EventFields<'_>) -> Option<&'a str> {
    if &*event.involved_object.kind != "Pod" {
        return None;
    }
    let node: &str = if &*event.source.component == "kubelet" {
        &event.source.host
    } else if &*event.reporting_component == "kubelet" {
        &event.reporting_instance
    } else {
        ""
    };
    (!node.is_empty()).then_some(node)
}

fn api_version_of(kind: &str) -> &'static str {
    match kind {
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" => "apps/v1",
        "Job" | "CronJob" => "batch/v1",
        "HorizontalPodAutoscaler" => "autoscaling/v2",
        _ => "v1",
    }
}

/// Of the kinds that own something, those that are in no namespace.
fn is_clustered(api_version: &str, kind: &str) -> bool {
    matches!((api_version, kind), ("v1", "Node" | "PersistentVolume" | "Namespace"))
}
