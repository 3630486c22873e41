//! Relocation: what waits beside the lanes is for other destinations than was known when it came.

use super::{Delivery, Kind, Number, Ticket, Unit};

impl Delivery {
    /// Takes in which destinations resends, and records that are set aside, are for, as far as that is known of a
    /// number: that of all records of an object, while no [live](Self::has_live) one is in hand. Answers whether none
    /// is under way, which could not be.
    pub(crate) fn relocate(&mut self, to: impl Fn(Number) -> Option<u64>) -> bool {
        self.kept_destinations.clear();
        for number in self.resends.first_open()..self.resends.next() {
            if self.resends.is_open(number)
                && let Some(destination) = to(number)
            {
                self.resends.relocate(number, destination);
            }
        }
        let shelves: Vec<(Unit, usize)> = self.shelves.iter().map(|(of, at)| (*of, *at)).collect();
        let mut all = true;
        for (unit, at) in shelves {
            let line = &self.lines[at];
            let Kind::Shelf(_, shelf) = &line.kind else { continue };
            if line.sending || !line.pieces.is_empty() {
                all = false;
                continue;
            }
            let destination = |number: &Number| to(*number).filter(|to| *to != unit.destination);
            let moves: Vec<(u64, u64)> = shelf
                .objects()
                .filter_map(|(key, aside)| Some((key, aside.tickets.iter().find_map(destination)?)))
                .collect();
            for (key, destination) in moves {
                self.move_aside(at, key, Unit { destination, ..unit });
            }
            if self.lines[at].is_empty() {
                self.close_line(at);
            }
        }
        all
    }

    /// The ticket of a live record for the destination that those of its key have. Copies may be from before it was
    /// known which destinations there are: what comes behind them keeps theirs, so that none is overtaken.
    pub(super) fn with_kept_destination(&mut self, ticket: Ticket) -> Ticket {
        if !self.kept_destinations.is_empty() && !self.has_live() {
            self.kept_destinations.clear();
        }
        let Ticket { key, destination, .. } = ticket;
        let kept = self.kept_destinations.get(&key).copied();
        let destination = kept.or(self.keys.destination(key)).unwrap_or(destination);
        if destination != ticket.destination {
            self.kept_destinations.insert(key, destination);
        }
        Ticket { destination, ..ticket }
    }

    /// Moves an object that is set aside to the shelf of another destination.
    fn move_aside(&mut self, from: usize, key: u64, unit: Unit) {
        let Kind::Shelf(_, shelf) = &mut self.lines[from].kind else { return };
        let Some(aside) = shelf.take(key) else { return };
        for number in &aside.tickets {
            self.live.relocate(*number, unit.destination);
            self.places.see(&self.live.get(*number));
        }
        let at = self.shelf(unit);
        self.keys.relocate(key, unit.destination, at);
        if let Kind::Shelf(_, shelf) = &mut self.lines[at].kind {
            shelf.add(key, aside);
        }
    }
}
