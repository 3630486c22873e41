//! The window: tickets from the first one without a fate on.

use std::collections::{BTreeMap, VecDeque};

use super::ticket::{FIRST_COPY, Number, Ticket};

/// More slots than that are too many, if most of them are closed.
const LONG: usize = 1 << 16;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Window {
    /// The number of the first slot.
    base: Number,
    slots: VecDeque<Slot>,
    /// Open tickets in the slots, and the size of their records: those in memory.
    open: usize,
    open_bytes: u64,
    /// Of these, so many have no keys.
    unknown: usize,
    /// Tickets without a slot: those that stand in a queue, and that have been tried for long.
    far: BTreeMap<Number, Ticket>,
    /// Tickets whose records are saved as copies.
    copied: BTreeMap<Number, Ticket>,
}

#[derive(Debug)]
struct Slot {
    ticket: Ticket,
    state: State,
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
            open: 0,
            open_bytes: 0,
            unknown: 0,
            far: BTreeMap::new(),
            copied: BTreeMap::new(),
        }
    }

    /// Takes the next ticket; those before `sent` have left the slots for a line, or their fate.
    pub(super) fn push(&mut self, ticket: Ticket, sent: Number) -> Number {
        self.open += 1;
        self.open_bytes += u64::from(ticket.bytes);
        self.unknown += usize::from(ticket.is_unknown());
        self.slots.push_back(Slot { ticket, state: State::Open });
        if self.slots.len() > LONG.max(4 * self.open) && self.base < sent {
            self.shorten();
        }
        self.next() - 1
    }

    /// Keeps the first ticket apart, which has long been sent, so that those behind it need no slots.
    fn shorten(&mut self) {
        if let Some(Slot { ticket, .. }) = self.slots.front() {
            let (number, ticket) = (self.base, *ticket);
            self.close(number);
            self.far.insert(number, ticket);
        }
    }

    /// Takes a record that was set aside before.
    pub(super) fn push_copy(&mut self, ticket: Ticket) -> Number {
        let number =
            self.copied.last_key_value().map_or(FIRST_COPY, |(last, _)| FIRST_COPY.max(last + 1));
        self.copied.insert(number, ticket);
        number
    }

    /// The number of the first ticket that has no fate and no copy.
    pub(super) fn first_open(&self) -> Number {
        self.far.first_key_value().map_or(self.base, |(first, _)| self.base.min(*first))
    }

    /// The number that the next ticket has.
    pub(super) fn next(&self) -> Number {
        self.base + self.slots.len() as u64
    }

    /// How many tickets with their records in memory have no fate.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// The size of these records.
    pub(super) fn open_bytes(&self) -> u64 {
        self.open_bytes
    }

    /// The ticket of a number that has no fate.
    pub(super) fn get(&self, number: Number) -> Ticket {
        let slot = number.checked_sub(self.base).and_then(|at| self.slots.get(at as usize));
        match slot.filter(|slot| slot.state != State::Closed) {
            Some(slot) => slot.ticket,
            None => *self.far.get(&number).unwrap_or_else(|| &self.copied[&number]),
        }
    }

    /// The next ticket from a number on whose turn is still to come.
    pub(super) fn next_waiting(&self, from: Number) -> Option<(Number, &Ticket)> {
        let from = from.max(self.base);
        let slots = self.slots.range((from - self.base) as usize..).zip(from..);
        let mut waiting = slots.filter(|(slot, _)| slot.state == State::Open);
        waiting.next().map(|(slot, number)| (number, &slot.ticket))
    }

    /// Whether its turn is still to come.
    pub(super) fn waits(&self, number: Number) -> bool {
        let slot = number.checked_sub(self.base).and_then(|at| self.slots.get(at as usize));
        slot.is_some_and(|slot| slot.state == State::Open)
    }

    /// Takes a ticket before its turn.
    pub(super) fn draw(&mut self, number: Number) {
        self.slots[(number - self.base) as usize].state = State::Drawn;
    }

    /// Closes a ticket, which has its fate.
    pub(super) fn close(&mut self, number: Number) -> Ticket {
        let at = number.wrapping_sub(self.base) as usize;
        match self.slots.get_mut(at) {
            Some(slot) if slot.state != State::Closed => {
                slot.state = State::Closed;
                let ticket = slot.ticket;
                self.open -= 1;
                self.open_bytes -= u64::from(ticket.bytes);
                self.unknown -= usize::from(ticket.is_unknown());
                while self.slots.front().is_some_and(|slot| slot.state == State::Closed) {
                    self.slots.pop_front();
                    self.base += 1;
                }
                ticket
            }
            _ => {
                let far = self.far.remove(&number).or_else(|| self.copied.remove(&number));
                debug_assert!(far.is_some(), "ticket {number} has a fate already");
                far.unwrap_or(Ticket { key: 0, namespace: 0, destination: 0, bytes: 0 })
            }
        }
    }

    /// Open tickets whose keys are not known.
    pub(super) fn unknown(&self) -> Vec<Number> {
        if self.unknown == 0 {
            return Vec::new();
        }
        let slots = self.slots.iter().zip(self.base..);
        let unknown =
            slots.filter(|(slot, _)| slot.state != State::Closed && slot.ticket.is_unknown());
        unknown.map(|(_, number)| number).collect()
    }

    /// Takes a ticket whose keys were not known.
    pub(super) fn know(&mut self, number: Number, ticket: Ticket) {
        let slot = number.checked_sub(self.base).and_then(|at| self.slots.get_mut(at as usize));
        if let Some(slot) = slot.filter(|slot| slot.ticket.is_unknown()) {
            slot.ticket = Ticket { bytes: slot.ticket.bytes, ..ticket };
            self.unknown -= 1;
        }
    }

    /// Whether all tickets that are open have their records in memory.
    pub(super) fn is_near(&self) -> bool {
        self.far.is_empty() && self.copied.is_empty()
    }

    /// Closes tickets that have their records in memory, and calls back with the key of each.
    pub(super) fn close_near(&mut self, numbers: &[Number], mut closed: impl FnMut(u64)) {
        for number in numbers {
            let slot = &mut self.slots[(number - self.base) as usize];
            debug_assert!(slot.state != State::Closed, "ticket {number} has a fate already");
            slot.state = State::Closed;
            self.open_bytes -= u64::from(slot.ticket.bytes);
            self.unknown -= usize::from(slot.ticket.is_unknown());
            closed(slot.ticket.key);
        }
        self.open -= numbers.len();
        while self.slots.front().is_some_and(|slot| slot.state == State::Closed) {
            self.slots.pop_front();
            self.base += 1;
        }
    }

    /// Lets go of the record of a ticket that stands in a queue; answers whether it was in memory.
    pub(super) fn move_away(&mut self, number: Number) -> bool {
        if self.is_away(number) {
            return false;
        }
        let ticket = self.close(number);
        self.far.insert(number, ticket);
        true
    }

    /// Whether its record is not in memory.
    pub(super) fn is_away(&self, number: Number) -> bool {
        self.far.contains_key(&number) || self.copied.contains_key(&number)
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

    /// The ranges of tickets with a fate or a copy behind the first one without.
    #[cfg(test)]
    pub(super) fn closed_behind(&self) -> impl Iterator<Item = std::ops::Range<Number>> {
        let slots = self.slots.iter().zip(self.base..);
        let mut open = slots.filter(|(slot, _)| slot.state != State::Closed).map(|(_, at)| at);
        let mut far = self.far.keys().copied();
        let (mut near, mut away) = (open.next(), far.next());
        let mut opens = std::iter::from_fn(move || match (near, away) {
            (Some(at), other) if other.is_none_or(|other| at < other) => {
                near = open.next();
                Some(at)
            }
            (_, Some(at)) => {
                away = far.next();
                Some(at)
            }
            _ => None,
        });
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
