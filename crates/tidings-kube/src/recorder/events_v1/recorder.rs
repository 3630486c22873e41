//! The recorder: events out of what happened to objects.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use tracing::{debug, error};

use crate::{
    broadcaster::{Broadcaster, NotSent},
    recorder::{Clock, EventType, IntoReference, RecorderCounts, name::event_name},
};

/// The counters behind [`RecorderCounts`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    recorded: AtomicU64,
    no_reference: AtomicU64,
    queue_full: AtomicU64,
    stopped: AtomicU64,
}

impl Counters {
    /// Every type is known here, because it is no string.
    pub(super) fn read(&self) -> RecorderCounts {
        RecorderCounts {
            recorded: self.recorded.load(Ordering::Relaxed),
            no_reference: self.no_reference.load(Ordering::Relaxed),
            queue_full: self.queue_full.load(Ordering::Relaxed),
            stopped: self.stopped.load(Ordering::Relaxed),
            ..RecorderCounts::default()
        }
    }
}

/// Counts a drop. It is worth a line in the log if it is the first, or if their number has doubled:
/// who floods the queue must not flood the log, too.
fn is_worth_a_line(counter: &AtomicU64) -> bool {
    (counter.fetch_add(1, Ordering::Relaxed) + 1).is_power_of_two()
}

/// Queues an event if there is room at once.
pub(super) fn queue(event: Event, broadcaster: &Broadcaster<Arc<Event>>, counters: &Counters) {
    let (event, counter, why) = match broadcaster.publish_or_drop(Arc::new(event)) {
        Ok(()) => {
            counters.recorded.fetch_add(1, Ordering::Relaxed);
            return;
        }
        Err(NotSent::Full(event)) => (event, &counters.queue_full, "too many queued events"),
        Err(NotSent::Stopped(event)) => (event, &counters.stopped, "broadcaster already stopped"),
    };
    if is_worth_a_line(counter) {
        error!(event = ?event.metadata.name, reason = ?event.reason, why, "Event is dropped");
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
    pub(super) counters: Arc<Counters>,
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
                if is_worth_a_line(&self.counters.no_reference) {
                    error!(reason, %event_type, %why, "Event is dropped: no reference to its object");
                }
                return;
            }
        };
        let related = related
            .reference()
            .inspect_err(|why| debug!(reason, %why, "event without its related object"))
            .ok();
        let now = (self.clock)();
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
        queue(event, &self.broadcaster, &self.counters);
    }
}

/// An event about an object without a namespace lies in `default`.
fn namespace_of(regarding: &ObjectReference) -> String {
    let namespace = regarding.namespace.clone().unwrap_or_default();
    if namespace.is_empty() { "default".to_owned() } else { namespace }
}
