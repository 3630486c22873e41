//! The answer to an attempt, and what it makes of the records that were sent.

use super::{
    super::{EventFate, Failure, FailureClass, Outcome, Reason, RefusedClass},
    Delivery, FIRST_ERRAND, Fate, Letter, LetterClass, Millis, Number,
    backoff::{long_wait, wait},
    fates,
    lane::Piece,
};

impl Delivery {
    /// Takes the outcome of what a lane sent.
    pub(in crate::bridge) fn answered(&mut self, lane: usize, outcome: Outcome, now: Millis) {
        let sent = &mut self.lanes[lane];
        debug_assert!(sent.sending, "lane {lane} sends nothing");
        sent.sending = false;
        sent.due = 0;
        self.under_way -= 1;
        let Some(mut piece) = sent.pieces.pop_front() else { return };
        let sent = piece.tickets.len() as u64;
        match outcome {
            Outcome::Delivered | Outcome::Partial { rejected: 0, .. } => self.taken(piece),
            // That all were rejected names them.
            Outcome::Partial { rejected, reason } if rejected >= sent => {
                let class = FailureClass::Refused(RefusedClass::Invalid);
                self.failed(lane, piece, Failure::new(class, reason), now);
            }
            Outcome::Partial { rejected, reason } => {
                let rejected = usize::try_from(rejected).unwrap_or(piece.tickets.len());
                let letter = letter_of(&piece, LetterClass::PartialSuccess, reason);
                for number in piece.tickets.drain(..rejected) {
                    self.finish(number, Fate::DeadLetter(letter.clone()));
                }
                self.taken(piece);
            }
            Outcome::PerEvent(answers) => {
                if let Some(failure) = self.sort(&mut piece, answers) {
                    self.failed(lane, piece, failure, now);
                } else {
                    self.spare(piece);
                }
            }
            Outcome::Failed(failure) => self.failed(lane, piece, failure, now),
        }
    }

    fn taken(&mut self, mut piece: Piece) {
        self.taken += 1;
        for number in piece.tickets.drain(..) {
            self.finish(number, Fate::Delivered);
        }
        self.spare(piece);
    }

    /// Gives records that were answered one by one their fates. Those to be sent again stay, and why is
    /// answered.
    fn sort(&mut self, piece: &mut Piece, answers: Vec<EventFate>) -> Option<Failure> {
        let mut answers = answers.into_iter();
        let mut left: Option<Failure> = None;
        let mut taken = false;
        let tickets = std::mem::take(&mut piece.tickets);
        for number in &tickets {
            // A sink that answers for too few has not said that it took the others.
            let failure = match answers.next() {
                Some(EventFate::Delivered) => {
                    taken = true;
                    self.finish(*number, Fate::Delivered);
                    continue;
                }
                Some(EventFate::Duplicate) => {
                    taken = true;
                    self.finish(*number, Fate::Duplicate);
                    continue;
                }
                Some(EventFate::Failed(failure)) => failure,
                None => Failure::unanswered(),
            };
            if let FailureClass::Refused(class) = failure.class {
                let letter = letter_of(piece, LetterClass::Refused(class), failure.reason);
                self.finish(*number, Fate::DeadLetter(letter));
                continue;
            }
            piece.tickets.push(*number);
            left = Some(match left {
                Some(before) => graver(before, failure),
                None => failure,
            });
        }
        self.taken += u64::from(taken);
        left
    }

    /// Takes in a failure: the piece is halved, given up, or sent again after a wait.
    fn failed(&mut self, lane: usize, mut piece: Piece, failure: Failure, now: Millis) {
        self.drop_cancelled(&mut piece);
        if piece.tickets.is_empty() {
            return;
        }
        if let FailureClass::Refused(class) = failure.class {
            if piece.tickets.len() > 1 {
                // One event may spoil the batch. The first half goes first: order counts.
                let second = piece.split_off_half();
                self.lanes[lane].pieces.push_front(second);
                self.lanes[lane].pieces.push_front(piece);
            } else {
                self.give_up(piece, LetterClass::Refused(class), failure.reason);
            }
            return;
        }
        piece.in_a_row += 1;
        // What somebody has to mend is waited for: given up, an expired token would empty the
        // journal into the dead letters.
        let mends_itself = failure.class != FailureClass::Misconfigured;
        piece.failures += u32::from(mends_itself);
        let retry = self.options.retry;
        if mends_itself && retry.max_attempts.is_some_and(|most| piece.failures >= most) {
            self.give_up(piece, LetterClass::MaxAttempts, failure.reason);
            return;
        }
        let due = now
            + if mends_itself {
                wait(&retry, piece.in_a_row, failure.after, &mut self.random)
            } else {
                long_wait(&retry, failure.after, &mut self.random)
            };
        if failure.class == FailureClass::Throttled || failure.after.is_some() {
            self.paused_until = self.paused_until.max(due);
        }
        piece.failure = Some(failure);
        if piece.tickets[0] >= FIRST_ERRAND {
            self.wait_apart(piece, due);
            return;
        }
        self.lanes[lane].due = due;
        self.lanes[lane].pieces.push_front(piece);
    }

    fn give_up(&mut self, mut piece: Piece, class: LetterClass, reason: Reason) {
        let letter = letter_of(&piece, class, reason);
        for number in piece.tickets.drain(..) {
            self.finish(number, Fate::DeadLetter(letter.clone()));
        }
        self.spare(piece);
    }

    fn finish(&mut self, number: Number, fate: Fate) {
        let window = if number < FIRST_ERRAND { &mut self.live } else { &mut self.errands };
        let ticket = window.close(number);
        self.keys.release(ticket.key);
        self.cancelled.retain(|cancelled| *cancelled != number);
        fates::add(&mut self.fates, number, fate);
    }

    fn spare(&mut self, mut piece: Piece) {
        piece.tickets.clear();
        self.spare.push(piece.tickets);
    }
}

fn letter_of(piece: &Piece, class: LetterClass, reason: Reason) -> Letter {
    Letter { class, reason, attempts: piece.attempts, first: piece.first.unwrap_or_default() }
}

/// The failure that decides when both are tried again: a request for less, else the first, with the
/// longer wait.
fn graver(before: Failure, other: Failure) -> Failure {
    let after = before.after.max(other.after);
    let throttled = |failure: &Failure| failure.class == FailureClass::Throttled;
    let graver = if throttled(&other) && !throttled(&before) { other } else { before };
    Failure { after, ..graver }
}
