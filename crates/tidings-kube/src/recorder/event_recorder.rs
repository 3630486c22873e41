//! The door for those who have something to report.

use std::{collections::BTreeMap, fmt, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};

use super::{
    event_type::{EventType, UnknownEventType},
    intake::{Intake, RecorderCounts, Refused},
    name::event_name,
    reference::{IntoReference, ReferenceError},
};

/// The namespace of events about objects that have none.
const NAMESPACE_DEFAULT: &str = "default";

/// Annotations of an event.
pub type Annotations = BTreeMap<String, String>;

/// Reports events on behalf of one source: client-go's `tools/record.EventRecorder`.
///
/// A call never waits and never fails: what cannot be queued at once is dropped,
/// [counted](Self::counts), and said in the log the first time and whenever its number has doubled.
/// It can be made from any thread, inside a runtime or not. Cloning is cheap.
///
/// The event is called `<object's name>.<nanoseconds since 1970 in hex>`, or by a random UUID where
/// that is no valid name. It lies in the object's namespace, or in `default` if that has none. Its
/// type is checked; reason and message are the caller's, as they are. Nothing of the object's own
/// metadata goes into the event but what identifies the object.
#[derive(Clone, Debug)]
pub struct EventRecorder {
    intake: Arc<Intake>,
    source: Arc<EventSource>,
}

impl EventRecorder {
    pub(super) fn new(intake: Arc<Intake>, source: EventSource) -> Self {
        Self { intake, source: Arc::new(source) }
    }

    /// Reports that something has happened to `object`. The reason is one word in UpperCamelCase
    /// that programs can act on; the message is for people.
    pub fn event<How>(
        &self,
        object: &impl IntoReference<How>,
        event_type: EventType,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) {
        self.report(object.reference(), Annotations::new(), Ok(event_type), reason, message);
    }

    /// The same with a formatted message:
    /// `recorder.eventf(&pod, EventType::Normal, "Pulled", format_args!("pulled in {took:?}"))`.
    pub fn eventf<How>(
        &self,
        object: &impl IntoReference<How>,
        event_type: EventType,
        reason: impl Into<String>,
        message: fmt::Arguments<'_>,
    ) {
        self.event(object, event_type, reason, message.to_string());
    }

    /// The same of what has happened earlier: `timestamp` is the first and last time of the event. Its name has the
    /// time of the call, as ever. Of a repeat, the earlier first time stays and the last time is this one; a
    /// combined event has the time of the call.
    ///
    /// client-go had it until 1.17, and its `PastEventf` did not use the time that it was given
    /// (kubernetes/kubernetes#86727).
    pub fn past_eventf<How>(
        &self,
        object: &impl IntoReference<How>,
        timestamp: Timestamp,
        event_type: EventType,
        reason: impl Into<String>,
        message: fmt::Arguments<'_>,
    ) {
        let (about, none) = (object.reference(), Annotations::new());
        self.report_at(Some(timestamp), about, none, Ok(event_type), reason, message.to_string());
    }

    /// The same with annotations of the event.
    pub fn annotated_eventf<How>(
        &self,
        object: &impl IntoReference<How>,
        annotations: Annotations,
        event_type: EventType,
        reason: impl Into<String>,
        message: fmt::Arguments<'_>,
    ) {
        let message = message.to_string();
        self.report(object.reference(), annotations, Ok(event_type), reason, message);
    }

    /// The same with a type that is not known before the program runs. Any other than "Normal" and
    /// "Warning" is dropped.
    pub fn event_of_type<How>(
        &self,
        object: &impl IntoReference<How>,
        annotations: Annotations,
        event_type: &str,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) {
        self.report(object.reference(), annotations, event_type.parse(), reason, message);
    }

    /// What became of the events of all recorders of this broadcaster, up to its queue.
    pub fn counts(&self) -> RecorderCounts {
        self.intake.counts()
    }

    fn report(
        &self,
        object: Result<ObjectReference, ReferenceError>,
        annotations: Annotations,
        event_type: Result<EventType, UnknownEventType>,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) {
        self.report_at(None, object, annotations, event_type, reason, message);
    }

    /// Without a time it has happened now.
    fn report_at(
        &self,
        timestamp: Option<Timestamp>,
        object: Result<ObjectReference, ReferenceError>,
        annotations: Annotations,
        event_type: Result<EventType, UnknownEventType>,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) {
        let (reason, message) = (reason.into(), message.into());
        let object = match object {
            Ok(object) => object,
            Err(error) => {
                if let Some(so_far) = self.intake.count(&Refused::NoReference) {
                    tracing::error!(
                        %error, reason, message, so_far,
                        "Could not construct reference, will not report event"
                    );
                }
                return;
            }
        };
        let event_type = match event_type {
            Ok(event_type) => event_type,
            Err(error) => {
                if let Some(so_far) = self.intake.count(&Refused::UnknownType) {
                    tracing::error!(%error, reason, so_far, "Will not report event");
                }
                return;
            }
        };
        let mut event = self.make(object, annotations, event_type, reason, message);
        if let Some(timestamp) = timestamp {
            event.first_timestamp = Some(Time(timestamp));
            event.last_timestamp = Some(Time(timestamp));
        }
        put(&self.intake, event);
    }

    fn make(
        &self,
        object: ObjectReference,
        annotations: Annotations,
        event_type: EventType,
        reason: String,
        message: String,
    ) -> Event {
        let now = (self.intake.clock)();
        let namespace = object.namespace.clone().filter(|namespace| !namespace.is_empty());
        Event {
            metadata: ObjectMeta {
                name: Some(event_name(object.name.as_deref().unwrap_or_default(), now)),
                namespace: Some(namespace.unwrap_or_else(|| NAMESPACE_DEFAULT.to_owned())),
                annotations: (!annotations.is_empty()).then_some(annotations),
                ..ObjectMeta::default()
            },
            involved_object: object,
            type_: Some(event_type.as_str().to_owned()),
            reason: Some(reason),
            message: Some(message),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            count: Some(1),
            reporting_component: Some(self.source.component.clone().unwrap_or_default()),
            reporting_instance: Some(self.source.host.clone().unwrap_or_default()),
            source: Some((*self.source).clone()),
            ..Event::default()
        }
    }
}

/// Queues an event, or counts and says why it was not.
pub(super) fn put(intake: &Intake, event: Event) {
    let Err(refused) = intake.put(event) else { return };
    let Some(so_far) = intake.count(&refused) else { return };
    match refused {
        Refused::Stopped => tracing::error!(
            so_far,
            "Unable to record event (will not retry!): the broadcaster is shut down"
        ),
        _ => tracing::error!(
            so_far,
            hint = "record less often, or give the broadcaster a longer queue",
            "Unable to record event: too many queued events, dropped event"
        ),
    }
}
