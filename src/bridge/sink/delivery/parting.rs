//! Parting: a batch that fails again and again is sent once more by namespaces, and those that fail
//! then leave the lane, if others are taken.
//!
//! Nothing is given up by that. If nobody is taken, it is the sink that fails, and the batch stays as it
//! was.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use super::{
    Delivery, Kind, Millis, Number, Piece, Unit,
    backoff::{long_wait, wait},
    line::Stuck,
    verdict::{Past, REMEMBERED},
    witness::WITNESSES,
};
use crate::bridge::{Failure, FailureClass, Fault};

/// A batch is parted after so many failures that may be a record's, alike or not, over a third of the patience,
const SUSPECT: u32 = 3;
/// or after so many in a row that are alike, if the failure is silence or a cut, a namespace in it was convicted, or
/// another one was parted lately for the same status.
const ALIKE_QUICK: u32 = 2;

impl Delivery {
    /// Takes in that a lane's batch failed: sent again, and when, or not.
    pub(super) fn lane_failed(
        &mut self,
        at: usize,
        mut piece: Piece,
        failure: Failure,
        named: bool,
        now: Millis,
    ) {
        let moment = self.tick();
        let refused = matches!(failure.class, FailureClass::Refused(_));
        if refused && !named && !piece.is_part && piece.tickets.len() > 1 {
            // One event may spoil the batch. The first half goes first: order counts. Both are tried
            // anew.
            piece.failed_at = moment;
            let mut first = std::mem::take(&mut piece.tickets);
            (piece.attempts, piece.failures) = (0, 0);
            let second = piece.with(first.split_off(first.len() / 2));
            let first = piece.with(first);
            let pieces = &mut self.lines[at].pieces;
            pieces.push_front(second);
            pieces.push_front(first);
            return;
        }
        let counts = failure.is_bounded();
        piece.failures += u32::from(counts);
        piece.in_a_row += 1;
        let since = piece.first.unwrap_or(now);
        let stuck = Stuck { since, sent_at: piece.sent_at - 1, answered_at: moment };
        piece.stuck.get_or_insert(stuck);
        if counts && !self.give_up_last(&mut piece, &failure) {
            self.end_round_if_over(at, now);
            return;
        }
        if failure.fault == Fault::Sink {
            piece.all_fail = false;
            (piece.failure, piece.failed) = (Some(failure), piece.tickets.len());
            if self.stand_aside(at, &mut piece, now) {
                self.wait(at, piece, now);
                self.look_elsewhere(at, now);
            } else {
                self.end_round_if_over(at, now);
            }
            return;
        }
        if !piece.is_part && !self.stand_aside(at, &mut piece, now) {
            return;
        }
        let before = std::mem::replace(&mut piece.failed_at, moment);
        piece.count_suspect(&failure, now);
        if !piece.is_part && !self.leave_known(at, &mut piece, now) {
            return;
        }
        let for_good = failure.fault == Fault::RecordForGood;
        let quick = failure.is_silent();
        (piece.failure, piece.failed) = (Some(failure), piece.tickets.len());
        if piece.is_part {
            self.lines[at].failed_parts.push(piece);
            self.end_round_if_over(at, now);
        } else if for_good && piece.each_failed {
            self.lines[at].round_at = if before > 0 { before } else { piece.sent_at - 1 };
            self.part(at, piece, true, now);
        } else if self.is_suspicious(&piece, quick, now) {
            self.lines[at].round_at = before;
            self.part(at, piece, false, now);
        } else {
            self.wait(at, piece, now);
        }
    }

    fn is_suspicious(&self, piece: &Piece, quick: bool, now: Millis) -> bool {
        if piece.suspect >= SUSPECT && now - piece.suspect_since >= self.suspect_for() {
            return true;
        }
        let remembered = |past: &Past| now < past.convicted + REMEMBERED;
        let convicted = |number: &Number| {
            let unit = self.places.unit(&self.ticket(*number), false);
            // All objects of a destination with one namespace are of that one.
            let alike = |of: &Unit| of.by_object && of.destination == unit.destination;
            if unit.by_object {
                self.past.iter().any(|(of, past)| alike(of) && remembered(past))
            } else {
                self.past.get(&unit).is_some_and(remembered)
            }
        };
        let parts = || {
            let destination = self.ticket(piece.tickets[0]).destination;
            piece.status.is_some_and(|status| self.places.parts(destination, status, now))
        };
        piece.alike >= ALIKE_QUICK && (quick || parts() || piece.tickets.iter().any(convicted))
    }

