//! The records that one producer was handed and that are not yet settled with the bridge, and who waits for
//! them.
//!
//! librdkafka's thread writes delivery reports down here, and wakes the attempt that a report is the last
//! one of. Several attempts are under way at once, each with records of its own. One that runs out of
//! time, or is dropped, leaves its records: the next attempt that has one of them takes it over, and
//! waits for its report instead of queueing it twice.

mod attempt;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use rdkafka::types::RDKafkaErrorCode;
use tokio::sync::Notify;

pub(super) use self::attempt::{Attempt, Pass, Unsettled};
use super::{
    classify,
    config::BATCH_BYTES,
    partitions::{self, Partitions},
    shares::{Shares, UNKNOWN},
    words,
};
use crate::{bridge::Failure, event::Record, locks::lock};

/// From so many records on it is looked for those that nobody comes back to: a resend that was ended
/// leaves what it had queued, and so does a batch that was given up.
const LOOK_AT: usize = 1 << 14;
/// A live event that was not taken is in one of so many attempts again, or was given up.
const COMES_BACK_WITHIN: u64 = 1 << 10;

/// An error that is about a connection or the producer, not about one message.
#[derive(Clone, Debug)]
pub(super) struct ClientError {
    pub(super) code: RDKafkaErrorCode,
    /// Of librdkafka and of brokers.
    pub(super) text: String,
}

/// Where a record is.
#[derive(Debug)]
enum State {
    /// In librdkafka's queue or in flight.
    Queued,
    /// All replicas have it.
    Acked,
    /// The record was not taken; and whether that can be about it alone, because it travelled so. Brokers refuse
    /// a whole message set for one bad record, or for the size of all.
    Failed(RDKafkaErrorCode, bool),
    /// The record cannot be queued, so nothing behind it is held up.
    Unqueueable(Failure),
}

impl State {
    /// Whether its event has its fate: it is not queued again.
    fn is_settled(&self) -> bool {
        match self {
            Self::Queued => false,
            Self::Acked | Self::Unqueueable(_) => true,
            Self::Failed(code, alone) => *alone && classify::is_refusal(*code),
        }
    }
}

#[derive(Debug)]
struct Entry {
    state: State,
    /// The last attempt that had it.
    attempt: u64,
    /// Of its key.
    hash: u32,
    /// In the queue.
    bytes: usize,
}

/// An attempt under way.
#[derive(Debug, Default)]
struct Waiting {
    /// How many reports it waits for.
    outstanding: usize,
    /// One of its records was not taken.
    failed: bool,
    /// The number of reports, of all attempts, that it waits for, where it has more to queue.
    room_after: Option<usize>,
    wake: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Inner {
    /// By the place in the journal.
    records: BTreeMap<u64, Entry>,
    attempts: BTreeMap<u64, Waiting>,
    /// How many attempts there were.
    begun: u64,
    /// How many partitions there are, as far as that is known.
    partitions: Option<i32>,
    shares: Shares,
    last_error: Option<ClientError>,
    dead: bool,
}

/// See the [module](self). Shared by one producer's callbacks and the attempts that are made with it.
#[derive(Debug)]
pub(super) struct Ledger {
    partitions: Arc<Partitions>,
    /// A partition that takes nothing for so long is stuck.
    patience: Duration,
    inner: Mutex<Inner>,
}

impl Ledger {
    pub(super) fn new(partitions: Arc<Partitions>, patience: Duration) -> Self {
        Self { partitions, patience, inner: Mutex::default() }
    }

    pub(super) fn partitions(&self) -> &Partitions {
        &self.partitions
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Nothing that holds the lock can panic half-way.
        let mut inner = lock(&self.inner);
        let partitions = self.partitions.count();
        if inner.partitions != partitions {
            inner.partitions_are(partitions);
        }
        inner
    }

    /// Begins an attempt with these records, whose keys have these hashes, and takes over what is known of
    /// them.
    pub(super) fn begin<'a>(&'a self, records: &'a [Record], hashes: Vec<u32>) -> Attempt<'a> {
        let mut inner = self.inner();
        inner.begun += 1;
        let number = inner.begun;
        let mut waiting = Waiting::default();
        if inner.records.len() >= LOOK_AT {
            inner.forget_left();
        }
        if !inner.records.is_empty() {
            for record in records {
                let Some(entry) = inner.records.get_mut(&record.seq) else { continue };
                entry.attempt = number;
                waiting.outstanding += usize::from(matches!(entry.state, State::Queued));
                waiting.failed |= matches!(entry.state, State::Failed(..));
            }
        }
        let wake = Arc::clone(&waiting.wake);
        inner.attempts.insert(number, waiting);
        Attempt { ledger: self, number, records, hashes, wake }
    }

