//! What one sees of a running bridge, and asks of it, over plain HTTP.
//!
//! ```text
//! AdminServer      TCP, for everybody: liveness, readiness, metrics and status. Read-only     server
//! ControlSocket    <journal.path>/admin.sock, for its user: the same, and dead letters, replay   control, socket
//! ```
//!
//! [`api`] has the documents of the socket.

pub mod api;
mod control;
mod metrics;
mod server;
mod serving;
mod socket;
mod status;

pub use control::ControlSocket;
pub use metrics::registry;
pub use server::{AdminServer, ServeError};
pub use serving::ServerEnded;
pub(crate) use socket::connect;
pub use status::{
    GapStatus, IngestStatus, JournalStatus, PartStatus, SinkStatus, SourceStatus, Status, status,
};
