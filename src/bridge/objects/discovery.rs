//! How kinds and resources are asked for: the API server's discovery, within the rate of all
//! requests.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use kube::core::ApiResource;
use tokio::time::timeout;

use super::{
    ResourceName,
    reference::{Ref, group_version},
};
use crate::{bridge::shared::lock, cache::workqueue::TokenBucket};

/// A request without an answer is given up after this, or a server that hangs would hold all of
/// them.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Why something could not be asked, or has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    /// What the API server says, or why it says nothing.
    #[error(transparent)]
    Client(#[from] kube::Error),
    /// It does not answer.
    #[error("no answer within {} s", TIMEOUT.as_secs())]
    Timeout,
    /// It knows no such kind or resource.
    #[error("the API server has no such resource")]
    Unknown,
}

/// See the [module](self).
pub(super) struct Discovery {
    client: kube::Client,
    rate: TokenBucket,
    requests: Arc<AtomicU64>,
    /// By apiVersion, its resources.
    known: Mutex<HashMap<String, Arc<[Found]>>>,
}

/// A resource, and whether it is in namespaces.
type Found = (ApiResource, bool);

impl Discovery {
    /// All requests to the API server share one rate; `requests` counts them.
    pub(super) fn new(
        client: kube::Client,
        qps: f64,
        burst: u32,
        requests: Arc<AtomicU64>,
    ) -> Self {
        Self { client, rate: TokenBucket::new(qps, burst), requests, known: Mutex::default() }
    }

    /// Waits for its turn, and asks.
    pub(super) async fn ask<T>(
        &self,
        question: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, AskError> {
        self.rate.take().await;
        self.requests.fetch_add(1, Ordering::Relaxed);
        Ok(timeout(TIMEOUT, question).await.map_err(|_| AskError::Timeout)??)
    }

    /// How objects like this are asked for.
    pub(super) async fn kind(&self, object: Ref<'_>) -> Result<Found, AskError> {
        if let Some(found) =
            well_known(|kind| kind.1 == object.kind && kind.0 == object.api_version)
        {
            return Ok(found);
        }
        let found = self.resources(object.api_version).await?;
        let mut found = found.iter().filter(|(resource, _)| resource.kind == object.kind);
        found.next().cloned().ok_or(AskError::Unknown)
    }

    /// The resource of a name, in the version that the API server prefers.
    pub(super) async fn resource(&self, name: &ResourceName) -> Result<Found, AskError> {
        let is_it =
            |kind: &WellKnown| kind.2 == name.plural && group_version(kind.0).0 == name.group;
        if let Some(found) = well_known(is_it) {
            return Ok(found);
        }
        let version = match &*name.group {
            "" => "v1".to_owned(),
            group => {
                let groups = self.ask(self.client.list_api_groups()).await?.groups;
                let found = groups.into_iter().find(|candidate| candidate.name == group);
                let found = found.ok_or(AskError::Unknown)?;
                let preferred = found.preferred_version.or(found.versions.into_iter().next());
                preferred.ok_or(AskError::Unknown)?.group_version
            }
        };
        let found = self.resources(&version).await?;
        let mut found = found.iter().filter(|(resource, _)| resource.plural == name.plural);
        found.next().cloned().ok_or(AskError::Unknown)
    }

    async fn resources(&self, api_version: &str) -> Result<Arc<[Found]>, AskError> {
        if let Some(known) = lock(&self.known).get(api_version) {
            return Ok(Arc::clone(known));
        }
        let list = match group_version(api_version) {
            ("", version) => self.ask(self.client.list_core_api_resources(version)).await?,
            _ => self.ask(self.client.list_api_group_resources(api_version)).await?,
        };
        // Those with a slash are parts of others, such as `pods/status`.
        let resources = list.resources.into_iter().filter(|r| !r.name.contains('/'));
        let found: Arc<[Found]> =
            resources.map(|r| (resource(api_version, r.kind, r.name), r.namespaced)).collect();
        // What a custom resource adds later is found after a restart.
        lock(&self.known).insert(api_version.to_owned(), Arc::clone(&found));
        Ok(found)
    }
}

/// apiVersion, kind, plural and whether it is in namespaces, of kinds that every cluster has: these
/// need not be asked for.
type WellKnown = (&'static str, &'static str, &'static str, bool);

const WELL_KNOWN: [WellKnown; 12] = [
    ("v1", "Pod", "pods", true),
    ("v1", "Node", "nodes", false),
    ("v1", "Service", "services", true),
    ("v1", "Namespace", "namespaces", false),
    ("v1", "PersistentVolumeClaim", "persistentvolumeclaims", true),
    ("v1", "PersistentVolume", "persistentvolumes", false),
    ("apps/v1", "Deployment", "deployments", true),
    ("apps/v1", "ReplicaSet", "replicasets", true),
    ("apps/v1", "StatefulSet", "statefulsets", true),
    ("apps/v1", "DaemonSet", "daemonsets", true),
    ("batch/v1", "Job", "jobs", true),
    ("batch/v1", "CronJob", "cronjobs", true),
];

fn well_known(is_it: impl Fn(&WellKnown) -> bool) -> Option<Found> {
    let (api_version, kind, plural, namespaced) = *WELL_KNOWN.iter().find(|kind| is_it(kind))?;
    Some((resource(api_version, kind.to_owned(), plural.to_owned()), namespaced))
}

fn resource(api_version: &str, kind: String, plural: String) -> ApiResource {
    let (group, version) = group_version(api_version);
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: api_version.to_owned(),
        kind,
        plural,
    }
}
