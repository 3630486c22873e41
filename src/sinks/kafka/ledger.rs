//! What has been handed to one producer and not yet been settled with the bridge, and who waits for it.
//!
//! librdkafka's thread writes delivery reports down here, and wakes the attempt that a report is the last
//! one of. Several attempts are under way at once, each with records of its own. One that runs out of
//! time, or is dropped, leaves its records: the next attempt that has one of them takes it over, and
//! waits for its report instead of queueing it twice.

mod attempt;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rdkafka::types::RDKafkaErrorCode;
use tokio::sync::Notify;

pub(super) use self::attempt::{Attempt, Pass, Unsettled};
use super::{
    classify,
    partitions::{self, Partitions},
    shares::{Shares, UNKNOWN},
    words,
};
use crate::{bridge::Failure, event::Record};

/// From so many records on it is looked for those that nobody comes back to: an errand that was ended
/// leaves what it had queued.
const LOOK_AT: usize = 1 << 14;

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
    /// It was not taken; and whether that can be about it alone, because it travelled so. Brokers refuse
    /// a whole message set for one bad record, or for the size of all.
    Failed(RDKafkaErrorCode, bool),
    /// It cannot be queued, so nothing behind it is held up.
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
    /// It has more to queue, and waits for so many reports more, of all attempts.
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
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
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
            inner.forget_errands();
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
        let alone = inner.shares.reported(partition, entry.bytes, error.is_none());
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

    /// Forgets what is known of errands that no attempt has: they are sent again, if anybody comes back.
    fn forget_errands(&mut self) {
        let attempts = &self.attempts;
        self.records.retain(|seq, entry| {
            *seq < Record::FIRST_ERRAND
                || matches!(entry.state, State::Queued)
                || attempts.contains_key(&entry.attempt)
        });
    }
}

/// The partition of a key with this hash.
fn partition_of(hash: u32, partitions: Option<i32>) -> i32 {
    partitions.map_or(UNKNOWN, |count| partitions::of_hash(hash, count))
}
