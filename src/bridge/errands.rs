//! What a sink is sent outside the journal's order: dead letters once more, dead letters that
//! other sinks forward to it, and replays.
//!
//! ```text
//! letters   what the state store says is due to the sink, one by one    ─┐
//! replay    what the log has, in batches                                ─┴▶ Errand ──▶ deliver
//! ```
//!
//! Delivery remains the one owner of the [`Sink`](super::Sink). It takes live batches first, and an
//! errand when there is none, or after [seven of them](super::deliver) in a row; while a live batch
//! fails it takes none. It makes one attempt. Waiting, halving and giving up is done here, so an
//! errand that fails keeps nobody waiting for longer than that attempt.
//!
//! Nothing here moves the position of a sink. Its records have [numbers of their
//! own](Record::FIRST_ERRAND), by which a sink that remembers what it has queued cannot take them for
//! live ones.

mod letters;
mod replay;

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::{mpsc, oneshot},
    time::{sleep, timeout},
};

use super::{EventFate, Outcome, Reason, RetryClass, RetryOptions, Secrets, SinkProgress};
use crate::event::{Batch, Record};

pub(super) use letters::LetterRound;
pub(super) use replay::Replays;

/// How long something takes before it is said that it waits.
const PATIENCE: Duration = Duration::from_secs(1);

/// One attempt that delivery is asked for.
#[derive(Debug)]
pub(super) struct Errand {
    pub(super) batch: Batch,
    /// Dropped without an answer, delivery has ended.
    pub(super) answer: oneshot::Sender<Outcome>,
}

/// Delivery has ended.
#[derive(Debug)]
pub(super) struct Ended;

/// Takes errands to the delivery of one sink. Clones share the numbers.
#[derive(Clone, Debug)]
pub(super) struct Courier {
    out: mpsc::Sender<Errand>,
    retry: RetryOptions,
    progress: Arc<SinkProgress>,
    numbers: Arc<AtomicU64>,
}

/// What became of what was sent.
#[derive(Debug, Default)]
struct Answered {
    delivered: u64,
    refused: u64,
    /// The class and the receiver's words of the last refusal.
    refusal: Option<(String, Reason)>,
}

/// What is sent as one, and how often it was.
#[derive(Debug)]
struct Piece {
    batch: Batch,
    attempts: u32,
    /// Of these, the failures that mend themselves, which `retry.maxAttempts` bounds.
    failures: u32,
}

/// What is to be done after an attempt.
enum Next {
    Done,
    /// The same, or what is left of it, after a wait.
    Again {
        wait: Duration,
        reason: Reason,
    },
    /// It was halved; the first half comes first.
    Halved(Piece),
}

impl Courier {
    /// A courier, and where delivery takes its errands from.
    pub(super) fn new(
        retry: RetryOptions,
        progress: Arc<SinkProgress>,
    ) -> (Self, mpsc::Receiver<Errand>) {
        let (out, errands) = mpsc::channel(1);
        (Self { out, retry, progress, numbers: Arc::default() }, errands)
    }

    /// Records of these envelopes, with numbers that they keep over their attempts.
    fn piece(&self, envelopes: Vec<Bytes>) -> Piece {
        let first = self.numbers.fetch_add(envelopes.len() as u64, Ordering::Relaxed);
        let numbers = Record::FIRST_ERRAND + first..;
        let records = numbers.zip(envelopes).map(|(seq, envelope)| Record { seq, envelope });
        Piece { batch: Batch { records: records.collect() }, attempts: 0, failures: 0 }
    }

    /// Sends a piece until each event of it has an answer; says why whenever that takes a while.
    async fn deliver(
        &self,
        piece: Piece,
        mut waits: impl FnMut(String),
    ) -> Result<Answered, Ended> {
        let mut answered = Answered::default();
        let mut pieces = VecDeque::from([piece]);
        while let Some(mut piece) = pieces.pop_front() {
            match self.send(&mut piece, &mut answered, &mut waits).await? {
                Next::Done => {}
                Next::Halved(second) => {
                    pieces.push_front(second);
                    pieces.push_front(piece);
                }
                Next::Again { wait, reason } => {
                    waits(reason.into());
                    self.sleep(wait).await?;
                    pieces.push_front(piece);
                }
            }
        }
        Ok(answered)
    }

