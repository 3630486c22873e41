//! The second half of a sink's watcher: a batch is tried until every event of it has a fate.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until, timeout},
};

use super::{
    EventFate, Outcome, RefusedClass, RetryClass, RetryOptions, Sink, SinkCondition, SinkProgress,
    gather::Work, high_water::HighWater, own_events::is_own, progress::Settled, shared::now_ms,
};
use crate::{
    event::{Batch, Record},
    journal::DeadLetter,
};

/// After so many refusals of single events in a row it is the sink that is wrong, not the events.
const REFUSALS_IN_A_ROW: u32 = 20;
/// A sink that keeps a deadline of its own answers by itself, with a better reason.
const GRACE_FOR_THE_SINK: Duration = Duration::from_secs(1);
/// The longest that a receiver can make us wait by `Retry-After` or RetryInfo.
const MAX_ASKED_WAIT: Duration = Duration::from_mins(10);

/// What the program wants of its deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Go on.
    No,
    /// Deliver what is queued, but do not wait for a sink that fails, nor longer than this.
    DrainUntil(Instant),
}

/// See the [module](self).
pub(super) struct Deliver {
    pub(super) name: String,
    pub(super) sink: Box<dyn Sink>,
    pub(super) retry: RetryOptions,
    pub(super) timeout: Duration,
    pub(super) progress: Arc<SinkProgress>,
    pub(super) high_water: HighWater,
    pub(super) stop: watch::Receiver<Stop>,
    pub(super) refusals_in_a_row: u32,
    /// The sequence at which the work in hand starts.
    pub(super) from: u64,
}

/// The program ends before the batch has its fates; it stays pending.
struct Interrupted;

/// One stretch of a batch that is sent as one.
struct Piece {
    batch: Batch,
    attempts: u32,
    first_ms: u64,
}

impl Deliver {
    /// Runs until gathering ends, or the program does not wait any longer.
    pub(super) async fn run(mut self, mut works: mpsc::Receiver<Work>) {
        let mut settled = Settled::default();
        while let Some(work) = works.recv().await {
            settled.position = work.position;
            settled.held = work.held;
            settled.first_held = work.first_held;
            settled.resumes.extend(work.resumes);
            settled.waiting.extend(work.saved);
            settled.correlator = work.correlator.or(settled.correlator);
            settled.totals.filtered += work.filtered;
            settled.totals.correlated_away += work.correlated_away;
            settled.totals.lost += work.lost;
            if !work.batch.records.is_empty() {
                self.from = work.from.next;
                self.progress.update(|sink| sink.oldest_in_hand_ms = Some(work.oldest_ms));
                if self.deliver(work.batch, &mut settled).await.is_err() {
                    break;
                }
                self.high_water.raise(settled.position.next);
            }
            if work.settles {
                self.progress.settle(std::mem::take(&mut settled));
            }
            self.progress.update(|sink| sink.oldest_in_hand_ms = None);
        }
        self.sink.close().await;
    }

    async fn deliver(&mut self, batch: Batch, settled: &mut Settled) -> Result<(), Interrupted> {
        let mut pieces = VecDeque::from([Piece { batch, attempts: 0, first_ms: now_ms() }]);
        while let Some(mut piece) = pieces.pop_front() {
            piece.attempts += 1;
            let (class, reason, after) = match self.attempt(&piece.batch).await? {
                Outcome::Delivered => {
                    self.delivered(&piece.batch.records, settled);
                    continue;
                }
                Outcome::Partial { rejected, reason } => {
                    self.partial(&piece, rejected, reason, settled);
                    continue;
                }
                Outcome::PerEvent { fates, retry } => {
                    let too_many = self.per_event(&mut piece, fates, settled);
                    if piece.batch.records.is_empty() {
                        continue;
                    }
                    let (class, reason) = match too_many {
                        Some(reason) => (RetryClass::Misconfigured, reason),
                        None => retry.unwrap_or((
                            RetryClass::Unavailable,
                            "some events of the batch were not taken".to_owned(),
                        )),
                    };
                    (class, reason, None)
                }
                Outcome::Refused { class, reason } => {
                    if piece.batch.records.len() > 1 {
                        // One event may spoil the batch. The first half goes first: order counts.
                        let second = piece.batch.records.split_off(piece.batch.records.len() / 2);
                        let second = Batch { records: second };
                        pieces.push_front(Piece { batch: second, attempts: 0, ..piece });
                        pieces.push_front(Piece { attempts: 0, ..piece });
                        continue;
                    }
                    match self.refused(&piece, class, reason, settled) {
                        Ok(()) => continue,
                        Err(reason) => (RetryClass::Misconfigured, reason, None),
                    }
                }
                Outcome::Retry { after, class, reason } => (class, reason, after),
            };
            if self.retry.max_attempts.is_some_and(|max| piece.attempts >= max) {
                self.give_up(&piece, &reason, settled);
                continue;
            }
            self.wait(&piece, class, &reason, after).await?;
            pieces.push_front(piece);
        }
        Ok(())
    }

