//! The second half of a sink's watcher: attempts, several at once, until every event has a fate.
//!
//! Which records are sent next, and what an answer makes of them, is [delivery](super::delivery)'s to say.
//! This sends, waits, and keeps account: what has its fate is settled in the order of the journal, and
//! what a receiver took behind a record that it did not take is noted beside that. Where the program ends
//! before a record has its fate, what came before it is settled all the same, so that nothing of either comes
//! again.

mod answers;
mod attempt;
mod copies;
mod hand;
mod held;
mod keys;
mod put_away;
mod reads;
mod resends;

use std::{collections::HashMap, future::pending, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use super::{
    batcher::Work,
    delivery::{Delivery, DeliveryOptions, Millis, Notice, Number, Ticket},
    resends::Resend,
};
use crate::{
    bridge::{
        SendOptions, Sink, SinkOptions, SinkProgress, control::PutAway, own_writes::OwnWrites,
        shared::now_ms, stop::Stop, watchdog::Pulse,
    },
    event::Record,
    journal::{Delivered, SetAside},
};
use attempt::Attempted;
pub(crate) use hand::Source;
use hand::{Content, Hand};
use held::Said;
use keys::Keys;
use put_away::PutAways;
use reads::{Purpose, Reads};
use resends::Resends;

/// The number of the first live record. Those that earlier runs have set aside have lower ones, and are fewer.
const FIRST_LIVE: Number = 1 << 32;
/// Of the journal, this part may be copies of what a sink has set aside.
const COPIES: u64 = 8;

/// The parts that delivery to a sink is made of.
pub(crate) struct DispatcherParts {
    pub(crate) options: SinkOptions,
    pub(crate) progress: Arc<SinkProgress>,
    /// The note on the disk of what the receiver has.
    pub(crate) had: Delivered,
    /// Whether what the correlator decided by is noted with that: it holds versions back.
    pub(crate) notes_inputs: bool,
    pub(crate) stop: Stop,
    /// Nothing where the bridge writes no Events.
    pub(crate) own_writes: Option<OwnWrites>,
    /// Of the attempts.
    pub(crate) pulse: Pulse,
}

/// Gives records their tickets, by which delivery knows them. Clones are the same one.
#[derive(Clone)]
struct Tickets {
    sink: Arc<dyn Sink>,
    keys: Keys,
}

impl Tickets {
    /// The ticket of a record, with its keys if they are wanted.
    fn ticket(&self, record: &Record, wants_keys: bool) -> Ticket {
        if !wants_keys {
            let bytes = u32::try_from(record.envelope.len()).unwrap_or(u32::MAX);
            return Ticket { key: 0, namespace: 0, destination: 0, bytes };
        }
        self.keys.ticket(record, |origin| self.sink.destination(origin))
    }
}

/// The task that delivers through one sink. See the [module](self).
pub(crate) struct Dispatcher {
    parts: DispatcherParts,
    tickets: Tickets,
    delivery: Delivery,
    /// Live records, and the works that they came in.
    hand: Hand,
    /// Records that are sent beside the journal's order.
    resends: Resends,
    /// Records that are read because they are not in memory.
    reads: Reads,
    source: Source,
    /// Delivery's time is counted from here, which was at that many milliseconds since the epoch.
    began: Instant,
    began_ms: u64,
    /// The report of what is held up, as it was made last.
    said: Said,
    put_aways: PutAways,
    /// Whether what waits beside the lanes may be for other destinations than was known,
    relocates: bool,
    /// and those of copies, by sequence, once they are read for that.
    destinations: Option<HashMap<u64, u64>>,
}

impl Dispatcher {
    /// Delivers through a sink.
    pub(crate) fn new(parts: DispatcherParts, source: Source) -> Self {
        let SendOptions { batch, retry, concurrency, .. } = parts.options.send;
        let options = DeliveryOptions {
            lanes: concurrency,
            batch_events: batch.events,
            batch_bytes: batch.bytes,
            retry,
            copied_bytes: source.log.retention_size / COPIES,
        };
        let delivery = Delivery::new(options, FIRST_LIVE, fastrand::u64(..));
        let (standing, passed) = parts.progress.passed();
        let hand = Hand::new(standing, passed, FIRST_LIVE);
        let tickets = Tickets { sink: Arc::clone(&parts.options.sink), keys: Keys::default() };
        Self {
            parts,
            tickets,
            delivery,
            hand,
            resends: Resends::default(),
            reads: Reads::default(),
            source,
            began: Instant::now(),
            began_ms: now_ms(),
            said: Said::default(),
            put_aways: PutAways::new(),
            relocates: false,
            destinations: None,
        }
    }

    /// Runs until gathering ends, or the program does not wait any longer.
    pub(crate) async fn run(
        mut self,
        mut works: mpsc::Receiver<Work>,
        mut resends: mpsc::Receiver<Resend>,
        mut put_aways: mpsc::Receiver<PutAway>,
    ) {
        let stop = self.parts.stop.clone();
        self.survey().await;
        self.take_copies().await;
        let mut attempts = FuturesUnordered::new();
        let mut gathering = true;
        loop {
            let draining = stop.is_draining();
            self.resends.cancel(&mut self.delivery, draining);
            if draining {
                self.delivery.end_beside();
                self.reads.drop_returns();
            }
            while let Some(line) = self.delivery.next_send(self.now()) {
                attempts.push(self.attempt(line));
            }
            self.take_notices(&[]);
            for number in self.delivery.take_wanted() {
                self.read(number, Purpose::Back);
            }
            if attempts.is_empty() {
                self.parts.pulse.idle();
            }
            let wake_at = self.wake_at();
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
                // Where there is always an answer, all else goes on.
                Some(read) = self.reads.next(), if !self.reads.is_empty() => self.has_read(read),
                Some(resend) = resends.recv(), if !draining => self.take_resend(resend),
                Some(asks) = put_aways.recv(), if !draining => self.put_aways.push(asks),
                Some(attempted) = attempts.next(), if !attempts.is_empty() => {
                    self.answered(attempted);
                    if gathering && self.delivery.has_room() && let Ok(work) = works.try_recv() {
                        self.take(work).await;
                    }
                }
                work = works.recv(), if gathering && self.delivery.has_room() => match work {
                    Some(work) => self.take(work).await,
                    None => gathering = false,
                },
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
        self.parts.pulse.idle();
        self.parts.options.sink.close().await;
    }

    /// Has the sink learn which parts its receiver has.
    async fn survey(&mut self) {
        tokio::select! {
            changed = self.parts.options.sink.survey() => if changed {
                self.relocates = true;
                self.destinations = None;
            },
            () = self.parts.stop.draining() => {}
        }
    }

    /// Takes a work in hand.
    async fn take(&mut self, work: Work) {
        if !self.delivery.has_live() {
            self.survey().await;
            if self.relocates {
                self.relocate().await;
            }
        }
        if self.parts.notes_inputs {
            self.parts.had.decided_by(&work.inputs);
            // Noted before it is sent.
            if work.end().at > 0 {
                let progress = &self.parts.progress;
                self.parts.had.write(now_ms(), || progress.saved_standing());
            }
        }
        let Self { hand, delivery, tickets, .. } = self;
        let wants_keys = delivery.wants_keys();
        hand.push(work, |record| match record {
            Some(record) => _ = delivery.push(tickets.ticket(record, wants_keys)),
            None => _ = delivery.push_passed(),
        });
        self.settle(false);
    }

    fn take_resend(&mut self, resend: Resend) {
        let Self { resends, delivery, tickets, .. } = self;
        // A letter goes alone: else it may be open which of a batch were rejected.
        let alone = resend.records.len() == 1;
        resends.push(resend, |record| {
            let ticket = tickets.ticket(record, true);
            let bytes = if alone { u32::MAX } else { ticket.bytes };
            delivery.push_resend(Ticket { bytes, ..ticket })
        });
    }

    /// Reads the keys of records that came without, if they are wanted now.
    fn learn_keys(&mut self) {
        for number in self.delivery.unknown() {
            if let Some(Content::Record(record)) = self.hand.content(number) {
                self.delivery.know(number, self.tickets.ticket(&record, true));
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
        let first_ms = self.first_ms(attempts, first);
        self.hand.set_aside(number, SetAside { attempts, first_ms, envelope: record.envelope });
    }

    /// When a record was sent first, in milliseconds since the epoch; now, if it never was.
    fn first_ms(&self, attempts: u32, first: Millis) -> u64 {
        if attempts == 0 { now_ms() } else { self.began_ms + first }
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
        let (oldest, dropped) = (self.hand.oldest_ms(), self.hand.take_additions_dropped());
        self.parts.progress.update(|sink| {
            sink.oldest_in_hand_ms = oldest;
            sink.additions_dropped += dropped;
        });
    }

    fn now(&self) -> Millis {
        self.began.elapsed().as_millis() as Millis
    }
}
