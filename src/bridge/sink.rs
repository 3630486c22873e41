//! What a sink is to the bridge: one attempt to deliver one batch, and an honest answer.

use futures_util::future::BoxFuture;

use super::{Failure, FailureClass, Reason, RefusedClass};
use crate::event::{Batch, Record};

/// What became of one event of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventFate {
    /// The receiver has it.
    Delivered,
    /// The receiver has had it before, by its id, and has not taken it twice. That is delivered, and
    /// counted beside that.
    Duplicate,
    /// The receiver has not taken it. The class of the failure says whether it is sent again.
    Failed(Failure),
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver has all of it.
    Delivered,
    /// The receiver answered for each event: one fate for each record, in the order of the batch.
    PerEvent(Vec<EventFate>),
    /// The receiver took the batch but for some events that it does not name (OTLP partial
    /// success). Nothing of it is sent again, unless it rejects everything for long.
    Partial {
        /// How many it rejected. With 0 it took all of them, and warns.
        rejected: u64,
        /// The receiver's words.
        reason: Reason,
    },
    /// Nothing was taken, as far as is known, or something of it is refused, and nobody says which.
    Failed(Failure),
}

impl Outcome {
    /// The outcome of a batch of so many records that is sent in parts: for each the places of its records, and its outcome.
    pub(crate) fn of_parts(records: usize, mut parts: Vec<(Vec<usize>, Self)>) -> Self {
        if parts.len() == 1
            && let Some((_, outcome)) = parts.pop_if(|(places, _)| places.len() == records)
        {
            return outcome;
        }
        let waits = parts.iter().find(|(_, outcome)| outcome.is_to_be_retried());
        let waits = waits.and_then(|(places, outcome)| outcome.failure(places.len()));
        let mut fates = vec![EventFate::Failed(Failure::unanswered()); records];
        for (places, outcome) in parts {
            let is_refusal = |failure: &Failure| matches!(failure.class, FailureClass::Refused(_));
            let fate = match outcome {
                Self::Delivered => EventFate::Delivered,
                Self::PerEvent(of_part) => {
                    for (at, fate) in places.into_iter().zip(of_part) {
                        fates[at] = fate;
                    }
                    continue;
                }
                // The receiver does not say which of them it refuses: the batch is halved, once no other part asks for time.
                Self::Failed(failure) if places.len() > 1 && is_refusal(&failure) => {
                    let Some(waits) = &waits else { return Self::Failed(failure) };
                    EventFate::Failed(waits.clone())
                }
                Self::Failed(failure) => EventFate::Failed(failure),
                Self::Partial { reason, .. } => {
                    return Self::Failed(Failure::refused(RefusedClass::Invalid, reason));
                }
            };
            for at in places {
                fates[at] = fate.clone();
            }
        }
        Self::PerEvent(fates)
    }

    /// Whether some of the batch is to be sent again because it was not taken, not because it was
    /// refused.
    pub(super) fn is_to_be_retried(&self) -> bool {
        let retried = |failure: &Failure| !matches!(failure.class, FailureClass::Refused(_));
        match self {
            Self::Failed(failure) => retried(failure),
            Self::PerEvent(fates) => fates
                .iter()
                .any(|fate| matches!(fate, EventFate::Failed(failure) if retried(failure))),
            Self::Delivered | Self::Partial { .. } => false,
        }
    }

    /// Why something of a batch of so many was not taken: the first reason of several.
    pub(super) fn failure(&self, events: usize) -> Option<Failure> {
        match self {
            Self::Delivered | Self::Partial { .. } => None,
            Self::Failed(failure) => Some(failure.clone()),
            Self::PerEvent(fates) => {
                let failed = fates.iter().find_map(|fate| match fate {
                    EventFate::Failed(failure) => Some(failure.clone()),
                    EventFate::Delivered | EventFate::Duplicate => None,
                });
                failed.or_else(|| (fates.len() < events).then(Failure::unanswered))
            }
        }
    }

