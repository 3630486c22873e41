//! Turns: which line beside the lanes sends next.

use rustc_hash::FxHashMap;

use super::{Delivery, Kind, Millis, Unit};

/// Lines beside the lanes that are one where lines take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Turn {
    Line(usize),
    /// All shelves of a namespace.
    Namespace(u64),
}

impl Delivery {
    /// The line beside the lanes that sends now. Of shelves that wait for the same, that of the namespace goes first
    /// of which one was sent longest ago, with what is due there longest.
    pub(super) fn next_beside(&mut self, now: Millis) -> Option<usize> {
        let beside = self.options.lanes..self.lines.len();
        let due = beside.clone().filter(|at| self.may_start(*at));
        let due = due.filter_map(|at| Some((self.due_of(at)?, at)));
        let due: Vec<_> = due.filter(|(due, _)| *due <= now).collect();
        if due.is_empty() {
            return None;
        }
        let mut sent: FxHashMap<Turn, Millis> = FxHashMap::default();
        for at in beside {
            let sent = sent.entry(self.turn(at)).or_default();
            *sent = self.lines[at].sent.max(*sent);
        }
        let place = |(due, at)| (due, sent[&self.turn(at)], self.lines[at].oldest_due(), at);
        let mut due: Vec<_> = due.into_iter().map(place).collect();
        due.sort_unstable();
        due.into_iter().map(|(.., at)| at).find(|at| self.is_ready(*at, now))
    }

    /// The lines that take turns with others as one.
    fn turn(&self, at: usize) -> Turn {
        let Kind::Shelf(Unit { by_object, of, .. }, shelf) = &self.lines[at].kind else {
            return Turn::Line(at);
        };
        let first = shelf.objects().next().and_then(|(_, aside)| aside.tickets.front());
        match first.filter(|_| *by_object) {
            Some(first) => Turn::Namespace(self.live.get(*first).namespace),
            None => Turn::Namespace(*of),
        }
    }
}
