//! Events that a sink is sent outside the order of the journal: dead letters once more, dead letters that other sinks
//! forward to it, and replays.
//!
//! One batch is on its way at a time, beside the lanes of [delivery](super::delivery), and gives way to live ones: it
//! goes when no attempt is in flight, or after seven that were answered. Nothing here moves the position of a sink, or is
//! in order with live events of the same object. Its records have [numbers of their own](Record::FIRST_ERRAND), by which
//! a sink that remembers what it has queued cannot take them for live ones.

mod letters;
mod replay;

use std::{collections::BTreeMap, future::pending, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    sync::{Mutex, watch},
    time::{sleep, sleep_until, timeout},
};

use super::{
    EventFate, Failure, FailureClass, Fault, Outcome, Reason, RefusedClass, RetryOptions,
    SinkProgress,
    delivery::{LetterClass, wait_after},
    sender::{Traffic, Transport},
    stop::Stop,
};
use crate::{
    event::{Batch, Record},
    journal::Letters,
};

pub(super) use letters::DeadLetters;
pub(super) use replay::Replays;

/// So many live attempts go before a batch that waits for its turn.
const LIVE_FIRST: u64 = 7;
/// How long something takes before it is said that it waits.
const PATIENCE: Duration = Duration::from_secs(1);
/// So long an attempt goes on when the program stops: the rest of the time is for live events.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// See the [module](self). Clones send one after the other.
#[derive(Clone)]
pub(super) struct Redelivery {
    pub(super) sink: String,
    pub(super) transport: Transport,
    pub(super) retry: RetryOptions,
    pub(super) progress: Arc<SinkProgress>,
    pub(super) traffic: watch::Receiver<Traffic>,
    pub(super) stop: Stop,
    /// The number of the next record. Locked during an attempt.
    pub(super) next: Arc<Mutex<u64>>,
}

/// How often commands asked to send letters again: by sink, or of no sink in particular.
#[derive(Clone, Debug, Default)]
pub(super) struct Retries(BTreeMap<Option<String>, u64>);

impl Retries {
    pub(super) fn ask(&mut self, letters: &Letters) {
        let sink = match letters {
            Letters::Of { sink, .. } => sink.clone(),
            Letters::Numbers(_) => None,
        };
        *self.0.entry(sink).or_default() += 1;
    }

    fn of(&self, sink: &str) -> u64 {
        let is_for = |of: &Option<String>| of.as_deref().is_none_or(|of| of == sink);
        self.0.iter().filter(|(of, _)| is_for(of)).map(|(_, asked)| asked).sum()
    }
}

/// The answers to records that were sent, added up.
#[derive(Clone, Debug, Default)]
struct Tally {
    delivered: u64,
    refused: u64,
    /// The last refusal, and why.
    refusal: Option<(LetterClass, Reason)>,
}

/// Records that are sent together.
struct Part {
    records: Vec<Record>,
    attempts: u32,
    /// How many attempts count for `retry.maxAttempts`.
    failures: u32,
}

impl Redelivery {
    /// Sends envelopes until each has an answer. `waits` is called with the reason at each failure, and without one when
    /// it takes a while before that. To be dropped when live delivery has [ended](Self::ended).
    async fn send(&self, envelopes: Vec<Bytes>, mut waits: impl FnMut(Option<&Reason>)) -> Tally {
        let mut tally = Tally::default();
        let records = self.number(envelopes).await;
        let mut parts = vec![Part { records, attempts: 0, failures: 0 }];
        while let Some(mut part) = parts.pop() {
            let attempt = self.attempt(&part.records, async { true });
            let Some(outcome) = patiently(attempt, || waits(None)).await else { continue };
            part.attempts += 1;
            let Some((failure, second)) = tally.take(&mut part, outcome, &self.retry) else {
                continue;
            };
            waits(Some(&failure.reason));
            match second {
                Some(second) => parts.push(second),
                None => self.wait_after(&failure, part.attempts).await,
            }
            parts.push(part);
        }
        tally
    }

    /// Waits after so many failures in a row.
    async fn wait_after(&self, failure: &Failure, failures: u32) {
        let wait = wait_after(&self.retry, failure, failures, &mut fastrand::Rng::new());
        sleep(Duration::from_millis(wait)).await;
    }

    async fn number(&self, envelopes: Vec<Bytes>) -> Vec<Record> {
        let mut next = self.next.lock().await;
        let first = Record::FIRST_ERRAND + *next;
        *next += envelopes.len() as u64;
        let records = (first..).zip(envelopes).map(|(seq, envelope)| Record { seq, envelope });
        records.collect()
    }

