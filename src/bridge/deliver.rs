//! The second half of a sink's watcher: a batch is tried until every event of it has a fate.
//!
//! Where the program ends before that, what has its fate from the first record on is settled all the
//! same, so that nothing of it comes again. What a receiver took out of order behind a record that
//! it did not take does come again, under the same id.

mod answers;
mod fates;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use tracing::Level;

use super::{
    Failure, FailureClass, Outcome, RetryOptions, Secrets, Sink, SinkCondition, SinkProgress,
    errands::Errand,
    gather::{Mark, Work},
    own_events::all_own,
    own_writes::OwnWrites,
    progress::Settled,
    shared::now_ms,
    step::{Next, Piece, Refusals, Step},
    stop::Stop,
    watchdog::Pulse,
};
use crate::{event::Batch, journal::Delivered};
use fates::Fates;

const MISCONFIGURED: &str =
    "the sink is misconfigured: nothing is lost, but somebody has to mend it";
const NOT_TAKEN: &str = "the sink does not take events";
/// A sink that keeps a deadline of its own answers by itself, with a better reason.
const GRACE_FOR_THE_SINK: Duration = Duration::from_secs(1);
/// An attempt that has not ended so long after its limit never will.
const STUCK_AFTER: Duration = Duration::from_secs(10);
/// So many batches in a row go before an errand that waits.
const LIVE_FIRST: u32 = 7;
/// So long an errand under way is waited for when the program stops.
const ERRAND_ENDS_WITHIN: Duration = Duration::from_secs(1);

/// See the [module](self).
pub(super) struct Deliver {
    pub(super) name: String,
    pub(super) sink: Arc<dyn Sink>,
    pub(super) retry: RetryOptions,
    pub(super) timeout: Duration,
    pub(super) progress: Arc<SinkProgress>,
    /// What the receiver has, on the disk.
    pub(super) had: Delivered,
    /// Whether what the correlator decided by is noted with that: it holds versions back.
    pub(super) notes_inputs: bool,
    pub(super) stop: Stop,
    /// What is sent beside the journal's order.
    pub(super) errands: mpsc::Receiver<Errand>,
    /// Batches since the last errand.
    pub(super) live_in_a_row: u32,
    /// The sink that dead letters are forwarded to.
    pub(super) forward: Option<String>,
    pub(super) refusals: Refusals,
    /// Nothing where the bridge writes no Events.
    pub(super) own_writes: Option<OwnWrites>,
    /// Of an attempt.
    pub(super) pulse: Pulse,
}

/// The program ends before the batch has its fates; what has none stays pending.
struct Interrupted;

/// What is sent next.
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and not for long")]
enum ToSend {
    Live(Work),
    Errand(Errand),
}

impl Deliver {
    /// Runs until gathering ends, or the program does not wait any longer.
    pub(super) async fn run(mut self, mut works: mpsc::Receiver<Work>) {
        let mut settled = Settled::default();
        while let Some(next) = self.next(&mut works).await {
            let mut work = match next {
                ToSend::Live(work) => work,
                ToSend::Errand(errand) => {
                    self.run_errand(errand).await;
                    continue;
                }
            };
            let end = work.end();
            let mut start = Mark::default();
            let mut fates = Fates::new(end.at);
            let mut interrupted = false;
            if self.notes_inputs {
                self.had.decided_by(&work.inputs);
            }
            if end.at > 0 {
                self.progress.update(|sink| sink.oldest_in_hand_ms = Some(work.oldest_ms));
                if self.notes_inputs {
                    self.had.write(now_ms(), || self.progress.saved_standing());
                }
                let batch = std::mem::take(&mut work.batch);
                interrupted = self.deliver(batch, &mut fates).await.is_err();
            }
            if interrupted || !work.settles {
                let answered = fates.answered();
                if let Some(mark) = work.marks.iter().rfind(|mark| mark.at <= answered) {
                    fates.settle(start, *mark, &work, &mut settled);
                    self.progress.settle(std::mem::take(&mut settled));
                    start = *mark;
                }
            }
            if interrupted {
                break;
            }
            fates.settle(start, end, &work, &mut settled);
            settled.waiting.extend(work.saved);
            settled.correlator = work.correlator.or(settled.correlator);
            if work.settles {
                self.progress.settle(std::mem::take(&mut settled));
            }
            self.progress.update(|sink| sink.oldest_in_hand_ms = None);
        }
        self.sink.close().await;
    }

    /// One attempt for an errand. At the end of the program it is given up soon, without an answer:
    /// what is left of the time is for live events.
    async fn run_errand(&mut self, Errand { batch, answer }: Errand) {
        // It waited behind live batches, and nobody waits for it any more: a replay was ended.
        if answer.is_closed() {
            return;
        }
        let stop = self.stop.clone();
        let ending = async {
            stop.draining().await;
            sleep(ERRAND_ENDS_WITHIN).await;
        };
        tokio::select! {
            outcome = self.attempt(&batch) => {
                // Who does not wait any longer has ended the errand; nor is there an outcome at the
                // end of the program.
                let _ = outcome.map(|outcome| answer.send(outcome));
            }
            () = ending => self.pulse.rests(),
        }
    }

