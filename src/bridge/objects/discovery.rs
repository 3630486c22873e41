//! How kinds and resources are asked for: the API server's discovery, within the rate of all
//! requests.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use kube::core::ApiResource;
use tokio::{
    sync,
    time::{Instant, timeout},
};

use super::{
    ResourceName,
    rate::Rate,
    reference::{Ref, group_version},
};
use crate::bridge::shared::lock;

/// A request without an answer is given up after this, or a server that hangs would hold all of
/// them.
const TIMEOUT: Duration = Duration::from_secs(5);
/// A kind that the API server does not know is taken for unknown so long, and with it all others: it
/// is asked for its lists of kinds no more often, however many kinds Events are about that nobody
/// knows. A custom resource that is added is known so late at most.
const UNKNOWN_FOR: Duration = Duration::from_mins(1);

/// Why something could not be asked, or has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    /// The API server's error, or why it says nothing.
    #[error(transparent)]
    Client(#[from] kube::Error),
    /// The API server does not answer.
    #[error("no answer within {} s", TIMEOUT.as_secs())]
    Timeout,
    /// The API server knows no such kind or resource.
    #[error("the API server has no such resource")]
    Unknown,
}

/// A client of discovery with a memory. See the [module](self).
pub(super) struct Discovery {
    client: kube::Client,
    rate: Arc<Rate>,
    /// The apiVersions that are served, but for those of the core group. Locked while they are asked
    /// for, so that it is done once.
    served: sync::Mutex<Option<Listed<HashSet<String>>>>,
    /// By apiVersion, its resources. There are no more than are served.
    known: Mutex<HashMap<String, Listed<Arc<[Found]>>>>,
}

/// A list, and when it was made.
#[derive(Clone)]
struct Listed<T> {
    what: T,
    at: Instant,
}

impl<T> Listed<T> {
    /// Whether what is not in it may be there by now.
    fn is_old(&self) -> bool {
        self.at.elapsed() >= UNKNOWN_FOR
    }
}

/// A resource, and whether it is in namespaces.
type Found = (ApiResource, bool);

impl Discovery {
    /// All requests to the API server share one rate.
    pub(super) fn new(client: kube::Client, rate: Arc<Rate>) -> Self {
        Self { client, rate, served: sync::Mutex::default(), known: Mutex::default() }
    }

    /// Waits for its turn, and asks.
    pub(super) async fn ask<T>(
        &self,
        question: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, AskError> {
        self.rate.take().await;
        Ok(timeout(TIMEOUT, question).await.map_err(|_| AskError::Timeout)??)
    }

    /// How objects like this are asked for.
    pub(super) async fn kind(&self, object: Ref<'_>) -> Result<Found, AskError> {
        if let Some(found) =
            well_known(|kind| kind.1 == object.kind && kind.0 == object.api_version)
        {
            return Ok(found);
        }
        self.find(object.api_version, |resource| resource.kind == object.kind).await
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
        self.find(&version, |resource| resource.plural == name.plural).await
    }

    /// A resource of an apiVersion. Where the one that is looked for is not among those that were
    /// listed a while ago, they are listed again.
    async fn find(
        &self,
        api_version: &str,
        is_it: impl Fn(&ApiResource) -> bool,
    ) -> Result<Found, AskError> {
        let found = |listed: &[Found]| listed.iter().find(|(resource, _)| is_it(resource)).cloned();
        let known = lock(&self.known).get(api_version).cloned();
        match known {
            Some(listed) => match found(&listed.what) {
                Some(found) => return Ok(found),
                None if !listed.is_old() => return Err(AskError::Unknown),
                None => {}
            },
            None if !self.serves(api_version).await? => return Err(AskError::Unknown),
            None => {}
        }
        let listed = self.resources(api_version).await.inspect_err(|_| {
            // It may be served no longer.
            lock(&self.known).remove(api_version);
        })?;
        found(&listed).ok_or(AskError::Unknown)
    }

    /// Whether the API server has an apiVersion. One answer of it tells of all of them.
    async fn serves(&self, api_version: &str) -> Result<bool, AskError> {
        if let ("", version) = group_version(api_version) {
            return Ok(version == "v1");
        }
        let mut served = self.served.lock().await;
        if let Some(listed) = served.as_ref().filter(|listed| !listed.is_old()) {
            return Ok(listed.what.contains(api_version));
        }
        let at = Instant::now();
        let groups = self.ask(self.client.list_api_groups()).await?.groups;
        let versions = groups.into_iter().flat_map(|group| group.versions);
        let what: HashSet<_> = versions.map(|version| version.group_version).collect();
        let there = what.contains(api_version);
        *served = Some(Listed { what, at });
        Ok(there)
    }

    async fn resources(&self, api_version: &str) -> Result<Arc<[Found]>, AskError> {
        let at = Instant::now();
        let list = match group_version(api_version) {
            ("", version) => self.ask(self.client.list_core_api_resources(version)).await?,
            _ => self.ask(self.client.list_api_group_resources(api_version)).await?,
        };
        // Those with a slash are parts of others, such as `pods/status`.
        let resources = list.resources.into_iter().filter(|r| !r.name.contains('/'));
        let found: Arc<[Found]> =
            resources.map(|r| (resource(api_version, r.kind, r.name), r.namespaced)).collect();
        let listed = Listed { what: Arc::clone(&found), at };
        lock(&self.known).insert(api_version.to_owned(), listed);
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

#[cfg(test)]
mod tests;
