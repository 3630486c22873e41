//! From journal to sinks: ingest, a watcher for each sink, delivery with retry, and the fate of
//! every record.

mod filter;
mod options;
mod sink;

pub use filter::{EvalError, Filter, FilterError};
pub use options::{BatchOptions, RetryOptions, SinkStart};
pub use sink::{EventFate, Outcome, RefusedClass, RetryClass, Sink};
