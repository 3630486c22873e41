//! One attempt at a batch: what of it is queued now, what is waited for, and what became of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use rdkafka::types::RDKafkaErrorCode;
use tokio::sync::Notify;

use super::{
    super::{classify, message::Message},
    Entry, Inner, Ledger, State, Waiting,
};
use crate::{
    bridge::{EventFate, Failure, Fault},
    event::Record,
};

/// An attempt at a batch, under way until it is dropped. What it has not settled by then is left for
/// the next one.
#[derive(Debug)]
pub(crate) struct Attempt<'a> {
    pub(super) ledger: &'a Ledger,
    pub(super) number: u64,
    pub(super) records: &'a [Record],
    /// Of their keys.
    pub(super) hashes: Vec<u32>,
    pub(super) wake: Arc<Notify>,
}

/// One pass over the records of an attempt, to queue what may be.
#[derive(Debug, Default)]
pub(crate) struct Pass {
    /// Partitions with a record that is not queued now: nothing behind it is.
    blocked: Vec<i32>,
    /// Some wait for room, that is for a report of anybody's.
    pub(crate) waits: bool,
}

/// Why a record is not settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsettled {
    /// The record has this error.
    Failed(RDKafkaErrorCode),
    /// The record was refused together with others, and was not asked about alone yet.
    InCompany,
    /// Its partition has not acknowledged it; and whether that takes nothing while others do.
    Late { partition: i32, others_go_on: bool },
}

