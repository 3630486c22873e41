//! What one sees of a running bridge, and asks of it, over plain HTTP.
//!
//! ```text
//! AdminServer      TCP: liveness and readiness for everybody, metrics and status for whom
//!                  `access` permits. Read-only                                            server
//! ControlSocket    <journal.path>/admin.sock, for its user: the same, dead letters, replay, reload   control, socket
//! MetricsExport    sends the metrics to an OTLP receiver                                telemetry
//! ```
//!
//! Both serve within the bounds of `connections`. [`api`] has the documents of the socket.

mod access;
pub mod api;
mod connections;
mod control;
mod metrics;
mod reload;
mod server;
mod serving;
mod socket;
mod status;
#[cfg(feature = "otlp")]
mod telemetry;
mod text_format;

pub use access::Token;
pub use control::ControlSocket;
pub use metrics::registry;
pub use reload::{ReloadError, ReloadHandle, ReloadRequest};
pub use server::{AdminServer, ServeError};
pub use serving::ServerEnded;
pub(crate) use socket::connect;
pub use status::{
    ConfigurationStatus, GapStatus, HeadStatus, IngestStatus, JournalStatus, PartStatus, Problem,
    RejectedStatus, SinkStatus, SourceStatus, Status, status,
};
pub(crate) use status::{counted, humane};
#[cfg(feature = "otlp")]
pub use telemetry::{Exporting, MetricsExport, Telemetry, TelemetryError};
