//! A recorder for tests of code that records.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Event, EventSource};
use tokio::sync::mpsc;

use super::{
    event_recorder::EventRecorder,
    intake::{Intake, Outlet, system_clock},
};

/// What was recorded by a recorder of [`fake_recorder`].
#[derive(Debug)]
pub struct FakeEvents {
    events: mpsc::Receiver<Arc<Event>>,
}

/// A recorder for tests, and what it has recorded: client-go's `tools/record.FakeRecorder`. It needs
/// no runtime.
///
/// It checks and counts as a real one does, and holds `capacity` events (at least one); those beyond
/// are dropped and counted, where client-go's blocks.
///
/// ```
/// use k8s_openapi::api::core::v1::ObjectReference;
/// use tidings_kube::recorder::{EventType, fake_recorder};
///
/// let (recorder, mut events) = fake_recorder(10);
/// recorder.event(&ObjectReference::default(), EventType::Normal, "Started", "it runs");
/// assert_eq!(events.lines(), ["Normal Started it runs"]);
/// ```
pub fn fake_recorder(capacity: usize) -> (EventRecorder, FakeEvents) {
    let capacity = capacity.clamp(1, tokio::sync::Semaphore::MAX_PERMITS);
    let (sender, events) = mpsc::channel(capacity);
    let intake = Intake::new(Outlet::Channel(sender), system_clock());
    (EventRecorder::new(Arc::new(intake), EventSource::default()), FakeEvents { events })
}

impl FakeEvents {
    /// The events recorded since the last look.
    pub fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.events.try_recv().ok()).map(Arc::unwrap_or_clone).collect()
    }

    /// The same, each as `<type> <reason> <message>`.
    pub fn lines(&mut self) -> Vec<String> {
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        let line = |event: Event| {
            [text(&event.type_), text(&event.reason), text(&event.message)].join(" ")
        };
        self.events().into_iter().map(line).collect()
    }

    /// The next event; `None` when every recorder is gone.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await.map(Arc::unwrap_or_clone)
    }
}
