//! A receiver with scripted faults.

use std::ops::Range;

use super::Record;
use crate::bridge::{
    EventFate, Failure, FailureClass, Fault, Outcome, RefusedClass, Secrets, Status,
};

/// The fault, and the batches that it is in.
#[derive(Clone, Debug)]
pub(super) enum Script {
    /// Each batch with a culprit.
    Culprit(Wrong),
    /// Each batch with a record of every second namespace.
    HalfOfNamespaces(Wrong),
    /// Each batch with a record of the first of eight destinations.
    Destination(Wrong),
    /// Each batch with a record of every fourth object.
    QuarterOfObjects(Wrong),
    /// So many of a hundred, at random.
    Random(u64, Wrong),
    All(Wrong),
    /// All, for so long of each period.
    Periods {
        on: u64,
        of: u64,
        wrong: Wrong,
    },
    /// More than one request in so long.
    Rate(u64),
}

/// How it goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    Http(u16),
    /// The status of each record that is wrong, and the others are taken.
    Named(u16),
    /// The status of each record that is for the destination of one that is wrong, as a partition of a topic refuses
    /// them, and the others are taken.
    Sets(u16),
    Reset,
    Hang,
    /// The connection is cut, and there is none for so long.
    Crash(u64),
}

pub(super) struct Receiver {
    pub(super) scripts: Vec<(Range<u64>, Script)>,
    pub(super) latency: u64,
    pub(super) timeout: u64,
    pub(super) random: fastrand::Rng,
    pub(super) last: u64,
    /// The time until which it is away, as it has crashed.
    pub(super) down_until: u64,
    pub(super) crashes: u64,
}

/// The records that are wrong.
type Whose = fn(&Record) -> bool;

/// The answer to an attempt.
pub(super) struct Answered {
    pub(super) at: u64,
    pub(super) outcome: Outcome,
}

impl Answered {
    /// Whether the receiver has a record of the batch.
    pub(super) fn takes(&self, place: usize) -> bool {
        match &self.outcome {
            Outcome::PerEvent(fates) => fates[place] == EventFate::Delivered,
            outcome => !super::failed(outcome),
        }
    }
}

impl Receiver {
    pub(super) fn send(&mut self, all: &[Record], sent: &[usize], now: u64) -> Answered {
        let jitter = self.random.u64(0..=self.latency / 5);
        let at = now + (self.latency - self.latency / 10 + jitter).max(1);
        if now < self.down_until {
            let reason = Secrets::none().reason("connection refused");
            let refused = Failure::new(FailureClass::Unavailable, reason);
            return Answered { at: now + 1, outcome: Outcome::Failed(refused) };
        }
        let scripts = std::mem::take(&mut self.scripts);
        let wrong = scripts
            .iter()
            .filter(|(times, _)| times.contains(&now))
            .find_map(|(_, script)| self.goes_wrong(script, all, sent, now));
        self.scripts = scripts;
        let Some((wrong, of)) = wrong else {
            self.last = now;
            return Answered { at, outcome: Outcome::Delivered };
        };
        let reset = at.min(now + 10);
        match wrong {
            Wrong::Http(code) => Answered { at, outcome: Outcome::Failed(http(code)) },
            Wrong::Named(code) => {
                let fate = |record: &usize| {
                    if of(&all[*record]) {
                        EventFate::Failed(http(code))
                    } else {
                        EventFate::Delivered
                    }
                };
                Answered { at, outcome: Outcome::PerEvent(sent.iter().map(fate).collect()) }
            }
            Wrong::Sets(code) => {
                let set = |record: &usize| all[*record].object % SETS;
                let wrong = sent.iter().filter(|record| of(&all[**record])).map(set);
                let wrong: Vec<u64> = wrong.collect();
                let fate = |record: &usize| {
                    if wrong.contains(&set(record)) {
                        EventFate::Failed(http(code))
                    } else {
                        EventFate::Delivered
                    }
                };
                Answered { at, outcome: Outcome::PerEvent(sent.iter().map(fate).collect()) }
            }
            Wrong::Reset => Answered { at: reset, outcome: silent(Status::Cut) },
            Wrong::Crash(lasts) => {
                self.crashes += 1;
                self.down_until = reset + lasts;
                Answered { at: reset, outcome: silent(Status::Cut) }
            }
            Wrong::Hang => Answered { at: now + self.timeout, outcome: silent(Status::Silence) },
        }
    }

    fn goes_wrong(
        &mut self,
        script: &Script,
        all: &[Record],
        sent: &[usize],
        now: u64,
    ) -> Option<(Wrong, Whose)> {
        let any = |of: Whose, wrong: Wrong| {
            sent.iter().any(|record| of(&all[*record])).then_some((wrong, of))
        };
        match *script {
            Script::Culprit(wrong) => any(|record| record.culprit, wrong),
            Script::HalfOfNamespaces(wrong) => {
                any(|record| record.namespace.is_multiple_of(2), wrong)
            }
            Script::Destination(wrong) => any(|record| record.object.is_multiple_of(8), wrong),
            Script::QuarterOfObjects(wrong) => any(|record| record.object.is_multiple_of(4), wrong),
            Script::Random(percent, wrong) => {
                (self.random.u64(0..100) < percent).then_some((wrong, |_| true))
            }
            Script::All(wrong) => Some((wrong, |_| true)),
            Script::Periods { on, of, wrong } => (now % of < on).then_some((wrong, |_| true)),
            Script::Rate(each) => (now < self.last + each).then_some((Wrong::Http(429), |_| true)),
        }
    }
}

/// The partitions of a topic.
pub(super) const SETS: u64 = 3;

/// The code that stands for a partition without a leader.
pub(super) const NO_LEADER: u16 = 599;

fn http(code: u16) -> Failure {
    let class = match code {
        400 | 422 => FailureClass::Refused(RefusedClass::Invalid),
        413 => FailureClass::Refused(RefusedClass::TooLarge),
        429 => FailureClass::Throttled,
        500.. => FailureClass::Unavailable,
        _ => FailureClass::Misconfigured,
    };
    let fault = match code {
        401 | 429 | NO_LEADER => Fault::Sink,
        500.. => Fault::RecordForNow,
        _ => Fault::RecordForGood,
    };
    let reason = Secrets::none().reason(format_args!("HTTP {code}"));
    Failure { fault, status: Status::Http(code), ..Failure::new(class, reason) }
}

fn silent(status: Status) -> Outcome {
    let class =
        if status == Status::Cut { FailureClass::Unavailable } else { FailureClass::Timeout };
    let fault = Fault::RecordForNow;
    let reason = Secrets::none().reason("no answer");
    Outcome::Failed(Failure { fault, status, ..Failure::new(class, reason) })
}
