//! Records that a sink is sent outside the journal's order: dead letters once more, dead letters that
//! other sinks forward to it, and replays.
//!
//! ```text
//! dead letters  what the state store says is due to the sink, one by one    ─┐
//! replay        what the log has, in batches                                ─┴▶ Resend ──▶ dispatcher
//! ```
//!
//! [Delivery](super::delivery) takes live batches first, and a resend when there is none, or after seven
//! of them in a row. A resend that fails waits apart from the lanes, by itself: only those of its object
//! wait behind it.
//!
//! Nothing here moves the position of a sink. Its records have [numbers of their
//! own](Record::FIRST_RESEND), by which a sink that remembers what it has queued cannot take them for
//! live ones.

mod dead_letters;
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

use super::delivery::GivenUp;
use crate::{bridge::Reason, event::Record};

pub(crate) use dead_letters::DeadLetterRetrier;
pub(crate) use replay::Replays;

/// How long something takes before it is said that it waits.
const PATIENCE: Duration = Duration::from_secs(1);

/// Records that delivery is asked to send beside the journal's order.
#[derive(Debug)]
pub(crate) struct Resend {
    pub(crate) records: Vec<Record>,
    /// Dropped before it is done, delivery has ended. Whose other end is dropped is sent no more.
    pub(crate) news: mpsc::UnboundedSender<ResendNews>,
}

/// The course of a resend.
#[derive(Debug)]
pub(crate) enum ResendNews {
    /// An attempt failed, and another one is to follow.
    Waits(Reason),
    /// Each record has its answer.
    Done(Tally),
}

/// The sum of the answers to records that were sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) delivered: u64,
    pub(crate) refused: u64,
    /// The last refusal.
    pub(crate) refusal: Option<GivenUp>,
}

/// Delivery has ended.
#[derive(Debug)]
pub(crate) struct Ended;

/// Takes resends to the delivery of one sink. Clones share the numbers.
#[derive(Clone, Debug)]
pub(crate) struct ResendHandle {
    out: mpsc::Sender<Resend>,
    numbers: Arc<AtomicU64>,
}

/// A resend under way. Dropped, it is sent no more.
struct UnderWay(mpsc::UnboundedReceiver<ResendNews>);

impl ResendHandle {
    /// A handle, and where delivery takes its resends from.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Resend>) {
        let (out, resends) = mpsc::channel(1);
        (Self { out, numbers: Arc::default() }, resends)
    }

    /// Has envelopes sent until each has an answer.
    async fn send(&self, envelopes: Vec<Bytes>) -> Result<UnderWay, Ended> {
        let first = self.numbers.fetch_add(envelopes.len() as u64, Ordering::Relaxed);
        let numbers = Record::FIRST_RESEND + first..;
        let records = numbers.zip(envelopes).map(|(seq, envelope)| Record { seq, envelope });
        let (news, told) = mpsc::unbounded_channel();
        let resend = Resend { records: records.collect(), news };
        self.out.send(resend).await.map_err(|_| Ended)?;
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
                Ok(Some(ResendNews::Done(tally))) => return Ok(tally),
                Ok(Some(ResendNews::Waits(reason))) => waits(Some(&reason)),
                Ok(None) => return Err(Ended),
                Err(_) => waits(None),
            }
        }
    }
}
