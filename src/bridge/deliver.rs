//! The second half of a sink's watcher: attempts, several at once, until every event has a fate.
//!
//! Which records are sent next, and what an answer makes of them, is [delivery](super::delivery)'s to say.
//! This sends, waits, and keeps account: what has its fate is settled in the order of the journal, and
//! what a receiver took behind a record that it did not take is noted beside that. Where the program ends
//! before a record has its fate, what came before it is settled all the same, so that nothing of it comes
//! again; what was taken behind it does come again, under the same id.

mod answers;
mod errands;
mod fates;
mod hand;
mod keys;
mod refusals;

use std::{future::pending, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{
    BatchOptions, Failure, Outcome, RetryOptions, Secrets, Sink, SinkProgress,
    delivery::{Delivery, DeliveryOptions, FIRST_ERRAND, Millis},
    errands::Errand,
    gather::Work,
    own_writes::OwnWrites,
    shared::now_ms,
    stop::Stop,
    watchdog::Pulse,
};
use crate::{event::Batch, journal::Delivered};
use errands::Errands;
use hand::Hand;
use keys::Keys;
use refusals::Refusals;

/// A sink that keeps a deadline of its own answers by itself, with a better reason.
const GRACE_FOR_THE_SINK: Duration = Duration::from_secs(1);
/// An attempt that has not ended so long after its limit never will.
const STUCK_AFTER: Duration = Duration::from_secs(10);
/// So long an errand under way is waited for when the program stops.
const ERRAND_ENDS_WITHIN: Duration = Duration::from_secs(1);

/// The parts that delivery to a sink is made of.
pub(super) struct DeliverParts {
    pub(super) name: String,
    pub(super) sink: Arc<dyn Sink>,
    pub(super) lanes: usize,
    pub(super) batch: BatchOptions,
    pub(super) retry: RetryOptions,
    pub(super) timeout: Duration,
    pub(super) progress: Arc<SinkProgress>,
    /// What the receiver has, on the disk.
    pub(super) had: Delivered,
    /// Whether what the correlator decided by is noted with that: it holds versions back.
    pub(super) notes_inputs: bool,
    pub(super) stop: Stop,
    /// The sink that dead letters are forwarded to.
    pub(super) forward: Option<String>,
    /// Nothing where the bridge writes no Events.
    pub(super) own_writes: Option<OwnWrites>,
    /// Of the attempts.
    pub(super) pulse: Pulse,
}

/// See the [module](self).
pub(super) struct Deliver {
    parts: DeliverParts,
    delivery: Delivery,
    /// Live records, and the works that they came in.
    hand: Hand,
    /// Records that are sent beside the journal's order.
    errands: Errands,
    refusals: Refusals,
    keys: Keys,
    /// Delivery's time is counted from here, which was at that many milliseconds since the epoch.
    began: Instant,
    began_ms: u64,
}

/// An attempt that has ended.
struct Attempted {
    lane: usize,
    is_errand: bool,
    batch: Batch,
    outcome: Outcome,
}

impl Deliver {
    /// Delivers through a sink.
    pub(super) fn new(parts: DeliverParts) -> Self {
        let options = DeliveryOptions {
            lanes: parts.lanes,
            batch_events: parts.batch.events,
            batch_bytes: parts.batch.bytes,
            retry: parts.retry,
        };
        Self {
            parts,
            delivery: Delivery::new(options, 0, fastrand::u64(..)),
            hand: Hand::default(),
            errands: Errands::default(),
            refusals: Refusals::default(),
            keys: Keys::default(),
            began: Instant::now(),
            began_ms: now_ms(),
        }
    }

    /// Runs until gathering ends, or the program does not wait any longer.
    pub(super) async fn run(
        mut self,
        mut works: mpsc::Receiver<Work>,
        mut errands: mpsc::Receiver<Errand>,
    ) {
        let stop = self.parts.stop.clone();
        let mut attempts = FuturesUnordered::new();
        let mut gathering = true;
        loop {
            self.errands.cancel(&mut self.delivery, stop.is_draining());
            while let Some(lane) = self.delivery.next_send(self.now()) {
                attempts.push(self.attempt(lane));
            }
            if attempts.is_empty() {
                self.parts.pulse.rests();
            }
            let (wake_at, draining) = (self.delivery.wake_at(), stop.is_draining());
            // A sink that fails is not worth waiting for: the journal keeps what it has not had.
            let waits = draining && wake_at.is_some();
            if attempts.is_empty() && (waits || !gathering && wake_at.is_none()) {
                break;
            }
            let woken = async {
                match wake_at.filter(|_| !draining) {
                    Some(at) => sleep_until(self.began + Duration::from_millis(at)).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                () = stop.over() => break,
                Some(attempted) = attempts.next(), if !attempts.is_empty() => {
                    self.answered(attempted);
                }
                work = works.recv(), if gathering && self.delivery.has_room() => match work {
                    Some(work) => self.take(work),
                    None => gathering = false,
                },
                Some(errand) = errands.recv(), if !draining => self.take_errand(errand),
                () = woken => {}
                () = stop.draining(), if !draining => {}
            }
        }
        drop(attempts);
        self.settle(true);
        self.parts.pulse.rests();
        self.parts.sink.close().await;
    }

    /// Takes a work in hand.
    fn take(&mut self, work: Work) {
        if self.parts.notes_inputs {
            self.parts.had.decided_by(&work.inputs);
            // Noted before it is sent.
            if work.end().at > 0 {
                let progress = &self.parts.progress;
                self.parts.had.write(now_ms(), || progress.saved_standing());
            }
        }
        let Self { hand, delivery, keys, parts, .. } = self;
        hand.push(work, |record| {
            delivery.push(keys.ticket(record, parts.lanes));
        });
        self.settle(false);
    }

    fn take_errand(&mut self, errand: Errand) {
        let Self { errands, delivery, keys, parts, .. } = self;
        errands.push(errand, |record| delivery.push_errand(keys.ticket(record, parts.lanes)));
    }

    /// Makes one attempt, within the sink's timeout.
    fn attempt(&mut self, lane: usize) -> impl Future<Output = Attempted> + Send + use<> {
        let numbers = self.delivery.tickets(lane);
        let is_errand = numbers.first().is_some_and(|first| *first >= FIRST_ERRAND);
        let record = |number: &u64| match *number {
            errand @ FIRST_ERRAND.. => self.errands.record(errand),
            live => self.hand.record(live),
        };
        let records = numbers.iter().filter_map(record).cloned().collect();
        let (sink, stop) = (Arc::clone(&self.parts.sink), self.parts.stop.clone());
        let within = self.parts.timeout;
        let limit = within + GRACE_FOR_THE_SINK;
        self.parts.pulse.works_within("an attempt", limit + STUCK_AFTER);
        async move {
            let batch = Batch { records };
            let sending = async {
                let silent = |_| {
                    let words = format_args!("no answer within {:.1} s", within.as_secs_f64());
                    Outcome::Failed(Failure::silence(Secrets::none().reason(words)))
                };
                timeout(limit, sink.send(&batch)).await.unwrap_or_else(silent)
            };
            // What is left of the time of a program that ends is for live events.
            let ending = async {
                if !is_errand {
                    pending::<()>().await;
                }
                stop.draining().await;
                sleep(ERRAND_ENDS_WITHIN).await;
            };
            let outcome = tokio::select! {
                outcome = sending => outcome,
                () = ending => Outcome::PerEvent(Vec::new()),
            };
            Attempted { lane, is_errand, batch, outcome }
        }
    }

    /// Settles what can be, or all that can be where everything `ends` here.
    fn settle(&mut self, ends: bool) {
        for settled in self.hand.settle(ends) {
            self.parts.progress.settle(settled);
        }
        let oldest = self.hand.oldest_ms();
        self.parts.progress.update(|sink| sink.oldest_in_hand_ms = oldest);
    }

    fn now(&self) -> Millis {
        self.began.elapsed().as_millis() as Millis
    }
}
