//! Queues of namespaces, or objects, whose records fail while others are taken: sent beside the lanes,
//! halved at a failure until the culprit stands alone, and judged there.

use rustc_hash::FxHashSet;

use super::{
    DeadLetterClass, Delivery, Kind, Millis, Number, Piece, Unit, backoff::wait, line::Witness,
    returned::RETURNED, shelf::Shelf, verdict::Verdict,
};
use crate::bridge::{Failure, Fault};

impl Delivery {
    /// Prepares what a line beside the lanes sends. A record that has failed alone is tried after a
    /// witness, unless others were taken since.
    pub(super) fn is_witnessed(&mut self, at: usize) -> bool {
        let line = &self.lines[at];
        let (Kind::Queue(unit) | Kind::Shelf(unit, _)) = &line.kind else { return true };
        let unit = *unit;
        let Some(piece) = line.pieces.front() else { return false };
        let failed_before = match &line.kind {
            Kind::Shelf(_, shelf) => shelf.failed_at(self.live.get(piece.tickets[0]).key).is_some(),
            _ => piece.failed_before || piece.trial.failure.is_some(),
        };
        let draws = matches!(line.kind, Kind::Queue(_)) && piece.trial.failure.is_some();
        let (first, failed_at) = (piece.tickets[0], line.failed_at);
        // Where nobody else has a record to try, those of other objects in the queue are. What an earlier run has set
        // aside is on shelves by namespace, though there may be but one.
        let by_object = unit.by_object || draws && self.is_alone(at, unit);
        let unit = self.places.unit(&self.live.get(first), by_object);
        let others_taken = self.places.others_taken(&unit, failed_at);
        if draws && !others_taken && self.draw_witness(at, &[unit], false) {
            return true;
        }
        let line = &mut self.lines[at];
        line.failed_witnesses.clear();
        if let Some(piece) = line.pieces.front_mut() {
            piece.others_taken = failed_before && others_taken;
        }
        true
    }

    /// Goes on after a witness: `failure` is nothing if it was taken.
    pub(super) fn witness_answered(
        &mut self,
        at: usize,
        witness: Witness,
        failure: Option<&Failure>,
        now: Millis,
    ) {
        if let Some(failure) = failure {
            let first = Some(self.lines[at].sent);
            let mut piece = Piece { attempts: 1, first, ..Piece::new(witness.ticket.to_vec()) };
            if !self.count_failures(&mut piece, failure) {
                self.drop_witness(at, witness);
            } else if failure.fault == Fault::Sink {
                // It says nothing about anybody.
                self.return_witness(at, witness);
                self.lines[at].due = now + self.short_wait(at);
            } else {
                self.witness_failed(at, witness);
            }
        }
        match &self.lines[at].kind {
            Kind::Lane | Kind::Destination(_) => self.end_round_if_over(at, now),
            _ => {}
        }
    }

    pub(super) fn short_wait(&mut self, at: usize) -> Millis {
        let line = &mut self.lines[at];
        line.in_a_row += 1;
        wait(&self.options.retry, line.in_a_row, None, &mut self.random)
    }

    /// Ends the probation of a namespace, or object: a record of it was taken that had failed, so that
    /// it was not to blame. What is queued goes back to the lanes.
    pub(super) fn acquit(&mut self, unit: Unit, now: Millis) {
        self.past.remove(&unit);
        self.end_queue(unit, now);
    }

    /// Gives what waits in the queue of a namespace, or object, back to the lanes.
    fn end_queue(&mut self, unit: Unit, now: Millis) {
        // No more records go there.
        let Some(queue) = self.queues.remove(&unit) else { return };
        self.return_backlog(queue);
        self.lines[queue].due = now;
        self.close_if_done(queue, now);
    }

    /// Gives the backlog of a line back to the lanes, but for objects that it has in hand.
    pub(super) fn return_backlog(&mut self, at: usize) {
        let line = &mut self.lines[at];
        line.failed_before = 0;
        let backlog = std::mem::take(&mut line.backlog);
        let line = &self.lines[at];
        let in_hand = line.pieces.iter().chain(&line.failed_parts).flat_map(|piece| &piece.tickets);
        let in_hand = in_hand.map(|number| self.live.get(*number).key);
        let witness = line.witness.map(|witness| witness.key);
        let in_hand: FxHashSet<u64> = in_hand.chain(witness).collect();
        for number in backlog {
            let key = self.live.get(number).key;
            if in_hand.contains(&key) {
                self.lines[at].backlog.push_back(number);
            } else {
                self.keys.move_to(key, RETURNED);
                self.returned.push(key, number);
            }
        }
    }