    /// How many of the batch the receiver has had before.
    pub(super) fn duplicates(&self) -> u64 {
        let Self::PerEvent(fates) = self else { return 0 };
        fates.iter().filter(|fate| **fate == EventFate::Duplicate).count() as u64
    }
}

/// A transport, shared by the attempts that are under way: what they have in common, a client with its
/// connections or a producer with its queue, is the sink's, once. A sink neither sleeps nor retries (librdkafka's queue
/// and the wait for Splunk's acknowledgement excepted); the bridge owns time and order. It makes its
/// [`Secrets`](super::Secrets) of its options, once, and every [`Reason`] by them.
///
/// [`send`](Self::send) may be called while an earlier call has not ended. A sink that has room for one
/// attempt, or whose receiver needs batches one after the other, lets them wait within: a lock that is
/// held over the attempt does (`tokio::sync::Mutex`, which is fair). The wait counts into the
/// configured timeout.
///
/// The future of [`send`](Self::send) may be dropped at any await, when the configured timeout
/// has passed or the bridge stops. A later call then brings the same batch again or a part of it,
/// and others may come in between, those that are sent beside the journal's order (dead letters,
/// replays: [`Record::FIRST_ERRAND`](crate::event::Record::FIRST_ERRAND)) among them. A sink that
/// keeps messages in a queue of its own must recognise them rather than queue twice.
pub trait Sink: Send + Sync + 'static {
    /// Makes ready for a run; called once, before the first batch. Where the journal has a past, a run
    /// before may have been killed while it sent a batch. Waits for nothing.
    fn begin(&self, journal_has_past: bool) {
        let _ = journal_has_past;
    }

    /// Makes one attempt to send one batch, which is never empty.
    fn send<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Outcome>;

    /// The destination that a template makes of a record; the number of them is bounded. Nothing where it is the
    /// same for all. The error says why there is none for this one, which is not sent then.
    fn destination(&self, record: &Record) -> Result<Option<String>, Reason> {
        let _ = record;
        Ok(None)
    }

    /// Lets go of connections and queues; called once, when no attempt is under way and none follows.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::Secrets;

    #[test]
    fn a_part_that_is_refused_takes_no_other_with_it() {
        let reason = |words: &str| Secrets::none().reason(words);
        let refused = Failure::refused(RefusedClass::Unsendable, reason("one too many"));
        let down = Failure::new(FailureClass::Unavailable, reason("down"));
        let failed = |failure: &Failure| Outcome::Failed(failure.clone());
        let of = |outcome| {
            Outcome::of_parts(3, vec![(vec![1], failed(&refused)), (vec![0, 2], outcome)])
        };
        let fates =
            |first, last| Outcome::PerEvent(vec![first, EventFate::Failed(refused.clone()), last]);
        let (taken, had) = (EventFate::Delivered, EventFate::Duplicate);
        let fate = |failure: &Failure| EventFate::Failed(failure.clone());
        assert_eq!(of(Outcome::Delivered), fates(taken.clone(), taken.clone()));
        let both = vec![taken.clone(), had.clone()];
        assert_eq!(of(Outcome::PerEvent(both)), fates(taken.clone(), had));
        let one = Outcome::PerEvent(vec![taken.clone()]);
        assert_eq!(of(one), fates(taken, fate(&Failure::unanswered())));
        assert_eq!(of(failed(&down)), fates(fate(&down), fate(&down)));
        // Which of two it is nobody says: the batch is halved.
        let invalid = Failure::refused(RefusedClass::Invalid, reason("no"));
        assert_eq!(of(failed(&invalid)), failed(&invalid));
        let parts = vec![(vec![0, 2], failed(&invalid)), (vec![1], failed(&down))];
        let waits = Outcome::PerEvent(vec![fate(&down); 3]);
        assert_eq!(Outcome::of_parts(3, parts), waits);
        // The whole is no part.
        let whole = vec![(vec![0, 1, 2], failed(&down))];
        assert_eq!(Outcome::of_parts(3, whole), failed(&down));
    }
}
