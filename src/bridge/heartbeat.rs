//! The heartbeat: an Event of the bridge's own by which it notices that a watch is dead.
//!
//! A watch on a connection that brings nothing and does not break looks like one on a quiet cluster.
//! So an Event about the bridge's own Pod is patched at an interval, and each watch that covers its
//! namespace has to bring it: one that does not within 30 s is dead and is opened anew. In a quiet
//! cluster the same Event keeps the resume point younger than etcd's compaction, without which every
//! watch that ends after five minutes would be a 410 and a list.
//!
//! It is never exported: ingest moves the resume point and drops it. It is known by the uid that its
//! writes are answered with ([`OwnWrites`]); what only looks like one, as that of another bridge, is an
//! Event like any other.

use std::{sync::atomic::Ordering, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use tidings_kube::text::short;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::{BridgeView, COMPONENT, OwnWrites, own_writes::OwnWrite, shared::lock};

/// A watch has to bring it within this time after it was written, or within half an interval if
/// that is less.
const SEEN_WITHIN: Duration = Duration::from_secs(30);
/// A write may take so long.
const WRITTEN_WITHIN: Duration = Duration::from_secs(10);
/// After a refusal it is tried this many beats later: somebody has to grant the verb first.
const REFUSED_BEATS: u32 = 10;

/// The shortest time between two beats.
const LEAST: Duration = Duration::from_secs(1);

const REASON: &str = "Heartbeat";
const SUFFIX: &str = ".heartbeat";

/// What a bridge's heartbeat is made of.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    /// The Pod that the bridge runs in; with a name and a namespace.
    pub about: ObjectReference,
    /// The time between two beats. Less than a second is taken for a second: an Event's times are
    /// whole seconds.
    pub every: Duration,
}

impl Heartbeat {
    /// Runs until it is dropped. The first write is under way from this call on, so that a watch
    /// does not bring the heartbeat of a run before that has no name for it yet.
    pub(super) fn run(
        self,
        client: Client,
        view: BridgeView,
        own_writes: OwnWrites,
    ) -> impl Future<Output = ()> {
        let first = own_writes.begin();
        self.beat(client, view, own_writes, first)
    }

    async fn beat(self, client: Client, view: BridgeView, own_writes: OwnWrites, first: OwnWrite) {
        let namespace = self.about.namespace.clone().unwrap_or_default();
        let events = Api::<Event>::namespaced(client, &namespace);
        let every = self.every.max(LEAST);
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut failing, mut first) = (false, Some(first));
        loop {
            ticks.tick().await;
            let write = first.take().unwrap_or_else(|| own_writes.begin());
            let written = timeout(WRITTEN_WITHIN, self.write(&events, write)).await;
            match written {
                Ok(Ok(version)) => {
                    if std::mem::take(&mut failing) {
                        tracing::info!("the heartbeat can be written again");
                    }
                    let within = SEEN_WITHIN.min(every / 2);
                    sleep(within).await;
                    // While ingest waits, for a disk or for a sink, no reflector reads on.
                    if !view.ingest.stood_still_within(within) {
                        reconnect_the_dead(&view, &namespace, version);
                    }
                }
                Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(
                            error = &*short(&status.message),
                            hint = "grant the verbs create and patch on the resource events in this \
                                    namespace (deploy/install.yaml does), or set source.heartbeat to 0s",
                            "no heartbeat: a watch that died without breaking is noticed only by its \
                             own end, after 5 to 10 minutes"
                        );
                    }
                    sleep(every.saturating_mul(REFUSED_BEATS)).await;
                }
                // The API server is away, which its watches show for themselves.
                Ok(Err(error)) => tracing::debug!(%error, "the heartbeat could not be written"),
                Err(_) => tracing::debug!("the heartbeat could not be written in time"),
            }
        }
    }

    /// Writes one beat; answers the resourceVersion that it has.
    async fn write(&self, events: &Api<Event>, write: OwnWrite) -> Result<u64, kube::Error> {
        let now = Time(Timestamp::now());
        let name = format!("{}{SUFFIX}", self.about.name.as_deref().unwrap_or_default());
        let beat = serde_json::json!({ "lastTimestamp": &now });
        let written = match events.patch(&name, &PatchParams::default(), &Patch::Merge(beat)).await
        {
            // The first one, or the first after its TTL.
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let event = Event {
                    metadata: ObjectMeta {
                        name: Some(name),
                        namespace: self.about.namespace.clone(),
                        ..ObjectMeta::default()
                    },
                    involved_object: self.about.clone(),
                    source: Some(EventSource {
                        component: Some(COMPONENT.to_owned()),
                        ..EventSource::default()
                    }),
                    type_: Some("Normal".to_owned()),
                    reason: Some(REASON.to_owned()),
                    message: Some("Tidings watches its own watch by this Event".to_owned()),
                    count: Some(1),
                    first_timestamp: Some(now.clone()),
                    last_timestamp: Some(now),
                    ..Event::default()
                };
                events.create(&PostParams::default(), &event).await
            }
            written => written,
        }?;
        write.made_heartbeat(written.metadata.uid.as_deref().unwrap_or_default());
        Ok(written.metadata.resource_version.and_then(|rv| rv.parse().ok()).unwrap_or(0))
    }
}

/// Has each watch opened anew that should have brought `version` and has not.
fn reconnect_the_dead(view: &BridgeView, namespace: &str, version: u64) {
    for source in lock(&view.sources).iter().filter(|source| source.covers(namespace)) {
        let (open, last) = {
            let health = lock(&source.health);
            (health.stream_open, health.last_sync_resource_version.parse().unwrap_or(0))
        };
        if open && last < version {
            tracing::warn!(
                source = &*source.key,
                "the watch did not bring our own heartbeat in time: it is dead and is opened anew"
            );
            view.ingest.heartbeats_missed.fetch_add(1, Ordering::Relaxed);
            source.reconnect.now();
        }
    }
}
