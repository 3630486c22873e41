//! Resends that failed: each waits by itself, before later ones of its object. No resend of another object
//! waits for it, and no live record.

use std::collections::{HashSet, VecDeque};

use super::{
    DeadLetterClass, Delivery, FIRST_RESEND, Kind, Line, Millis, Number, Piece,
    backoff::{long_wait, wait},
    fill::Filling,
    shelf::{Aside, Shelf, Trial},
};
use crate::bridge::{Failure, FailureClass, Fault};

/// A resend whose key is under way is asked for again after that.
const BUSY: Millis = 1000;
/// So many failures while others are taken make a resend refused.
const TURNS: u32 = 3;

impl Delivery {
    /// The line of resends that failed.
    fn resend_line(&mut self) -> usize {
        if let Some(at) = self.resend_line {
            return at;
        }
        let at = self.open_line(Kind::Resends(Shelf::default()));
        self.resend_line = Some(at);
        at
    }

    /// Sends a resend no more. Where an attempt is under way, that may still give it a fate.
    pub(crate) fn cancel_resend(&mut self, number: Number) {
        if !self.resends.is_open(number) {
            return;
        }
        let key = self.resends.get(number).key;
        // A single lane needs no keys.
        let at = if self.keys.are_kept() { self.keys.line(key) } else { Some(0) };
        if let Some(line) = at.and_then(|at| self.lines.get_mut(at))
            && let Some(place) = line.backlog.iter().position(|queued| *queued == number)
        {
            line.backlog.remove(place);
            self.close_resend(number);
            return self.keys.release(key);
        }
        if let Some(at) = self.resend_line
            && number < self.fresh_resend
            && !self.tickets(at).contains(&number)
            && self.drop_waiting(at, key, number)
        {
            self.close_resend(number);
            if self.lines[at].is_empty() && !self.lines[at].sending {
                self.close_line(at);
            }
            return;
        }
        // One that is to be sent again.
        let has = |line: &Line| {
            let mut pieces = line.pieces.iter().chain(&line.failed_parts);
            !line.sending && pieces.any(|piece| piece.tickets.contains(&number))
        };
        let Some(at) = self.lines.iter().position(has) else {
            return self.cancelled.push(number);
        };
        self.take_out(at, number);
        self.close_resend(number);
        self.release_resend(number, key);
        self.drop_waiting(at, key, number);
        if Some(at) == self.resend_line && self.lines[at].is_empty() {
            self.close_line(at);
        }
    }

    /// Passes over resends that were cancelled before a lane had them.
    pub(super) fn skip_cancelled(&mut self) {
        while let Some(at) = self.cancelled.iter().position(|number| *number == self.fresh_resend) {
            self.cancelled.swap_remove(at);
            self.resends.close(self.fresh_resend);
            self.fresh_resend += 1;
        }
    }

    /// Takes out of a piece what is not sent again.
    fn drop_cancelled(&mut self, at: usize, piece: &mut Piece) {
        for number in std::mem::take(&mut piece.tickets) {
            let cancelled = self.cancelled.iter().position(|cancelled| *cancelled == number);
            let Some(place) = cancelled else {
                piece.tickets.push(number);
                continue;
            };
            self.cancelled.swap_remove(place);
            let key = self.close_resend(number);
            self.release_resend(number, key);
            self.drop_waiting(at, key, number);
        }
    }

    /// Closes a resend without a fate, and answers its key.
    fn close_resend(&mut self, number: Number) -> u64 {
        self.tallies.remove(&number);
        self.resends.close(number).key
    }

    /// Counts a resend off that is not under way any more.
    pub(super) fn release_resend(&mut self, number: Number, key: u64) {
        if !self.uncounted.remove(&number) {
            self.keys.release(key);
        }
    }

