//! The resources that the server knows: their paths, kinds and selectable fields.

use std::ops::Index;

/// A resource: what discovery says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) plural: String,
    pub(super) kind: String,
    pub(super) namespaced: bool,
    pub(super) fields: Fields,
    /// `plural.group`, or the plural alone in the core group.
    name: String,
    api_version: String,
    /// How an object of it begins when it is written on its own.
    typed: String,
}

/// What objects can be selected by, beside their name and namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fields {
    /// Those of an Event.
    Event,
    /// These paths, and the refusal of others in the words of the core group.
    Core(&'static [&'static str]),
    /// None, and a refusal that lists the two.
    None,
}

impl Resource {
    /// A namespaced resource; `api_version` is `v1` or `group/version`.
    pub fn new(api_version: &str, plural: &str, kind: &str) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let name = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            kind: kind.to_owned(),
            namespaced: true,
            fields: Fields::None,
            name,
            api_version: api_version.to_owned(),
            typed: format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","#),
        }
    }

    /// The same without namespaces.
    #[must_use]
    pub fn cluster_scoped(mut self) -> Self {
        self.namespaced = false;
        self
    }

    fn selectable(mut self, fields: Fields) -> Self {
        self.fields = fields;
        self
    }

    /// What RBAC and kubectl call it: `pods`, `deployments.apps`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `v1`, `apps/v1`.
    pub fn api_version(&self) -> &str {
        &self.api_version
    }

    pub(super) fn typed(&self) -> &str {
        &self.typed
    }

    /// Whether the API server answers from a watch cache. Events alone it reads from etcd.
    pub(super) fn watch_cached(&self) -> bool {
        self.fields != Fields::Event
    }
}

/// One of the resources of a [`Catalogue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ResourceId(usize);

/// The first of every catalogue.
pub(super) const EVENTS: ResourceId = ResourceId(0);

/// All resources of a server.
#[derive(Clone, Debug)]
pub(super) struct Catalogue(Vec<Resource>);

impl Catalogue {
    /// What every cluster has, as far as it is of use here, and `more`.
    pub(super) fn with(more: &[Resource]) -> Self {
        const POD: Fields = Fields::Core(&[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ]);
        const CORE: Fields = Fields::Core(&[]);
        let core = |plural, kind| Resource::new("v1", plural, kind).selectable(CORE);
        let apps = |plural, kind| Resource::new("apps/v1", plural, kind);
        let mut all = vec![
            Resource::new("v1", "events", "Event").selectable(Fields::Event),
            core("namespaces", "Namespace")
                .cluster_scoped()
                .selectable(Fields::Core(&["status.phase"])),
            core("nodes", "Node")
                .cluster_scoped()
                .selectable(Fields::Core(&["spec.unschedulable"])),
            core("pods", "Pod").selectable(POD),
            core("services", "Service"),
            Resource::new("v1", "configmaps", "ConfigMap"),
            core("secrets", "Secret").selectable(Fields::Core(&["type"])),
            Resource::new("v1", "serviceaccounts", "ServiceAccount"),
            Resource::new("v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
            Resource::new("v1", "persistentvolumes", "PersistentVolume").cluster_scoped(),
            core("replicationcontrollers", "ReplicationController"),
            apps("deployments", "Deployment"),
            apps("replicasets", "ReplicaSet"),
            apps("statefulsets", "StatefulSet"),
            apps("daemonsets", "DaemonSet"),
            Resource::new("batch/v1", "jobs", "Job"),
            Resource::new("batch/v1", "cronjobs", "CronJob"),
            Resource::new("coordination.k8s.io/v1", "leases", "Lease"),
            Resource::new("discovery.k8s.io/v1", "endpointslices", "EndpointSlice"),
        ];
        all.extend_from_slice(more);
        Self(all)
    }

    /// By what a path says.
    pub(super) fn at(&self, group: &str, version: &str, plural: &str) -> Option<ResourceId> {
        let fits = |r: &Resource| r.plural == plural && r.group == group && r.version == version;
        self.0.iter().position(fits).map(ResourceId)
    }

    /// By [`Resource::name`].
    pub(super) fn named(&self, name: &str) -> Option<ResourceId> {
        self.0.iter().position(|resource| resource.name == name).map(ResourceId)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ResourceId, &Resource)> {
        self.0.iter().enumerate().map(|(at, resource)| (ResourceId(at), resource))
    }
}

impl Index<ResourceId> for Catalogue {
    type Output = Resource;

    fn index(&self, id: ResourceId) -> &Resource {
        &self.0[id.0]
    }
}

/// Something for each resource of a catalogue.
#[derive(Clone, Debug)]
pub(super) struct PerResource<T>(Vec<T>);

impl<T> PerResource<T> {
    pub(super) fn new(catalogue: &Catalogue, make: impl FnMut(&Resource) -> T) -> Self {
        Self(catalogue.0.iter().map(make).collect())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut()
    }
}

impl<T> Index<ResourceId> for PerResource<T> {
    type Output = T;

    fn index(&self, id: ResourceId) -> &T {
        &self.0[id.0]
    }
}

impl<T> std::ops::IndexMut<ResourceId> for PerResource<T> {
    fn index_mut(&mut self, id: ResourceId) -> &mut T {
        &mut self.0[id.0]
    }
}
