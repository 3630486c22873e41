//! Getting one object from the API server.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use kube::{
    Resource as _,
    core::{ApiResource, DynamicObject, Request},
};
use serde::Deserialize;
use tokio::time::timeout;

use super::{
    lookup::is_meant,
    reference::Ref,
};
use crate::{
    bridge::shared::lock,
    cache::{Metadata, workqueue::TokenBucket},
    event::Missing,
};

/// A request without an answer is given up after this, or a server that hangs would hold all of
/// them.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Who is asked for objects.
pub(super) trait Api: Send + Sync + 'static {
    /// Gets the metadata of an object, or all of it and with it the node that it is on.
    fn get<'a>(&'a self, object: Ref<'a>, whole: bool) -> BoxFuture<'a, Result<Got, NotGot>>;
}

/// An object as it was got.
#[derive(Clone, Debug)]
pub(super) struct Got {
    pub(super) object: Arc<Metadata>,
    /// The node that it is on, where all of it was asked for.
    pub(super) node: Option<Box<str>>,
}

/// Why an object was not got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotGot {
    /// The API server has it not, or not for us.
    Missing(Missing),
    /// It is worth trying again, after the wait that the API server asks for.
    Later(Option<Duration>),
}

/// The API server. All of its requests share one rate.
pub(super) struct ApiServer {
    client: kube::Client,
    rate: TokenBucket,
    requests: Arc<AtomicU64>,
    /// By apiVersion, the resources of each kind.
    kinds: Mutex<HashMap<String, Arc<HashMap<String, Kind>>>>,
}

/// How a kind is asked for.
#[derive(Clone, Debug)]
struct Kind {
    plural: String,
    namespaced: bool,
}

impl ApiServer {
    /// `requests` counts what it is asked.
    pub(super) fn new(
        client: kube::Client,
        qps: f64,
        burst: u32,
        requests: Arc<AtomicU64>,
    ) -> Self {
        let (rate, kinds) = (TokenBucket::new(qps, burst), Mutex::default());
        Self { client, rate, requests, kinds }
    }

    /// Waits for its turn, and asks.
    async fn ask<T>(
        &self,
        question: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, NotGot> {
        self.rate.take().await;
        self.requests.fetch_add(1, Ordering::Relaxed);
        match timeout(TIMEOUT, question).await {
            Ok(answer) => answer.map_err(|error| not_got(&error)),
            Err(_) => Err(NotGot::Later(None)),
        }
    }

    async fn kind(&self, object: Ref<'_>) -> Result<Kind, NotGot> {
        let missing = NotGot::Missing(Missing::NotFound);
        if let Some((plural, namespaced)) = well_known(object) {
            return Ok(Kind { plural: plural.to_owned(), namespaced });
        }
        let known = lock(&self.kinds).get(object.api_version).map(Arc::clone);
        let kinds = match known {
            Some(kinds) => kinds,
            None => Arc::new(self.discover(object.api_version).await?),
        };
        let kind = kinds.get(object.kind).cloned().ok_or(missing);
        // A kind may be new: only what is found is kept, and asking in vain is remembered elsewhere.
        if kind.is_ok() {
            lock(&self.kinds).insert(object.api_version.to_owned(), kinds);
        }
        kind
    }

    async fn discover(&self, api_version: &str) -> Result<HashMap<String, Kind>, NotGot> {
        let resources = match api_version.split_once('/') {
            None => self.ask(self.client.list_core_api_resources(api_version)).await?,
            Some(_) => self.ask(self.client.list_api_group_resources(api_version)).await?,
        };
        let resources = resources.resources.into_iter().filter(|r| !r.name.contains('/'));
        Ok(resources
            .map(|r| (r.kind, Kind { plural: r.name, namespaced: r.namespaced }))
            .collect())
    }

    async fn get(&self, object: Ref<'_>, whole: bool) -> Result<Got, NotGot> {
        let missing = NotGot::Missing(Missing::NotFound);
        // They become part of the request's path, and come from whoever may write Events.
        let segments = [object.name, object.namespace, object.kind];
        let (group, version) =
            object.api_version.rsplit_once('/').unwrap_or(("", object.api_version));
        let plain = |text: &&str| text.is_empty() || is_segment(text);
        if !segments.iter().chain(&[group]).all(plain) || !is_segment(version) {
            return Err(missing);
        }
        let kind = self.kind(object).await?;
        let resource = ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: object.api_version.to_owned(),
            kind: object.kind.to_owned(),
            plural: kind.plural,
        };
        let namespace = Some(object.namespace).filter(|_| kind.namespaced);
        if namespace == Some("") {
            return Err(missing);
        }
        let request = Request::new(DynamicObject::url_path(&resource, namespace));
        let parameters = kube::api::GetParams::default();
        let request = match whole {
            true => request.get(object.name, &parameters),
            false => request.get_metadata(object.name, &parameters),
        };
        let request = request.map_err(|_| missing)?;
        let text = self.ask(self.client.request_text(request)).await?;
        let later = |_| NotGot::Later(None);
        let metadata: Metadata = serde_json::from_str(&text).map_err(later)?;
        // A same name with another uid is not that object.
        if !is_meant(object, &metadata) {
            return Err(missing);
        }
        let Placed { spec } = if whole { serde_json::from_str(&text).map_err(later)? } else {
            Placed::default()
        };
        let node = spec.node_name.filter(|node| !node.is_empty());
        Ok(Got { object: Arc::new(metadata), node })
    }
}

impl Api for ApiServer {
    fn get<'a>(&'a self, object: Ref<'a>, whole: bool) -> BoxFuture<'a, Result<Got, NotGot>> {
        Box::pin(self.get(object, whole))
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Placed {
    spec: Place,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Place {
    node_name: Option<Box<str>>,
}

fn not_got(error: &kube::Error) -> NotGot {
    let kube::Error::Api(status) = error else { return NotGot::Later(None) };
    match status.code {
        404 => NotGot::Missing(Missing::NotFound),
        401 | 403 => NotGot::Missing(Missing::Forbidden),
        _ => {
            let asked = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
            NotGot::Later((asked > 0).then(|| Duration::from_secs(asked.into())))
        }
    }
}

/// Whether a text can be a segment of a request's path and nothing more.
fn is_segment(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b':');
    !text.is_empty() && text.bytes().all(allowed) && text != "." && text != ".."
}

/// The plural of kinds that every cluster has, and whether they are in namespaces: these need not be
/// asked for.
fn well_known(object: Ref<'_>) -> Option<(&'static str, bool)> {
    Some(match (object.api_version, object.kind) {
        ("v1", "Pod") => ("pods", true),
        ("v1", "Node") => ("nodes", false),
        ("v1", "Service") => ("services", true),
        ("v1", "Namespace") => ("namespaces", false),
        ("v1", "PersistentVolumeClaim") => ("persistentvolumeclaims", true),
        ("v1", "PersistentVolume") => ("persistentvolumes", false),
        ("apps/v1", "Deployment") => ("deployments", true),
        ("apps/v1", "ReplicaSet") => ("replicasets", true),
        ("apps/v1", "StatefulSet") => ("statefulsets", true),
        ("apps/v1", "DaemonSet") => ("daemonsets", true),
        ("batch/v1", "Job") => ("jobs", true),
        ("batch/v1", "CronJob") => ("cronjobs", true),
        _ => return None,
    })
}