    /// One attempt, within the sink's timeout; interrupted when draining has taken too long.
    async fn attempt(&mut self, batch: &Batch) -> Result<Outcome, Interrupted> {
        let limit = self.timeout + GRACE_FOR_THE_SINK;
        let mut stop = self.stop.clone();
        let outcome = tokio::select! {
            outcome = timeout(limit, self.sink.send(batch)) => outcome,
            () = drained(&mut stop) => return Err(Interrupted),
        };
        let outcome = outcome.unwrap_or_else(|_| Outcome::Retry {
            after: None,
            class: RetryClass::Timeout,
            reason: format!("no answer within {:.1} s", self.timeout.as_secs_f64()),
        });
        let failed =
            matches!(outcome, Outcome::Retry { .. } | Outcome::PerEvent { retry: Some(_), .. });
        self.progress.update(|sink| {
            sink.attempts += 1;
            sink.failed_attempts += u64::from(failed);
        });
        Ok(outcome)
    }

    fn delivered(&mut self, records: &[Record], settled: &mut Settled) {
        self.refusals_in_a_row = 0;
        settled.totals.delivered += records.len() as u64;
        // Of summaries of what was held before it is not known.
        let new = records.iter().filter(|record| record.seq >= self.from);
        let again = new.filter(|record| self.high_water.had(record.seq)).count();
        settled.totals.redelivered += again as u64;
        let mut recovered = false;
        self.progress.update(|sink| {
            recovered = sink.last_error.take().is_some();
            sink.condition = SinkCondition::Healthy;
            // Only a sink that was in trouble has its records looked at.
            if sink.trouble.is_some() && !records.iter().all(is_own) {
                sink.trouble = None;
            }
        });
        if recovered {
            tracing::info!(sink = self.name, "the sink takes events again");
        }
    }

    /// Sorts the events of a batch that was answered one by one; those to be sent again stay in
    /// the piece. Answers the reason to retry if there were too many refusals in a row.
    fn per_event(
        &mut self,
        piece: &mut Piece,
        fates: Vec<EventFate>,
        settled: &mut Settled,
    ) -> Option<String> {
        let mut too_many = None;
        let records = std::mem::take(&mut piece.batch.records);
        // A sink that answers for too few has not said that it took the others.
        let fates = fates.into_iter().chain(std::iter::repeat(EventFate::Retry));
        for (record, fate) in records.into_iter().zip(fates) {
            match fate {
                EventFate::Delivered => self.delivered(&[record], settled),
                EventFate::Retry => piece.batch.records.push(record),
                EventFate::Refused { class, reason } => {
                    let mut single = Piece { batch: Batch { records: vec![record] }, ..*piece };
                    if let Err(reason) = self.refused(&single, class, reason, settled) {
                        piece.batch.records.append(&mut single.batch.records);
                        too_many = Some(reason);
                    }
                }
            }
        }
        too_many
    }

    fn partial(&mut self, piece: &Piece, rejected: u64, reason: String, settled: &mut Settled) {
        let records = &piece.batch.records;
        let rejected = rejected.min(records.len() as u64);
        self.delivered(&records[usize::try_from(rejected).unwrap_or(0)..], settled);
        if rejected > 0 {
            settled.totals.dead_lettered += rejected;
            tracing::error!(
                sink = self.name,
                rejected,
                reason,
                "the receiver rejected events without saying which"
            );
            let mut letter = self.dead_letter(piece, &records[0], "partial-success", reason);
            letter.unidentified = rejected;
            settled.dead_letters.push(letter);
        }
    }