    /// Whether a resend of a key waits.
    pub(super) fn has_waiting(&self, key: u64) -> bool {
        let line = self.resend_line.map(|at| &self.lines[at].kind);
        matches!(line, Some(Kind::Resends(waiting)) if waiting.has(key))
    }

    /// Puts a resend, whose key is counted nowhere, behind those of its key that failed.
    pub(super) fn postpone(&mut self, number: Number) {
        let key = self.resends.get(number).key;
        let at = self.resend_line();
        let Kind::Resends(waiting) = &mut self.lines[at].kind else { return };
        if waiting.has(key) {
            waiting.push(key, number);
        } else {
            waiting.add(key, Aside::new(VecDeque::from([number]), 0));
        }
    }

    /// Takes a resend out of those that wait. The next one of its key goes at once.
    pub(super) fn drop_waiting(&mut self, at: usize, key: u64, number: Number) -> bool {
        let Some(Kind::Resends(waiting)) = self.lines.get_mut(at).map(|line| &mut line.kind) else {
            return false;
        };
        let is_first = waiting.is_first(key, number);
        let Some(aside) = waiting.get(key) else { return false };
        let Some(place) = aside.tickets.iter().position(|other| *other == number) else {
            return false;
        };
        aside.tickets.remove(place);
        if is_first
            && let Some(Aside { tickets, .. }) = waiting.take(key)
            && !tickets.is_empty()
        {
            waiting.add(key, Aside::new(tickets, 0));
        }
        true
    }

    /// Takes in that resends failed: sent again, and when, or not. They have their fates already, so that what is
    /// refused is refused once more.
    pub(super) fn resends_failed(
        &mut self,
        at: usize,
        mut piece: Piece,
        failure: &Failure,
        now: Millis,
    ) {
        let moment = self.tick();
        self.drop_cancelled(at, &mut piece);
        let keys = self.keys_of(&piece.tickets);
        let sent: Vec<_> = piece.tickets.iter().copied().zip(keys).collect();
        let single = sent.len() == 1;
        self.count_failures(&mut piece, failure);
        if let (FailureClass::Refused(class), true) = (failure.class, single) {
            self.give_up(&piece, &piece.tickets, DeadLetterClass::Refused(class), &failure.reason);
            piece.tickets.clear();
        }
        for (number, key) in sent.iter().filter(|(number, _)| !piece.tickets.contains(number)) {
            self.drop_waiting(at, *key, *number);
        }
        self.wait_apart(at, &piece.tickets);
        if let (Some(line), Some(first)) = (self.resend_line, piece.tickets.first()) {
            let ticket = self.resends.get(*first);
            let unit = self.places.unit(&ticket, false);
            let others_taken = self.places.others_taken(&unit, self.lines[line].failed_at);
            self.resend_line_failed(line, sent.len(), others_taken, failure, now);
            self.lines[line].failed_at = moment;
            self.was_silent(failure, now);
            if failure.fault != Fault::Sink && single {
                self.resend_failed(line, *first, &piece, failure, (now, moment));
            }
        }
        self.spare(piece.tickets);
        self.close_if_done(at, now);
    }

    /// Has all resends wait that have failed, unless others are taken: then each waits by itself.
    fn resend_line_failed(
        &mut self,
        line: usize,
        sent: usize,
        others_taken: bool,
        failure: &Failure,
        now: Millis,
    ) {
        let (retry, line) = (self.options.retry, &mut self.lines[line]);
        line.size = (sent / 2).max(1);
        if let Kind::Resends(waiting) = &mut line.kind {
            waiting.stop();
        }
        if failure.fault != Fault::Sink && others_taken {
            line.in_a_row = 0;
            return;
        }
        line.in_a_row += 1;
        let wait = match failure.class {
            FailureClass::Refused(_) => 0,
            FailureClass::Misconfigured => long_wait(&retry, failure.after, &mut self.random),
            _ => wait(&retry, line.in_a_row, failure.after, &mut self.random),
        };
        line.due = line.due.max(now + wait);
    }

