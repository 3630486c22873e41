//! The records that one producer was handed and that are not yet settled with the bridge, and who waits for
//! them.
//!
//! librdkafka's thread writes delivery reports down here, and wakes the attempt that a report is the last
//! one of. Several attempts are under way at once, each with records of its own. One that runs out of
//! time, or is dropped, leaves its records: the next attempt that has one of them takes it over, and
//! waits for its report instead of queueing it twice.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rdkafka::types::RDKafkaErrorCode;
use tokio::sync::Notify;

use super::words;
use crate::{
    bridge::{EventFate, Failure},
    event::Record,
};

/// From so many records on it is looked for those that nobody comes back to: an errand that was ended
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
    /// It was not taken; and whether that can be about it alone, because it travelled so. Brokers refuse
    /// a whole message set for one bad record, or for the size of all.
    Failed(RDKafkaErrorCode, bool),
    /// It was never queued and never will be, so nothing behind it is held up.
    Unqueueable(Failure),
}

#[derive(Debug)]
struct Entry {
    state: State,
    /// The last attempt that had it.
    attempt: u64,
}

/// An attempt under way.
#[derive(Debug, Default)]
struct Waiting {
    /// How many reports it waits for.
    outstanding: usize,
    /// One of its records was not taken.
    failed: bool,
    /// It has more to queue, and waits until no more than these are outstanding, of all attempts.
    room_at: Option<usize>,
    wake: Arc<Notify>,
}

impl Waiting {
    /// Whether there is something to do for it, where so many reports are due to all.
    fn is_due(&self, outstanding: usize) -> bool {
        match self.room_at {
            Some(at) => outstanding <= at || self.failed,
            None => self.outstanding == 0,
        }
    }
}

#[derive(Debug, Default)]
struct Inner {
    /// By the place in the journal.
    records: BTreeMap<u64, Entry>,
    attempts: BTreeMap<u64, Waiting>,
    /// How many attempts there were.
    begun: u64,
    /// How many reports are due.
    outstanding: usize,
    /// How many records were queued since none was outstanding.
    together: usize,
    last_error: Option<ClientError>,
    dead: bool,
}

/// See the [module](self). Shared by one producer's callbacks and the attempts that are made with it.
#[derive(Debug, Default)]
pub(super) struct Ledger(Mutex<Inner>);

impl Ledger {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Nothing that holds the lock can panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an attempt with these records, and takes over what is known of them.
    pub(super) fn begin<'a>(&'a self, records: &'a [Record]) -> Attempt<'a> {
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
                match entry.state {
                    State::Queued => waiting.outstanding += 1,
                    State::Failed(..) => waiting.failed = true,
                    State::Acked | State::Unqueueable(_) => {}
                }
            }
        }
        let wake = Arc::clone(&waiting.wake);
        inner.attempts.insert(number, waiting);
        Attempt { ledger: self, number, records, wake }
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
        let alone = inner.together == 1;
        entry.state = error.map_or(State::Acked, |code| State::Failed(code, alone));
        inner.outstanding -= 1;
        if let Some(waiting) = inner.attempts.get_mut(&entry.attempt) {
            waiting.outstanding -= 1;
            waiting.failed |= error.is_some();
        }
        // There are few.
        for waiting in inner.attempts.values() {
            if waiting.is_due(inner.outstanding) {
                waiting.wake.notify_one();
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
    pub(super) fn outstanding(&self) -> usize {
        self.inner().outstanding
    }
}

impl Inner {
    fn add(&mut self, seq: u64, attempt: u64, state: State) {
        self.records.insert(seq, Entry { state, attempt });
    }

    /// Forgets what is known of records that no attempt has, and that nobody is to come back to: they are
    /// sent again, if somebody does.
    fn forget_left(&mut self) {
        let (attempts, begun) = (&self.attempts, self.begun);
        self.records.retain(|seq, entry| {
            let comes_back = entry.attempt + COMES_BACK_WITHIN > begun;
            (*seq < Record::FIRST_ERRAND && comes_back)
                || matches!(entry.state, State::Queued)
                || attempts.contains_key(&entry.attempt)
        });
    }
}

/// An attempt at a batch, under way until it is dropped. What it has not settled by then is left for
/// the next one.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    ledger: &'a Ledger,
    number: u64,
    records: &'a [Record],
    wake: Arc<Notify>,
}