    /// A single event was refused: it goes to the dead letters, unless it is one too many in a
    /// row; then the reason to retry comes back.
    fn refused(
        &mut self,
        piece: &Piece,
        class: RefusedClass,
        reason: String,
        settled: &mut Settled,
    ) -> Result<(), String> {
        if self.refusals_in_a_row >= REFUSALS_IN_A_ROW {
            return Err(format!(
                "refuses everything, {REFUSALS_IN_A_ROW} events in a row: {reason}"
            ));
        }
        self.refusals_in_a_row += 1;
        let record = &piece.batch.records[0];
        tracing::warn!(
            sink = self.name,
            id = record.id(),
            reason,
            "the receiver refuses an event: dead-lettered"
        );
        settled.totals.dead_lettered += 1;
        settled.dead_letters.push(self.dead_letter(piece, record, class.as_str(), reason));
        Ok(())
    }

    fn give_up(&mut self, piece: &Piece, reason: &str, settled: &mut Settled) {
        tracing::error!(
            sink = self.name,
            events = piece.batch.records.len(),
            attempts = piece.attempts,
            reason,
            "given up after retry.maxAttempts: dead-lettered"
        );
        for record in &piece.batch.records {
            settled.totals.dead_lettered += 1;
            let letter = self.dead_letter(piece, record, "max-attempts", reason.to_owned());
            settled.dead_letters.push(letter);
        }
    }

    fn dead_letter(
        &self,
        piece: &Piece,
        record: &Record,
        class: &str,
        reason: String,
    ) -> DeadLetter {
        DeadLetter {
            sink: self.name.clone(),
            seq: record.seq,
            id: record.id().to_owned(),
            class: class.to_owned(),
            reason,
            attempts: piece.attempts,
            first_ms: piece.first_ms,
            time_ms: now_ms(),
            unidentified: 0,
            envelope: record.envelope.clone(),
        }
    }

    /// Sleeps before the next attempt; interrupted as soon as the program stops, because a sink
    /// that fails is not worth waiting for: the journal keeps what it has not had.
    async fn wait(
        &mut self,
        piece: &Piece,
        class: RetryClass,
        reason: &str,
        after: Option<Duration>,
    ) -> Result<(), Interrupted> {
        let condition = match class {
            RetryClass::Misconfigured => SinkCondition::Misconfigured,
            _ => SinkCondition::Retrying,
        };
        let backoff = self.backoff(piece.attempts, class);
        let wait = after.map_or(backoff, |after| backoff.max(after.min(MAX_ASKED_WAIT)));
        let mut news = false;
        self.progress.update(|sink| {
            let before = sink.last_error.replace(reason.to_owned());
            news = sink.condition != condition || before.as_deref() != Some(reason);
            sink.condition = condition;
            if sink.trouble != Some(condition) && !piece.batch.records.iter().all(is_own) {
                sink.trouble = Some(condition);
            }
        });
        let retry_in = format!("{:.1}s", wait.as_secs_f64());
        if !news {
            tracing::debug!(sink = self.name, reason, retry_in, "still failing");
        } else if condition == SinkCondition::Misconfigured {
            tracing::error!(
                sink = self.name,
                reason,
                retry_in,
                "the sink is misconfigured: nothing is lost, but somebody has to mend it"
            );
        } else {
            tracing::warn!(sink = self.name, reason, retry_in, "the sink does not take events");
        }
        let until = Instant::now() + wait;
        let mut stop = self.stop.clone();
        tokio::select! {
            () = sleep_until(until) => Ok(()),
            _ = stop.wait_for(|stop| *stop != Stop::No) => Err(Interrupted),
        }
    }

    /// Exponential with full jitter: uniform between nothing and a bound that doubles. What only
    /// a person can mend is tried near the longest bound from the start.
    fn backoff(&self, attempts: u32, class: RetryClass) -> Duration {
        if class == RetryClass::Misconfigured {
            return self.retry.max.mul_f64(0.5 + fastrand::f64() / 2.0);
        }
        let doubled = 2u32.saturating_pow(attempts.saturating_sub(1).min(31));
        let bound = self.retry.initial.saturating_mul(doubled).min(self.retry.max);
        bound.mul_f64(fastrand::f64())
    }
}

/// Completes when the time to drain is over.
async fn drained(stop: &mut watch::Receiver<Stop>) {
    let until = match stop.wait_for(|stop| *stop != Stop::No).await.as_deref() {
        Ok(Stop::DrainUntil(until)) => Some(*until),
        // The sender is gone: nothing will ever stop this delivery.
        Ok(Stop::No) | Err(_) => None,
    };
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}
