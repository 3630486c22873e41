//! Who the stories are about: nodes, workloads and their pods, with names, uids and sources as
//! Kubernetes makes them.

use crate::api_server::{EventObject, ObjectMeta, ObjectRef, Source};

/// The letters of generated names: no vowels, so that no words come out.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

const NODES: [&str; 5] = ["worker-1", "worker-2", "worker-3", "worker-4", "worker-5"];

/// Namespace, name, container, image without its tag, replicas.
const WORKLOADS: [(&str, &str, &str, &str, usize); 9] = [
    ("shop", "web", "web", "registry.example.com/shop/web", 4),
    ("shop", "cart", "cart", "registry.example.com/shop/cart", 3),
    ("shop", "checkout", "checkout", "registry.example.com/shop/checkout", 2),
    ("payments", "ledger", "ledger", "registry.example.com/payments/ledger", 3),
    ("payments", "fraud-score", "model", "registry.example.com/payments/fraud-score", 2),
    ("search", "indexer", "indexer", "registry.example.com/search/indexer", 2),
    ("search", "query", "query", "registry.example.com/search/query", 3),
    ("monitoring", "alert-relay", "relay", "quay.io/example/alert-relay", 1),
    ("kube-system", "coredns", "coredns", "registry.k8s.io/coredns/coredns", 2),
];

#[derive(Clone, Debug)]
pub(super) struct Pod {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) node: &'static str,
    pub(super) container: &'static str,
}

#[derive(Debug)]
pub(super) struct Workload {
    pub(super) namespace: &'static str,
    pub(super) name: &'static str,
    pub(super) container: &'static str,
    pub(super) image: &'static str,
    uid: String,
    /// The last part of the image's tag.
    version: u32,
    pub(super) replica_set: String,
    replica_set_uid: String,
    pub(super) pods: Vec<Pod>,
}

impl Workload {
    /// The image with the tag that runs.
    pub(super) fn image(&self) -> String {
        format!("{}:1.{}.{}", self.image, self.version / 10, self.version % 10)
    }
}

#[derive(Debug)]
pub(super) struct Cast {
    random: fastrand::Rng,
    workloads: Vec<Workload>,
    /// resourceVersions of objects that are not Events.
    revision: u64,
}

impl Cast {
    pub(super) fn new(seed: u64) -> Self {
        let mut cast = Self {
            random: fastrand::Rng::with_seed(seed),
            workloads: Vec::new(),
            revision: 48_000,
        };
        for (namespace, name, container, image, replicas) in WORKLOADS {
            let (uid, version) = (cast.uid(), cast.random.u32(10..60));
            let (pods, replica_set_uid) = (Vec::new(), cast.uid());
            let replica_set = format!("{name}-{}", cast.letters(9));
            cast.workloads.push(Workload {
                namespace,
                name,
                container,
                image,
                uid,
                version,
                replica_set,
                replica_set_uid,
                pods,
            });
            let which = cast.workloads.len() - 1;
            for _ in 0..replicas {
                let pod = cast.pod_of(which);
                cast.workloads[which].pods.push(pod);
            }
        }
        cast
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.random.usize(..bound.max(1))
    }

    pub(super) fn between(&mut self, low: u32, high: u32) -> u32 {
        self.random.u32(low..=high)
    }

    pub(super) fn letters(&mut self, count: usize) -> String {
        (0..count).map(|_| char::from(LETTERS[self.random.usize(..LETTERS.len())])).collect()
    }

