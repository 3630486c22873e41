//! The window: tickets from the first one without a fate on.

use std::collections::{BTreeMap, HashMap, VecDeque};

use rustc_hash::FxBuildHasher;

use super::{
    left::Left,
    places::Unit,
    ticket::{Number, Ticket},
};
use crate::bridge::sparse::Sparse;

/// More slots than that are too many, if most of them are closed.
const LONG: usize = 1 << 16;

/// The tickets that have no fate. See the [module](self).
#[derive(Debug)]
pub(super) struct Window {
    /// The number of the first slot.
    base: Number,
    slots: VecDeque<Slot>,
    /// Tickets before that whose turn is still to come, in order, each with what its slot had.
    early: VecDeque<(Number, Slot)>,
    /// Open tickets in the slots, and the size of those of their records that are in memory.
    open: usize,
    open_bytes: u64,
    /// Of these, so many have no keys.
    unknown: usize,
    /// Tickets without a slot: those that stand in a queue, and that have been tried for long.
    far: Sparse<Ticket>,
    /// How many of each namespace,
    far_of: HashMap<Unit, u32, FxBuildHasher>,
    /// and of all.
    far_in_all: u32,
    /// Tickets that are not known, of records that are left in the log.
    left: Left,
    /// Tickets whose records are saved as copies.
    copied: BTreeMap<Number, Ticket>,
}

#[derive(Debug)]
struct Slot {
    ticket: Ticket,
    state: State,
    /// Its record is in memory.
    is_kept: bool,
}