    /// Takes in that a batch of a queue, or of resends, was taken. Where that was the one record that had failed, the
    /// others need no queue.
    pub(super) fn queue_taken(&mut self, at: usize, now: Millis) {
        let most = self.options.batch_events;
        let line = &mut self.lines[at];
        let waited_for_one = line.waits_for.take().is_some();
        line.size = (line.size * 2).min(most);
        if self.relief.wait(now).is_none() {
            line.silent = 0;
        }
        line.failed_witnesses.clear();
        match line.kind {
            Kind::Queue(unit) if waited_for_one => self.end_queue(unit, now),
            _ => self.close_if_done(at, now),
        }
    }

    /// Takes in that a queue's batch failed: sent again, and when, or not.
    pub(super) fn queue_failed(
        &mut self,
        at: usize,
        unit: Unit,
        mut piece: Piece,
        failure: &Failure,
        now: Millis,
    ) {
        let moment = self.tick();
        if !self.count_failures(&mut piece, failure) {
            return self.close_if_done(at, now);
        }
        if failure.fault == Fault::Sink {
            let wait = self.short_wait(at);
            let line = &mut self.lines[at];
            line.due = now + wait;
            return line.pieces.push_front(piece);
        }
        self.lines[at].waits_for = None;
        // A full journal is not kept waiting for one timeout after another.
        let relief = self.relief.wait(now).filter(|_| failure.is_silent());
        if piece.tickets.len() > 1 {
            let line = &mut self.lines[at];
            line.failed_at = moment;
            line.size = if relief.is_some() { 1 } else { piece.tickets.len() / 2 };
            line.failed_before += piece.tickets.len();
            for number in piece.tickets.iter().rev() {
                line.backlog.push_front(*number);
            }
            return self.spare(piece.tickets);
        }
        piece.trial.failed(failure, piece.others_taken, moment);
        let line = &mut self.lines[at];
        line.failed_at = moment;
        line.size = 1;
        match self.judge(unit, &piece.trial, failure, now) {
            Verdict::Open => {
                let wait = if let Some(relief) = relief {
                    relief
                } else if piece.others_taken {
                    wait(&self.options.retry, 1, None, &mut self.random)
                } else {
                    self.short_wait(at)
                };
                let line = &mut self.lines[at];
                line.due = now + wait;
                line.pieces.push_front(piece);
            }
            Verdict::SetAside => {
                self.lines[at].in_a_row = 0;
                self.set_aside(at, unit, piece, now);
                self.close_if_done(at, now);
            }
            Verdict::GivenUp(class) => {
                self.lines[at].in_a_row = 0;
                self.give_up(&piece, &piece.tickets, class, &failure.reason);
                self.close_if_done(at, now);
            }
        }
    }

    /// Counts a failure for each record of a piece, and gives those up for which it was the last one.
    /// Answers whether any are left.
    pub(super) fn count_failures(&mut self, piece: &mut Piece, failure: &Failure) -> bool {
        let counts = failure.is_bounded();
        piece.failures += u32::from(counts);
        let any_left = !counts || self.give_up_last(piece, failure);
        self.keep_tally(piece);
        (piece.attempts, piece.failures) = (0, 0);
        any_left
    }

    /// Gives those records of a piece up for which its last failure was one too many. Answers whether any are left.
    pub(super) fn give_up_last(&mut self, piece: &mut Piece, failure: &Failure) -> bool {
        let Some(most) = self.options.retry.max_attempts else { return true };
        let tickets = std::mem::take(&mut piece.tickets);
        let is_last = |number: &Number| self.tally(*number, piece).failures >= most;
        let (last, left): (Vec<_>, Vec<_>) = tickets.into_iter().partition(is_last);
        self.give_up(piece, &last, DeadLetterClass::MaxAttempts, &failure.reason);
        piece.tickets = left;
        !piece.tickets.is_empty()
    }

    /// The shelf of a namespace, or object.
    pub(super) fn shelf(&mut self, unit: Unit) -> usize {
        if let Some(at) = self.shelves.get(&unit) {
            return *at;
        }
        let at = self.open_line(Kind::Shelf(unit, Shelf::default()));
        self.shelves.insert(unit, at);
        at
    }
}