    pub(super) fn uid(&mut self) -> String {
        let mut r = || self.random.u64(..);
        let (a, b) = (r(), r());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            a >> 32,
            a >> 16 & 0xffff,
            a & 0xfff,
            b >> 48 & 0x3fff | 0x8000,
            b & 0xffff_ffff_ffff
        )
    }

    pub(super) fn node(&mut self) -> &'static str {
        NODES[self.random.usize(..NODES.len())]
    }

    pub(super) fn nodes() -> usize {
        NODES.len()
    }

    /// A number of a workload.
    pub(super) fn any_workload(&mut self) -> usize {
        self.random.usize(..self.workloads.len())
    }

    pub(super) fn workload(&self, which: usize) -> &Workload {
        &self.workloads[which]
    }

    /// A pod that runs; every workload has one.
    pub(super) fn any_pod(&mut self) -> (usize, Pod) {
        let which = self.any_workload();
        let at = self.random.usize(..self.workloads[which].pods.len().max(1));
        let pod = self.workloads[which].pods.get(at).cloned();
        (which, pod.unwrap_or_else(|| self.pod_of(which)))
    }

    /// A new pod of a workload's current ReplicaSet.
    pub(super) fn pod_of(&mut self, which: usize) -> Pod {
        let (suffix, uid, node) = (self.letters(5), self.uid(), self.node());
        let workload = &self.workloads[which];
        Pod {
            namespace: workload.namespace.to_owned(),
            name: format!("{}-{suffix}", workload.replica_set),
            uid,
            node,
            container: workload.container,
        }
    }

    /// Moves a workload to its next version: a new ReplicaSet, pods yet to come. Answers the name
    /// and reference of the old ReplicaSet, and its pods.
    pub(super) fn next_version(&mut self, which: usize) -> (String, ObjectRef, Vec<Pod>) {
        let old = self.replica_set_ref(which);
        let (letters, uid) = (self.letters(9), self.uid());
        let workload = &mut self.workloads[which];
        workload.version += 1;
        workload.replica_set_uid = uid;
        let replica_set = format!("{}-{letters}", workload.name);
        let old_name = std::mem::replace(&mut workload.replica_set, replica_set);
        (old_name, old, std::mem::take(&mut workload.pods))
    }

    pub(super) fn keep(&mut self, which: usize, pod: Pod) {
        self.workloads[which].pods.push(pod);
    }

    /// Replaces a pod that is gone.
    pub(super) fn replace(&mut self, which: usize, gone: &str, new: Pod) {
        let pods = &mut self.workloads[which].pods;
        pods.retain(|pod| pod.name != gone);
        pods.push(new);
    }

    #[cfg(test)]
    pub(super) fn pods(&self) -> usize {
        self.workloads.iter().map(|workload| workload.pods.len()).sum()
    }

    fn reference(
        &mut self,
        kind: &str,
        api_version: &str,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> ObjectRef {
        self.revision += self.random.u64(1..40);
        ObjectRef {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            api_version: api_version.to_owned(),
            resource_version: self.revision.to_string(),
            field_path: String::new(),
        }
    }

    pub(super) fn pod_ref(&mut self, pod: &Pod) -> ObjectRef {
        self.reference("Pod", "v1", &pod.namespace, &pod.name, &pod.uid)
    }

    pub(super) fn container_ref(&mut self, pod: &Pod) -> ObjectRef {
        let field_path = format!("spec.containers{{{}}}", pod.container);
        ObjectRef { field_path, ..self.pod_ref(pod) }
    }

    pub(super) fn deployment_ref(&mut self, which: usize) -> ObjectRef {
        let workload = &self.workloads[which];
        let (namespace, name, uid) = (workload.namespace, workload.name, workload.uid.clone());
        self.reference("Deployment", "apps/v1", namespace, name, &uid)
    }

    pub(super) fn replica_set_ref(&mut self, which: usize) -> ObjectRef {
        let workload = &self.workloads[which];
        let (namespace, name) = (workload.namespace, workload.replica_set.clone());
        let uid = workload.replica_set_uid.clone();
        self.reference("ReplicaSet", "apps/v1", namespace, &name, &uid)
    }

    pub(super) fn batch_ref(&mut self, kind: &str, name: &str, uid: &str) -> ObjectRef {
        self.reference(kind, "batch/v1", "batch", name, uid)
    }
}

/// The kubelet knows its node by name only, and uses that as the uid.
pub(super) fn node_ref(node: &str) -> ObjectRef {
    ObjectRef {
        kind: "Node".to_owned(),
        name: node.to_owned(),
        uid: node.to_owned(),
        ..ObjectRef::default()
    }
}

fn event(object: ObjectRef, kind: Kind, reason: &str, message: String) -> EventObject {
    let namespace =
        if object.namespace.is_empty() { "default".to_owned() } else { object.namespace.clone() };
    EventObject {
        metadata: ObjectMeta { namespace, ..ObjectMeta::default() },
        involved_object: object,
        reason: reason.to_owned(),
        message,
        type_: match kind {
            Kind::Normal => "Normal",
            Kind::Warning => "Warning",
        }
        .to_owned(),
        ..EventObject::default()
    }
}

/// The type of an Event.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Normal,
    Warning,
}

/// An Event of a node's kubelet.
pub(super) fn kubelet(
    node: &str,
    object: ObjectRef,
    kind: Kind,
    reason: &str,
    message: impl Into<String>,
) -> EventObject {
    EventObject {
        source: Source { component: "kubelet".to_owned(), host: node.to_owned() },
        reporting_component: "kubelet".to_owned(),
        reporting_instance: node.to_owned(),
        ..event(object, kind, reason, message.into())
    }
}

/// An Event of one of the controller manager's controllers.
pub(super) fn controller(
    component: &str,
    object: ObjectRef,
    reason: &str,
    message: impl Into<String>,
) -> EventObject {
    EventObject {
        source: Source { component: component.to_owned(), host: String::new() },
        reporting_component: component.to_owned(),
        ..event(object, Kind::Normal, reason, message.into())
    }
}

/// An Event of the scheduler, which records through events.k8s.io.
pub(super) fn scheduler(
    object: ObjectRef,
    kind: Kind,
    reason: &str,
    action: &str,
    message: impl Into<String>,
) -> EventObject {
    EventObject {
        action: action.to_owned(),
        reporting_component: "default-scheduler".to_owned(),
        reporting_instance: "default-scheduler-control-plane-1".to_owned(),
        ..event(object, kind, reason, message.into())
    }
}