impl Slot {
    fn kept_bytes(&self) -> u64 {
        if self.is_kept { u64::from(self.ticket.bytes) } else { 0 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Open, and taken before its turn.
    Drawn,
    Closed,
}

impl Window {
    pub(super) fn new(base: Number) -> Self {
        Self {
            base,
            slots: VecDeque::new(),
            early: VecDeque::new(),
            open: 0,
            open_bytes: 0,
            unknown: 0,
            far: Sparse::default(),
            far_of: HashMap::default(),
            far_in_all: 0,
            left: Left::default(),
            copied: BTreeMap::new(),
        }
    }

    /// Takes the next ticket; those before `sent` have left the slots for a line, or their fate.
    pub(super) fn push(&mut self, ticket: Ticket, sent: Number) -> Number {
        self.open += 1;
        self.open_bytes += u64::from(ticket.bytes);
        self.unknown += usize::from(ticket.is_unknown());
        self.slots.push_back(Slot { ticket, state: State::Open, is_kept: true });
        if self.slots.len() > LONG.max(4 * self.open) {
            self.shorten(sent);
        }
        self.next() - 1
    }

    /// Keeps the first ticket apart, so that those behind it need no slots.
    fn shorten(&mut self, sent: Number) {
        let number = self.base;
        if number < sent {
            self.move_away(number);
        } else if let Some(slot) = self.slots.pop_front() {
            self.early.push_back((number, slot));
            self.base += 1;
            self.drop_closed();
        }
    }

    fn drop_closed(&mut self) {
        while self.early.front().is_some_and(|(_, slot)| slot.state == State::Closed) {
            self.early.pop_front();
        }
        while self.slots.front().is_some_and(|slot| slot.state == State::Closed) {
            self.slots.pop_front();
            self.base += 1;
        }
    }

    /// The slot of a number that is not closed.
    fn slot(&self, number: Number) -> Option<&Slot> {
        let slot = match number.checked_sub(self.base) {
            Some(at) => self.slots.get(at as usize),
            None => Some(&self.early[self.early_at(number)?].1),
        };
        slot.filter(|slot| slot.state != State::Closed)
    }

    fn slot_mut(&mut self, number: Number) -> Option<&mut Slot> {
        let slot = match number.checked_sub(self.base) {
            Some(at) => self.slots.get_mut(at as usize),
            None => {
                let at = self.early_at(number)?;
                Some(&mut self.early[at].1)
            }
        };
        slot.filter(|slot| slot.state != State::Closed)
    }

    fn early_at(&self, number: Number) -> Option<usize> {
        self.early.binary_search_by_key(&number, |(early, _)| *early).ok()
    }

    /// The slots from a number on that are not closed.
    fn open_slots(&self, from: Number) -> impl Iterator<Item = (Number, &Slot)> {
        let early = self.early.partition_point(|(number, _)| *number < from);
        let early = self.early.range(early..).map(|(number, slot)| (*number, slot));
        let from = from.max(self.base);
        let slots = (from..).zip(self.slots.range((from - self.base) as usize..));
        early.chain(slots).filter(|(_, slot)| slot.state != State::Closed)
    }

    /// Keeps a ticket without a slot.
    pub(super) fn keep_far(&mut self, number: Number, ticket: Ticket) {
        *self.far_of.entry(Unit::of_namespace(&ticket)).or_default() += 1;
        self.far_in_all += 1;
        self.far.insert(number, ticket);
    }

    fn drop_far(&mut self, number: Number) -> Option<Ticket> {
        let ticket = self.far.remove(number)?;
        self.far_in_all -= 1;
        let unit = Unit::of_namespace(&ticket);
        if let Some(count) = self.far_of.get_mut(&unit) {
            *count -= 1;
            if *count == 0 {
                self.far_of.remove(&unit);
            }
        }
        Some(ticket)
    }

    /// Takes a record that was set aside before.
    pub(super) fn push_copy(&mut self, ticket: Ticket) -> Number {
        let number = self.copied.last_key_value().map_or(0, |(last, _)| last + 1);
        debug_assert!(number < self.base, "a live ticket has the number {number}");
        self.copied.insert(number, ticket);
        number
    }

    /// The number of the first ticket that has no fate and no copy.
    pub(super) fn first_open(&self) -> Number {
        let early = self.early.front().map(|(number, _)| *number);
        let apart =
            early.into_iter().chain(self.far.numbers_from(0).next()).chain(self.left.first());
        apart.min().map_or(self.base, |first| self.base.min(first))
    }

    /// The number that the next ticket has.
    pub(super) fn next(&self) -> Number {
        self.base + self.slots.len() as u64
    }

    /// How many tickets in the slots have no fate.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// The size of those of their records that are in memory.
    pub(super) fn open_bytes(&self) -> u64 {
        self.open_bytes
    }

    /// The ticket of a number that has no fate.
    pub(super) fn get(&self, number: Number) -> Ticket {
        match self.slot(number) {
            Some(slot) => slot.ticket,
            None => *self.far.get(number).unwrap_or_else(|| &self.copied[&number]),
        }
    }

    /// The tickets from a number on whose turn is still to come.
    pub(super) fn waiting(&self, from: Number) -> impl Iterator<Item = (Number, &Ticket)> {
        let waiting = self.open_slots(from).filter(|(_, slot)| slot.state == State::Open);
        waiting.map(|(number, slot)| (number, &slot.ticket))
    }

    /// Whether it has no fate, and is not left in the log.
    pub(super) fn is_open(&self, number: Number) -> bool {
        self.slot(number).is_some() || self.is_away(number)
    }

    /// Takes a ticket before its turn.
    pub(super) fn draw(&mut self, number: Number) {
        if let Some(slot) = self.slot_mut(number) {
            slot.state = State::Drawn;
        }
    }

    /// Closes a ticket, which has its fate.
    pub(super) fn close(&mut self, number: Number) -> Ticket {
        let Some(slot) = self.slot_mut(number) else {
            let far = self.drop_far(number).or_else(|| self.copied.remove(&number));
            debug_assert!(far.is_some(), "ticket {number} has a fate already");
            return far.unwrap_or(Ticket { key: 0, namespace: 0, destination: 0, bytes: 0 });
        };
        slot.state = State::Closed;
        let (ticket, kept_bytes) = (slot.ticket, slot.kept_bytes());
        self.open -= 1;
        self.open_bytes -= kept_bytes;
        self.unknown -= usize::from(ticket.is_unknown());
        self.drop_closed();
        ticket
    }

    /// Open tickets whose keys are not known.
    pub(super) fn unknown(&self) -> Vec<Number> {
        if self.unknown == 0 {
            return Vec::new();
        }
        let unknown = self.open_slots(0).filter(|(_, slot)| slot.ticket.is_unknown());
        unknown.map(|(number, _)| number).collect()
    }

    /// Takes a ticket whose keys were not known.
    pub(super) fn know(&mut self, number: Number, ticket: Ticket) {
        if let Some(slot) = self.slot_mut(number).filter(|slot| slot.ticket.is_unknown()) {
            slot.ticket = Ticket { bytes: slot.ticket.bytes, ..ticket };
            self.unknown -= 1;
        }
    }

    /// Takes in that the record of a ticket without a fate is for another destination.
    pub(super) fn relocate(&mut self, number: Number, destination: u64) {
        if let Some(slot) = self.slot_mut(number) {
            slot.ticket.destination = destination;
        } else if let Some(ticket) = self.copied.get_mut(&number) {
            ticket.destination = destination;
        } else if let Some(ticket) = self.drop_far(number) {
            self.keep_far(number, Ticket { destination, ..ticket });
        }
    }

    /// Whether all tickets that are open have slots.
    pub(super) fn is_near(&self) -> bool {
        self.far.is_empty()
            && self.copied.is_empty()
            && self.early.is_empty()
            && self.left.is_empty()
    }

    /// Closes tickets that have slots, and calls back with the key of each.
    pub(super) fn close_near(&mut self, numbers: &[Number], mut closed: impl FnMut(u64)) {
        for number in numbers {
            let slot = &mut self.slots[(number - self.base) as usize];
            debug_assert!(slot.state != State::Closed, "ticket {number} has a fate already");
            slot.state = State::Closed;
            self.open_bytes -= slot.kept_bytes();
            self.unknown -= usize::from(slot.ticket.is_unknown());
            closed(slot.ticket.key);
        }
        self.open -= numbers.len();
        self.drop_closed();
    }

    /// Lets go of the record of a ticket that stands in a queue; answers whether it had a slot.
    pub(super) fn move_away(&mut self, number: Number) -> bool {
        if self.is_away(number) {
            return false;
        }
        let ticket = self.close(number);
        self.keep_far(number, ticket);
        true
    }

    /// How many of a namespace have no slots, and wait,
    pub(super) fn waiting_of(&self, unit: &Unit) -> u32 {
        self.far_of.get(unit).copied().unwrap_or(0)
    }

    /// and how many of all.
    pub(super) fn waiting_in_all(&self) -> u32 {
        self.far_in_all
    }

    pub(super) fn left(&self) -> &Left {
        &self.left
    }

    /// Leaves a record that has just come in the log, and forgets its ticket.
    pub(super) fn leave(&mut self, number: Number, ticket: &Ticket) {
        self.close(number);
        self.left.push(Unit::of_namespace(ticket), number);
    }

    /// See [`Delivery::take_wanted`](super::Delivery::take_wanted). A namespace may have room for more than wait.
    pub(super) fn take_wanted(
        &mut self,
        in_all: usize,
        most: usize,
        before: impl Fn(&Unit, u32) -> Option<Number>,
    ) -> Vec<Number> {
        let far_of = &self.far_of;
        self.left.wanted(in_all, most, |unit| before(unit, far_of.get(unit).copied().unwrap_or(0)))
    }

    /// Takes in that a record was read that is left, and answers those whose turn it is to come back.
    pub(super) fn has_read(
        &mut self,
        number: Number,
        ticket: Option<Ticket>,
    ) -> Vec<(Number, Ticket)> {
        self.left.has_read(number, ticket)
    }

    /// Lets go of all records from a number on, whose tickets keep their slots, and answers which were in memory.
    pub(super) fn let_go(&mut self, from: Number) -> Vec<Number> {
        let early = self.early.partition_point(|(number, _)| *number < from);
        let early = self.early.range_mut(early..).map(|(number, slot)| (slot, *number));
        let from = from.max(self.base);
        let slots = self.slots.range_mut((from - self.base) as usize..).zip(from..);
        let kept = early.chain(slots);
        let kept = kept.filter(|(slot, _)| slot.state != State::Closed && slot.is_kept);
        kept.map(|(slot, number)| {
            self.open_bytes -= slot.kept_bytes();
            slot.is_kept = false;
            number
        })
        .collect()
    }

    /// Whether it has no slot.
    pub(super) fn is_away(&self, number: Number) -> bool {
        self.far.contains(number) || self.copied.contains_key(&number)
    }

    /// Notes that the record of a ticket is saved as a copy.
    pub(super) fn copy(&mut self, number: Number) {
        if !self.copied.contains_key(&number) {
            let ticket = self.close(number);
            self.copied.insert(number, ticket);
        }
    }

    /// Whether its record is saved as a copy.
    pub(super) fn is_copied(&self, number: Number) -> bool {
        self.copied.contains_key(&number)
    }

    /// How many tickets take room, copies left out.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.slots.len() + self.early.len() + self.far.numbers_from(0).count()
    }

    /// The ranges of tickets with a fate or a copy behind the first one without.
    #[cfg(test)]
    pub(super) fn closed_behind(&self) -> impl Iterator<Item = std::ops::Range<Number>> {
        let open = self.open_slots(0).map(|(number, _)| number);
        let apart = self.far.numbers_from(0).chain(self.left.numbers());
        let opens: std::collections::BTreeSet<Number> = open.chain(apart).collect();
        let mut opens = opens.into_iter();
        let end = self.next();
        let mut last = opens.next();
        std::iter::from_fn(move || {
            loop {
                let from = last? + 1;
                last = opens.next();
                let to = last.unwrap_or(end);
                if from < to {
                    return Some(from..to);
                }
            }
        })
    }
}