    /// Takes in that a resend failed by itself.
    fn resend_failed(
        &mut self,
        line: usize,
        number: Number,
        piece: &Piece,
        failure: &Failure,
        (now, moment): (Millis, u64),
    ) {
        let ticket = self.resends.get(number);
        let tells = failure.fault == Fault::RecordForGood
            && self.places.tells(ticket.destination, failure.status, now);
        let Kind::Resends(waiting) = &mut self.lines[line].kind else { return };
        let Some(mut aside) = waiting.take(ticket.key) else { return };
        aside.trial.failed(failure, piece.others_taken, moment);
        aside.silent = aside.trial.is_silent();
        aside.in_a_row += 1;
        aside.due = now + wait(&self.options.retry, aside.in_a_row, None, &mut self.random);
        let given_up = tells && aside.trial.alike >= TURNS;
        waiting.add(ticket.key, aside);
        if given_up {
            self.uncounted.insert(number);
            self.drop_waiting(line, ticket.key, number);
            self.give_up(piece, &[number], DeadLetterClass::Blocked, &failure.reason);
        }
    }

    /// Has resends that a line sent wait, with those of their keys that queue up behind them in a lane.
    fn wait_apart(&mut self, at: usize, tickets: &[Number]) {
        let keys: HashSet<u64> =
            tickets.iter().map(|number| self.resends.get(*number).key).collect();
        for number in tickets {
            self.release_resend(*number, self.resends.get(*number).key);
        }
        if at >= self.options.lanes {
            return;
        }
        let backlog = std::mem::take(&mut self.lines[at].backlog);
        let of = |number: &Number| {
            *number >= FIRST_RESEND && keys.contains(&self.resends.get(*number).key)
        };
        let (behind, stays): (Vec<_>, Vec<_>) = backlog.into_iter().partition(of);
        self.lines[at].backlog = stays.into();
        for number in &behind {
            self.keys.release(self.resends.get(*number).key);
        }
        tickets.iter().chain(&behind).for_each(|number| self.postpone(*number));
    }

    /// Makes the next batch of resends that failed, of those whose objects no lane has.
    pub(super) fn fill_resends(&mut self, at: usize, now: Millis) -> bool {
        let Self { lines, resends, keys, options, places, uncounted, backoff, .. } = self;
        let Line { kind, size, pieces, .. } = &mut lines[at];
        let Kind::Resends(waiting) = kind else { return false };
        let mut batch = Filling::new(Vec::new(), *size, options.batch_bytes);
        loop {
            for number in waiting.next(*size, backoff.until()) {
                let ticket = resends.get(number);
                // No order holds between it and live records, but two attempts under way at once of one object
                // are spared to its receiver.
                if keys.line(ticket.key).is_some_and(|line| line < options.lanes) {
                    waiting.postpone(ticket.key, now + BUSY);
                } else if batch.has_room_for(&ticket) {
                    batch.add(number, &ticket);
                }
            }
            if !batch.tickets.is_empty() {
                break;
            }
            waiting.stop();
            if waiting.due(backoff.until()).is_none_or(|due| due > now) {
                break;
            }
        }
        let mut piece = Piece::new(batch.tickets);
        if let &[number] = &piece.tickets[..]
            && let Some(aside) = waiting.get(resends.get(number).key)
        {
            let unit = places.unit(&resends.get(number), false);
            let Trial { failure, failed_at, .. } = &aside.trial;
            piece.others_taken = failure.is_some() && places.others_taken(&unit, *failed_at);
        }
        for number in &piece.tickets {
            let ticket = resends.get(*number);
            // What waits beside the lanes may leave its line before this is answered.
            if keys.line(ticket.key).is_some() {
                uncounted.insert(*number);
            } else {
                keys.claim(&ticket, at);
            }
        }
        let any = !piece.tickets.is_empty();
        pieces.extend(any.then_some(piece));
        any
    }
}