impl Attempt<'_> {
    /// Notes a record as queued, if it may be now, and answers whether it was. To be called before it is:
    /// its report may come at once.
    pub(crate) fn claim(&self, pass: &mut Pass, message: &Message<'_>) -> bool {
        let (record, hash, bytes) = (message.record, message.hash(), message.bytes());
        let mut inner = self.ledger.inner();
        let inner = &mut *inner;
        let partition = inner.partition_of(hash);
        if let Some(entry) = inner.records.get(&record.seq) {
            // After a failure nothing more is queued there until that is settled.
            if matches!(entry.state, State::Failed(..)) && !entry.state.is_settled() {
                pass.blocked.push(partition);
            }
            return false;
        }
        if pass.blocked.contains(&partition) {
            return false;
        }
        if inner.shares.is_stuck(partition, self.ledger.patience) {
            pass.blocked.push(partition);
            return false;
        }
        if !inner.shares.has_room(partition, bytes) {
            inner.no_room(self.number, partition, pass);
            return false;
        }
        inner.shares.add(partition, bytes);
        let entry = Entry { state: State::Queued, attempt: self.number, hash, bytes };
        inner.records.insert(record.seq, entry);
        if let Some(waiting) = inner.attempts.get_mut(&self.number) {
            waiting.outstanding += 1;
        }
        true
    }

    /// Takes back that a record was queued: librdkafka has no room for it, or takes it never.
    pub(crate) fn not_queued(&self, pass: &mut Pass, record: &Record, failure: Option<Failure>) {
        let mut inner = self.ledger.inner();
        let Some(mut entry) = inner.records.remove(&record.seq) else { return };
        let partition = inner.partition_of(entry.hash);
        inner.shares.take_back(partition, entry.bytes);
        if let Some(waiting) = inner.attempts.get_mut(&self.number) {
            waiting.outstanding -= 1;
        }
        if let Some(failure) = failure {
            entry.state = State::Unqueueable(failure);
            inner.records.insert(record.seq, entry);
        } else {
            inner.no_room(self.number, partition, pass);
        }
    }

    /// Notes a record that no message can be made of.
    pub(crate) fn unqueueable(&self, record: &Record, failure: Failure) {
        let state = State::Unqueueable(failure);
        let entry = Entry { state, attempt: self.number, hash: 0, bytes: 0 };
        self.ledger.inner().records.entry(record.seq).or_insert(entry);
    }

    /// How many reports are due to it: from partitions that take something, and from those that are stuck.
    pub(crate) fn due(&self) -> (usize, usize) {
        let inner = self.ledger.inner();
        let outstanding = inner.waiting(self.number).map_or(0, |waiting| waiting.outstanding);
        if outstanding == 0 {
            return (0, 0);
        }
        let queued = self.queued(&inner);
        let is_stuck = |partition| inner.shares.is_stuck(partition, self.ledger.patience);
        let stuck = queued.filter(|partition| is_stuck(*partition)).count();
        (outstanding - stuck, stuck)
    }

    /// Whether one of its records was not taken.
    pub(crate) fn has_failed(&self) -> bool {
        self.ledger.inner().waiting(self.number).is_some_and(|waiting| waiting.failed)
    }

    /// Waits until no report is due to it, there may be room for what a pass left, or the producer is
    /// dead. May be dropped and called again.
    pub(crate) async fn reported(&self, pass: &Pass) {
        loop {
            let woken = self.wake.notified();
            {
                let mut inner = self.ledger.inner();
                let dead = inner.dead;
                let Some(waiting) = inner.attempts.get_mut(&self.number) else { return };
                let none_due = waiting.outstanding == 0 && !pass.waits;
                if dead || none_due || waiting.room_after == Some(0) {
                    waiting.room_after = None;
                    return;
                }
            }
            woken.await;
        }
    }

    /// Whether a report of one of its records tells of the producer's end.
    pub(crate) fn tells_of_the_end(&self) -> bool {
        let inner = self.ledger.inner();
        let mut entries = self.records.iter().filter_map(|record| inner.records.get(&record.seq));
        entries.any(|entry| {
            matches!(entry.state, State::Failed(code, _) if classify::of_a_dead_producer(code))
        })
    }

    /// Forgets records that were refused together with others, and those behind them in their
    /// partitions, to be queued anew and to travel alone. Answers whether there are any. Only when no
    /// report is due to it but from partitions that are stuck.
    pub(crate) fn ask_again_alone(&self) -> bool {
        let mut inner = self.ledger.inner();
        let inner = &mut *inner;
        let queued: BTreeSet<i32> = self.queued(inner).collect();
        // The first of a partition that is not settled decides for it.
        let mut asked: BTreeMap<i32, bool> = BTreeMap::new();
        for (record, hash) in self.records() {
            let Some(Entry { state, .. }) = inner.records.get(&record.seq) else { continue };
            let partition = inner.partition_of(hash);
            // What was acknowledged behind it comes again behind it.
            let again = asked.get(&partition) == Some(&true) && matches!(state, State::Acked);
            if queued.contains(&partition) || state.is_settled() && !again {
                continue;
            }
            let in_company =
                matches!(state, State::Failed(code, false) if classify::is_of_its_set(*code));
            if *asked.entry(partition).or_insert(in_company) {
                inner.records.remove(&record.seq);
                if in_company {
                    inner.shares.send_alone(partition, record.seq);
                }
            }
        }
        asked.values().any(|asked| *asked)
    }

    /// The partitions of its records that a report is due about.
    fn queued(&self, inner: &Inner) -> impl Iterator<Item = i32> {
        let queued = self.records().filter(move |(record, _)| {
            let entry = inner.records.get(&record.seq);
            entry.is_some_and(|entry| matches!(entry.state, State::Queued))
        });
        queued.map(move |(_, hash)| inner.partition_of(hash))
    }

    /// The fates of its records, which are the bridge's from then on. In each partition those in front of
    /// the first that is not settled are final, and the rest is to be sent again: also what was
    /// acknowledged behind it.
    pub(crate) fn settle(&self, why: impl Fn(Unsettled) -> Failure) -> Vec<EventFate> {
        let mut inner = self.ledger.inner();
        let inner = &mut *inner;
        let outstanding = inner.waiting(self.number).is_some_and(|waiting| waiting.outstanding > 0);
        let queued: BTreeSet<i32> =
            if outstanding { self.queued(inner).collect() } else { BTreeSet::new() };
        let mut unsettled: BTreeMap<i32, Failure> = BTreeMap::new();
        let fates = self.records().map(|(record, hash)| {
            let partition = inner.partition_of(hash);
            let why_not = match inner.records.get(&record.seq).map(|entry| &entry.state) {
                Some(State::Unqueueable(failure)) => {
                    let failure = failure.clone();
                    inner.records.remove(&record.seq);
                    return EventFate::Failed(failure);
                }
                Some(State::Failed(code, true)) if classify::is_refusal(*code) => {
                    let failure = why(Unsettled::Failed(*code));
                    inner.records.remove(&record.seq);
                    return EventFate::Failed(failure);
                }
                Some(State::Failed(code, false)) if classify::is_of_its_set(*code) => {
                    Some(Unsettled::InCompany)
                }
                Some(State::Failed(code, _)) => Some(Unsettled::Failed(*code)),
                Some(State::Acked) => None,
                Some(State::Queued) | None => {
                    let others_go_on = inner.shares.is_stuck(partition, Duration::ZERO);
                    Some(Unsettled::Late { partition, others_go_on })
                }
            };
            let before = unsettled.get(&partition).cloned();
            let failure = match (why_not, before) {
                (None, None) => {
                    inner.records.remove(&record.seq);
                    return EventFate::Delivered;
                }
                (Some(why_not @ Unsettled::Failed(_)), _) | (Some(why_not), None) => why(why_not),
                (_, Some(before)) => before,
            };
            // Who only stands behind one that failed is not to blame.
            let behind = Failure { fault: Fault::Sink, ..failure.clone() };
            unsettled.entry(partition).or_insert(behind);
            if !queued.contains(&partition) {
                inner.records.remove(&record.seq);
            }
            EventFate::Failed(failure)
        });
        fates.collect()
    }

    /// Its records, and the hashes of their keys.
    fn records(&self) -> impl Iterator<Item = (&Record, u32)> {
        self.records.iter().zip(self.hashes.iter().copied())
    }
}

