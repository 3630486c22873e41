//! Reporting what a program does as Events: client-go's `tools/record`.
//!
//! An event goes this way:
//!
//! ```text
//! recorder.event(&pod, …)         a reference, a name, a time           drops: nothing to refer to,
//!      │ never waits                                                    unknown type, full queue
//!      ▼
//! EventBroadcaster ── one queue, one loop ──┬─▶ a sink's own queue      drops: full queue, for this
//!                                           ├─▶ another sink's …        sink alone
//!                                           └─▶ a handler's or a log's
//!      a sink's task, one event after the other:
//!      EventCorrelator     similar ones become one, repeats a count,    skips: too many
//!      │                   floods are held back
//!      ▼
//!      EventSink::create, or ::patch where the count is above 1         gives up: refused, or 12 tries
//!      │                   a patch answered 404 becomes a create
//!      ▼
//!      EventCorrelator     learns what the server has stored
//! ```
//!
//! Every event that is dropped, skipped or given up is counted at the place where it was:
//! [`RecorderCounts`] up to the queue, [`SinkCounts`] for each sink behind it.
//!
//! # In a program
//!
//! One broadcaster for the process, a recorder for each component, and a
//! [shutdown](EventBroadcaster::shutdown) at the end:
//!
//! ```no_run
//! # use std::num::NonZeroU32;
//! # use k8s_openapi::api::core::v1::{EventSource, Pod};
//! # use tidings_kube::recorder::{
//! #     ApiServerSink, BroadcasterOptions, EventBroadcaster, EventType, Level, RetryPolicy,
//! # };
//! # async fn run(pod: Pod, node: String) -> Result<(), Box<dyn std::error::Error>> {
//! let client = tidings_kube::client_without_retry(kube::Config::infer().await?)?;
//! let (qps, burst) = (NonZeroU32::new(50).unwrap(), NonZeroU32::new(100).unwrap());
//! let sink = ApiServerSink::new(client).with_rate_limit(qps, burst);
//!
//! let broadcaster = EventBroadcaster::new(BroadcasterOptions {
//!     // client-go gives an event up at a 429 or 503; this does not.
//!     retry: RetryPolicy::PATIENT,
//!     ..BroadcasterOptions::default()
//! });
//! broadcaster.start_structured_logging(Level::DEBUG).await?;
//! broadcaster.start_recording_to_sink(sink).await?;
//!
//! let source = EventSource { component: Some("kubelet".into()), host: Some(node) };
//! let recorder = broadcaster.new_recorder(source);
//! recorder.event(&pod, EventType::Normal, "Started", "Started container app");
//!
//! let report = broadcaster.shutdown().await;
//! if !report.is_complete() {
//!     eprintln!("some events were not written: {report:?}");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # A sink of one's own
//!
//! ```
//! use std::sync::{Arc, Mutex};
//!
//! use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
//! use tidings_kube::{
//!     correlator::Patch,
//!     recorder::{EventBroadcaster, EventSink, EventType, SinkError},
//! };
//!
//! #[derive(Clone, Default)]
//! struct Memory(Arc<Mutex<Vec<String>>>);
//!
//! impl Memory {
//!     fn keep(&self, how: &str, event: &Event) -> Result<Event, SinkError> {
//!         let line = format!("{how} {} x{}", event.reason.as_ref().unwrap(), event.count.unwrap());
//!         self.0.lock().unwrap().push(line);
//!         Ok(event.clone())
//!     }
//! }
//!
//! impl EventSink for Memory {
//!     async fn create(&self, event: &Event) -> Result<Event, SinkError> {
//!         self.keep("create", event)
//!     }
//!     async fn patch(&self, event: &Event, _: Option<&Patch>) -> Result<Event, SinkError> {
//!         self.keep("patch", event)
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let sink = Memory::default();
//! let broadcaster = EventBroadcaster::default();
//! broadcaster.start_recording_to_sink(sink.clone()).await.unwrap();
//! let recorder = broadcaster.new_recorder(EventSource::default());
//!
//! let web = ObjectReference { name: Some("web".into()), ..ObjectReference::default() };
//! for _ in 0..2 {
//!     recorder.event(&web, EventType::Warning, "BackOff", "restarting failed container");
//! }
//! assert!(broadcaster.shutdown().await.is_complete());
//! assert_eq!(*sink.0.lock().unwrap(), ["create BackOff x1", "patch BackOff x2"]);
//! # });
//! ```
//!
//! Code that records is tested with a [`fake_recorder`]. Where a real broadcaster is at work,
//! [`flush`](EventBroadcaster::flush) ends when everything that was recorded has come to every sink
//! and log: before one of them is [stopped](Running::stop), or before a test looks at what it got.
//!
//! # What differs from client-go
//!
//! The rules are client-go's: golden vectors made by it are run against this module
//! (`docs/conformance.md` of the repository has the whole). On purpose it differs here:
//!
//! - [`shutdown`](EventBroadcaster::shutdown) lets the sinks work on what is queued for ten seconds,
//!   and reports what was not written. client-go drops a part of the queue, by chance and silently;
//!   [`shutdown_at_once`](EventBroadcaster::shutdown_at_once) is the most that it may do.
//! - A recorder's error log has the first drop of a kind, and then one line each time their number
//!   has doubled. client-go writes one for each.
//! - A task ends when its watcher is [stopped](Running::stop); client-go's spins.
//! - An event that a sink for one namespace does not take is given up at once. client-go tries it
//!   twelve times, as it takes the refusal for a failed connection.
//! - [`RetryPolicy::Patient`], which is not the default, tries overload again. client-go's REST
//!   client does so only where the answer names a time; here no retry is hidden below the policy.

mod api_server;
mod broadcaster;
mod event_recorder;
mod event_type;
pub mod events_v1;
mod fake;
mod given_up;
mod handler;
mod intake;
mod name;
mod options;
mod recording;
mod reference;
mod report;
mod retry;
mod running;
mod sink;
mod sink_error;
mod stage;

pub use api_server::ApiServerSink;
pub use broadcaster::EventBroadcaster;
pub use event_recorder::{Annotations, EventRecorder};
pub use event_type::{EventType, UnknownEventType};
pub use fake::{FakeEvents, fake_recorder};
pub use handler::Level;
pub use intake::{Clock, RecorderCounts};
pub use options::BroadcasterOptions;
pub use reference::{IntoReference, ReferenceError, object_reference};
pub use report::{ShutdownReport, SinkCounts};
pub use retry::RetryPolicy;
pub use running::Running;
pub use sink::EventSink;
pub use sink_error::SinkError;
