//! Errands that failed: they wait by themselves, and no live record waits for them.

use std::collections::VecDeque;

use super::{
    super::{Failure, FailureClass, Fault},
    Delivery, Kind, LetterClass, Millis, Number, Piece,
    backoff::{long_wait, wait},
    fill::Filling,
    shelf::Trial,
};

/// An errand whose key is under way is asked for again after that.
const BUSY: Millis = 1000;
/// So many failures while others are taken make an errand refused.
const TURNS: u32 = 3;

impl Delivery {
    /// The line of errands that failed.
    pub(super) fn errand_line(&mut self) -> usize {
        if let Some(at) = self.errand_line {
            return at;
        }
        let at = self.open_line(Kind::Errands);
        self.errand_line = Some(at);
        at
    }

    /// Sends an errand no more. Where an attempt is under way, that may still give it a fate.
    pub(in crate::bridge) fn cancel_errand(&mut self, number: Number) {
        for at in 0..self.lines.len() {
            let line = &mut self.lines[at];
            if let Some(place) = line.backlog.iter().position(|queued| *queued == number) {
                line.backlog.remove(place);
                let key = self.errands.close(number).key;
                if Some(at) != self.errand_line {
                    self.keys.release(key);
                } else if self.lines[at].is_empty() && !self.lines[at].sending {
                    self.close_line(at);
                }
                return;
            }
        }
        self.cancelled.push(number);
    }

    /// Passes over errands that were cancelled before a lane had them.
    pub(super) fn skip_cancelled(&mut self) {
        while let Some(at) = self.cancelled.iter().position(|number| *number == self.fresh_errand) {
            self.cancelled.swap_remove(at);
            self.errands.close(self.fresh_errand);
            self.fresh_errand += 1;
        }
    }

    /// Takes out of a piece what is not sent again.
    fn drop_cancelled(&mut self, piece: &mut Piece) {
        let Self { cancelled, errands, keys, .. } = self;
        piece.tickets.retain(|number| {
            let Some(at) = cancelled.iter().position(|cancelled| cancelled == number) else {
                return true;
            };
            cancelled.swap_remove(at);
            keys.release(errands.close(*number).key);
            false
        });
    }

    /// Puts an errand, whose key is counted nowhere, behind those that failed.
    pub(super) fn postpone(&mut self, number: Number) {
        let line = self.errand_line();
        self.lines[line].backlog.push_back(number);
    }

    /// What is sent again of errands, and when, or not. They have their fates already, so that what is
    /// refused is refused once more.
    pub(super) fn errands_failed(
        &mut self,
        at: usize,
        mut piece: Piece,
        failure: &Failure,
        now: Millis,
    ) {
        self.drop_cancelled(&mut piece);
        let single = piece.tickets.len() == 1;
        let refused = match failure.class {
            FailureClass::Refused(class) => Some(LetterClass::Refused(class)),
            _ => None,
        };
        if !self.count_failures(&mut piece, failure) {
            return self.close_if_done(at, now);
        }
        if let (Some(class), true) = (refused, single) {
            self.give_up(&piece, &piece.tickets, class, &failure.reason);
            return self.close_if_done(at, now);
        }
        for number in &piece.tickets {
            let key = self.ticket(*number).key;
            self.keys.release(key);
        }
        let line = self.errand_line();
        let in_itself = failure.fault == Fault::RecordForGood;
        let taken = self.taken;
        let retry = self.options.retry;
        let line = &mut self.lines[line];
        let mut trial = Trial::default();
        if let Some((number, before)) = &mut line.trial
            && single
            && *number == piece.tickets[0]
        {
            trial = std::mem::take(before);
        }
        line.in_a_row += 1;
        let due = match failure.class {
            FailureClass::Refused(_) => 0,
            FailureClass::Misconfigured => long_wait(&retry, failure.after, &mut self.random),
            _ => wait(&retry, line.in_a_row, failure.after, &mut self.random),
        };
        line.due = line.due.max(now + due);
        line.size = (piece.tickets.len() / 2).max(1);
        if single && in_itself {
            let others_taken = trial.failure.is_some() && taken > trial.failed_at;
            trial.failed(failure, others_taken, taken);
        }
        let given_up = trial.turns >= TURNS;
        if single {
            line.trial = (!given_up).then_some((piece.tickets[0], trial));
        }
        if given_up {
            // Its key is not counted any more.
            self.keys.claim(self.ticket(piece.tickets[0]).key, at);
            self.give_up(&piece, &piece.tickets, LetterClass::Blocked, &failure.reason);
        } else {
            for number in piece.tickets.iter().rev() {
                line.backlog.push_front(*number);
            }
            self.spare(piece.tickets);
        }
        self.close_if_done(at, now);
    }

    /// Makes the next batch of errands that failed, of those whose objects no lane has.
    pub(super) fn fill_errands(&mut self, at: usize, now: Millis) -> bool {
        let most = self.lines[at].size;
        let mut batch = Filling::new(Vec::new(), most, self.options.batch_bytes);
        let mut busy = VecDeque::new();
        while let Some(number) = self.lines[at].backlog.pop_front() {
            let ticket = self.errands.get(number);
            // No order holds for it, but two attempts under way at once of one object are spared to its receiver.
            let lane = self.keys.line(ticket.key).is_some_and(|line| line < self.options.lanes);
            if lane || !batch.has_room_for(&ticket) {
                busy.push_back(number);
            } else {
                self.keys.claim(ticket.key, at);
                batch.add(number, &ticket);
            }
        }
        self.lines[at].backlog = busy;
        let tickets = batch.tickets;
        if tickets.is_empty() {
            self.lines[at].due = now + BUSY;
            return false;
        }
        self.lines[at].pieces.push_back(Piece::new(tickets));
        true
    }
}
