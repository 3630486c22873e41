//! The calls of this recorder on the events of core/v1.

use crate::recorder::{self, EventType, IntoReference};

/// For code that is written for events.k8s.io/v1 and has a recorder of core/v1 (client-go's
/// `EventRecorderAdapter`). A core/v1 event that is recorded has room for neither the related object
/// nor the action: they are thrown away.
#[derive(Clone, Debug)]
pub struct EventRecorderAdapter(recorder::EventRecorder);

impl EventRecorderAdapter {
    /// Records through `recorder`.
    pub fn new(recorder: recorder::EventRecorder) -> Self {
        Self(recorder)
    }

    /// As [`EventRecorder::event`](super::EventRecorder::event).
    pub fn event<How>(
        &self,
        regarding: &impl IntoReference<How>,
        event_type: EventType,
        reason: impl Into<String>,
        _action: impl Into<String>,
        note: impl Into<String>,
    ) {
        self.0.event(regarding, event_type, reason, note);
    }

    /// As [`EventRecorder::eventf`](super::EventRecorder::eventf).
    pub fn eventf<How, RelatedHow>(
        &self,
        regarding: &impl IntoReference<How>,
        _related: &impl IntoReference<RelatedHow>,
        event_type: EventType,
        reason: impl Into<String>,
        action: impl Into<String>,
        note: impl Into<String>,
    ) {
        self.event(regarding, event_type, reason, action, note);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;

    #[test]
    fn what_core_events_have_no_room_for_is_left_out() {
        let (recorder, mut events) = recorder::fake_recorder(10);
        let adapter = EventRecorderAdapter::new(recorder);
        let (pod, none) = (Pod::default(), None::<Pod>);
        adapter.eventf(&pod, &none, EventType::Normal, "Evicted", "Evicting", "why");
        assert_eq!(events.lines(), ["Normal Evicted why"]);
    }
}
