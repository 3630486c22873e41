//! The window: tickets from the first one without a fate on.

use std::collections::VecDeque;

use super::ticket::{Number, Ticket};

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Window {
    /// The number of the first slot.
    base: Number,
    slots: VecDeque<Slot>,
    open: usize,
    open_bytes: u64,
}

#[derive(Debug)]
struct Slot {
    ticket: Ticket,
    open: bool,
}

impl Window {
    pub(super) fn new(base: Number) -> Self {
        Self { base, slots: VecDeque::new(), open: 0, open_bytes: 0 }
    }

    pub(super) fn push(&mut self, ticket: Ticket) -> Number {
        self.open += 1;
        self.open_bytes += u64::from(ticket.bytes);
        self.slots.push_back(Slot { ticket, open: true });
        self.next() - 1
    }

    /// The number that the next ticket has.
    pub(super) fn next(&self) -> Number {
        self.base + self.slots.len() as u64
    }

    /// How many tickets have no fate.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// The size of all records without a fate.
    pub(super) fn open_bytes(&self) -> u64 {
        self.open_bytes
    }

    /// The ticket of a number that has no fate.
    pub(super) fn get(&self, number: Number) -> Ticket {
        self.slots[(number - self.base) as usize].ticket
    }

    /// Closes a ticket, which has its fate.
    pub(super) fn close(&mut self, number: Number) -> Ticket {
        let slot = &mut self.slots[(number - self.base) as usize];
        debug_assert!(slot.open, "ticket {number} has a fate already");
        slot.open = false;
        let ticket = slot.ticket;
        self.open -= 1;
        self.open_bytes -= u64::from(ticket.bytes);
        while self.slots.front().is_some_and(|slot| !slot.open) {
            self.slots.pop_front();
            self.base += 1;
        }
        ticket
    }
}
