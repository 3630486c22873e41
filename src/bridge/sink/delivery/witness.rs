//! Witnesses: records of other namespaces that are tried beside one that fails, drawn at random.
//!
//! Nobody can choose them, so whoever has several namespaces cannot see to it that all of them fail.

use rustc_hash::FxHashSet;

use super::{
    Delivery, FIRST_RESEND, Kind, LEAST_IN_HAND, MOST_IN_HAND, Millis, Moment, Notice, Number,
    Piece, Ticket, line::Witness, places::Unit, returned::RETURNED,
};

/// So many witnesses that fail end a round.
pub(super) const WITNESSES: usize = 3;
/// After so many rounds that decided nothing a witness is looked for further on, whoever is in sight.
const ROUNDS: u32 = 4;

/// A witness that is looked for further on in the log.
#[derive(Debug)]
pub(super) struct Sought {
    /// The line that is to try it,
    line: usize,
    /// its destination,
    destination: u64,
    /// the namespaces that are in sight there,
    in_sight: FxHashSet<u64>,
    /// and how many attempts had something taken before.
    taken: u64,
}

impl Delivery {
    /// Draws a witness for what fails in a line, among the namespaces, or objects, with a record that
    /// waits for the same destination, or for another: the first of its object. Answers whether there
    /// is one.
    pub(super) fn draw_witness(&mut self, at: usize, fails: &[Unit], elsewhere: bool) -> bool {
        if self.lines[at].failed_witnesses.len() >= WITNESSES + usize::from(elsewhere) {
            return false;
        }
        let from = self.random.u64(self.returned.places());
        let free = self.candidates(at, fails, elsewhere, Some(from)).map(|number| (number, false));
        // All that are free may fail, while those behind what fails would be taken.
        let in_line = self.candidates(at, fails, elsewhere, None).map(|number| (number, true));
        let candidates: Vec<_> = free.chain(in_line).collect();
        let Some((number, from_line)) = self.random.choice(candidates) else { return false };
        let ticket = self.live.get(number);
        let key = ticket.key;
        if !from_line {
            let mut behind = self.returned.take(key);
            if behind.pop_front().is_some() {
                self.keys.move_to(key, at);
                self.lines[at].backlog.extend(behind);
            } else {
                self.live.draw(number);
                self.keys.claim(&ticket, at);
            }
        }
        self.lines[at].witness = Some(Witness { ticket: [number], key, from_line, sent_at: 0 });
        true
    }

    /// Whether nobody but a namespace, or object, has a record that could be drawn beside one in a line.
    pub(super) fn is_alone(&self, at: usize, unit: Unit) -> bool {
        let has_none = |free| self.candidates(at, &[unit], false, free).next().is_none();
        has_none(Some(0)) && has_none(None)
    }

    /// The first record of each namespace, or object, that may be drawn: of those that no line has, the ones that
    /// came back from a place of theirs on, or without one of those behind what fails in the line. Each is the first
    /// of its object, so that none is overtaken.
    fn candidates(
        &self,
        at: usize,
        fails: &[Unit],
        elsewhere: bool,
        free_from: Option<u64>,
    ) -> impl Iterator<Item = Number> {
        let (line, in_line) = (&self.lines[at], free_from.is_none());
        let fresh = self.live.waiting(self.fresh).map(|(number, _)| (number, None));
        let returned = self.returned.firsts(free_from.unwrap_or(0)).take(LEAST_IN_HAND);
        let free = returned.map(|number| (number, Some(RETURNED))).chain(fresh);
        let behind = line.pieces.iter().flat_map(|piece| &piece.tickets).chain(&line.backlog);
        // A destination's line alone has its records: others stand there behind however many that fail.
        let most = if let Kind::Destination(_) = line.kind { usize::MAX } else { LEAST_IN_HAND };
        let behind = behind.copied().filter(|number| *number < FIRST_RESEND).take(most);
        let behind = behind.map(move |number| (number, Some(at)));
        // All that a queue has stands or falls together.
        let is_one = matches!(&line.kind, Kind::Queue(unit) if fails.contains(unit));
        let behind = (in_line && !is_one).then_some(behind).into_iter().flatten();
        let free = (!in_line).then_some(free).into_iter().flatten();
        let first = fails.first();
        let fails: FxHashSet<&Unit> = fails.iter().collect();
        let (mut seen_keys, mut seen) = (FxHashSet::default(), FxHashSet::default());
        let may_be = move |(number, holder): &(Number, Option<usize>)| {
            let ticket = self.live.get(*number);
            let is_first = seen_keys.insert(ticket.key);
            first.is_some_and(|unit| {
                let of = if unit.by_object { ticket.key } else { ticket.namespace };
                is_first
                    && (ticket.destination != unit.destination) == elsewhere
                    && !Unit::both(&ticket).iter().any(|unit| fails.contains(unit))
                    && !line.failed_witnesses.contains(&of)
                    && self.keys.line(ticket.key) == *holder
                    && (in_line || self.route(&ticket).is_none())
                    && seen.insert(of)
            })
        };
        free.chain(behind).filter(may_be).map(|(number, _)| number)
    }

