//! Getting one object from the API server.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::future::BoxFuture;
use kube::{
    Resource as _,
    core::{DynamicObject, Request},
};
use serde::Deserialize;
use tidings_kube::object::Metadata;

use super::{
    discovery::{AskError, Discovery},
    lookup::is_meant,
    reference::{Ref, group_version},
};
use crate::event::Missing;

/// No name, kind, group or version is longer.
const MAX_SEGMENT: usize = 253;

/// Who is asked for objects.
pub(super) trait Api: Send + Sync + 'static {
    /// Gets the metadata of an object, or all of it and with it the node that it is on.
    fn get<'a>(&'a self, object: Ref<'a>, whole: bool) -> BoxFuture<'a, Result<Got, NotGot>>;
}

/// An object as it was got.
#[derive(Clone, Debug)]
pub(super) struct Got {
    pub(super) object: Metadata,
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

/// The API server.
pub(super) struct ApiServer {
    pub(super) client: kube::Client,
    pub(super) discovery: Arc<Discovery>,
    /// The resources of which the log has said that they may not be read.
    pub(super) refused: Mutex<BTreeSet<String>>,
}

impl ApiServer {
    async fn get(&self, object: Ref<'_>, whole: bool) -> Result<Got, NotGot> {
        let missing = NotGot::Missing(Missing::NotFound);
        // They become part of the request's path, and come from whoever may write Events.
        let segments = [object.name, object.namespace, object.kind];
        let (group, version) = group_version(object.api_version);
        let plain = |text: &&str| text.is_empty() || is_segment(text);
        if !segments.iter().chain(&[group]).all(plain) || !is_segment(version) {
            return Err(missing);
        }
        let found = self.discovery.kind(object).await.map_err(|error| not_got(&error))?;
        let (resource, namespaced) = found;
        let namespace = Some(object.namespace).filter(|_| namespaced);
        if namespace == Some("") {
            return Err(missing);
        }
        let request = Request::new(DynamicObject::url_path(&resource, namespace));
        let parameters = kube::api::GetParams::default();
        let request = if whole {
            request.get(object.name, &parameters)
        } else {
            request.get_metadata(object.name, &parameters)
        };
        let request = request.map_err(|_| missing)?;
        let answer = self.discovery.ask(self.client.request_text(request)).await;
        let text = answer.map_err(|error| {
            let not_got = not_got(&error);
            if not_got == NotGot::Missing(Missing::Forbidden) {
                self.say_refused(&resource.plural, &error);
            }
            not_got
        })?;
        let later = |_| NotGot::Later(None);
        let metadata: Metadata = serde_json::from_str(&text).map_err(later)?;
        // A same name with another uid is not that object.
        if !is_meant(object, &metadata) {
            return Err(missing);
        }
        let Placed { spec } =
            if whole { serde_json::from_str(&text).map_err(later)? } else { Placed::default() };
        let node = spec.node_name.filter(|node| !node.is_empty());
        Ok(Got { object: metadata, node })
    }

    /// Says once of each resource that it may not be read.
    fn say_refused(&self, resource: &str, error: &AskError) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.insert(resource.to_owned()) {
            tracing::warn!(
                resource,
                %error,
                hint = "grant get (deploy/rbac-enrichment.yaml), or do without: such events say `forbidden` in object.missing",
                "the API server does not permit to get objects to enrich events with"
            );
        }
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

fn not_got(error: &AskError) -> NotGot {
    let status = match error {
        AskError::Unknown => return NotGot::Missing(Missing::NotFound),
        AskError::Client(kube::Error::Api(status)) => status,
        AskError::Client(_) | AskError::Timeout => return NotGot::Later(None),
    };
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
    let fits = (1..=MAX_SEGMENT).contains(&text.len());
    fits && text.bytes().all(allowed) && text != "." && text != ".."
}