impl Inner {
    fn waiting(&self, attempt: u64) -> Option<&Waiting> {
        self.attempts.get(&attempt)
    }

    /// Notes that an attempt waits for room.
    fn no_room(&mut self, attempt: u64, partition: i32, pass: &mut Pass) {
        let careful = self.shares.is_careful(partition);
        let after = if careful { 1 } else { (self.shares.outstanding() / 4).max(1) };
        if let Some(waiting) = self.attempts.get_mut(&attempt) {
            let before = waiting.room_after.filter(|_| pass.waits);
            waiting.room_after = Some(before.map_or(after, |before| before.min(after)));
        }
        pass.waits = true;
        pass.blocked.push(partition);
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let mut inner = self.ledger.inner();
        inner.attempts.remove(&self.number);
        inner.shares.give_up_alone(self.records);
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::types::RDKafkaErrorCode as Code;

    use super::*;
    use crate::{
        bridge::{FailureClass, Secrets},
        sinks::{KafkaKey, fixtures, kafka::sink::message::Messages},
    };

    fn failure(why: Unsettled) -> Failure {
        Failure::new(FailureClass::Timeout, Secrets::none().reason(format_args!("{why:?}")))
    }

    #[test]
    fn events_refused_for_another_one_are_delivered_alone() {
        let ledger = Ledger::new(Arc::default(), Duration::MAX);
        let records = fixtures::batch(1..=3).records;
        let of_topic = Messages { topic: "t".into(), key: KafkaKey::Qualified };
        let messages: Vec<_> = records.iter().map(|record| of_topic.of(record).unwrap()).collect();
        let attempt = ledger.begin(&records, messages.iter().map(Message::hash).collect());
        let claim = || {
            let mut pass = Pass::default();
            let claimed = messages.iter().filter(|message| attempt.claim(&mut pass, message));
            claimed.map(|message| message.record.seq).collect::<Vec<_>>()
        };
        assert_eq!(claim(), [1, 2, 3]);
        // The second is the culprit, and brokers that can say so do.
        ledger.report(1, Some(Code::InvalidDifferentRecord));
        ledger.report(2, Some(Code::InvalidTimestamp));
        ledger.report(3, Some(Code::InvalidDifferentRecord));
        assert!(attempt.ask_again_alone());
        for (seq, error) in [(1, None), (2, Some(Code::InvalidTimestamp)), (3, None)] {
            assert_eq!(claim(), [seq]);
            assert!(claim().is_empty());
            ledger.report(seq, error);
        }
        assert!(!attempt.ask_again_alone());
        let refused = EventFate::Failed(failure(Unsettled::Failed(Code::InvalidTimestamp)));
        assert_eq!(attempt.settle(failure), [EventFate::Delivered, refused, EventFate::Delivered]);
    }
}
