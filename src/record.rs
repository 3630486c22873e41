//! Recording events: client-go's `tools/record`.

mod api_server;
mod broadcaster;
mod event_type;
pub mod events_v1;
mod fake;
mod given_up;
mod handler;
mod intake;
mod name;
mod options;
mod rate_limit;
mod recorder;
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
pub use event_type::{EventType, UnknownEventType};
pub use fake::{FakeEvents, fake_recorder};
pub use handler::Level;
pub use intake::{Clock, RecorderCounts};
pub use options::BroadcasterOptions;
pub use recorder::{Annotations, EventRecorder};
pub use reference::{IntoReference, ReferenceError, object_reference};
pub use report::{ShutdownReport, SinkCounts};
pub use retry::RetryPolicy;
pub use running::Running;
pub use sink::EventSink;
pub use sink_error::SinkError;
