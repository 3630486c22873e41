//! Tickets: what delivery knows of a record.

/// A record as delivery sees it. Its bytes stay with the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// A hash of cluster, namespace and object: records of one key are delivered in order.
    pub(crate) key: u64,
    /// A hash of its namespace.
    pub(crate) namespace: u64,
    /// The part of the receiver that it goes to, such as a partition: the same for all records of its key.
    pub(crate) destination: u64,
    /// The size of its envelope.
    pub(crate) bytes: u32,
}

impl Ticket {
    /// Whether its keys are not known.
    pub(super) fn is_unknown(&self) -> bool {
        self.key == 0 && self.namespace == 0
    }
}

/// The number of a ticket. Numbers of live records are dense; those of records that were set aside in an earlier
/// run lie before the first of them. So of two records of a key, the one with the lower number goes first.
pub(crate) type Number = u64;

/// Tickets from this number on are resends, dead letters and replays, which are sent beside the
/// journal's order.
pub(crate) const FIRST_RESEND: Number = 1 << 63;

/// Milliseconds since any moment that the caller has chosen.
pub(crate) type Millis = u64;

/// Tells attempts and answers apart: each has one that is greater than all before it.
pub(super) type Moment = u64;
