//! The second half of a sink's worker: attempts, several at once, until every record has a fate.
//!
//! [Delivery](super::delivery) says which records are sent next, and what an answer makes of them. The sender sends,
//! waits, and settles what has its fate in the order of the journal. What a receiver took behind a record that has no
//! fate is noted beside that; where the program ends before, it comes again, under the same id.

mod answers;
mod room;

use std::{future::pending, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until, timeout},
};

use self::{answers::object_of, room::Room};
use super::{
    Failure, OpenHead, Outcome, Secrets, Sink, SinkProgress,
    delivery::{Attempt, Delivery, DeliveryOptions, Millis, Moment},
    gather::Work,
    own_writes::OwnWrites,
    shared::now_ms,
    stop::Stop,
    watchdog::Pulse,
};
use crate::{
    event::{Batch, with_namespace},
    journal::{DeadLettersReader, Delivered},
};

/// A sink that keeps a deadline of its own answers by itself, with a better reason.
const GRACE_FOR_THE_SINK: Duration = Duration::from_secs(1);
/// An attempt that has not ended so long after its limit never will.
const STUCK_AFTER: Duration = Duration::from_secs(10);

/// The transport of a sink, and how long one attempt may take.
#[derive(Clone)]
pub(super) struct Transport {
    pub(super) sink: Arc<dyn Sink>,
    pub(super) timeout: Duration,
}

impl Transport {
    /// Makes one attempt, within the sink's timeout.
    pub(super) async fn send(&self, batch: &Batch) -> Outcome {
        let silent = |_| {
            let within = self.timeout.as_secs_f64();
            let words = format_args!("no answer within {within:.1} s");
            Outcome::Failed(Failure::silence(Secrets::none().reason(words)))
        };
        timeout(self.limit(), self.sink.send(batch)).await.unwrap_or_else(silent)
    }

    fn limit(&self) -> Duration {
        self.timeout + GRACE_FOR_THE_SINK
    }
}

/// How much a sink has to do, for what gives way to it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    /// Attempts in flight.
    pub(super) in_flight: usize,
    /// Attempts that were answered.
    pub(super) answered: u64,
    /// The receiver asked for less until then.
    pub(super) paused_until: Option<Instant>,
    /// Nothing is sent any more.
    pub(super) has_ended: bool,
}

/// The parts that sending to a sink is made of.
pub(super) struct SenderParts {
    pub(super) transport: Transport,
    pub(super) options: DeliveryOptions,
    pub(super) progress: Arc<SinkProgress>,
    /// The records that the receiver has, on the disk.
    pub(super) had: Delivered,
    /// To see whether there is room for parked ones.
    pub(super) letters: DeadLettersReader,
    /// Whether what the correlator decided by is noted with that: it holds versions back.
    pub(super) notes_inputs: bool,
    pub(super) stop: Stop,
    /// Nothing where the bridge writes no Events.
    pub(super) own_writes: Option<OwnWrites>,
    /// Of the attempts.
    pub(super) pulse: Pulse,
    pub(super) traffic: watch::Sender<Traffic>,
}

/// See the [module](self).
pub(super) struct Sender {
    parts: SenderParts,
    delivery: Delivery,
    room: Room,
    /// Delivery's time is counted from here.
    began: Instant,
}

/// An attempt that has ended.
struct Attempted {
    attempt: Attempt,
    batch: Batch,
    outcome: Outcome,
}

impl Sender {
    /// Sends through a sink.
    pub(super) fn new(parts: SenderParts) -> Self {
        let delivery = Delivery::new(parts.options.clone(), fastrand::u64(..));
        let room = Room::new(parts.letters.clone());
        Self { parts, delivery, room, began: Instant::now() }
    }

    /// Runs until gathering ends, or the program does not wait any longer.
    pub(super) async fn run(mut self, mut works: mpsc::Receiver<Work>) {
        let stop = self.parts.stop.clone();
        let mut attempts = FuturesUnordered::new();
        let mut gathering = true;
        loop {
            while let Some(attempt) = self.delivery.next(self.now()) {
                attempts.push(self.attempt(attempt));
            }
            if attempts.is_empty() {
                self.parts.pulse.rests();
            }
            self.tell_traffic(attempts.len());
            let (wake_at, draining) = (self.delivery.wake_at(), stop.is_draining());
            // A sink that fails is not worth waiting for, nor is a record: the journal keeps what it has not had.
            let has_room = gathering && self.delivery.has_room();
            let takes = has_room && !self.delivery.fails();
            let waits = draining && wake_at.is_some() && !takes;
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
                work = works.recv(), if has_room => match work {
                    Some(work) => self.take(work),
                    None => gathering = false,
                },
                () = woken => {}
                () = stop.draining(), if !draining => {}
            }
        }
        drop(attempts);
        self.parts.pulse.rests();
        self.parts.traffic.send_modify(|traffic| traffic.has_ended = true);
        // Until nobody else sends.
        self.parts.traffic.closed().await;
        self.parts.transport.sink.close().await;
    }

    fn take(&mut self, work: Work) {
        if self.parts.notes_inputs {
            self.parts.had.decided_by(&work.settled.inputs);
            // Noted before it is sent.
            if !work.batch.records.is_empty() {
                let progress = &self.parts.progress;
                self.parts.had.write(now_ms(), || progress.saved_standing());
            }
        }
        self.push(work);
        self.settle();
    }

    fn attempt(&mut self, attempt: Attempt) -> impl Future<Output = Attempted> + Send + use<> {
        let (batch, transport) = (self.delivery.batch(&attempt), self.parts.transport.clone());
        self.parts.pulse.works_within("an attempt", transport.limit() + STUCK_AFTER);
        async move {
            let outcome = transport.send(&batch).await;
            Attempted { attempt, batch, outcome }
        }
    }

    fn tell_traffic(&self, in_flight: usize) {
        let paused_until = self.began + Duration::from_millis(self.delivery.paused_until());
        self.parts.traffic.send_if_modified(|traffic| {
            traffic.paused_until = Some(paused_until);
            std::mem::replace(&mut traffic.in_flight, in_flight) != in_flight
        });
    }

    /// Settles what can be.
    fn settle(&mut self) {
        let moment = self.moment();
        let Self { parts: SenderParts { had, progress, .. }, delivery, room, .. } = self;
        let settled = delivery.settle();
        let letters = settled.iter().flat_map(|settled| &settled.dead_letters);
        letters.for_each(|letter| room.settled(letter));
        progress.settle(settled, had.all());
        let oldest = delivery.oldest_ms();
        let head = delivery.head().map(|(record, failure, first)| OpenHead {
            id: record.id().to_owned(),
            object: object_of(record),
            namespace: with_namespace(&record.envelope, |name| Secrets::none().reason(name)),
            since_ms: moment.time_ms - moment.now.saturating_sub(first).min(moment.time_ms),
            last_error: failure.clone(),
        });
        progress.update(|sink| {
            (sink.oldest_in_hand_ms, sink.head) = (oldest, head);
            sink.totals.redelivered = had.redelivered();
        });
    }

    fn now(&self) -> Millis {
        self.began.elapsed().as_millis() as Millis
    }

    fn moment(&self) -> Moment {
        Moment { now: self.now(), time_ms: now_ms() }
    }
}
