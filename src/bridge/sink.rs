//! From the log to a receiver: the watcher of one sink.
//!
//! ```text
//! feed        the journal's frames in order: live, or from the log
//! batcher     match, enrichment, correlation, and batches by count, bytes and linger
//! stage       correlation as a step of that
//! delivery    which events are sent next, and what the answers make of them
//! dispatcher  attempts, several at once, until each event has a fate
//! resends     dead letters once more, dead letters of other sinks, replays: beside the journal's order
//! smaller     events cut to what the receiver takes
//! ```

pub(super) mod batcher;
mod delivery;
pub(super) mod dispatcher;
pub(super) mod feed;
pub(super) mod resends;
pub(super) mod smaller;
pub(super) mod stage;
