//! Recording events: client-go's `tools/record`.

mod event_type;
mod name;
mod reference;
mod sink_error;

pub use event_type::{EventType, UnknownEventType};
pub use reference::{IntoReference, ReferenceError, object_reference};
pub use sink_error::SinkError;
