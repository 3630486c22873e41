//! Tickets: what delivery knows of a record.

/// A record as delivery sees it. Its bytes stay with the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bridge) struct Ticket {
    /// A hash of cluster, namespace and object: records of one key are delivered in order.
    pub(in crate::bridge) key: u64,
    /// A hash of its namespace.
    pub(in crate::bridge) namespace: u64,
    /// A hash of where it goes: the rendered URL, index or tenant, topic and partition.
    pub(in crate::bridge) destination: u64,
    /// The size of its envelope.
    pub(in crate::bridge) bytes: u32,
}

impl Ticket {
    /// Whether its keys are not known.
    pub(super) fn is_unknown(&self) -> bool {
        self.key == 0 && self.namespace == 0
    }
}

/// The number of a ticket: dense, in the journal's order, or from [`FIRST_COPY`] or [`FIRST_ERRAND`]
/// on.
pub(in crate::bridge) type Number = u64;

/// Tickets from this number on were set aside in an earlier run.
pub(in crate::bridge) const FIRST_COPY: Number = 1 << 62;

/// Tickets from this number on are errands, dead letters and replays, which are sent beside the
/// journal's order.
pub(in crate::bridge) const FIRST_ERRAND: Number = 1 << 63;

/// Milliseconds since any moment that the caller has chosen.
pub(in crate::bridge) type Millis = u64;

/// Tells attempts and answers apart: each has one that is greater than all before it.
pub(super) type Moment = u64;
