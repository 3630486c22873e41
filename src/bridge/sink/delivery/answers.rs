//! The answer to an attempt, and what it makes of the records that were sent.

use super::{
    DeadLetterClass, Delivery, FIRST_RESEND, Fate, GivenUp, Kind, Millis, Number, Piece, Tally,
    backoff::wait, fates, line::Witness, ticket_of,
};
use crate::bridge::{EventFate, Failure, FailureClass, Fault, Outcome, Reason, RefusedClass};

/// A batch that could not be read is asked for again after that.
const UNREAD: Millis = 1000;

impl Delivery {
    /// Takes the outcome of what a line sent.
    pub(crate) fn answered(&mut self, at: usize, outcome: Outcome, now: Millis) {
        self.announce(at, &outcome);
        if self.watching {
            self.watch();
        }
        *(if at < self.options.lanes { &mut self.under_way } else { &mut self.beside }) -= 1;
        let line = &mut self.lines[at];
        debug_assert!(line.sending, "line {at} sends nothing");
        line.sending = false;
        line.due = now;
        self.backoff.end(at);
        line.slow = Self::was_slow(line.sent, now);
        if let Some(witness) = line.witness.take() {
            let mut piece = Piece::new(witness.ticket.to_vec());
            piece.sent_at = witness.sent_at;
            self.answer(at, piece, outcome, now, Some(witness));
        } else if let Some(piece) = line.pieces.pop_front() {
            let resends = matches!(line.kind, Kind::Resends(_)).then(|| piece.tickets.clone());
            let keys = resends.map(|numbers| self.keys_of(&numbers));
            self.answer(at, piece, outcome, now, None);
            for key in keys.into_iter().flatten() {
                self.return_followers(at, key);
                self.close_if_done(at, now);
            }
        }
        if let Some(unit) = self.acquitted.take() {
            self.acquit(unit, now);
        }
    }

    /// Takes in that a line's attempt has sent nothing: it is made again after a wait.
    pub(crate) fn not_sent(&mut self, at: usize, now: Millis) {
        *(if at < self.options.lanes { &mut self.under_way } else { &mut self.beside }) -= 1;
        let line = &mut self.lines[at];
        line.sending = false;
        line.due = now + UNREAD;
        self.backoff.end(at);
        if let (None, Some(piece)) = (line.witness, line.pieces.front_mut()) {
            piece.attempts -= 1;
        }
    }

    pub(super) fn keys_of(&self, numbers: &[Number]) -> Vec<u64> {
        numbers.iter().map(|number| self.ticket(*number).key).collect()
    }

    fn answer(
        &mut self,
        at: usize,
        mut piece: Piece,
        outcome: Outcome,
        now: Millis,
        witness: Option<Witness>,
    ) {
        let sent = piece.tickets.len() as u64;
        let (failure, named) = match outcome {
            Outcome::Delivered | Outcome::Partial { rejected: 0, .. } => {
                return self.taken(at, piece, now, witness);
            }
            // That all were rejected names them.
            Outcome::Partial { rejected, reason } if rejected >= sent => {
                piece.each_failed = true;
                let class = FailureClass::Refused(RefusedClass::Invalid);
                (Failure::new(class, reason), true)
            }
            Outcome::Partial { rejected, reason } => {
                let rejected = usize::try_from(rejected).unwrap_or(piece.tickets.len());
                let rejected: Vec<_> = piece.tickets.drain(..rejected).collect();
                let keys = self.keys_of(&rejected);
                self.give_up(&piece, &rejected, DeadLetterClass::PartialSuccess, &reason);
                for (number, key) in rejected.into_iter().zip(keys) {
                    self.leave_waiting(at, key, number);
                }
                return self.taken(at, piece, now, witness);
            }
            Outcome::PerEvent(answers) => match self.sort(at, &mut piece, answers, now) {
                None => return self.taken(at, piece, now, witness),
                Some(failure) => (failure, true),
            },
            Outcome::Failed(failure) => {
                piece.each_failed = false;
                (failure, false)
            }
        };
        if failure.class == FailureClass::Throttled || failure.after.is_some() {
            self.pause(&piece, &failure, now);
        }
        if let Some(witness) = witness {
            return self.witness_answered(at, witness, Some(&failure), now);
        }
        match &self.lines[at].kind {
            Kind::Resends(_) => self.resends_failed(at, piece, &failure, now),
            Kind::Lane if piece.tickets[0] >= FIRST_RESEND => {
                self.resends_failed(at, piece, &failure, now);
            }
            Kind::Lane | Kind::Destination(_) => self.lane_failed(at, piece, failure, named, now),
            Kind::Queue(unit) => self.queue_failed(at, *unit, piece, &failure, now),
            Kind::Shelf(unit, _) => self.shelf_failed(at, *unit, piece, &failure, now),
            Kind::Closed => {}
        }
    }

