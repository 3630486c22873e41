//! Records that are left in the log: behind many of their namespace that wait, they are not kept one by one, but
//! read again, in order, when there is room.

use std::collections::{HashMap, VecDeque};

use rustc_hash::FxBuildHasher;

use super::{
    Delivery, Notice,
    places::Unit,
    returned::RETURNED,
    ticket::{Number, Ticket},
};
use crate::varint;

/// So many records of all namespaces wait, which take some 50 MB, and of one namespace half as many as there is room
/// for; those that come then are left in the log, be they of objects that fail or not.
pub(super) const MOST_WAITING: u32 = 1 << 19;
/// So many of a namespace wait, however many there are of others.
const LEAST_WAITING: u32 = 256;
/// So many of a namespace are read at once.
pub(super) const AT_ONCE: usize = 256;

/// See the [module](self). Of a namespace that is here, all records that come are put here, so that none is
/// overtaken.
#[derive(Debug, Default)]
pub(super) struct Left {
    of: HashMap<Unit, Namespace, FxBuildHasher>,
    /// Whose records are being read.
    read: HashMap<Number, Unit, FxBuildHasher>,
}

#[derive(Debug, Default)]
struct Namespace {
    numbers: Numbers,
    /// Those that are being read, and what that brought.
    read: VecDeque<(Number, Read)>,
}

#[derive(Debug)]
enum Read {
    UnderWay,
    Gone,
    Ticket(Ticket),
}

impl Namespace {
    fn first(&self) -> Option<Number> {
        self.read.front().map(|(number, _)| *number).or(self.numbers.first())
    }
}

impl Left {
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    pub(super) fn has(&self, unit: &Unit) -> bool {
        self.of.contains_key(unit)
    }

    /// The namespaces that there are records of.
    pub(super) fn units(&self) -> impl Iterator<Item = &Unit> {
        self.of.keys()
    }

    /// How many there are of a namespace.
    pub(super) fn count(&self, unit: &Unit) -> usize {
        self.of.get(unit).map_or(0, |of| of.numbers.count + of.read.len())
    }

    pub(super) fn first(&self) -> Option<Number> {
        self.of.values().filter_map(Namespace::first).min()
    }

    /// Puts a record behind all others of its namespace.
    pub(super) fn push(&mut self, unit: Unit, number: Number) {
        self.of.entry(unit).or_default().numbers.push(number);
    }

    /// Takes out what is to be read now: so many in all, and of each namespace that has room, one at least, those
    /// before a number.
    pub(super) fn wanted(
        &mut self,
        in_all: usize,
        most: usize,
        before: impl Fn(&Unit) -> Option<Number>,
    ) -> Vec<Number> {
        let mut wanted = Vec::new();
        for (unit, of) in self.of.iter_mut().filter(|(_, of)| of.read.is_empty()) {
            let Some(before) = before(unit) else { continue };
            let most = in_all.saturating_sub(wanted.len()).clamp(1, most);
            while of.read.len() < most
                && let Some(number) = of.numbers.pop_before(before)
            {
                of.read.push_back((number, Read::UnderWay));
                self.read.insert(number, *unit);
                wanted.push(number);
            }
        }
        wanted
    }

    /// Takes in what was read, and takes out those whose turn it is.
    pub(super) fn has_read(
        &mut self,
        number: Number,
        ticket: Option<Ticket>,
    ) -> Vec<(Number, Ticket)> {
        let Some(unit) = self.read.remove(&number) else { return Vec::new() };
        let Some(of) = self.of.get_mut(&unit) else { return Vec::new() };
        if let Some((_, read)) = of.read.iter_mut().find(|(other, _)| *other == number) {
            *read = ticket.map_or(Read::Gone, Read::Ticket);
        }
        let mut ready = Vec::new();
        let is_read = |(_, read): &mut (Number, Read)| !matches!(read, Read::UnderWay);
        while let Some((number, read)) = of.read.pop_front_if(is_read) {
            if let Read::Ticket(ticket) = read {
                ready.push((number, ticket));
            }
        }
        if of.first().is_none() {
            self.of.remove(&unit);
        }
        ready
    }