    /// The unit that stands or falls together with the records of a part.
    fn unit_of(&self, part: &Piece) -> Unit {
        self.places.unit(&self.ticket(part.tickets[0]), part.by_object)
    }

    /// Failures that may be a record's have to come over so long.
    fn suspect_for(&self) -> Millis {
        self.options.patience() / 3
    }

    /// Sends a batch by namespaces, or objects. Where that has been tried, the parts are judged at once.
    fn part(&mut self, at: usize, mut piece: Piece, tried: bool, now: Millis) {
        let tickets = std::mem::take(&mut piece.tickets);
        let mut parts: Vec<(Unit, Vec<Number>)> = Vec::new();
        let mut places = FxHashMap::default();
        for number in tickets {
            let unit = self.places.unit(&self.ticket(number), piece.by_object);
            match places.entry(unit) {
                Entry::Occupied(place) => {
                    let (_, part): &mut (_, Vec<_>) = &mut parts[*place.get()];
                    part.push(number);
                }
                Entry::Vacant(place) => {
                    place.insert(parts.len());
                    parts.push((unit, vec![number]));
                }
            }
        }
        let tried = tried || parts.len() == 1;
        if !tried {
            self.lines[at].round_at = piece.failed_at;
        }
        if piece.by_object {
            // Nobody can see to it that all that are tried first fail.
            self.random.shuffle(&mut parts);
        }
        // Who was convicted goes last.
        parts.sort_by_key(|(unit, _)| self.past.contains_key(unit));
        for (_, tickets) in parts.into_iter().rev() {
            let mut part = piece.with(tickets);
            part.is_part = true;
            part.failure.clone_from(&piece.failure);
            part.each_failed = piece.each_failed;
            part.in_a_row = piece.in_a_row;
            part.rounds = piece.rounds;
            part.by_object = piece.by_object;
            part.all_fail = piece.all_fail;
            let line = &mut self.lines[at];
            if tried {
                line.failed_parts.push(part);
            } else {
                part.failure = None;
                line.pieces.push_front(part);
            }
        }
        self.end_round_if_over(at, now);
    }

    /// Ends a round when each part has been tried, or when it is clear that nobody is taken.
    pub(super) fn end_round_if_over(&mut self, at: usize, now: Millis) {
        let line = &self.lines[at];
        if line.sending || line.witness.is_some() {
            return;
        }
        let tried = line.pieces.front().is_none_or(|piece| !piece.is_part);
        if line.failed_parts.is_empty() {
            return if tried {
                self.close_if_done(at, now);
            };
        }
        let round_at = line.round_at;
        let taken = |piece: &Piece| {
            let unit = self.unit_of(piece);
            self.places.others_taken(&unit, round_at) || self.do_others_take(piece)
        };
        if tried || line.failed_parts.len() >= WITNESSES && !line.failed_parts.iter().any(taken) {
            self.end_round(at, now);
        }
    }

    fn end_round(&mut self, at: usize, now: Millis) {
        let round_at = self.lines[at].round_at;
        let mut at_part = 0;
        while let Some(piece) = self.lines[at].failed_parts.get(at_part) {
            let unit = self.unit_of(piece);
            if self.places.others_taken(&unit, round_at) {
                let piece = self.lines[at].failed_parts.remove(at_part);
                if let Some(failure) = &piece.failure {
                    self.places.part(unit.destination, failure.status, now);
                }
                self.leave(at, piece, Kind::Queue(unit), now);
            } else {
                at_part += 1;
            }
        }
        let left = &self.lines[at].failed_parts;
        let fails: Vec<Unit> = left.iter().map(|part| self.unit_of(part)).collect();
        let Some(unit) = fails.first().copied() else {
            self.lines[at].failed_witnesses.clear();
            self.close_if_done(at, now);
            return;
        };
        if self.draw_witness(at, &fails, false) {
            return;
        }
        let lane = matches!(self.lines[at].kind, Kind::Lane);
        let kind = if lane && self.do_others_take(&self.lines[at].failed_parts[0]) {
            Some(Kind::Destination(unit.destination))
        } else if lane && fails.len() == 1 && !self.has_room() && self.nobody_waits(&unit) {
            // Whoever could be taken is not in sight: all that is, is of the one that fails.
            Some(Kind::Queue(unit))
        } else if lane && self.draw_witness(at, &fails, true) {
            return;
        } else {
            None
        };
        if let Some(kind) = kind {
            let piece = self.lines[at].failed_parts.remove(0);
            self.leave(at, piece, kind, now);
            return self.end_round_if_over(at, now);
        }
        self.look_further(at, unit.destination);
        self.undecided(at, now);
    }