    /// Takes in that the receiver has what is left of a piece.
    fn taken(&mut self, at: usize, mut piece: Piece, now: Millis, witness: Option<Witness>) {
        self.taken += 1;
        self.throttled = 0;
        let tickets = std::mem::take(&mut piece.tickets);
        let live = tickets.last().is_some_and(|last| *last < FIRST_RESEND);
        if !self.watching && live && self.live.is_near() && self.returned.is_empty() {
            // Nothing fails: the common case costs little.
            self.live.close_near(&tickets, |key| self.keys.release(key));
            for run in tickets.chunk_by(|before, number| before + 1 == *number) {
                fates::add_all(&mut self.fates, run[0]..run[0] + run.len() as u64, Fate::Delivered);
            }
        } else {
            piece.keep_own_failure(tickets.len());
            for number in &tickets {
                self.one_taken(at, *number, &piece, Fate::Delivered, now);
            }
        }
        self.spare(tickets);
        if let Some(witness) = witness {
            self.drop_witness(at, witness);
            self.witness_answered(at, witness, None, now);
        }
        let Some(line) = self.lines.get_mut(at) else { return };
        if witness.is_none() || matches!(line.kind, Kind::Lane) {
            line.in_a_row = 0;
        }
        match &line.kind {
            _ if witness.is_some() => {}
            Kind::Lane | Kind::Destination(_) if piece.is_part => self.end_round_if_over(at, now),
            Kind::Queue(_) | Kind::Resends(_) => self.queue_taken(at, now),
            Kind::Destination(destination) => {
                // It takes again.
                self.destinations.remove(destination);
                self.return_backlog(at);
                self.close_if_done(at, now);
            }
            _ => self.close_if_done(at, now),
        }
        if self.watching {
            self.watch_on();
        }
    }

    /// Takes in that the receiver has a record.
    fn one_taken(&mut self, at: usize, number: Number, piece: &Piece, fate: Fate, now: Millis) {
        if self.watching {
            let ticket = self.ticket(number);
            self.places.taken(&ticket, piece.sent_at);
            let mut failure = piece.failure.as_ref().or(piece.trial.failure.as_ref());
            if let Kind::Shelf(_, shelf) | Kind::Resends(shelf) = &mut self.lines[at].kind {
                if shelf.shares_backoff(ticket.key) {
                    self.backoff.taken();
                }
                shelf.go(ticket.key);
                failure = shelf.get(ticket.key).and_then(|aside| aside.trial.failure.as_ref());
            }
            // It has failed with the same records before: that was not for what they hold.
            let failure = failure.filter(|failure| failure.fault != Fault::Sink);
            if let Some(status) = failure.map(|failure| failure.status) {
                self.places.passed(ticket.destination, status, now);
                if let Kind::Queue(unit) | Kind::Shelf(unit, _) = &self.lines[at].kind {
                    self.acquitted = Some(*unit);
                }
            }
            self.finish(number, fate);
            return self.leave_waiting(at, ticket.key, number);
        }
        self.finish(number, fate);
    }

    /// Takes in that a record, or a resend, has its fate: it is set aside no more.
    fn leave_waiting(&mut self, at: usize, key: u64, number: Number) {
        if number < FIRST_RESEND {
            self.leave_shelf(at, key);
        } else {
            self.drop_waiting(at, key, number);
        }
    }

    /// Watches who is taken for as long as something fails.
    fn watch_on(&mut self) {
        let lanes = self.options.lanes;
        let fails = |piece: &Piece| piece.failure.is_some() || piece.is_part;
        self.watching = self.lines.len() > lanes
            || !self.returned.is_empty()
            || !self.live.left().is_empty()
            || !self.tallies.is_empty()
            || self.lines[..lanes].iter().any(|lane| {
                lane.pieces.iter().any(fails)
                    || !lane.failed_parts.is_empty()
                    || lane.witness.is_some()
            });
        if !self.watching && lanes == 1 {
            self.keys.forget_all();
        }
    }