    #[cfg(test)]
    pub(super) fn numbers(&self) -> Vec<Number> {
        let all = self.of.values().flat_map(|of| {
            let read = of.read.iter().map(|(number, _)| *number);
            read.chain(of.numbers.all()).collect::<Vec<_>>()
        });
        all.collect()
    }
}

/// Numbers in order, kept as the steps between them: a byte each, mostly.
#[derive(Debug, Default)]
struct Numbers {
    first: Number,
    last: Number,
    steps: VecDeque<u8>,
    count: usize,
}

impl Numbers {
    fn first(&self) -> Option<Number> {
        (self.count > 0).then_some(self.first)
    }

    /// Adds one behind all others.
    fn push(&mut self, number: Number) {
        if self.count == 0 {
            self.first = number;
        } else {
            debug_assert!(number > self.last, "{number} is not behind {}", self.last);
            varint::put(number - self.last, |byte| self.steps.push_back(byte));
        }
        self.last = number;
        self.count += 1;
    }

    /// Takes the first, if it comes before a number.
    fn pop_before(&mut self, before: Number) -> Option<Number> {
        let first = self.first().filter(|first| *first < before)?;
        self.first += varint::take(|| self.steps.pop_front()).unwrap_or(0);
        self.count -= 1;
        Some(first)
    }

    #[cfg(test)]
    fn all(&self) -> Vec<Number> {
        let Self { first, last, ref steps, count } = *self;
        let mut rest = Self { first, last, steps: steps.clone(), count };
        std::iter::from_fn(|| rest.pop_before(Number::MAX)).collect()
    }
}

impl Delivery {
    /// Whether a record that comes is left in the log.
    pub(super) fn is_to_be_left(&self, ticket: &Ticket) -> bool {
        if ticket.is_unknown() || !self.looks_further() && self.live.is_near() {
            return false;
        }
        let unit = Unit::of_namespace(ticket);
        let is_over = || {
            self.live.waiting_of(&unit) >= self.most_waiting_of_one()
                || self.is_beyond_hand() && !self.is_sought(ticket)
        };
        // Where there is but one namespace, its objects are tried beside each other.
        self.live.left().has(&unit) || self.places.has_several(ticket.destination) && is_over()
    }

    /// How many records of a namespace may wait now.
    fn most_waiting_of_one(&self) -> u32 {
        let least = self.most_waiting.min(LEAST_WAITING);
        (self.room_for_waiting() / 2).max(least)
    }

    fn room_for_waiting(&self) -> u32 {
        self.most_waiting.saturating_sub(self.live.waiting_in_all())
    }

    /// Leaves a record in the log that has just come.
    pub(super) fn leave_in_log(&mut self, number: Number, ticket: &Ticket) {
        self.watch();
        self.live.leave(number, ticket);
        self.notices.push(Notice::Queued(number));
    }

    /// Records that were left in the log and have room now. They are to be read, and to be
    /// [brought back](Self::bring_back).
    pub(crate) fn take_wanted(&mut self) -> Vec<Number> {
        if self.live.left().is_empty() || self.ending {
            return Vec::new();
        }
        // Those that came before them go first: of all namespaces, or of the same one where all that waits fails.
        let mut firsts: HashMap<Unit, Number, FxBuildHasher> = HashMap::default();
        let (most, before) = if std::mem::take(&mut self.recalls) {
            for (number, ticket) in self.live.waiting(self.fresh) {
                firsts.entry(Unit::of_namespace(ticket)).or_insert(number);
            }
            (1, None)
        } else {
            (AT_ONCE, self.live.waiting(self.fresh).next().map(|(first, _)| first))
        };
        let before = before.unwrap_or(self.live.next());
        let has_room = self.has_room_to_recall();
        self.live.take_wanted(self.room_for_waiting() as usize, most, |unit, waiting| {
            has_room(waiting).then(|| firsts.get(unit).copied().unwrap_or(before))
        })
    }

