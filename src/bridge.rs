//! From journal to sinks: ingest, a watcher for each sink, delivery with retry, and the fate of
//! every record.

mod sink;

pub use sink::{EventFate, Outcome, RefusedClass, RetryClass, Sink};