    /// Makes an attempt when it is its turn, if the records are still `wanted` then.
    async fn attempt(
        &self,
        records: &[Record],
        wanted: impl Future<Output = bool>,
    ) -> Option<Outcome> {
        let _one_at_a_time = self.next.lock().await;
        self.turn().await;
        if !wanted.await {
            return None;
        }
        let outcome = self.transport.send(&Batch { records: records.to_vec() }).await;
        if let Outcome::Partial { rejected: 0, reason } = &outcome {
            self.progress.lines.warn_of(reason, records.len() as u64);
        }
        self.progress.update(|sink| {
            sink.attempts += 1;
            sink.failed_attempts += u64::from(outcome.is_to_be_retried());
            sink.duplicates += outcome.duplicates();
        });
        Some(outcome)
    }

    /// Waits until live events make way. When the program stops they do not.
    async fn turn(&self) {
        let mut traffic = self.traffic.clone();
        let after = traffic.borrow().answered + LIVE_FIRST;
        let makes_way = |traffic: &Traffic| traffic.in_flight == 0 || traffic.answered >= after;
        let paused_until = traffic.wait_for(makes_way).await.ok().and_then(|now| now.paused_until);
        if let Some(until) = paused_until {
            sleep_until(until).await;
        }
        if self.stop.is_draining() {
            pending::<()>().await;
        }
    }

    /// Completes when live delivery has ended, or a moment after the program begins to stop.
    async fn ended(&self) {
        let mut traffic = self.traffic.clone();
        let ending = async {
            self.stop.draining().await;
            sleep(ENDS_WITHIN).await;
        };
        tokio::select! {
            // A sender that is gone has ended.
            _ = traffic.wait_for(|traffic| traffic.has_ended) => {}
            () = ending => {}
        }
    }
}

impl Tally {
    /// Adds the answers to a part. What is to be sent again stays in it: why, and its second half where it is halved.
    fn take(
        &mut self,
        part: &mut Part,
        outcome: Outcome,
        retry: &RetryOptions,
    ) -> Option<(Failure, Option<Part>)> {
        let sent = part.records.len() as u64;
        let failure = match outcome {
            Outcome::Delivered => {
                self.delivered += sent;
                return None;
            }
            Outcome::Partial { rejected, reason } if rejected < sent => {
                self.delivered += sent - rejected;
                if rejected > 0 {
                    self.refuse(LetterClass::PartialSuccess, reason, rejected);
                }
                return None;
            }
            Outcome::Partial { reason, .. } => Failure::refused(RefusedClass::Invalid, reason),
            Outcome::PerEvent(fates) => self.take_each(part, fates)?,
            Outcome::Failed(failure) => failure,
        };
        let is_one = part.records.len() == 1;
        if let FailureClass::Refused(class) = failure.class
            && is_one
        {
            self.refuse(LetterClass::Refused(class), failure.reason, 1);
            return None;
        }
        let may_be_halved = failure.fault != Fault::Sink && !is_one;
        if may_be_halved && (matches!(failure.class, FailureClass::Refused(_)) || part.attempts > 1)
        {
            let second = part.records.split_off(part.records.len() / 2);
            (part.attempts, part.failures) = (0, 0);
            return Some((failure, Some(Part { records: second, ..*part })));
        }
        part.failures += u32::from(failure.class != FailureClass::Misconfigured);
        if retry.max_attempts.is_some_and(|most| part.failures >= most) {
            let records = part.records.len() as u64;
            self.refuse(LetterClass::MaxAttempts, failure.reason, records);
            return None;
        }
        Some((failure, None))
    }

    /// Takes answers to each of a part. Those that are to be sent again stay in it, and why is answered.
    fn take_each(&mut self, part: &mut Part, fates: Vec<EventFate>) -> Option<Failure> {
        let mut fates = fates.into_iter();
        let mut left = None;
        part.records.retain(|_| match fates.next() {
            Some(EventFate::Delivered | EventFate::Duplicate) => {
                self.delivered += 1;
                false
            }
            Some(EventFate::Failed(Failure {
                class: FailureClass::Refused(class),
                reason,
                ..
            })) => {
                self.refuse(LetterClass::Refused(class), reason, 1);
                false
            }
            Some(EventFate::Failed(failure)) => {
                left.get_or_insert(failure);
                true
            }
            None => {
                left.get_or_insert_with(Failure::unanswered);
                true
            }
        });
        left
    }

    fn refuse(&mut self, class: LetterClass, reason: Reason, events: u64) {
        self.refused += events;
        self.refusal = Some((class, reason));
    }
}

/// Waits for the end of something, and says each second that it takes a while.
async fn patiently<T>(end: impl Future<Output = T>, mut waits: impl FnMut()) -> T {
    let mut end = std::pin::pin!(end);
    loop {
        match timeout(PATIENCE, &mut end).await {
            Ok(ended) => return ended,
            Err(_) => waits(),
        }
    }
}
