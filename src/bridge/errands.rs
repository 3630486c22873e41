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
//! fails it takes none. It makes one attempt. What follows is the [step](super::step) that
//! live batches go by, taken here, and its waits are waited here: an errand that fails keeps nobody
//! waiting for longer than that attempt.
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

use super::{
    Outcome, Reason, RetryOptions, SinkProgress,
    shared::now_ms,
    step::{Answer, Answered, Next, Piece, Refusals, Step},
};
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

/// The sum of the answers to records that were sent.
#[derive(Debug, Default)]
struct Tally {
    delivered: u64,
    refused: u64,
    /// The class and the receiver's words of the last refusal.
    refusal: Option<(&'static str, Reason)>,
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
        Piece::whole(Batch { records: records.collect() }, now_ms())
    }

    /// Sends a piece until each event of it has an answer; says why whenever that takes a while.
    async fn deliver(&self, piece: Piece, mut waits: impl FnMut(String)) -> Result<Tally, Ended> {
        let mut tally = Tally::default();
        let mut pieces = VecDeque::from([piece]);
        while let Some(mut piece) = pieces.pop_front() {
            match self.send(&mut piece, &mut tally, &mut waits).await? {
                Next::Done => {}
                Next::Again(failure) => {
                    let wait = self.retry.wait(piece.failures, failure.class, failure.after);
                    waits(failure.reason.into());
                    self.sleep(wait).await?;
                    pieces.push_front(piece);
                }
                Next::Halved(second) => {
                    pieces.push_front(second);
                    pieces.push_front(piece);
                }
            }
        }
        Ok(tally)
    }

    /// One attempt, and what is to be done after it.
    async fn send(
        &self,
        piece: &mut Piece,
        tally: &mut Tally,
        waits: impl FnMut(String),
    ) -> Result<Next, Ended> {
        let outcome = self.attempt(&piece.batch, waits).await?;
        let Step { answers, next } =
            piece.answered(outcome, &self.retry, &mut Refusals::unbounded());
        for Answered { records, answer, .. } in answers {
            let events = records.len() as u64;
            match answer {
                Answer::Taken { warning } => {
                    tally.delivered += events;
                    if let Some(warning) = warning {
                        self.progress.lines.warn_of(&warning, events);
                    }
                }
                Answer::Refused { class, reason } => {
                    tally.refused += events;
                    tally.refusal = Some((class.as_str(), reason));
                }
            }
        }
        Ok(next)
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
