//! Watching the kinds that are to be watched: an informer each, metadata only.

use std::{sync::Arc, time::Duration};

use kube::core::ApiResource;
use tidings_kube::{
    informer::{HandlerFuncs, SharedInformer},
    object::Metadata,
    reflector::ResourceApi,
};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep, timeout_at},
};

use super::{Objects, ResourceName, discovery::Discovery, watched::WatchedKind};
use crate::bridge::{
    now_ms,
    tasks::{Tasks, answer_of},
};

/// The wait before it is asked again what a resource is.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// What is needed to watch one resource.
struct Watching {
    objects: Arc<Objects>,
    client: kube::Client,
    discovery: Arc<Discovery>,
    resource: ResourceName,
    /// Empty for all.
    namespaces: Vec<String>,
    /// Is told of each informer that has its first list.
    listed: mpsc::Sender<()>,
}

/// Starts to watch, and waits until `until` for the first lists.
pub(super) async fn start(
    objects: &Arc<Objects>,
    client: &kube::Client,
    discovery: &Arc<Discovery>,
    namespaces: &[String],
    until: Instant,
    tasks: &mut Tasks,
) {
    let (listed, mut lists) = mpsc::channel(1);
    for resource in &objects.options.watch {
        let watching = Watching {
            objects: Arc::clone(objects),
            client: client.clone(),
            discovery: Arc::clone(discovery),
            resource: resource.clone(),
            namespaces: namespaces.to_vec(),
            listed: listed.clone(),
        };
        tasks.spawn(format!("the informers of {resource} for enrichment"), watching.run());
    }
    drop(listed);
    // Each task holds its end of the channel until its lists are there.
    let all = async { while lists.recv().await.is_some() {} };
    if timeout_at(until, all).await.is_err() {
        tracing::warn!(
            "objects to enrich events with are not all listed yet: intake starts without, and more \
             of them are fetched one by one"
        );
    }
}

impl Watching {
    async fn run(self) {
        let (resource, namespaced) = loop {
            match self.discovery.resource(&self.resource).await {
                Ok(found) => break found,
                Err(error) => {
                    tracing::error!(
                        resource = self.resource.to_string(),
                        %error,
                        "cannot find a resource that objects.watch names: asking again"
                    );
                    sleep(ASK_AGAIN).await;
                }
            }
        };
        let namespaces = match &*self.namespaces {
            some @ [_, ..] if namespaced => some.iter().cloned().map(Some).collect(),
            _ => vec![None],
        };
        let mut informers = JoinSet::new();
        let mut lists = Vec::new();
        for namespace in namespaces {
            let informer = self.informer(&resource, namespace.as_deref());
            self.objects.at_hand.watched.add(WatchedKind {
                group: resource.group.clone(),
                kind: resource.kind.clone(),
                namespace,
                store: informer.store(),
            });
            lists.push(informer.clone());
            // It is run once, and so it ends only with this task.
            informers.spawn(async move {
                let _ = informer.run().await;
            });
        }
        for informer in lists {
            informer.wait_for_cache_sync().await;
        }
        drop(self.listed);
        // Cancelled they never end, and with a panic this task panics.
        while !informers.is_empty() {
            answer_of(async { informers.join_next().await.unwrap_or(Ok(())) }).await;
        }
    }

    fn informer(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
    ) -> SharedInformer<Metadata> {
        let api = ResourceApi::new(self.client.clone(), resource)
            .namespace(namespace.unwrap_or_default())
            .metadata_only();
        let objects = Arc::clone(&self.objects);
        let informer = SharedInformer::builder(api)
            .transform(move |mut object: Metadata| {
                objects.wanted.keep_of(&mut object);
                Ok(object)
            })
            .build();
        let watched = Arc::clone(&self.objects.at_hand.watched);
        let replaced = Arc::clone(&watched);
        let handler = HandlerFuncs::new()
            .on_update(move |old: &Arc<Metadata>, new| {
                if old.uid() != new.uid() {
                    replaced.deleted.add(old, now_ms());
                }
            })
            .on_delete(move |deleted| {
                if let Some(object) = deleted.object() {
                    watched.deleted.add(object, now_ms());
                }
            });
        // It has not been stopped before it runs.
        let _ = informer.add_handler(handler);
        informer
    }
}
