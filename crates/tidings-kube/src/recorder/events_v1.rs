//! Recording events as events.k8s.io/v1, with repeats as a series: client-go's `tools/events`.
//!
//! ```text
//! recorder.event(&pod, …) ─▶ broadcaster ─┬▶ recording ─▶ series cache ─▶ EventSink ─▶ API server
//!                                         └▶ a log, or a function
//! ```
//!
//! Where the [core/v1 recorder](super) aggregates and filters what is recorded, this one counts.
//! Events of one *series* have the same type, action, reason, reporting controller and instance, and
//! the same regarded and related object, down to its resourceVersion; the note may differ. Of a series
//!
//! - the first event is created at once, as a single event;
//! - the second makes it a series: it is patched to `series: {count: 2, lastObservedTime}`;
//! - the later ones only count, in memory;
//! - every 30 minutes the count is written, so that the event does not expire while it goes on;
//! - when nothing came for 6 minutes the final count is written, 6 to 12 minutes after the last
//!   event, and the series is forgotten. The next event of its kind begins a new one.
//!
//! ```
//! use std::sync::{Arc, Mutex};
//!
//! use k8s_openapi::api::{core::v1::ObjectReference, events::v1::Event};
//! use serde_json::Value;
//! use tidings_kube::recorder::{
//!     EventType, SinkError,
//!     events_v1::{EventBroadcaster, EventBroadcasterOptions, EventSink, RecordingOptions},
//! };
//!
//! /// Keeps what an `ApiServerSink` would send.
//! #[derive(Clone, Default)]
//! struct Memory(Arc<Mutex<Vec<String>>>);
//!
//! impl EventSink for Memory {
//!     async fn create(&self, event: &Event) -> Result<Event, SinkError> {
//!         self.0.lock().unwrap().push(format!("create {}", event.note.as_deref().unwrap_or("")));
//!         Ok(event.clone())
//!     }
//!     async fn patch(&self, event: &Event, patch: &Value) -> Result<Event, SinkError> {
//!         self.0.lock().unwrap().push(format!("count {}", patch["series"]["count"]));
//!         Ok(event.clone())
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let broadcaster = EventBroadcaster::new(EventBroadcasterOptions::default());
//! let memory = Memory::default();
//! broadcaster.start_recording_to_sink(memory.clone(), RecordingOptions::default()).await.unwrap();
//!
//! let recorder = broadcaster.new_recorder("example.io/scheduler");
//! let pod = ObjectReference { name: Some("web".into()), ..ObjectReference::default() };
//! for _ in 0..5 {
//!     recorder.event(&pod, EventType::Warning, "NoRoom", "Scheduling", "no node has room");
//! }
//! let report = broadcaster.shutdown().await;
//!
//! assert_eq!(*memory.0.lock().unwrap(), ["create no node has room", "count 2", "count 5"]);
//! assert_eq!(report.tally.announced, 5);
//! # });
//! ```
//!
//! # When a write fails
//!
//! A create, or the patch that starts a series, is tried 12 times, 10 to 12.5 s apart, if there was
//! no answer or none that makes sense. Any answer of the API server that is an error is final, with
//! two exceptions: a patch that is answered 404 becomes a create in the same try, and if that finds
//! the event there after all (AlreadyExists), the patch is tried again. A refresh is tried once, and
//! once more with the next refresh; so is a final count, every 6 minutes, unless it was refused.
//! What a refresh is answered takes the place of the cached event; other answers are not looked at.
//!
//! With [`RetryPolicy::Patient`](super::RetryPolicy::Patient) in the [options](RecordingOptions::retry)
//! an overload (429, 5xx) is no final answer either: it is tried again as that policy has it, and a
//! final count that meets one comes with the next round.
//!
//! # What differs from client-go, and why
//!
//! - The series are bounded ([`RecordingOptions::max_series`]): client-go's map is not. The one that
//!   occurred least recently makes room, and its count is written first.
//! - No lock is held while a request is under way: in client-go every event waits for a refresh of
//!   every series. The outcome is the same as if they had waited, but for what occurs while a final
//!   count is being written: the series goes on (as in later versions of client-go) instead of a new one
//!   beginning.
//! - The writes of a series come in the order of its events. In client-go each is a goroutine. As
//!   there, a write that waits for its next try does not hold up the others.
//! - What waits is bounded: events in queues, and [writes](RecordingOptions::max_writes). client-go
//!   has a goroutine for each. What finds no room is dropped and counted, by place.
//! - [Shutdown](EventBroadcaster::shutdown) writes what is queued and the counts that are owed, within
//!   a deadline, and reports the rest; client-go's loses them. [`RecordingHandle::cancel`] ends a
//!   recording as cancelling its context does there.
//! - Each recording has a cache of its own, so that a second sink gets every event, too.
//!
//! All of it is accounted for: see [`Tally`].

mod adapter;
mod attempt;
mod broadcaster;
mod key;
mod lane;
mod options;
mod recorder;
mod recording;
mod series;
mod sink;
mod state;
mod tally;

#[cfg(test)]
mod tests;

pub use adapter::EventRecorderAdapter;
pub use broadcaster::{EventBroadcaster, RecordingHandle, SHUTDOWN_DEADLINE, ShutdownReport};
pub use options::{EventBroadcasterOptions, RecordingOptions};
pub use recorder::EventRecorder;
pub use sink::EventSink;
pub use tally::Tally;
