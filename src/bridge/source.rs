//! From the API server to the log.
//!
//! ```text
//! cluster    which cluster the API server is of
//! intake     a reflector for each source
//! ingest     the one thread that writes: identity, delta, envelope, journal, publish
//! seen       the version of each Event that was read last
//! marks      the last sign of life of a source, saved beside the log
//! past       other sources that read the same Events in earlier runs
//! heartbeat  an Event of the bridge's own, by which a dead watch is noticed
//! ```

pub(super) mod cluster;
mod heartbeat;
pub(super) mod ingest;
pub(super) mod intake;
pub(super) mod marks;
pub(super) mod past;
pub(super) mod seen;

pub use heartbeat::Heartbeat;
