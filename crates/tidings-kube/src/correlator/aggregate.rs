//! Which events are similar enough to be combined.

use super::{Damaged, Key, bounded::Bounded, saved::Reader};

/// The version of the form of [`Aggregator::save`].
const VERSION: u8 = 1;

/// Combines the events of a group once there are too many different ones, as client-go's
/// `EventAggregator` does.
///
/// A group is a set of local keys. While it has fewer than `max_events` members, each event stands
/// alone. The one that would fill it is combined, and so is every other that is no member.
///
/// client-go lets the event in and removes an arbitrary member, so the set stays at `max_events`
/// − 1. Here the one removed is always the one that was just let in. It is one of client-go's
/// possible outcomes, it can be foretold, and it is easy to say: *the first `max_events` − 1
/// messages of a group keep Events of their own, all others share one.*
///
/// A group begins anew when more than `max_interval_ns` have passed since its last event of any
/// kind: exactly that long is not more, and a clock that goes back makes nothing older.
///
/// At most `lru_size` groups are kept, with at most `max_events` − 1 members of 16 bytes each.
#[derive(Debug)]
pub struct Aggregator {
    groups: Bounded<Group>,
    max_events: usize,
    max_interval_ns: i64,
}

#[derive(Debug, Default)]
struct Group {
    last_ns: i64,
    /// Sorted.
    members: Vec<Key>,
}

/// What [`Aggregator::observe`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Observed {
    aggregate: bool,
    evicted: Option<Key>,
}

impl Observed {
    /// The event is to be combined with others of its group.
    pub fn is_aggregate(self) -> bool {
        self.aggregate
    }

    /// The group that was forgotten to make room for this one.
    pub fn evicted(self) -> Option<Key> {
        self.evicted
    }
}

impl Aggregator {
    /// `lru_size`: groups, 0 keeps none; `max_events`: [`usize::MAX`] combines nothing;
    /// `max_interval_ns`: if negative, a group begins anew with each event.
    pub fn new(lru_size: usize, max_events: usize, max_interval_ns: i64) -> Self {
        Self { groups: Bounded::new(lru_size), max_events, max_interval_ns }
    }

    /// Puts an event to its group at `now_ns` nanoseconds since the Unix epoch.
    pub fn observe(&mut self, group: Key, local: Key, now_ns: i64) -> Observed {
        let (max_events, max_interval_ns) = (self.max_events, self.max_interval_ns);
        if let Some(group) = self.groups.get_mut(group) {
            if now_ns.saturating_sub(group.last_ns) > max_interval_ns {
                group.members.clear();
            }
            group.last_ns = now_ns;
            return Observed { aggregate: group.admit(local, max_events), evicted: None };
        }
        let mut new = Group { last_ns: now_ns, members: Vec::new() };
        let aggregate = new.admit(local, max_events);
        Observed { aggregate, evicted: self.groups.put(group, new) }
    }

    /// Appends what is known, for [`load`](Self::load): a version byte (1), the number of groups,
    /// and for each, from the least recent to the most recent, its key, the time of its last
    /// event, the number of its members and their keys. Numbers have 64 bits and are little endian.
    pub fn save(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        out.extend_from_slice(&(self.groups.len() as u64).to_le_bytes());
        for (key, group) in self.groups.iter() {
            out.extend_from_slice(&key.to_bytes());
            out.extend_from_slice(&group.last_ns.to_le_bytes());
            out.extend_from_slice(&(group.members.len() as u64).to_le_bytes());
            for member in &group.members {
                out.extend_from_slice(&member.to_bytes());
            }
        }
    }

    /// What [`save`](Self::save) left at the front of the bytes, and the rest of them. The limits
    /// may be others than before: what is beyond them is forgotten.
    ///
    /// # Errors
    ///
    /// The bytes are not of that form.
    pub fn load(
        bytes: &[u8],
        lru_size: usize,
        max_events: usize,
        max_interval_ns: i64,
    ) -> Result<(Self, &[u8]), Damaged> {
        let mut loaded = Self::new(lru_size, max_events, max_interval_ns);
        let mut bytes = Reader::new(bytes);
        bytes.version(VERSION)?;
        for _ in 0..bytes.u64()? {
            let key = bytes.key()?;
            let mut group = Group { last_ns: bytes.i64()?, members: Vec::new() };
            for _ in 0..bytes.u64()? {
                let _ = group.admit(bytes.key()?, max_events);
            }
            loaded.groups.put(key, group);
        }
        Ok((loaded, bytes.rest()))
    }
}

impl Group {
    /// Makes the event a member if there is room; whether it is to be combined instead.
    fn admit(&mut self, local: Key, max_events: usize) -> bool {
        if max_events == usize::MAX {
            // No set grows as large, so nobody will ask who is in it.
            return false;
        }
        let Err(place) = self.members.binary_search(&local) else { return false };
        if self.members.len() + 1 >= max_events {
            return true;
        }
        self.members.insert(place, local);
        false
    }
}