    /// Takes a delivery report: without an error all replicas have the record.
    pub(super) fn report(&self, seq: u64, error: Option<RDKafkaErrorCode>) {
        let mut inner = self.inner();
        let inner = &mut *inner;
        if error.is_none() {
            inner.last_error = None;
        }
        let Some(entry) = inner.records.get_mut(&seq) else { return };
        if !matches!(entry.state, State::Queued) {
            return;
        }
        let partition = partition_of(entry.hash, inner.partitions);
        let alone = inner.shares.reported(partition, seq, entry.bytes, error.is_none());
        let alone = alone || entry.bytes > BATCH_BYTES;
        entry.state = error.map_or(State::Acked, |code| State::Failed(code, alone));
        if let Some(waiting) = inner.attempts.get_mut(&entry.attempt) {
            waiting.outstanding -= 1;
            waiting.failed |= error.is_some();
            if waiting.outstanding == 0 {
                waiting.wake.notify_one();
            }
        }
        // There are few.
        for waiting in inner.attempts.values_mut() {
            if let Some(after) = &mut waiting.room_after {
                *after = after.saturating_sub(1);
                if *after == 0 {
                    waiting.wake.notify_one();
                }
            }
        }
    }

    /// Takes an error that is about no message; the first of several of one cause stays.
    pub(super) fn client_error(&self, code: RDKafkaErrorCode, text: &str) {
        let mut inner = self.inner();
        // The brokers take turns at saying it; it is news once.
        let known = inner.last_error.as_ref();
        if !known.is_some_and(|known| known.code == code && words::of_one_cause(&known.text, text))
        {
            inner.last_error = Some(ClientError { code, text: text.to_owned() });
        }
    }

    /// The last client error since a message was last acknowledged.
    pub(super) fn last_error(&self) -> Option<ClientError> {
        self.inner().last_error.clone()
    }

    /// The producer is beyond repair: reports that are due will not come.
    pub(super) fn die(&self) {
        let mut inner = self.inner();
        inner.dead = true;
        inner.attempts.values().for_each(|waiting| waiting.wake.notify_one());
    }

    /// Whether the producer is beyond repair.
    pub(super) fn is_dead(&self) -> bool {
        self.inner().dead
    }

    /// How many reports are due.
    #[cfg(test)]
    pub(super) fn outstanding(&self) -> usize {
        self.inner().shares.outstanding()
    }
}

impl Inner {
    fn partition_of(&self, hash: u32) -> i32 {
        partition_of(hash, self.partitions)
    }

    /// Takes in how many partitions there are: what is outstanding is so in others than it was.
    fn partitions_are(&mut self, partitions: Option<i32>) {
        self.partitions = partitions;
        self.shares.forget();
        for entry in self.records.values() {
            if matches!(entry.state, State::Queued) {
                self.shares.add(partition_of(entry.hash, partitions), entry.bytes);
            }
        }
    }

    /// Forgets what is known of records that no attempt has, and that nobody is to come back to: they are
    /// sent again, if somebody does.
    fn forget_left(&mut self) {
        let (attempts, begun) = (&self.attempts, self.begun);
        self.records.retain(|seq, entry| {
            let comes_back = entry.attempt + COMES_BACK_WITHIN > begun;
            (*seq < Record::FIRST_RESEND && comes_back)
                || matches!(entry.state, State::Queued)
                || attempts.contains_key(&entry.attempt)
        });
    }
}

/// The partition of a key with this hash.
fn partition_of(hash: u32, partitions: Option<i32>) -> i32 {
    partitions.map_or(UNKNOWN, |count| partitions::of_hash(hash, count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        bridge::{EventFate, FailureClass, Secrets},
        sinks::{KafkaKey, fixtures, kafka::sink::message::Messages},
    };

    #[test]
    fn records_are_forgotten_unless_due_when_nobody_retries_them() {
        let ledger = Ledger::new(Arc::default(), Duration::MAX);
        let of_topic = Messages { topic: "t".into(), key: KafkaKey::Qualified };
        let begin = |records: &[Record]| {
            let attempt = ledger.begin(records, vec![0; records.len()]);
            let mut pass = Pass::default();
            for record in records {
                attempt.claim(&mut pass, &of_topic.of(record).unwrap());
            }
        };
        let due = fixtures::batch(1..=1).records;
        begin(&due);
        for first in (2..).step_by(10).take(4 * LOOK_AT / 10) {
            // Queued, given up after the attempt, and taken in the end.
            let records = fixtures::batch(first..=first + 9).records;
            begin(&records);
            for record in &records {
                ledger.report(record.seq, None);
            }
        }
        assert!(ledger.inner().records.len() <= LOOK_AT + 10, "{}", ledger.inner().records.len());
        assert_eq!(ledger.outstanding(), 1);
        begin(&due);
        assert_eq!(ledger.outstanding(), 1, "it is not queued twice");
        ledger.report(1, None);
        let again = ledger.begin(&due, vec![0]);
        let late = |_| Failure::new(FailureClass::Timeout, Secrets::none().reason("late"));
        assert_eq!(again.settle(late), [EventFate::Delivered]);
    }
}
