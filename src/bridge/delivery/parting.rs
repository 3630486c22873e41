//! Parting: a batch that fails alike again and again is sent once more by namespaces, and those that
//! fail then leave the lane, if others are taken.
//!
//! Nothing is given up by that. If nobody is taken, it is the sink that fails, and the batch stays as it
//! was.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use super::{
    super::{Failure, FailureClass, Fault, Status},
    Delivery, Kind, LetterClass, Millis, Number, Piece, Unit,
    backoff::{long_wait, wait},
    verdict::REMEMBERED,
    witness::WITNESSES,
};

/// A batch is parted after so many failures that are alike, over a third of the patience,
const ALIKE: u32 = 3;
/// or after so many, if the failure is silence or a cut, or a namespace in it was convicted.
const ALIKE_QUICK: u32 = 2;

impl Delivery {
    /// What is sent again of a lane's batch, and when, or not.
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
        // What somebody has to mend is waited for: given up, an expired token would empty the
        // journal into the dead letters.
        let mends_itself = !refused && failure.class != FailureClass::Misconfigured;
        piece.failures += u32::from(mends_itself);
        piece.in_a_row += 1;
        piece.stuck.get_or_insert((now, piece.sent_at - 1));
        if mends_itself && self.is_last(piece.failures) {
            let tickets = std::mem::take(&mut piece.tickets);
            self.give_up(&piece, &tickets, LetterClass::MaxAttempts, &failure.reason);
            self.end_round_if_over(at, now);
            return;
        }
        if failure.fault == Fault::Sink {
            piece.all_fail = false;
            piece.failure = Some(failure);
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
        piece.count_alike(&failure, now);
        if !piece.is_part && !self.leave_known(at, &mut piece, now) {
            return;
        }
        let for_good = failure.fault == Fault::RecordForGood;
        let quick = matches!(failure.status, Status::Cut | Status::Silence);
        piece.failure = Some(failure);
        if piece.is_part {
            self.lines[at].failed_parts.push(piece);
            self.end_round_if_over(at, now);
        } else if named && for_good && !piece.is_mixed {
            self.lines[at].round_at = piece.sent_at - 1;
            self.part(at, piece, true, now);
        } else if self.is_suspicious(&piece, quick, now) {
            self.lines[at].round_at = before;
            self.part(at, piece, false, now);
        } else {
            self.wait(at, piece, now);
        }
    }

    pub(super) fn is_last(&self, failures: u32) -> bool {
        self.options.retry.max_attempts.is_some_and(|most| failures >= most)
    }

    fn is_suspicious(&self, piece: &Piece, quick: bool, now: Millis) -> bool {
        if piece.alike >= ALIKE && now - piece.alike_since >= self.alike_for() {
            return true;
        }
        let convicted = |number: &Number| {
            let past = self.past.get(&self.places.unit(&self.ticket(*number), false));
            past.is_some_and(|past| now < past.convicted + REMEMBERED)
        };
        piece.alike >= ALIKE_QUICK && (quick || piece.tickets.iter().any(convicted))
    }

    /// What stands or falls together with the records of a part.
    fn unit_of(&self, part: &Piece) -> Unit {
        self.places.unit(&self.ticket(part.tickets[0]), part.by_object)
    }

    /// Failures that are alike have to come over so long.
    fn alike_for(&self) -> Millis {
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
        self.undecided(at, now);
    }

    /// Whether other destinations have taken anything since a batch failed first.
    fn do_others_take(&self, piece: &Piece) -> bool {
        let destination = self.ticket(piece.tickets[0]).destination;
        piece.stuck.is_some_and(|(_, moment)| self.places.other_takes(destination, moment))
    }

    fn nobody_waits(&self, unit: &Unit) -> bool {
        (self.fresh..self.live.next())
            .filter(|number| self.live.waits(*number))
            .all(|number| unit.has(&self.live.get(number)))
    }

    /// Nobody was taken: what is left of the batch is one again, and waits.
    fn undecided(&mut self, at: usize, now: Millis) {
        let alike_for = self.alike_for();
        let line = &mut self.lines[at];
        let mut parts = std::mem::take(&mut line.failed_parts);
        let others_failed = !line.failed_witnesses.is_empty() || parts.len() > 1;
        let by_object = parts.iter().any(|part| part.by_object);
        line.failed_witnesses.clear();
        while let Some(part) = line.pieces.pop_front_if(|piece| piece.is_part) {
            parts.push(part);
        }
        let mut parts = parts.into_iter();
        let Some(mut piece) = parts.next() else { return };
        for part in parts {
            piece.tickets.extend(part.tickets);
            piece.attempts = piece.attempts.max(part.attempts);
            piece.failures = piece.failures.max(part.failures);
        }
        piece.tickets.sort_unstable();
        piece.is_part = false;
        // By turns: each namespace may have a record that fails.
        piece.by_object = !by_object;
        piece.rounds += 1;
        piece.alike = ALIKE;
        piece.status = piece.failure.as_ref().map(|failure| failure.status);
        piece.alike_since = now.saturating_sub(alike_for);
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
        let alike = piece.alike > 0 && piece.rounds == 0;
        let alike = alike.then_some(piece.alike_since + self.alike_for());
        let stuck = piece.stuck.filter(|_| self.places.are_several());
        let stuck = stuck.map(|(since, _)| since + self.options.patience());
        if failure.after.is_none() {
            for decided in alike.into_iter().chain(stuck).filter(|decided| now < *decided) {
                due = due.min(decided);
            }
        }
        let line = &mut self.lines[at];
        line.due = due;
        line.pieces.push_front(piece);
    }
}
