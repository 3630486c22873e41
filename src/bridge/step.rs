//! One step of delivery: what the answer to an attempt makes of the records that were sent, and what
//! is sent next. Live batches, dead letters and replays go by it alike.
//!
//! The step waits for nothing and asks no clock. Sending, waiting and keeping account are its callers': the
//! [live path](super::deliver) and the [courier](super::errands).

#[cfg(test)]
mod tests;

use super::{
    EventFate, Failure, FailureClass, Outcome, Reason, RefusedClass, RetryOptions, Secrets,
};
use crate::event::{Batch, Record};

/// After so many refusals of single events in a row it is the sink that is wrong, not the events.
const REFUSALS_IN_A_ROW: u32 = 20;

/// Records that are sent as one.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) batch: Batch,
    /// Where in the whole batch each of them is.
    pub(super) places: Vec<usize>,
    /// Since it was halved out of a larger one.
    pub(super) attempts: u32,
    /// Of these, the failures that mend themselves, which `retry.maxAttempts` bounds.
    pub(super) failures: u32,
    /// When the whole batch was first sent, in milliseconds since the epoch.
    pub(super) first_ms: u64,
}

/// The outcome of a step.
#[derive(Debug)]
pub(super) struct Step {
    /// Records that have their answer for good, and are in the piece no more.
    pub(super) answers: Vec<Answered>,
    pub(super) next: Next,
}

/// Records with the same answer.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) records: Vec<Record>,
    /// Where in the whole batch each of them is.
    pub(super) places: Vec<usize>,
    pub(super) answer: Answer,
}

/// The receiver's last word about records.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The receiver has them.
    Taken {
        /// The receiver's words, where it warns.
        warning: Option<Reason>,
    },
    /// The receiver will never have them, or they are given up.
    Refused { class: DeadLetterClass, reason: Reason },
}

/// Why records are not tried any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeadLetterClass {
    /// Each of them was refused by itself.
    Refused(RefusedClass),
    /// So many of a batch were refused without being named: these stand for them.
    PartialSuccess,
    /// They failed as often as `retry.maxAttempts` allows.
    MaxAttempts,
}

impl DeadLetterClass {
    /// The spelling in dead letters and metrics.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Refused(class) => class.as_str(),
            Self::PartialSuccess => "partial-success",
            Self::MaxAttempts => "max-attempts",
        }
    }
}

/// The next thing to do with a piece.
#[derive(Debug)]
pub(super) enum Next {
    /// Nothing: each record has its answer.
    Done,
    /// The rest is sent again after a wait.
    Again(Failure),
    /// The second half: the piece, which is the first half now, goes before it.
    Halved(Piece),
}

/// Events that were refused by themselves, or with all others of a batch, one after the other.
#[derive(Debug)]
pub(super) struct Refusals {
    in_a_row: u32,
    most: Option<u32>,
}

impl Refusals {
    /// Those of live events: too many in a row are a failure of the sink, which gives up nothing.
    pub(super) fn bounded() -> Self {
        Self { in_a_row: 0, most: Some(REFUSALS_IN_A_ROW) }
    }

    /// Those of dead letters and replays, which lose nothing by it: an event that is sent once more
    /// has its fate already.
    pub(super) fn unbounded() -> Self {
        Self { in_a_row: 0, most: None }
    }

    fn end(&mut self) {
        self.in_a_row = 0;
    }

    /// Counts so many more, which one answer refuses. If there were too many before, the reason to
    /// retry instead.
    fn count(&mut self, events: usize, reason: &Reason) -> Result<(), Failure> {
        match self.most {
            Some(most) if self.in_a_row >= most => {
                let words = format_args!("refuses everything, {most} events in a row: {reason}");
                let reason = Secrets::none().reason(words);
                Err(Failure::new(FailureClass::Misconfigured, reason))
            }
            _ => {
                let events = u32::try_from(events).unwrap_or(u32::MAX);
                self.in_a_row = self.in_a_row.saturating_add(events);
                Ok(())
            }
        }
    }
}

impl Piece {
    /// A whole batch.
    pub(super) fn whole(batch: Batch, now_ms: u64) -> Self {
        let places = (0..batch.records.len()).collect();
        Self { batch, places, attempts: 0, failures: 0, first_ms: now_ms }
    }

