//! The admin server: liveness, readiness, metrics and status over plain HTTP. Read-only.

mod metrics;
mod server;
mod status;

pub use metrics::registry;
pub use server::{AdminServer, ServeError, ServerEnded};
pub use status::{
    GapStatus, IngestStatus, JournalStatus, PartStatus, SinkStatus, SourceStatus, Status, status,
};