    /// Gives records that were answered one by one their fates. Those that failed stay, and why is
    /// answered.
    fn sort(
        &mut self,
        at: usize,
        piece: &mut Piece,
        answers: Vec<EventFate>,
        now: Millis,
    ) -> Option<Failure> {
        let tickets = std::mem::take(&mut piece.tickets);
        let taken = answers.iter().filter(|answer| !matches!(answer, EventFate::Failed(_)));
        piece.keep_own_failure(taken.count().min(tickets.len()));
        let mut answers = answers.into_iter();
        let (mut left, mut alike): (Option<Failure>, _) = (None, true);
        for number in &tickets {
            // A sink that answers for too few has not said that it took the others.
            let failure = match answers.next() {
                Some(EventFate::Delivered) => {
                    self.one_taken(at, *number, piece, Fate::Delivered, now);
                    continue;
                }
                Some(EventFate::Duplicate) => {
                    self.one_taken(at, *number, piece, Fate::Duplicate, now);
                    continue;
                }
                Some(EventFate::Failed(failure)) => failure,
                None => Failure::unanswered(),
            };
            piece.tickets.push(*number);
            left = Some(match left {
                Some(before) => {
                    alike &= (before.fault, before.status) == (failure.fault, failure.status);
                    graver(before, failure)
                }
                None => failure,
            });
        }
        piece.each_failed = alike;
        self.taken += u64::from(piece.tickets.len() < tickets.len());
        self.spare(tickets);
        left
    }

    pub(super) fn spare(&mut self, mut tickets: Vec<Number>) {
        if self.spare.len() < self.options.lanes {
            tickets.clear();
            self.spare.push(tickets);
        }
    }

    /// Slows all lanes. Requests for less that answer what was sent before the first of them are one.
    fn pause(&mut self, piece: &Piece, failure: &Failure, now: Millis) {
        if piece.sent_at > self.throttled_at {
            self.throttled_at = self.moment;
            self.throttled += 1;
        }
        let wait = wait(&self.options.retry, self.throttled, failure.after, &mut self.random);
        self.paused_until = self.paused_until.max(now + wait);
    }

    /// Makes dead letters.
    pub(super) fn give_up(
        &mut self,
        piece: &Piece,
        numbers: &[Number],
        class: DeadLetterClass,
        reason: &Reason,
    ) {
        for number in numbers {
            let Tally { attempts, first, .. } = self.tally(*number, piece);
            let letter = GivenUp { class, reason: reason.clone(), attempts, first, by_hand: false };
            self.finish(*number, Fate::DeadLetter(letter));
        }
    }

    /// The past of a record, in a piece and before.
    pub(super) fn tally(&self, number: Number, piece: &Piece) -> Tally {
        let before = self.tallies.get(&number).copied();
        let first = before.map_or(piece.first.unwrap_or_default(), |before| before.first);
        let before = before.unwrap_or_default();
        Tally {
            attempts: before.attempts + piece.attempts,
            failures: before.failures + piece.failures,
            first,
        }
    }

    /// Notes what the records of a piece have been through, which is taken apart.
    pub(super) fn keep_tally(&mut self, piece: &Piece) {
        for number in &piece.tickets {
            let tally = self.tally(*number, piece);
            self.tallies.insert(*number, tally);
        }
    }

    pub(super) fn ticket(&self, number: Number) -> super::Ticket {
        ticket_of(&self.live, &self.resends, number)
    }

    pub(super) fn finish(&mut self, number: Number, fate: Fate) {
        if !self.tallies.is_empty() {
            self.tallies.remove(&number);
        }
        if !self.cancelled.is_empty() {
            self.cancelled.retain(|cancelled| *cancelled != number);
        }
        let window = if number < FIRST_RESEND { &mut self.live } else { &mut self.resends };
        let copied = window.is_copied(number);
        let ticket = window.close(number);
        self.shares.drop(&ticket, copied);
        self.release_resend(number, ticket.key);
        if number < FIRST_RESEND && !self.returned.is_empty() {
            self.returned.finished(ticket.key);
        }
        fates::add_all(&mut self.fates, number..number + 1, fate);
    }
}

/// The failure that decides when both are tried again: a request for less, else the first, with the
/// longer wait.
fn graver(before: Failure, other: Failure) -> Failure {
    let after = before.after.max(other.after);
    let throttled = |failure: &Failure| failure.class == FailureClass::Throttled;
    let graver = if throttled(&other) && !throttled(&before) { other } else { before };
    Failure { after, ..graver }
}
