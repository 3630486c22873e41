//! Recording events: client-go's `tools/record`.

mod clock;
mod event_type;
pub mod events_v1;
mod name;
mod reference;
mod sink_error;

pub use clock::{Clock, Random};
pub use event_type::{EventType, UnknownEventType};
pub use reference::{IntoReference, ReferenceError, object_reference};
pub use sink_error::SinkError;
