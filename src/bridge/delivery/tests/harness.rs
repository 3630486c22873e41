//! A caller of delivery that looks on: the order of each object, one fate for each record.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{
    bridge::{
        BatchOptions, EventFate, Failure, FailureClass, Fault, Outcome, RefusedClass, RetryOptions,
        Secrets,
        delivery::{self, Attempt, Delivery, DeliveryOptions, Millis, Moment},
        gather::Work,
    },
    event::{Batch, Record},
    journal::DeadLetter,
};

pub(super) fn options(lanes: usize, events: usize) -> DeliveryOptions {
    DeliveryOptions {
        sink: "a".to_owned(),
        forward: None,
        lanes,
        batch: BatchOptions { events, bytes: 1 << 20, linger: Duration::ZERO },
        retry: RetryOptions::default(),
    }
}

/// A failure of the sink, or a refusal.
pub(super) fn failure(class: FailureClass) -> Failure {
    Failure::new(class, Secrets::none().reason("no"))
}

/// A failure that may be a record's.
pub(super) fn of_record(class: FailureClass) -> Outcome {
    let fault = match class {
        FailureClass::Misconfigured => Fault::RecordForGood,
        _ => Fault::RecordForNow,
    };
    Outcome::Failed(Failure { fault, ..failure(class) })
}

pub(super) fn silence() -> Outcome {
    Outcome::Failed(Failure::silence(Secrets::none().reason("no answer")))
}

pub(super) fn failed(class: FailureClass) -> Outcome {
    Outcome::Failed(failure(class))
}

pub(super) fn invalid() -> Failure {
    failure(FailureClass::Refused(RefusedClass::Invalid))
}

/// Answers of the batch, one by one: `d`elivered, d`u`plicate, `r`etry, `n`o.
pub(super) fn each(answers: &str) -> Outcome {
    let fate = |answer| match answer {
        'd' => EventFate::Delivered,
        'u' => EventFate::Duplicate,
        'r' => EventFate::Failed(failure(FailureClass::Unavailable)),
        _ => EventFate::Failed(invalid()),
    };
    Outcome::PerEvent(answers.chars().map(fate).collect())
}

/// The fate of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Delivered,
    DeadLetter { class: String, attempts: u32, unidentified: u64 },
}

/// A record in the journal: its namespace, and its object.
pub(super) type About = (u64, u64);

/// The answers of a caller whose earlier runs delivered nothing.
pub(super) struct Outside {
    pub(super) taken: Vec<u64>,
    /// Whether there is room for parked records.
    pub(super) room: bool,
}

impl delivery::Caller for Outside {
    fn taken(&mut self, record: &Record) {
        self.taken.push(record.seq);
    }

    fn has_room(&mut self, _: &Record, _: bool) -> bool {
        self.room
    }
}

/// See the [module](self).
pub(super) struct Caller {
    pub(super) delivery: Delivery,
    pub(super) now: Millis,
    /// By sequence.
    pub(super) records: BTreeMap<u64, About>,
    pub(super) fates: BTreeMap<u64, Fate>,
    /// Attempts in flight.
    pub(super) sent: Vec<(Attempt, Vec<u64>)>,
    /// Whether there is room for parked records.
    pub(super) room: bool,
    /// The records that are settled by the totals.
    settled: u64,
    /// Before that the position stands.
    pub(super) next: u64,
}

impl Caller {
    pub(super) fn new(options: DeliveryOptions) -> Self {
        Self {
            delivery: Delivery::new(options, 7),
            now: 0,
            records: BTreeMap::new(),
            fates: BTreeMap::new(),
            sent: Vec::new(),
            room: true,
            settled: 0,
            next: 1,
        }
    }

    /// Pushes a batch of gathering.
    pub(super) fn push(&mut self, records: impl IntoIterator<Item = About>) -> Vec<u64> {
        let mut work = Work { settles: true, ..Work::default() };
        for about in records {
            let seq = self.records.last_key_value().map_or(1, |(seq, _)| seq + 1);
            self.records.insert(seq, about);
            work.batch.records.push(record(seq, about));
            work.settled.standing.position.next = seq + 1;
        }
        let seqs: Vec<u64> = work.batch.records.iter().map(|record| record.seq).collect();
        let moment = Moment { now: self.now, time_ms: self.now };
        let mut outside = Outside { taken: Vec::new(), room: self.room };
        self.delivery.push(work, moment, &mut outside);
        self.settle();
        seqs
    }

