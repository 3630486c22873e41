//! The second half of a sink's watcher: attempts, several at once, until every event has a fate.
//!
//! Which records are sent next, and what an answer makes of them, is [delivery](super::delivery)'s to say.
//! This sends, waits, and keeps account: what has its fate is settled in the order of the journal, and
//! what a receiver took behind a record that it did not take is noted beside that. Where the program ends
//! before a record has its fate, what came before it is settled all the same, so that nothing of it comes
//! again; what was taken behind it does come again, under the same id.

mod answers;
mod attempt;
mod errands;
mod hand;
mod held;
mod keys;
mod put_away;
mod reads;

use std::{future::pending, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use super::{
    BatchOptions, HeldUp, RetryOptions, Sink, SinkProgress,
    control::PutAway,
    delivery::{Delivery, DeliveryOptions, Millis, Notice},
    errands::Errand,
    gather::Work,
    own_writes::OwnWrites,
    restore::RestoredCopy,
    shared::now_ms,
    stop::Stop,
    watchdog::Pulse,
};
use crate::{
    event::Record,
    journal::{Delivered, LogHandle, SetAside, SetAsideReader},
};
use attempt::Attempted;
use errands::Errands;
pub(super) use hand::ROOM;
use hand::{Content, Hand, Source};
use held::Said;
pub(super) use keys::Keys;
use put_away::PutAways;
use reads::{Purpose, Reads};

/// Of the journal, this part may be copies of what a sink has set aside.
const COPIES: u64 = 8;

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
    /// What earlier runs have set aside, in order.
    pub(super) copies: Vec<RestoredCopy>,
    pub(super) keys: Keys,
    pub(super) log: LogHandle,
    pub(super) set_aside: SetAsideReader,
    /// The size that the journal is to have, in bytes.
    pub(super) retention_size: u64,
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
    /// Records that are read because they are not in memory.
    reads: Reads,
    source: Source,
    /// Delivery's time is counted from here, which was at that many milliseconds since the epoch.
    began: Instant,
    began_ms: u64,
    /// The report of what is held up, as it was made last.
    said: Said,
    put_aways: PutAways,
}

impl Deliver {
    /// Delivers through a sink.
    pub(super) fn new(mut parts: DeliverParts) -> Self {
        let options = DeliveryOptions {
            lanes: parts.lanes,
            batch_events: parts.batch.events,
            batch_bytes: parts.batch.bytes,
            retry: parts.retry,
            copied_bytes: parts.retention_size / COPIES,
        };
        let mut delivery = Delivery::new(options, 0, fastrand::u64(..));
        let (standing, passed) = parts.progress.passed();
        let mut hand = Hand::new(standing, passed);
        for RestoredCopy { sequence, copy, ticket } in std::mem::take(&mut parts.copies) {
            hand.push_copy(delivery.push_set_aside(ticket), sequence, copy);
        }
        let source = Source {
            sink: parts.name.clone(),
            log: parts.log.clone(),
            set_aside: parts.set_aside.clone(),
        };
        Self {
            parts,
            delivery,
            hand,
            errands: Errands::default(),
            reads: Reads::default(),
            source,
            began: Instant::now(),
            began_ms: now_ms(),
            said: Said::default(),
            put_aways: PutAways::new(),
        }
    }

    /// Runs until gathering ends, or the program does not wait any longer.
    pub(super) async fn run(
        mut self,
        mut works: mpsc::Receiver<Work>,
        mut errands: mpsc::Receiver<Errand>,
        mut put_aways: mpsc::Receiver<PutAway>,
    ) {
        let stop = self.parts.stop.clone();
        let mut attempts = FuturesUnordered::new();
        let mut gathering = true;
        loop {
            self.errands.cancel(&mut self.delivery, stop.is_draining());
            while let Some(line) = self.delivery.next_send(self.now()) {
                attempts.push(self.attempt(line));
            }
            self.take_notices(&[]);
            if attempts.is_empty() {
                self.parts.pulse.rests();
            }
            let (wake_at, draining) = (self.wake_at(), stop.is_draining());
            // A sink that fails is not worth waiting for: the journal keeps what it has not had.
            let waits =
                !gathering || self.delivery.lanes_wait(self.now()) || !self.delivery.has_room();
            let ends = if draining { waits } else { !gathering && wake_at.is_none() };
            if attempts.is_empty() && ends {
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
                Some(read) = self.reads.next(), if !self.reads.is_empty() => self.has_read(read),
                work = works.recv(), if gathering && self.delivery.has_room() => match work {
                    Some(work) => self.take(work),
                    None => gathering = false,
                },
                Some(errand) = errands.recv(), if !draining => self.take_errand(errand),
                Some(asks) = put_aways.recv(), if !draining => self.put_aways.push(asks),
                () = woken => {}
                () = stop.draining(), if !draining => {}
            }
            if !self.put_aways.is_empty() {
                self.put_away();
            }
            self.look();
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
        let Self { hand, delivery, parts, .. } = self;
        let wants_keys = delivery.wants_keys();
        hand.push(work, |record| match record {
            Some(record) => _ = delivery.push(parts.keys.ticket(record, wants_keys)),
            None => _ = delivery.push_passed(),
        });
        self.settle(false);
    }

    fn take_errand(&mut self, errand: Errand) {
        let Self { errands, delivery, parts, .. } = self;
        errands.push(errand, |record| delivery.push_errand(parts.keys.ticket(record, true)));
    }

    /// Reads the keys of records that came without, if they are wanted now.
    fn learn_keys(&mut self) {
        for number in self.delivery.unknown() {
            if let Some(Content::Record(record)) = self.hand.content(number) {
                self.delivery.know(number, self.parts.keys.ticket(&record, true));
            }
        }
    }

    /// Takes in which records wait beside the lanes, some of them perhaps from among those just `sent`.
    fn take_notices(&mut self, sent: &[Record]) {
        let notices: Vec<_> = self.delivery.take_notices().collect();
        for notice in notices {
            match notice {
                Notice::Queued(number) => self.hand.move_away(number),
                Notice::SetAside(number) => match self.record(number, sent) {
                    Some(record) => self.set_aside(number, record),
                    None => self.read(number, Purpose::Copy),
                },
            }
        }
    }

    /// Has a copy of a record saved, which the position may pass then.
    fn set_aside(&mut self, number: u64, record: Record) {
        let (attempts, first) = self.delivery.been_through(number);
        let copy =
            SetAside { attempts, first_ms: self.began_ms + first, envelope: record.envelope };
        self.hand.set_aside(number, copy);
    }

    /// A record, if it is in memory, or among those just sent.
    fn record(&self, number: u64, sent: &[Record]) -> Option<Record> {
        match self.hand.content(number)? {
            Content::Record(record) => Some(record),
            content => sent.iter().find(|record| record.seq == content.sequence()).cloned(),
        }
    }

    /// Settles what can be, or all that can be where everything `ends` here.
    fn settle(&mut self, ends: bool) {
        if let Some(settled) = self.hand.settle(ends) {
            self.parts.progress.settle(settled);
        }
        let oldest = self.hand.oldest_ms();
        self.parts.progress.update(|sink| sink.oldest_in_hand_ms = oldest);
    }

    fn now(&self) -> Millis {
        self.began.elapsed().as_millis() as Millis
    }
}