impl<'a> Attempt<'a> {
    pub(super) fn records(&self) -> &'a [Record] {
        self.records
    }

    /// Whether librdkafka has had a record, or never will.
    pub(super) fn knows(&self, record: &Record) -> bool {
        self.ledger.inner().records.contains_key(&record.seq)
    }

    /// Notes a record as queued. To be called before it is: its report may come at once.
    pub(super) fn queued(&self, record: &Record) {
        let mut inner = self.ledger.inner();
        if inner.outstanding == 0 {
            inner.together = 0;
        }
        inner.outstanding += 1;
        inner.together += 1;
        inner.add(record.seq, self.number, State::Queued);
        if let Some(waiting) = inner.attempts.get_mut(&self.number) {
            waiting.outstanding += 1;
        }
    }

    /// Takes back that a record was queued: it was not.
    pub(super) fn not_queued(&self, record: &Record) {
        let mut inner = self.ledger.inner();
        inner.records.remove(&record.seq);
        inner.outstanding -= 1;
        inner.together -= 1;
        if let Some(waiting) = inner.attempts.get_mut(&self.number) {
            waiting.outstanding -= 1;
        }
    }

    pub(super) fn unqueueable(&self, record: &Record, failure: Failure) {
        self.ledger.inner().add(record.seq, self.number, State::Unqueueable(failure));
    }

    /// Whether one of its records was not taken.
    pub(super) fn has_failed(&self) -> bool {
        self.ledger.inner().attempts.get(&self.number).is_some_and(|waiting| waiting.failed)
    }

    /// Waits until no report is due to it, or the producer is dead.
    pub(super) async fn reported(&self) {
        self.wait(None).await;
    }

    /// Waits until half of the reports that are due to all have come, one of its own tells of an error,
    /// or the producer is dead.
    pub(super) async fn has_room(&self) {
        let half = self.ledger.inner().outstanding / 2;
        self.wait(Some(half)).await;
    }

    /// Waits until no report is due to anybody, or the producer is dead.
    pub(super) async fn idle(&self) {
        self.wait(Some(0)).await;
    }

    /// May be dropped and called again.
    async fn wait(&self, room_at: Option<usize>) {
        if let Some(waiting) = self.ledger.inner().attempts.get_mut(&self.number) {
            waiting.room_at = room_at;
        }
        loop {
            let woken = self.wake.notified();
            {
                let inner = self.ledger.inner();
                let waiting = inner.attempts.get(&self.number);
                if inner.dead || waiting.is_none_or(|waiting| waiting.is_due(inner.outstanding)) {
                    return;
                }
            }
            woken.await;
        }
    }

    /// The place in the batch of the first record that failed, why, and whether it travelled alone.
    pub(super) fn first_failed(&self) -> Option<(usize, RDKafkaErrorCode, bool)> {
        let inner = self.ledger.inner();
        let mut states = self.records.iter().map(|record| inner.records.get(&record.seq));
        let place = states.position(|entry| {
            entry.is_some_and(|entry| matches!(entry.state, State::Failed(..)))
        })?;
        match inner.records.get(&self.records[place].seq)?.state {
            State::Failed(code, alone) => Some((place, code, alone)),
            _ => None,
        }
    }

    /// Forgets its records from a place on, to be queued anew. Only when no report is due to it.
    pub(super) fn forget_from(&self, place: usize) {
        let mut inner = self.ledger.inner();
        for record in &self.records[place..] {
            inner.records.remove(&record.seq);
        }
        if let Some(waiting) = inner.attempts.get_mut(&self.number) {
            waiting.failed = false;
        }
    }

    /// The fates of its records up to the first that has none. They are the bridge's from then on.
    pub(super) fn settle(&self) -> Vec<EventFate> {
        let mut inner = self.ledger.inner();
        let mut fates = Vec::with_capacity(self.records.len());
        for record in self.records {
            let state = inner.records.get(&record.seq).map(|entry| &entry.state);
            if !matches!(state, Some(State::Acked | State::Unqueueable(_))) {
                break;
            }
            fates.push(match inner.records.remove(&record.seq) {
                Some(Entry { state: State::Unqueueable(failure), .. }) => {
                    EventFate::Failed(failure)
                }
                _ => EventFate::Delivered,
            });
        }
        fates
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.ledger.inner().attempts.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sinks::fixtures;

    #[test]
    fn what_nobody_comes_back_to_is_forgotten_and_what_is_due_is_not() {
        let ledger = Ledger::default();
        let due = fixtures::batch(1..=1).records;
        ledger.begin(&due).queued(&due[0]);
        for first in (2..).step_by(10).take(4 * LOOK_AT / 10) {
            // Queued, given up after the attempt, and taken in the end.
            let records = fixtures::batch(first..=first + 9).records;
            let attempt = ledger.begin(&records);
            for record in &records {
                attempt.queued(record);
            }
            drop(attempt);
            for record in &records {
                ledger.report(record.seq, None);
            }
        }
        assert!(ledger.inner().records.len() <= LOOK_AT + 10, "{}", ledger.inner().records.len());
        assert_eq!(ledger.outstanding(), 1);
        let again = ledger.begin(&due);
        assert!(again.knows(&due[0]));
        ledger.report(1, None);
        assert_eq!(again.settle(), [EventFate::Delivered]);
    }
}
