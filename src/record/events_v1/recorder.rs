//! The recorder: events out of what happened to objects.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use tracing::{debug, error};

use crate::{
    record::{Clock, EventType, IntoReference, name::event_name},
    watch::{Broadcaster, NotSent},
};

/// What recorders dropped, by place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecorderDrops {
    /// There was nothing to refer to.
    pub without_reference: u64,
    /// The broadcaster's incoming queue was full.
    pub queue_full: u64,
    /// The broadcaster was shut down.
    pub stopped: u64,
}

/// The counters behind [`RecorderDrops`].
#[derive(Debug, Default)]
pub(super) struct DropCounters {
    without_reference: AtomicU64,
    queue_full: AtomicU64,
    stopped: AtomicU64,
}

impl DropCounters {
    pub(super) fn read(&self) -> RecorderDrops {
        RecorderDrops {
            without_reference: self.without_reference.load(Ordering::Relaxed),
            queue_full: self.queue_full.load(Ordering::Relaxed),
            stopped: self.stopped.load(Ordering::Relaxed),
        }
    }
}

/// Records events on behalf of one controller (client-go's `tools/events.EventRecorder`).
///
/// It never waits and never fails: what cannot be recorded is logged and counted. It is cheap to
/// clone, and works on any thread.
#[derive(Clone)]
pub struct EventRecorder {
    pub(super) reporting_controller: String,
    pub(super) reporting_instance: String,
    pub(super) broadcaster: Broadcaster<Arc<Event>>,
    pub(super) clock: Clock,
    pub(super) drops: Arc<DropCounters>,
}

impl EventRecorder {
    /// Records that something happened to an object.
    ///
    /// `reason` and `action` are short words for machines, "why" and "what was done", and have to
    /// be there: the API server refuses an event without them. `note` is for people, 1 KiB at most.
    pub fn event<How>(
        &self,
        regarding: &impl IntoReference<How>,
        event_type: EventType,
        reason: impl Into<String>,
        action: impl Into<String>,
        note: impl Into<String>,
    ) {
        self.eventf(regarding, &None::<ObjectReference>, event_type, reason, action, note);
    }

    /// The same with a second object, say the Node that a Pod was bound to. A `related` that cannot
    /// be referred to is left out.
    pub fn eventf<How, RelatedHow>(
        &self,
        regarding: &impl IntoReference<How>,
        related: &impl IntoReference<RelatedHow>,
        event_type: EventType,
        reason: impl Into<String>,
        action: impl Into<String>,
        note: impl Into<String>,
    ) {
        let reason = reason.into();
        let regarding = match regarding.reference() {
            Ok(reference) => reference,
            Err(why) => {
                error!(reason, %event_type, %why, "cannot make a reference, event is dropped");
                self.drops.without_reference.fetch_add(1, Ordering::Relaxed);
                return;
            }
        };
        let related = related
            .reference()
            .inspect_err(|why| debug!(reason, %why, "event without its related object"))
            .ok();
        let now = self.clock.now();
        let event = Event {
            metadata: ObjectMeta {
                name: Some(event_name(regarding.name.as_deref().unwrap_or_default(), now)),
                namespace: Some(namespace_of(&regarding)),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(now)),
            reporting_controller: Some(self.reporting_controller.clone()),
            reporting_instance: Some(self.reporting_instance.clone()),
            action: Some(action.into()),
            reason: Some(reason),
            regarding: Some(regarding),
            related,
            note: Some(note.into()),
            type_: Some(event_type.as_str().to_owned()),
            ..Event::default()
        };
        self.send(Arc::new(event));
    }

    fn send(&self, event: Arc<Event>) {
        let (event, counter, why) = match self.broadcaster.publish_or_drop(event) {
            Ok(()) => return,
            Err(NotSent::Full(event)) => {
                (event, &self.drops.queue_full, "too many queued events")
            }
            Err(NotSent::Stopped(event)) => {
                (event, &self.drops.stopped, "the broadcaster is stopped")
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
        error!(name = ?event.metadata.name, reason = ?event.reason, why, "event is dropped");
    }
}

/// An event about an object without a namespace lies in `default`.
fn namespace_of(regarding: &ObjectReference) -> String {
    let namespace = regarding.namespace.clone().unwrap_or_default();
    if namespace.is_empty() { "default".to_owned() } else { namespace }
}