    /// One attempt, and what comes of it.
    async fn send(
        &self,
        piece: &mut Piece,
        answered: &mut Answered,
        waits: impl FnMut(String),
    ) -> Result<Next, Ended> {
        piece.attempts += 1;
        let count = piece.batch.records.len() as u64;
        let (class, reason, after) = match self.attempt(&piece.batch, waits).await? {
            Outcome::Delivered => {
                answered.delivered += count;
                return Ok(Next::Done);
            }
            Outcome::Partial { rejected, reason } => {
                let rejected = rejected.min(count);
                answered.delivered += count - rejected;
                if rejected == 0 {
                    self.progress.lines.warn_of(&reason, count);
                }
                answered.refuse(rejected, "partial-success", reason);
                return Ok(Next::Done);
            }
            Outcome::PerEvent { fates, retry } => {
                // A sink that answers for too few has not said that it took the others.
                let fates = fates.into_iter().chain(std::iter::repeat(EventFate::Retry));
                let records = std::mem::take(&mut piece.batch.records);
                for (record, fate) in records.into_iter().zip(fates) {
                    match fate {
                        EventFate::Delivered => answered.delivered += 1,
                        EventFate::Refused { class, reason } => {
                            answered.refuse(1, class.as_str(), reason);
                        }
                        EventFate::Retry => piece.batch.records.push(record),
                    }
                }
                if piece.batch.records.is_empty() {
                    return Ok(Next::Done);
                }
                let (class, reason) = retry.unwrap_or_else(|| {
                    (RetryClass::Unavailable, Secrets::none().reason("some events were not taken"))
                });
                (class, reason, None)
            }
            Outcome::Refused { class, reason } => {
                if count > 1 {
                    let second = piece.batch.records.split_off(piece.batch.records.len() / 2);
                    (piece.attempts, piece.failures) = (0, 0);
                    let batch = Batch { records: second };
                    let second = Piece { batch, attempts: 0, failures: 0 };
                    return Ok(Next::Halved(second));
                }
                answered.refuse(1, class.as_str(), reason);
                return Ok(Next::Done);
            }
            Outcome::Retry { after, class, reason } => (class, reason, after),
        };
        piece.failures += u32::from(class != RetryClass::Misconfigured);
        if self.retry.gives_up(class, piece.failures) {
            answered.refuse(piece.batch.records.len() as u64, "max-attempts", reason);
            return Ok(Next::Done);
        }
        let wait = self.retry.wait(piece.failures, class, after);
        Ok(Next::Again { wait, reason })
    }

    async fn attempt(
        &self,
        batch: &Batch,
        mut waits: impl FnMut(String),
    ) -> Result<Outcome, Ended> {
        let (answer, mut answered) = oneshot::channel();
        let place = loop {
            match timeout(PATIENCE, self.out.reserve()).await {
                Ok(place) => break place.map_err(|_| Ended)?,
                Err(_) => waits(self.what_for()),
            }
        };
        place.send(Errand { batch: batch.clone(), answer });
        loop {
            match timeout(PATIENCE, &mut answered).await {
                Ok(outcome) => return outcome.map_err(|_| Ended),
                Err(_) => waits(self.what_for()),
            }
        }
    }

    /// What something waits for that is not taken at once.
    fn what_for(&self) -> String {
        match self.progress.snapshot().last_error {
            Some(error) => format!("the sink does not take events: {error}"),
            None => "live events go first, and the sink takes its time".to_owned(),
        }
    }

    /// Sleeps, unless delivery ends.
    async fn sleep(&self, wait: Duration) -> Result<(), Ended> {
        tokio::select! {
            () = sleep(wait) => Ok(()),
            () = self.out.closed() => Err(Ended),
        }
    }

    async fn ended(&self) {
        self.out.closed().await;
    }
}

impl Answered {
    fn refuse(&mut self, events: u64, class: &str, reason: Reason) {
        if events > 0 {
            self.refused += events;
            self.refusal = Some((class.to_owned(), reason));
        }
    }
}
