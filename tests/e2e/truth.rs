//! The truth, as the API server showed it: a raw watch of all Events, from before the first write on.
//!
//! The bridge is held against it, so it shares no code with the bridge: it decodes typed objects,
//! and takes a watch up again where it ended as long as etcd keeps the history, which tests see to.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use tokio::task::JoinHandle;

use crate::wait::until;

/// One version of one Event, or its end.
#[derive(Clone, Debug)]
#[expect(clippy::struct_field_names, reason = "what the API calls it")]
pub(crate) struct Version {
    pub(crate) uid: String,
    pub(crate) resource_version: u64,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The involved object: its uid, else `kind/namespace/name`.
    pub(crate) object: String,
    pub(crate) occurrences: u64,
    /// Whether it was deleted, as of this resourceVersion.
    pub(crate) deleted: bool,
    /// When it was seen.
    pub(crate) at: Instant,
}

impl Version {
    /// The id that the bridge has to give it.
    pub(crate) fn id(&self) -> String {
        format!("{}-{}", self.uid, self.resource_version)
    }

    fn of(event: &Event, deleted: bool) -> Self {
        let metadata = &event.metadata;
        let text = |member: &Option<String>| member.clone().unwrap_or_default();
        let series = event.series.as_ref().and_then(|series| series.count);
        Self {
            uid: text(&metadata.uid),
            resource_version: text(&metadata.resource_version).parse().expect("a number"),
            namespace: text(&metadata.namespace),
            name: text(&metadata.name),
            object: object_key(&event.involved_object),
            occurrences: series
                .or(event.count)
                .map_or(1, |count| u64::try_from(count).expect("writers count upwards")),
            deleted,
            at: Instant::now(),
        }
    }
}

fn object_key(object: &ObjectReference) -> String {
    let text = |member: &Option<String>| member.clone().unwrap_or_default();
    object.uid.clone().unwrap_or_else(|| {
        format!("{}/{}/{}", text(&object.kind), text(&object.namespace), text(&object.name))
    })
}

/// A watch that writes down what it sees until it is dropped.
pub(crate) struct Truth {
    versions: Arc<Mutex<Vec<Version>>>,
    watching: JoinHandle<()>,
}

impl Truth {
    /// Begins with what there is.
    pub(crate) async fn start(client: kube::Client) -> Self {
        let events = Api::<Event>::all(client);
        let list = events.list(&ListParams::default()).await.expect("a list of all Events");
        let listed = list.items.iter().map(|event| Version::of(event, false)).collect();
        let versions = Arc::new(Mutex::new(listed));
        let from = list.metadata.resource_version.expect("every list has one");
        let watching = tokio::spawn(watch(events, from, Arc::clone(&versions)));
        Self { versions, watching }
    }

    /// All versions seen until now, in their order.
    pub(crate) fn versions(&self) -> Vec<Version> {
        assert!(!self.watching.is_finished(), "the watch that tells the truth has ended");
        self.versions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until what was written as this resourceVersion has been seen.
    pub(crate) async fn has_seen(&self, resource_version: u64) {
        until("the truth is known", async || {
            self.versions().last().is_some_and(|last| last.resource_version >= resource_version)
        })
        .await;
    }
}

impl Drop for Truth {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

/// Watches for ever, over the ends of streams and restarts of the API server.
async fn watch(events: Api<Event>, mut from: String, versions: Arc<Mutex<Vec<Version>>>) {
    loop {
        if let Ok(stream) = events.watch(&WatchParams::default(), &from).await {
            let mut stream = stream.boxed();
            while let Ok(Some(seen)) = stream.try_next().await {
                let version = match seen {
                    WatchEvent::Added(event) | WatchEvent::Modified(event) => {
                        Version::of(&event, false)
                    }
                    WatchEvent::Deleted(event) => Version::of(&event, true),
                    WatchEvent::Bookmark(_) => continue,
                    WatchEvent::Error(status) => {
                        panic!("the watch that tells the truth missed something: {status:?}")
                    }
                };
                from = version.resource_version.to_string();
                versions.lock().unwrap_or_else(PoisonError::into_inner).push(version);
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