    /// Takes the answer to one attempt.
    pub(super) fn answered(
        &mut self,
        outcome: Outcome,
        options: &RetryOptions,
        refusals: &mut Refusals,
    ) -> Step {
        self.attempts += 1;
        let count = self.places.len();
        let mut answers = Vec::new();
        let failure = match outcome {
            Outcome::Delivered => {
                refusals.end();
                return Step::done(vec![self.take(count, Answer::Taken { warning: None })]);
            }
            Outcome::Partial { rejected: 0, reason } => {
                refusals.end();
                return Step::done(vec![self.take(count, Answer::Taken { warning: Some(reason) })]);
            }
            Outcome::Partial { rejected, reason } => {
                let rejected = usize::try_from(rejected).unwrap_or(count).min(count);
                let counted = if rejected < count {
                    refusals.end();
                    Ok(())
                } else {
                    refusals.count(rejected, &reason)
                };
                match counted {
                    Ok(()) => {
                        let class = DeadLetterClass::PartialSuccess;
                        let refused = self.take(rejected, Answer::Refused { class, reason });
                        // A sink that rejects all of them has taken the batch nonetheless.
                        let taken = self.take(count - rejected, Answer::Taken { warning: None });
                        return Step::done(vec![refused, taken]);
                    }
                    Err(failure) => failure,
                }
            }
            Outcome::PerEvent(fates) => match self.sort(fates, refusals, &mut answers) {
                Some(failure) => failure,
                None => return Step::done(answers),
            },
            Outcome::Failed(Failure { class: FailureClass::Refused(_), .. }) if count > 1 => {
                // One event may spoil the batch. The first half goes first: order counts.
                return Step { answers, next: Next::Halved(self.split_off_half()) };
            }
            Outcome::Failed(Failure { class: FailureClass::Refused(class), reason, .. }) => {
                match refusals.count(1, &reason) {
                    Ok(()) => {
                        let class = DeadLetterClass::Refused(class);
                        return Step::done(vec![
                            self.take(count, Answer::Refused { class, reason }),
                        ]);
                    }
                    Err(failure) => failure,
                }
            }
            Outcome::Failed(failure) => failure,
        };
        // What somebody has to mend is waited for: given up, an expired token would empty the
        // journal into the dead letters.
        self.failures += u32::from(failure.class != FailureClass::Misconfigured);
        if options.gives_up(failure.class, self.failures) {
            let (class, reason) = (DeadLetterClass::MaxAttempts, failure.reason);
            answers.push(self.take(self.places.len(), Answer::Refused { class, reason }));
            return Step::done(answers);
        }
        Step { answers, next: Next::Again(failure) }
    }

    /// Sorts records that were answered one by one; those to be sent again stay. Answers why they are:
    /// that there were too many refusals in a row, or the failure of the first, with the longest wait
    /// that was asked for.
    fn sort(
        &mut self,
        fates: Vec<EventFate>,
        refusals: &mut Refusals,
        answers: &mut Vec<Answered>,
    ) -> Option<Failure> {
        let (mut too_many, mut failed) = (None, None::<Failure>);
        let records = std::mem::take(&mut self.batch.records);
        let places = std::mem::take(&mut self.places);
        // A sink that answers for too few has not said that it took the others.
        let fates = fates.into_iter().chain(std::iter::repeat_with(unanswered));
        for ((record, place), fate) in records.into_iter().zip(places).zip(fates) {
            let answer = match fate {
                EventFate::Delivered | EventFate::Duplicate => {
                    refusals.end();
                    Some(Answer::Taken { warning: None })
                }
                EventFate::Failed(Failure {
                    class: FailureClass::Refused(class), reason, ..
                }) => match refusals.count(1, &reason) {
                    Ok(()) => {
                        Some(Answer::Refused { class: DeadLetterClass::Refused(class), reason })
                    }
                    Err(failure) => {
                        too_many = Some(failure);
                        None
                    }
                },
                EventFate::Failed(failure) => {
                    let first = failed.get_or_insert_with(|| failure.clone());
                    first.after = first.after.max(failure.after);
                    None
                }
            };
            match (answer, answers.last_mut()) {
                (None, _) => {
                    self.batch.records.push(record);
                    self.places.push(place);
                }
                (Some(Answer::Taken { .. }), Some(last)) if last.is_taken() => {
                    last.records.push(record);
                    last.places.push(place);
                }
                (Some(answer), _) => {
                    let (records, places) = (vec![record], vec![place]);
                    answers.push(Answered { records, places, answer });
                }
            }
        }
        too_many.or(failed)
    }

    /// Takes the first records out of it, with their answer.
    fn take(&mut self, count: usize, answer: Answer) -> Answered {
        let records = self.batch.records.drain(..count).collect();
        Answered { records, places: self.places.drain(..count).collect(), answer }
    }

    /// The second half; both are tried anew.
    fn split_off_half(&mut self) -> Self {
        let half = self.places.len() / 2;
        (self.attempts, self.failures) = (0, 0);
        Self {
            batch: Batch { records: self.batch.records.split_off(half) },
            places: self.places.split_off(half),
            attempts: 0,
            failures: 0,
            first_ms: self.first_ms,
        }
    }
}

/// The fate of an event that a sink has not answered for.
fn unanswered() -> EventFate {
    let reason = Secrets::none().reason("some events of the batch were not taken");
    EventFate::Failed(Failure::new(FailureClass::Unavailable, reason))
}

impl Step {
    fn done(answers: Vec<Answered>) -> Self {
        Self { answers, next: Next::Done }
    }
}

impl Answered {
    fn is_taken(&self) -> bool {
        matches!(self.answer, Answer::Taken { .. })
    }
}
