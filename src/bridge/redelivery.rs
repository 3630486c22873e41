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
    EventFate, Failure, Fault, Outcome, RefusedClass, RetryOptions, SinkProgress,
    delivery::wait_after,
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

impl Redelivery {
    /// Waits after so many failures in a row.
    async fn wait_after(&self, failure: &Failure, failures: u32) {
        let wait = wait_after(&self.retry, failure, failures, &mut fastrand::Rng::new());
        sleep(Duration::from_millis(wait)).await;
    }

    /// Gives envelopes their numbers. A sink knows a record that is sent again by that.
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
        records: Vec<Record>,
        wanted: impl Future<Output = bool>,
    ) -> Option<Outcome> {
        let _one_at_a_time = self.next.lock().await;
        self.turn().await;
        if !wanted.await {
            return None;
        }
        let sent = records.len() as u64;
        let outcome = self.transport.send(&Batch { records }).await;
        if let Outcome::Partial { rejected: 0, reason } = &outcome {
            self.progress.lines.warn_of(reason, sent);
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

/// The answers to so many records that were sent together; nothing if one of them may be at fault that is not named:
/// they are to be sent one at a time.
fn fates_of(outcome: Outcome, sent: usize) -> Option<Vec<EventFate>> {
    let failure = match outcome {
        Outcome::Delivered | Outcome::Partial { rejected: 0, .. } => {
            return Some(vec![EventFate::Delivered; sent]);
        }
        Outcome::PerEvent(mut fates) => {
            fates.resize_with(sent, || EventFate::Failed(Failure::unanswered()));
            return Some(fates);
        }
        Outcome::Partial { reason, .. } => Failure::refused(RefusedClass::Invalid, reason),
        Outcome::Failed(failure) => failure,
    };
    let is_known = sent == 1 || failure.fault == Fault::Sink;
    is_known.then(|| vec![EventFate::Failed(failure); sent])
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