    /// Whether records that are left in the log may be tried beside those of a namespace, or object, once they
    /// are read.
    pub(super) fn may_recall_others(&self, unit: &Unit) -> bool {
        let has_room = self.has_room_to_recall();
        self.live.left().units().any(|of| of != unit && has_room(self.live.waiting_of(of)))
    }

    /// Whether records of a namespace of which so many wait are brought back: half as many as may wait.
    fn has_room_to_recall(&self) -> impl Fn(u32) -> bool + use<> {
        let most = self.most_waiting_of_one() / 2;
        move |waiting| waiting < most
    }

    /// Takes back a record that was left in the log; without a ticket it is gone, and needs no fate.
    pub(crate) fn bring_back(&mut self, number: Number, ticket: Option<Ticket>) {
        for (number, ticket) in self.live.has_read(number, ticket) {
            let ticket = self.with_kept_destination(ticket);
            self.live.keep_far(number, ticket);
            let line = self.route(&ticket).unwrap_or(RETURNED);
            match self.keys.claim(&ticket, line) {
                RETURNED => self.returned.push(ticket.key, number),
                line => self.queue_up(line, number, &ticket),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn records_come_back_in_order_however_they_are_read_and_one_that_is_gone_is_not_waited_for() {
        let mut left = Left::default();
        let unit = |of| Unit { destination: 0, by_object: false, of };
        for number in [3, 5, 9, 700] {
            left.push(unit(1), number);
        }
        left.push(unit(2), 4);
        let wanted =
            |left: &mut Left, before| left.wanted(9, 9, |of| (*of == unit(1)).then_some(before));
        assert_eq!(wanted(&mut left, 700), [3, 5, 9]);
        assert!(wanted(&mut left, 700).is_empty(), "they are being read");
        let ticket = |key| Ticket { key, namespace: 1, destination: 0, bytes: 10 };
        assert_eq!(left.has_read(5, Some(ticket(5))), []);
        assert_eq!((left.first(), left.count(&unit(1))), (Some(3), 4));
        assert_eq!(left.has_read(3, None), [(5, ticket(5))]);
        assert_eq!(left.first(), Some(4));
        assert_eq!(left.has_read(9, Some(ticket(9))), [(9, ticket(9))]);
        assert_eq!(wanted(&mut left, 701), [700]);
        assert_eq!(left.has_read(700, None), []);
        assert!(!left.has(&unit(1)) && !left.is_empty());
    }

    #[test]
    fn few_records_are_read_at_once_and_one_of_each_namespace() {
        let mut left = Left::default();
        for number in 0..60 {
            let unit = Unit { destination: 0, by_object: false, of: number % 3 };
            left.push(unit, number);
        }
        assert_eq!(left.wanted(12, 10, |_| Some(Number::MAX)).len(), 13);
    }

    proptest! {
        #[test]
        fn numbers_come_out_as_they_were_pushed(
            steps in prop::collection::vec(prop_oneof![1u64..300, 1u64..1 << 40], 0..60),
            at in any::<prop::sample::Index>(),
        ) {
            let all: Vec<Number> =
                steps.iter().scan(0, |sum, step| { *sum += step; Some(*sum) }).collect();
            let mut numbers = Numbers::default();
            for number in &all {
                numbers.push(*number);
            }
            prop_assert_eq!(&numbers.all(), &all);
            let before = all.get(at.index(all.len() + 1)).copied().unwrap_or(Number::MAX);
            let taken: Vec<_> = std::iter::from_fn(|| numbers.pop_before(before)).collect();
            let (first, rest): (Vec<_>, Vec<_>) = all.iter().partition(|number| **number < before);
            prop_assert_eq!(taken, first);
            prop_assert_eq!(numbers.first(), rest.first().copied());
            prop_assert_eq!(numbers.count, rest.len());
        }
    }
}
