//! Witnesses: records of other namespaces that are tried beside one that fails, drawn at random.
//!
//! Nobody can choose them, so whoever has several namespaces cannot see to it that all of them fail.

use super::{
    Delivery, FIRST_ERRAND, Kind, Millis, Moment, Number, Piece, line::Witness, places::Unit,
    returned::RETURNED,
};

/// So many witnesses that fail end a round.
pub(super) const WITNESSES: usize = 3;

impl Delivery {
    /// Draws a witness for what fails in a line, among the namespaces, or objects, with a record that
    /// waits for the same destination, or for another: the first of its object. Answers whether there
    /// is one.
    pub(super) fn draw_witness(&mut self, at: usize, fails: &[Unit], elsewhere: bool) -> bool {
        if self.lines[at].failed_witnesses.len() >= WITNESSES + usize::from(elsewhere) {
            return false;
        }
        let mut candidates = self.candidates(at, fails, elsewhere);
        let from_line = candidates.is_empty();
        if from_line {
            candidates = self.candidates_behind(at, fails, elsewhere);
        }
        if candidates.is_empty() {
            return false;
        }
        let (_, number) = candidates[self.random.usize(..candidates.len())];
        let key = self.live.get(number).key;
        if from_line {
            self.take_out(at, number);
        } else {
            let mut behind = self.returned.take(key);
            if behind.pop_front().is_some() {
                self.keys.move_to(key, at);
                self.lines[at].backlog.extend(behind);
            } else {
                self.live.draw(number);
                self.keys.claim(key, at);
            }
        }
        self.lines[at].witness = Some(Witness { ticket: [number], key, from_line, sent_at: 0 });
        true
    }

    /// Whether nobody but a namespace, or object, has a record that could be drawn beside one in a line.
    pub(super) fn is_alone(&self, at: usize, unit: Unit) -> bool {
        self.candidates(at, &[unit], false).is_empty()
            && self.candidates_behind(at, &[unit], false).is_empty()
    }

    /// The first record of each namespace, or object, that may be drawn.
    fn candidates(&self, at: usize, fails: &[Unit], elsewhere: bool) -> Vec<(u64, Number)> {
        let line = &self.lines[at];
        let Some(unit) = fails.first() else { return Vec::new() };
        let mut candidates: Vec<(u64, Number)> = Vec::new();
        let mut seen = rustc_hash::FxHashSet::default();
        let fresh = (self.fresh..self.live.next()).filter(|at| self.live.waits(*at));
        let returned = self.returned.firsts().map(|number| (number, Some(RETURNED)));
        for (number, keeper) in returned.chain(fresh.map(|number| (number, None))) {
            let ticket = self.live.get(number);
            let first = seen.insert(ticket.key);
            let of = if unit.by_object { ticket.key } else { ticket.namespace };
            if first
                && (ticket.destination != unit.destination) == elsewhere
                && !fails.iter().any(|unit| unit.has(&ticket))
                && !line.failed_witnesses.contains(&of)
                && self.keys.line(ticket.key) == keeper
                && self.route(&ticket).is_none()
                && !candidates.iter().any(|(other, _)| *other == of)
            {
                candidates.push((of, number));
            }
        }
        candidates
    }

    /// The same among the records that wait in the line itself, behind what fails: the first of its object each,
    /// so that none is overtaken.
    fn candidates_behind(&self, at: usize, fails: &[Unit], elsewhere: bool) -> Vec<(u64, Number)> {
        let line = &self.lines[at];
        let Some(unit) = fails.first() else { return Vec::new() };
        let behind = line.pieces.iter().flat_map(|piece| &piece.tickets).chain(&line.backlog);
        let mut candidates: Vec<(u64, Number)> = Vec::new();
        let mut seen = rustc_hash::FxHashSet::default();
        for number in behind.copied().filter(|number| *number < FIRST_ERRAND) {
            let ticket = self.live.get(number);
            let first = seen.insert(ticket.key);
            let of = if unit.by_object { ticket.key } else { ticket.namespace };
            if first
                && (ticket.destination != unit.destination) == elsewhere
                && !fails.iter().any(|unit| unit.has(&ticket))
                && !line.failed_witnesses.contains(&of)
                && !candidates.iter().any(|(other, _)| *other == of)
            {
                candidates.push((of, number));
            }
        }
        candidates
    }

    /// Takes a record out of those that wait in a line.
    fn take_out(&mut self, at: usize, number: Number) {
        let line = &mut self.lines[at];
        if let Some(place) = line.backlog.iter().position(|other| *other == number) {
            line.backlog.remove(place);
            line.failed_before -= usize::from(place < line.failed_before);
            return;
        }
        let has = |piece: &&mut Piece| piece.tickets.contains(&number);
        let Some(piece) = line.pieces.iter_mut().find(has) else { return };
        piece.tickets.retain(|other| *other != number);
        let part = piece.with(vec![number]);
        line.pieces.retain(|piece| !piece.tickets.is_empty());
        self.keep_tally(&part);
    }

    /// Puts back a witness, and what queued up behind it meanwhile.
    pub(super) fn return_witness(&mut self, at: usize, witness: Witness) {
        let [number] = witness.ticket;
        if witness.from_line {
            // Behind what fails.
            let line = &mut self.lines[at];
            let parts = line.pieces.iter().take_while(|piece| piece.is_part).count();
            let queued = usize::from(matches!(line.kind, Kind::Queue(_)));
            let place = (parts + queued).min(line.pieces.len());
            return line.pieces.insert(place, Piece::new(vec![number]));
        }
        let key = self.live.get(number).key;
        self.returned.push(key, number);
        self.keys.move_to(key, RETURNED);
        self.return_behind(at, key);
    }

    /// Puts back what queued up behind a witness, or an errand, that is taken.
    pub(super) fn return_followers(&mut self, at: usize, key: u64) {
        if self.keys.line(key) == Some(at) {
            self.keys.move_to(key, RETURNED);
            self.return_behind(at, key);
        }
    }

    fn return_behind(&mut self, at: usize, key: u64) {
        let backlog = std::mem::take(&mut self.lines[at].backlog);
        // Errands that wait by themselves are not counted.
        let errands = matches!(self.lines[at].kind, Kind::Errands);
        let of_key = |number: &Number| {
            self.ticket(*number).key == key && !(errands && *number >= FIRST_ERRAND)
        };
        let (back, stays): (Vec<_>, Vec<_>) = backlog.into_iter().partition(of_key);
        self.lines[at].backlog = stays.into();
        for number in back {
            if number < FIRST_ERRAND {
                self.returned.push(key, number);
            } else {
                // No order holds for it.
                self.keys.release(key);
                self.postpone(number);
            }
        }
    }

    /// Takes the answer to a witness: whether it was taken.
    pub(super) fn witness_failed(&mut self, at: usize, witness: Witness) {
        let ticket = self.live.get(witness.ticket[0]);
        let line = &self.lines[at];
        let by_object = match &line.kind {
            Kind::Queue(unit) => unit.by_object || self.is_alone(at, *unit),
            _ => line.failed_parts.iter().any(|part| part.by_object),
        };
        let of = self.places.unit(&ticket, by_object).of;
        self.lines[at].failed_witnesses.push(of);
        self.return_witness(at, witness);
    }

    /// The next moment.
    pub(super) fn tick(&mut self) -> Moment {
        self.moment += 1;
        self.moment
    }

    /// Whether an answer took long.
    pub(super) fn was_slow(sent: Millis, now: Millis) -> bool {
        now.saturating_sub(sent) >= super::SLOW
    }
}