    /// Looks for a witness further on in the log, where there is no room and hardly anybody is in sight whom a round
    /// could have drawn, or several rounds have decided nothing: more tickets are taken, and the records of all are
    /// let go, until another namespace comes to the destination, or anything is taken.
    pub(super) fn look_further(&mut self, at: usize, destination: u64) {
        self.recalls = true;
        if self.has_room() {
            return;
        }
        let parts = &self.lines[at].failed_parts;
        let rounds = parts.iter().map(|part| part.rounds).max().unwrap_or(0);
        let failed = parts.iter().flat_map(|part| &part.tickets);
        let failed = failed.map(|number| self.ticket(*number));
        let fresh = self.live.waiting(self.fresh).map(|(_, ticket)| *ticket);
        let in_sight = failed.chain(fresh);
        let in_sight = in_sight.filter(|ticket| self.may_be_drawn(ticket, destination));
        let in_sight: FxHashSet<u64> = in_sight.map(|ticket| ticket.namespace).collect();
        if in_sight.len() > WITNESSES && rounds < ROUNDS {
            return;
        }
        self.sought = Some(Sought { line: at, destination, in_sight, taken: self.taken });
        self.let_go(0);
    }

    /// Whether a witness is looked for further on.
    pub(super) fn looks_further(&self) -> bool {
        self.sought.as_ref().is_some_and(|sought| sought.taken == self.taken)
    }

    /// Whether a witness is looked for beyond what may be in hand: nobody else is kept.
    pub(super) fn is_beyond_hand(&self) -> bool {
        self.looks_further() && self.live.open() >= MOST_IN_HAND
    }

    /// Looks at a ticket that has come, while a witness is looked for.
    pub(super) fn look_at(&mut self, number: Number, ticket: &Ticket) {
        if !self.looks_further() {
            return;
        }
        self.let_go(number);
        if !self.is_sought(ticket) {
            return;
        }
        // The round that found nobody has decided nothing: another one goes on at once, by namespaces.
        let lanes = &mut self.lines[..self.options.lanes];
        let line = self.sought.take().and_then(|sought| lanes.get_mut(sought.line));
        if let Some(line) = line.filter(|line| !line.sending) {
            line.due = 0;
            line.pieces.iter_mut().for_each(|piece| piece.by_object = false);
        }
    }

    /// Whether a record is of a namespace that is looked for.
    pub(super) fn is_sought(&self, ticket: &Ticket) -> bool {
        self.sought.as_ref().is_some_and(|sought| {
            self.may_be_drawn(ticket, sought.destination)
                && !sought.in_sight.contains(&ticket.namespace)
        })
    }

    fn let_go(&mut self, from: Number) {
        self.notices.extend(self.live.let_go(from).into_iter().map(Notice::Queued));
    }

    fn may_be_drawn(&self, ticket: &Ticket, destination: u64) -> bool {
        ticket.destination == destination && self.route(ticket).is_none()
    }

    /// Takes a record out of those that wait in a line, and answers a piece that has been through the same.
    pub(super) fn take_out(&mut self, at: usize, number: Number) -> Piece {
        let line = &mut self.lines[at];
        let mut like = None;
        for piece in line.pieces.iter_mut().chain(&mut line.failed_parts) {
            if piece.tickets.contains(&number) {
                piece.tickets.retain(|other| *other != number);
                like = Some(piece.with(Vec::new()));
            }
        }
        line.pieces.retain(|piece| !piece.tickets.is_empty());
        line.failed_parts.retain(|piece| !piece.tickets.is_empty());
        if let Some(place) = line.backlog.iter().position(|other| *other == number) {
            line.backlog.remove(place);
            line.failed_before -= usize::from(place < line.failed_before);
        }
        like.unwrap_or_else(|| Piece::new(Vec::new()))
    }

    /// Puts back a witness that no line had, and what queued up behind it meanwhile.
    pub(super) fn return_witness(&mut self, at: usize, witness: Witness) {
        if !witness.from_line {
            self.returned.push(witness.key, witness.ticket[0]);
            self.keys.move_to(witness.key, RETURNED);
            self.return_behind(at, witness.key);
        }
    }

    /// Takes in that a witness has its fate.
    pub(super) fn drop_witness(&mut self, at: usize, witness: Witness) {
        if witness.from_line {
            self.take_out(at, witness.ticket[0]);
        } else {
            self.return_followers(at, witness.key);
        }
    }

    /// Puts back what queued up behind a witness, or a resend, that is taken.
    pub(super) fn return_followers(&mut self, at: usize, key: u64) {
        if self.keys.line(key) == Some(at) {
            self.keys.move_to(key, RETURNED);
            self.return_behind(at, key);
        }
    }

    fn return_behind(&mut self, at: usize, key: u64) {
        let backlog = std::mem::take(&mut self.lines[at].backlog);
        let of_key = |number: &Number| self.ticket(*number).key == key;
        let (back, stays): (Vec<_>, Vec<_>) = backlog.into_iter().partition(of_key);
        self.lines[at].backlog = stays.into();
        for number in back {
            if number < FIRST_RESEND {
                self.returned.push(key, number);
            } else {
                // No order holds between it and live records.
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
