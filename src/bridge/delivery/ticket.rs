//! Tickets: what delivery knows of a record.

/// A record as delivery sees it. Its bytes stay with the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bridge) struct Ticket {
    /// A hash of cluster, namespace and object: records of one key are delivered in order.
    pub(in crate::bridge) key: u64,
    /// The size of its envelope.
    pub(in crate::bridge) bytes: u32,
}

/// The number of a ticket: dense, in the journal's order, or from [`FIRST_ERRAND`] on.
pub(in crate::bridge) type Number = u64;

/// Tickets from this number on are errands, dead letters and replays, which are sent beside the
/// journal's order.
pub(in crate::bridge) const FIRST_ERRAND: Number = 1 << 63;

/// Milliseconds since any moment that the caller has chosen.
pub(in crate::bridge) type Millis = u64;
