//! Destinations: who was taken there since when, and what their statuses are worth.

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

use super::ticket::{Millis, Ticket};
use crate::bridge::Status;

/// So long a status that passed by itself says nothing about content.
const PASSED_FOR: Millis = 60 * 60 * 1000;
/// So long others that fail with a status that a namespace was parted for are parted soon.
const PARTED_FOR: Millis = 10 * 60 * 1000;

/// All that is of one namespace at a destination; where there is but one namespace, of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Unit {
    pub(super) destination: u64,
    pub(super) by_object: bool,
    /// The namespace, or the key.
    pub(super) of: u64,
}

impl Unit {
    /// The namespace and the object of a record.
    pub(super) fn both(ticket: &Ticket) -> [Self; 2] {
        let Ticket { key, namespace, destination, .. } = *ticket;
        [(false, namespace), (true, key)].map(|(by_object, of)| Self { destination, by_object, of })
    }

    /// The namespace of a record.
    pub(super) fn of_namespace(ticket: &Ticket) -> Self {
        let Ticket { namespace, destination, .. } = *ticket;
        Self { destination, by_object: false, of: namespace }
    }

    pub(super) fn has(&self, ticket: &Ticket) -> bool {
        let of = if self.by_object { ticket.key } else { ticket.namespace };
        ticket.destination == self.destination && of == self.of
    }
}

/// The last two that are not the same, and the moments at which they were sent that was taken.
#[derive(Clone, Copy, Debug, Default)]
struct LastTwo([(u64, u64); 2]);

impl LastTwo {
    fn add(&mut self, of: u64, sent_at: u64) {
        let [first, second] = self.0;
        let at = usize::from(first.0 != of && (second.0 == of || second.1 <= first.1));
        let before = if self.0[at].0 == of { self.0[at].1 } else { 0 };
        self.0[at] = (of, sent_at.max(before));
    }

    fn other_since(&self, than: u64, moment: u64) -> bool {
        self.0.iter().any(|(of, sent_at)| *of != than && *sent_at > moment)
    }
}

#[derive(Debug, Default)]
struct Place {
    namespace: u64,
    several: bool,
    by_namespace: LastTwo,
    by_object: LastTwo,
    /// Statuses with which records failed that were taken later, and until when that counts.
    passed: HashMap<Status, Millis>,
    /// The status that others went on without who failed with it, and until when that counts.
    parted: Option<(Status, Millis)>,
}

/// The destinations of one sink. See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Places {
    of: HashMap<u64, Place, FxBuildHasher>,
    last_several: Option<u64>,
    by_destination: LastTwo,
}

impl Places {
    /// Notes that a destination has records of a namespace.
    pub(super) fn see(&mut self, ticket: &Ticket) {
        if self.last_several == Some(ticket.destination) || ticket.is_unknown() {
            return;
        }
        let place = self
            .of
            .entry(ticket.destination)
            .or_insert_with(|| Place { namespace: ticket.namespace, ..Place::default() });
        place.several |= place.namespace != ticket.namespace;
        if place.several {
            self.last_several = Some(ticket.destination);
        }
    }

    /// Whether there is more than one.
    pub(super) fn are_several(&self) -> bool {
        self.of.len() > 1
    }

    /// Whether a destination has records of more than one namespace.
    pub(super) fn has_several(&self, destination: u64) -> bool {
        self.of.get(&destination).is_some_and(|place| place.several)
    }

    /// The unit that a record stands or falls with: its namespace, or its object where that is asked for or there
    /// is but one namespace.
    pub(super) fn unit(&self, ticket: &Ticket, by_object: bool) -> Unit {
        let by_object = by_object || !self.has_several(ticket.destination);
        let of = if by_object { ticket.key } else { ticket.namespace };
        Unit { destination: ticket.destination, by_object, of }
    }

    /// Notes that a record was taken that was sent at a moment.
    pub(super) fn taken(&mut self, ticket: &Ticket, sent_at: u64) {
        if ticket.is_unknown() {
            return;
        }
        self.by_destination.add(ticket.destination, sent_at);
        let place = self.of.entry(ticket.destination).or_default();
        place.by_namespace.add(ticket.namespace, sent_at);
        place.by_object.add(ticket.key, sent_at);
    }

    /// Whether a record of others was taken at a destination that was sent after a moment.
    pub(super) fn others_taken(&self, unit: &Unit, moment: u64) -> bool {
        self.of.get(&unit.destination).is_some_and(|place| {
            let last = if unit.by_object { &place.by_object } else { &place.by_namespace };
            last.other_since(unit.of, moment)
        })
    }

    /// Whether anything was taken there.
    pub(super) fn takes(&self, destination: u64, moment: u64) -> bool {
        let one = |last: &LastTwo| last.0.iter().any(|(_, sent_at)| *sent_at > moment);
        self.of.get(&destination).is_some_and(|place| one(&place.by_namespace))
    }

    /// Whether anything was taken at another destination.
    pub(super) fn other_takes(&self, destination: u64, moment: u64) -> bool {
        self.by_destination.other_since(destination, moment)
    }

    /// Notes that a record was taken that had failed with a status.
    pub(super) fn passed(&mut self, destination: u64, status: Status, now: Millis) {
        let place = self.of.entry(destination).or_default();
        place.passed.retain(|_, until| *until > now);
        place.passed.insert(status, now + PASSED_FOR);
    }

    /// Notes that others go on without a namespace that fails with a status.
    pub(super) fn part(&mut self, destination: u64, status: Status, now: Millis) {
        let place = self.of.entry(destination).or_default();
        place.parted = Some((status, now + PARTED_FOR));
    }

    /// Whether others went on lately without who failed with a status, and nobody who did was taken later.
    pub(super) fn parts(&self, destination: u64, status: Status, now: Millis) -> bool {
        let parted = self.of.get(&destination).and_then(|place| place.parted);
        parted.is_some_and(|(last, until)| last == status && now < until)
            && self.tells(destination, status, now)
    }

    /// Whether a status says something about content there.
    pub(super) fn tells(&self, destination: u64, status: Status, now: Millis) -> bool {
        let passed = self.of.get(&destination).and_then(|place| place.passed.get(&status));
        passed.is_none_or(|until| *until <= now)
    }
}