    /// Sends all that can be sent now, and answers what is new.
    pub(super) fn send(&mut self) -> Vec<Vec<u64>> {
        let mut new = Vec::new();
        while let Some(attempt) = self.delivery.next(self.now) {
            let Batch { records } = self.delivery.batch(&attempt);
            let seqs: Vec<u64> = records.iter().map(|record| record.seq).collect();
            self.look_at(&seqs);
            self.sent.push((attempt, seqs.clone()));
            new.push(seqs);
        }
        let wake = self.delivery.wake_at();
        assert!(wake.is_none_or(|at| at > self.now), "{wake:?} is not after {}", self.now);
        new
    }

    /// Records that are sent overtake nothing of their objects.
    fn look_at(&self, seqs: &[u64]) {
        assert!(!seqs.is_empty() && seqs.is_sorted());
        let open: BTreeSet<u64> =
            self.delivery.window.entries().map(|entry| entry.record.seq).collect();
        for seq in seqs {
            assert!(open.contains(seq), "{seq} has a fate");
            let about = self.records[seq];
            let in_flight = self.sent.iter().flat_map(|(_, seqs)| seqs);
            for other in in_flight {
                assert_ne!(self.records[other], about, "{seq} and {other} are in flight");
            }
            let of_object = self.records.range(..seq).filter(|(_, other)| **other == about);
            for (before, _) in of_object {
                let is_sent = !open.contains(before) || seqs.contains(before);
                assert!(is_sent, "{seq} overtakes {before}");
            }
        }
    }

    /// Answers one of the attempts in flight.
    pub(super) fn answer(&mut self, at: usize, outcome: Outcome) {
        let (attempt, seqs) = self.sent.remove(at);
        let moment = Moment { now: self.now, time_ms: self.now };
        let mut outside = Outside { taken: Vec::new(), room: self.room };
        let consequences = self.delivery.answered(attempt, outcome, moment, &mut outside);
        let Outside { taken, .. } = outside;
        assert_eq!(consequences.taken, taken.len());
        for seq in taken {
            assert!(seqs.contains(&seq));
            assert_eq!(self.fates.insert(seq, Fate::Delivered), None, "a second fate");
        }
        self.settle();
    }

    /// Answers the attempt that has a record.
    pub(super) fn answer_of(&mut self, seq: u64, outcome: Outcome) {
        let at = self.sent.iter().position(|(_, seqs)| seqs.contains(&seq)).unwrap();
        self.answer(at, outcome);
    }

    pub(super) fn settle(&mut self) {
        if let Some(settled) = self.delivery.settle() {
            let totals = settled.totals;
            self.settled += totals.delivered + totals.dead_lettered;
            self.next = self.next.max(settled.standing.position.next);
            let mut letters = 0;
            for letter in settled.dead_letters {
                let DeadLetter { seq, class, attempts, unidentified, .. } = letter;
                letters += unidentified.max(1);
                let fate = Fate::DeadLetter { class, attempts, unidentified };
                assert_eq!(self.fates.insert(seq, fate), None, "a second fate");
            }
            assert_eq!(letters, totals.dead_lettered);
        }
    }

    /// Goes on to when something is sent again.
    pub(super) fn wake(&mut self) {
        self.now = self.delivery.wake_at().unwrap();
    }

    /// Answers that all is taken until nothing is left.
    pub(super) fn drain(&mut self) {
        loop {
            self.send();
            if !self.sent.is_empty() {
                self.answer(0, Outcome::Delivered);
            } else if self.delivery.wake_at().is_some() {
                self.wake();
            } else {
                break;
            }
        }
        assert_eq!(self.settled, self.records.len() as u64);
        assert_eq!(self.next, self.settled + 1);
        assert_eq!(self.delivery.oldest_ms(), None);
    }

    pub(super) fn class(&self, seq: u64) -> Option<&str> {
        match self.fates.get(&seq) {
            Some(Fate::DeadLetter { class, .. }) => Some(class),
            _ => None,
        }
    }
}

/// A record of 1 000 bytes; one of an object from 1 000 on has 2 000.
pub(super) fn record(seq: u64, (namespace, object): About) -> Record {
    let mut envelope = format!(
        r#"{{"id":"e-{seq}","event":{{"involvedObject":{{"kind":"Pod","namespace":"n{namespace}","name":"p{object}"}},"message":""#
    );
    let size = if object >= 1000 { 2000 } else { 1000 };
    envelope.push_str(&"x".repeat(size - 3 - envelope.len()));
    envelope.push_str("\"}}");
    Record { seq, envelope: envelope.into() }
}