    /// What is sent next; nothing when gathering has ended.
    async fn next(&mut self, works: &mut mpsc::Receiver<Work>) -> Option<ToSend> {
        let free = !self.stop.is_draining();
        if free
            && self.live_in_a_row >= LIVE_FIRST
            && let Ok(errand) = self.errands.try_recv()
        {
            self.live_in_a_row = 0;
            return Some(ToSend::Errand(errand));
        }
        tokio::select! {
            biased;
            work = works.recv() => {
                self.live_in_a_row = self.live_in_a_row.saturating_add(1);
                work.map(ToSend::Live)
            }
            Some(errand) = self.errands.recv(), if free => {
                self.live_in_a_row = 0;
                Some(ToSend::Errand(errand))
            }
        }
    }

    async fn deliver(&mut self, batch: Batch, fates: &mut Fates) -> Result<(), Interrupted> {
        let mut pieces = VecDeque::from([Piece::whole(batch, now_ms())]);
        while let Some(mut piece) = pieces.pop_front() {
            let outcome = self.attempt(&piece.batch).await?;
            let Step { answers, next } = piece.answered(outcome, &self.retry, &mut self.refusals);
            for answered in answers {
                self.account(&piece, answered, fates);
            }
            self.had.write(now_ms(), || self.progress.saved_standing());
            match next {
                Next::Done => {}
                Next::Again(failure) => {
                    self.wait(&piece, &failure).await?;
                    pieces.push_front(piece);
                }
                Next::Halved(second) => {
                    pieces.push_front(second);
                    pieces.push_front(piece);
                }
            }
        }
        Ok(())
    }

    /// One attempt, within the sink's timeout; interrupted when draining has taken too long.
    async fn attempt(&mut self, batch: &Batch) -> Result<Outcome, Interrupted> {
        let limit = self.timeout + GRACE_FOR_THE_SINK;
        self.pulse.works_within("an attempt", limit + STUCK_AFTER);
        let outcome = tokio::select! {
            outcome = timeout(limit, self.sink.send(batch)) => outcome,
            () = self.stop.over() => {
                self.pulse.rests();
                return Err(Interrupted);
            }
        };
        self.pulse.rests();
        let outcome = outcome.unwrap_or_else(|_| {
            let seconds = self.timeout.as_secs_f64();
            let reason = format_args!("no answer within {seconds:.1} s");
            Outcome::Failed(Failure::silence(Secrets::none().reason(reason)))
        });
        let (failed, duplicates) = (outcome.is_to_be_retried(), outcome.duplicates());
        self.progress.update(|sink| {
            sink.attempts += 1;
            sink.failed_attempts += u64::from(failed);
            sink.duplicates += duplicates;
        });
        Ok(outcome)
    }

    /// Sleeps before the next attempt; interrupted as soon as the program stops, because a sink
    /// that fails is not worth waiting for: the journal keeps what it has not had.
    async fn wait(
        &mut self,
        piece: &Piece,
        Failure { class, after, reason, .. }: &Failure,
    ) -> Result<(), Interrupted> {
        let condition = match class {
            FailureClass::Misconfigured => SinkCondition::Misconfigured,
            _ => SinkCondition::Retrying,
        };
        let wait = self.retry.wait(piece.failures, *class, *after);
        let mut news = false;
        let own = self.own_writes.as_ref();
        self.progress.update(|sink| {
            let before = sink.last_error.replace(reason.clone());
            news = sink.condition != condition || before.as_ref() != Some(reason);
            sink.condition = condition;
            if sink.trouble != Some(condition) && !all_own(&piece.batch.records, own) {
                sink.trouble = Some(condition);
            }
        });
        let retry_in = format!("{:.1}s", wait.as_secs_f64());
        let events = piece.batch.records.len() as u64;
        let admit = |level, what| self.progress.lines.admit(level, what, class.as_str(), events);
        if !news {
            tracing::debug!(sink = self.name, reason = &**reason, retry_in, "still failing");
        } else if condition == SinkCondition::Misconfigured {
            if admit(Level::ERROR, MISCONFIGURED) {
                tracing::error!(sink = self.name, reason = &**reason, retry_in, "{MISCONFIGURED}");
            }
        } else if admit(Level::WARN, NOT_TAKEN) {
            tracing::warn!(sink = self.name, reason = &**reason, retry_in, "{NOT_TAKEN}");
        }
        tokio::select! {
            () = sleep(wait) => Ok(()),
            () = self.stop.draining() => Err(Interrupted),
        }
    }
}