    /// Whether other destinations have taken anything since a batch failed first.
    fn do_others_take(&self, piece: &Piece) -> bool {
        let destination = self.ticket(piece.tickets[0]).destination;
        piece.stuck.is_some_and(|stuck| self.places.other_takes(destination, stuck.sent_at))
    }

    /// Whether all records whose turn is still to come are of a namespace, or object, or wait for an earlier one of
    /// their object. Those in lines, and those that came back, are not looked at.
    pub(super) fn nobody_waits(&self, unit: &Unit) -> bool {
        let mut waiting = self.live.waiting(self.fresh).map(|(_, ticket)| ticket);
        waiting.all(|ticket| unit.has(ticket) || self.keys.line(ticket.key).is_some())
    }

    /// Nobody was taken: what is left of the batch is one again, and waits.
    fn undecided(&mut self, at: usize, now: Millis) {
        let suspect_for = self.suspect_for();
        let line = &mut self.lines[at];
        let mut parts = std::mem::take(&mut line.failed_parts);
        let others_failed = !line.failed_witnesses.is_empty() || parts.len() > 1;
        let by_object = parts.iter().any(|part| part.by_object);
        line.failed_witnesses.clear();
        while let Some(part) = line.pieces.pop_front_if(|piece| piece.is_part) {
            parts.push(part);
        }
        for part in &parts {
            self.keep_tally(part);
        }
        let mut parts = parts.into_iter();
        let Some(mut piece) = parts.next() else { return };
        (piece.attempts, piece.failures) = (0, 0);
        piece.tickets.extend(parts.flat_map(|part| part.tickets));
        piece.tickets.sort_unstable();
        (piece.each_failed, piece.failed) = (false, piece.tickets.len());
        piece.is_part = false;
        // By turns: each namespace may have a record that fails.
        piece.by_object = !by_object;
        piece.rounds += 1;
        piece.suspect = SUSPECT;
        piece.suspect_since = now.saturating_sub(suspect_for);
        piece.all_fail = others_failed || !by_object && piece.all_fail;
        self.wait(at, piece, now);
    }

    /// Puts a batch back that is sent again after a wait.
    fn wait(&mut self, at: usize, piece: Piece, now: Millis) {
        let retry = self.options.retry;
        let Some(failure) = &piece.failure else { return };
        // What may be a record's fault is tried soon, until that is known.
        let long = failure.class == FailureClass::Misconfigured
            && (failure.fault == Fault::Sink || piece.rounds > 0);
        let throttled = failure.class == FailureClass::Throttled;
        let mut due = now
            + if throttled {
                0
            } else if long {
                long_wait(&retry, failure.after, &mut self.random)
            } else {
                wait(&retry, piece.in_a_row, failure.after, &mut self.random)
            };
        // There is something to decide then.
        let suspect = piece.suspect > 0 && piece.rounds == 0;
        let suspect = suspect.then_some(piece.suspect_since + self.suspect_for());
        let stuck = piece.stuck.filter(|_| self.places.are_several());
        let stuck = stuck.map(|stuck| stuck.since + self.options.patience());
        if failure.after.is_none() {
            for decided in suspect.into_iter().chain(stuck).filter(|decided| now < *decided) {
                due = due.min(decided);
            }
        }
        let line = &mut self.lines[at];
        line.due = due;
        line.pieces.push_front(piece);
    }
}
