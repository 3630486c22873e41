//! What a sink is sent outside the journal's order: dead letters once more, dead letters that
//! other sinks forward to it, and replays.
//!
//! ```text
//! letters   what the state store says is due to the sink, one by one    ─┐
//! replay    what the log has, in batches                                ─┴▶ Errand ──▶ deliver
//! ```
//!
//! [Delivery](super::delivery) takes live batches first, and an errand when there is none, or after seven
//! of them in a row. An errand that fails waits apart from the lanes, so that it keeps nobody waiting for
//! longer than its attempt.
//!
//! Nothing here moves the position of a sink. Its records have [numbers of their
//! own](Record::FIRST_ERRAND), by which a sink that remembers what it has queued cannot take them for
//! live ones.

mod letters;
mod replay;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

use super::{Reason, delivery::Letter};
use crate::event::Record;

pub(super) use letters::LetterRound;
pub(super) use replay::Replays;

/// How long something takes before it is said that it waits.
const PATIENCE: Duration = Duration::from_secs(1);

/// Records that delivery is asked to send beside the journal's order.
#[derive(Debug)]
pub(super) struct Errand {
    pub(super) records: Vec<Record>,
    /// Dropped before it is done, delivery has ended. Whose other end is dropped is sent no more.
    pub(super) news: mpsc::UnboundedSender<ErrandNews>,
}

/// The course of an errand.
#[derive(Debug)]
pub(super) enum ErrandNews {
    /// An attempt failed, and another one is to follow.
    Waits(Reason),
    /// Each record has its answer.
    Done(Tally),
}

/// The sum of the answers to records that were sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) delivered: u64,
    pub(super) refused: u64,
    /// The last refusal.
    pub(super) refusal: Option<Letter>,
}

/// Delivery has ended.
#[derive(Debug)]
pub(super) struct Ended;

/// Takes errands to the delivery of one sink. Clones share the numbers.
#[derive(Clone, Debug)]
pub(super) struct Courier {
    out: mpsc::Sender<Errand>,
    numbers: Arc<AtomicU64>,
}

/// An errand under way. Dropped, it is sent no more.
struct UnderWay(mpsc::UnboundedReceiver<ErrandNews>);

impl Courier {
    /// A courier, and where delivery takes its errands from.
    pub(super) fn new() -> (Self, mpsc::Receiver<Errand>) {
        let (out, errands) = mpsc::channel(1);
        (Self { out, numbers: Arc::default() }, errands)
    }

    /// Has envelopes sent until each has an answer.
    async fn send(&self, envelopes: Vec<Bytes>) -> Result<UnderWay, Ended> {
        let first = self.numbers.fetch_add(envelopes.len() as u64, Ordering::Relaxed);
        let numbers = Record::FIRST_ERRAND + first..;
        let records = numbers.zip(envelopes).map(|(seq, envelope)| Record { seq, envelope });
        let (news, told) = mpsc::unbounded_channel();
        let errand = Errand { records: records.collect(), news };
        self.out.send(errand).await.map_err(|_| Ended)?;
        Ok(UnderWay(told))
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

impl UnderWay {
    /// Waits until each of its records has an answer. `waits` is called with the reason at each failure, and
    /// without one when it takes a while before that. May be dropped and called again.
    async fn done(&mut self, mut waits: impl FnMut(Option<&Reason>)) -> Result<Tally, Ended> {
        loop {
            match timeout(PATIENCE, self.0.recv()).await {
                Ok(Some(ErrandNews::Done(tally))) => return Ok(tally),
                Ok(Some(ErrandNews::Waits(reason))) => waits(Some(&reason)),
                Ok(None) => return Err(Ended),
                Err(_) => waits(None),
            }
        }
    }
}
