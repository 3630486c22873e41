//! The answer to an attempt, and what it makes of the records that were sent.

use std::collections::HashSet;

use rustc_hash::FxBuildHasher;

use super::{
    Apart, Attempt, Caller, Delivery, FAILING, Kind, Millis, Number,
    backoff::wait_after,
    keys::Keys,
    window::{Entry, State},
};
use crate::{
    bridge::{
        EventFate, Failure, FailureClass, Fault, Latencies, Outcome, Reason, RefusedClass, Secrets,
        Status,
    },
    event::Record,
    journal::{DeadLetter, LetterState},
};

/// After so many refusals of single events, with nothing taken, it is the sink that is wrong, not the events.
const REFUSALS_IN_A_ROW: u32 = 20;

/// After silence so many successes of a namespace are beside the lanes.
const SILENCE: u32 = 16;

/// The moment of an answer.
#[derive(Clone, Copy, Debug)]
pub(in crate::bridge) struct Moment {
    pub(in crate::bridge) now: Millis,
    /// The same, in milliseconds since the epoch.
    pub(in crate::bridge) time_ms: u64,
}

/// The consequences of an answer.
#[derive(Debug, Default)]
pub(in crate::bridge) struct Consequences {
    /// How many records were taken.
    pub(in crate::bridge) taken: usize,
    /// How long they took.
    pub(in crate::bridge) latencies: Latencies,
    pub(in crate::bridge) letters: Vec<GivenUp>,
}

/// Records that were given up for one reason.
#[derive(Debug)]
pub(in crate::bridge) struct GivenUp {
    pub(in crate::bridge) class: LetterClass,
    pub(in crate::bridge) reason: Reason,
    /// How often the first of them was sent,
    pub(in crate::bridge) attempts: u32,
    /// and the record itself.
    pub(in crate::bridge) record: Record,
    /// How many they are.
    pub(in crate::bridge) events: u64,
}

/// An answer that is being taken in.
pub(super) struct Answer<'a> {
    pub(super) at: Moment,
    pub(super) caller: &'a mut dyn Caller,
    pub(super) consequences: Consequences,
}

/// The kinds of dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bridge) enum LetterClass {
    /// The receiver refused it by itself.
    Refused(RefusedClass),
    /// One of so many of a batch that were refused without being named; one dead letter stands for them.
    PartialSuccess,
    /// The record failed as often as `retry.maxAttempts` allows.
    MaxAttempts,
    /// The receiver fails for it and takes others: it is parked, and sent again by itself.
    Blocked,
}

impl LetterClass {
    /// The spelling in dead letters and metrics.
    pub(in crate::bridge) fn as_str(self) -> &'static str {
        match self {
            Self::Refused(class) => class.as_str(),
            Self::PartialSuccess => "partial-success",
            Self::MaxAttempts => "max-attempts",
            Self::Blocked => DeadLetter::BLOCKED,
        }
    }
}

impl Delivery {
    /// Takes the outcome of an attempt.
    pub(in crate::bridge) fn answered(
        &mut self,
        attempt: Attempt,
        outcome: Outcome,
        at: Moment,
        caller: &mut dyn Caller,
    ) -> Consequences {
        let mut answer = Answer { at, caller, consequences: Consequences::default() };
        *if attempt.beside { &mut self.beside } else { &mut self.in_lanes } -= 1;
        self.health.is_tried &= attempt.kind != Kind::Trial;
        let records = attempt.records.len() as u64;
        match outcome {
            Outcome::Delivered | Outcome::Partial { rejected: 0, .. } => {
                self.all_taken(&attempt, &attempt.records, &mut answer);
            }
            Outcome::Partial { rejected, reason } if rejected < records => {
                let rejected = usize::try_from(rejected).unwrap_or(usize::MAX);
                let (rejected, taken) = attempt.records.split_at(rejected);
                for number in rejected {
                    self.give_up(*number, LetterClass::PartialSuccess, &reason, &mut answer);
                }
                self.all_taken(&attempt, taken, &mut answer);
            }
            // That all were rejected names them.
            Outcome::Partial { reason, .. } => {
                let failure = Failure::refused(RefusedClass::Invalid, reason);
                self.failed(attempt, failure, &mut answer);
            }
            Outcome::PerEvent(fates) => self.sort(&attempt, fates, &mut answer),
            Outcome::Failed(failure) => self.failed(attempt, failure, &mut answer),
        }
        self.park_shut(&mut answer);
        answer.consequences
    }

    fn all_taken(&mut self, attempt: &Attempt, records: &[Number], answer: &mut Answer<'_>) {
        for number in records {
            self.taken(*number, answer);
        }
        self.has_taken(attempt.kind, answer.at.now);
    }

    fn taken(&mut self, number: Number, answer: &mut Answer<'_>) {
        self.acquit(number);
        let record = &self.window.get(number).record;
        answer.caller.taken(record);
        self.health.largest = self.health.largest.max(record.envelope.len());
        let journalled_ms = self.window.close(number, None);
        answer.consequences.taken += 1;
        answer.consequences.latencies.count(answer.at.time_ms.saturating_sub(journalled_ms));
        if std::mem::take(&mut self.health.refused) >= REFUSALS_IN_A_ROW {
            // The sink was not at fault: records that were refused meanwhile are given up.
            self.window.stop_waiting();
        }
    }

    /// Something was taken: the sink does not fail for all.
    fn has_taken(&mut self, kind: Kind, now: Millis) {
        if kind == Kind::Trial {
            self.window.stop_waiting();
        }
        self.health.failures = 0;
        self.health.taken_at = Some(now);
        self.health.successes += 1;
        if let Kind::Apart(namespace) = kind
            && let Some(apart) = self.apart.get_mut(&namespace)
        {
            let all = self.options.batch.events;
            apart.most = (2 * apart.most).min(all);
            apart.silence = apart.silence.saturating_sub(1);
            if !apart.has_failed || apart.most == all && apart.silence == 0 {
                self.apart.remove(&namespace);
            }
        }
        self.bring_back(now);
    }

    /// Namespaces of which nothing is left but what failed alone, and what waits behind that, are apart no more. Nor are
    /// those blamed of which nothing is left.
    fn bring_back(&mut self, now: Millis) {
        if self.apart.is_empty() && self.blames.is_empty() {
            return;
        }
        let Self { window, hashes, apart, blames, .. } = self;
        let mut left = HashSet::<u64, FxBuildHasher>::default();
        let mut any = left.clone();
        window.for_each(hashes, |_, namespace, is_behind| {
            any.insert(namespace);
            if !is_behind {
                left.insert(namespace);
            }
        });
        apart.retain(|namespace, _| left.contains(namespace));
        blames.retain(|namespace, blame| blame.is_kept(now) || any.contains(namespace));
    }

    /// Gives records that were answered one by one their fates. The others are sent again.
    fn sort(&mut self, attempt: &Attempt, fates: Vec<EventFate>, answer: &mut Answer<'_>) {
        let mut fates = fates.into_iter();
        let mut left: Vec<(Number, Failure)> = Vec::new();
        let before = answer.consequences.taken;
        for number in attempt.records.iter().copied() {
            match fates.next() {
                Some(EventFate::Delivered | EventFate::Duplicate) => self.taken(number, answer),
                Some(EventFate::Failed(failure)) => {
                    left.extend(self.refused(number, failure, answer).map(|why| (number, why)));
                }
                // A sink that answers for too few has not said that it took the others.
                None => left.push((number, Failure::unanswered())),
            }
        }
        let is_taken = answer.consequences.taken > before;
        if is_taken {
            self.has_taken(attempt.kind, answer.at.now);
        } else if let Some((_, failure)) = left.first() {
            let records: Vec<_> = left.iter().map(|(number, _)| *number).collect();
            self.note(attempt.sent, &records, failure, answer.at.now);
        }
        left.retain(|(number, failure)| self.count(*number, failure, true, answer));
        if attempt.kind != Kind::Trial && (is_taken || attempt.records.len() == 1) {
            // Others were answered otherwise: it failed by itself.
            let mut failed_alone = |(number, failure): &mut (Number, Failure)| {
                failure.fault != Fault::Sink && {
                    if !self.failed_alone(*number, failure, answer) {
                        self.wait(&[*number], failure, attempt.kind, answer.at.now);
                    }
                    true
                }
            };
            left.retain_mut(|of| !failed_alone(of));
        }
        let is_a_persons = |failure: &Failure| failure.class == FailureClass::Misconfigured;
        let (waits, mends_itself) = left.into_iter().partition(|(_, why)| is_a_persons(why));
        for left in [waits, mends_itself] {
            let left: Vec<(Number, Failure)> = left;
            let records: Vec<_> = left.iter().map(|(number, _)| *number).collect();
            if let Some((_, failure)) = left.into_iter().max_by_key(|(_, failure)| failure.after) {
                self.wait(&records, &failure, attempt.kind, answer.at.now);
            }
        }
    }

    /// Takes in that nothing of an attempt was taken: its records are sent again, parted, or given up.
    fn failed(&mut self, attempt: Attempt, mut failure: Failure, answer: &mut Answer<'_>) {
        let (now, kind) = (answer.at.now, attempt.kind);
        if let [number] = attempt.records[..] {
            match self.refused(number, failure, answer) {
                Some(of_the_sink) => failure = of_the_sink,
                None => return,
            }
        }
        self.note(attempt.sent, &attempt.records, &failure, now);
        let mut records = attempt.records;
        let is_silent = failure.status == Status::Silence;
        let is_the_sinks = failure.fault == Fault::Sink;
        let is_own = is_the_sinks || records.len() == 1;
        records.retain(|number| self.count(*number, &failure, is_own, answer));
        if records.is_empty() {
            // The next trial needs no wait.
            self.health.failures = self.health.failures.min(FAILING);
            self.health.next_at = now;
            return;
        }
        let tries = records.first().map_or(0, |number| self.window.get(*number).tries);
        let may_pass = failure.fault == Fault::RecordForNow && !is_silent && tries == 0;
        let is_once_more = may_pass && records.len() > 1 && kind == Kind::Regular;
        if is_the_sinks || is_once_more || kind == Kind::Trial {
            self.wait(&records, &failure, kind, now);
            return;
        }
        if kind != Kind::Alone {
            self.part(&records, is_silent);
        }
        if let [number] = records[..] {
            if !self.failed_alone(number, &failure, answer) {
                self.wait(&records, &failure, kind, now);
            }
        } else {
            for number in records {
                self.window.fail(number, State::Queued, &failure.reason);
                self.window.get(number).attempts = 0;
            }
        }
    }

    /// Counts a failure of the sink, after which it waits before it tries again.
    fn note(&mut self, sent: Millis, records: &[Number], failure: &Failure, now: Millis) {
        let Self { health, window, hashes, .. } = self;
        if health.failures == 0 {
            (health.namespace, health.of_several) = (None, false);
        }
        let namespace_of = |number: &Number| window.get(*number).keys(hashes).namespace;
        let mut namespaces: Vec<u64> = records.iter().map(namespace_of).collect();
        namespaces.dedup();
        if let [namespace] = namespaces[..] {
            health.of_several |= *health.namespace.get_or_insert(namespace) != namespace;
        }
        if health.failures == 0 || sent >= health.failed_at {
            health.failures += 1;
            health.failed_at = now;
        }
        let wait = wait_after(&self.options.retry, failure, health.failures, &mut self.random);
        health.next_at = now + wait;
        health.last = Some(failure.clone());
    }

    /// Has the namespaces of records that failed sent by themselves.
    fn part(&mut self, records: &[Number], is_silent: bool) {
        let mut counts: Vec<(u64, usize)> = Vec::new();
        for number in records {
            let Keys { namespace, .. } = self.window.get(*number).keys(&self.hashes);
            match counts.iter_mut().find(|(known, _)| *known == namespace) {
                Some((_, count)) => *count += 1,
                None => counts.push((namespace, 1)),
            }
        }
        let is_one = counts.len() == 1;
        for (namespace, count) in counts {
            let most = self.options.batch.events;
            let new = Apart { most, has_failed: false, silence: 0, turn: 0 };
            let apart = self.apart.entry(namespace).or_insert(new);
            apart.most = apart.most.min(if is_one { count / 2 } else { count }).max(1);
            apart.has_failed |= is_one;
            apart.silence = if is_silent { SILENCE } else { apart.silence };
        }
    }

    /// Has records sent again after a wait. While the sink is failing, that is as long as it is tried.
    fn wait(&mut self, records: &[Number], failure: &Failure, kind: Kind, now: Millis) {
        let tries = records.first().map_or(0, |number| self.window.get(*number).tries);
        let wait = wait_after(&self.options.retry, failure, tries + 1, &mut self.random);
        if failure.class == FailureClass::Throttled || failure.after.is_some() {
            self.paused_until = self.paused_until.max(now + wait);
        }
        self.health.last = Some(failure.clone());
        let state = if kind == Kind::Trial { State::Queued } else { State::Waiting(now + wait) };
        for number in records {
            self.window.fail(*number, state, &failure.reason);
        }
    }

    /// Counts a failure for `retry.maxAttempts`, and answers whether the record is sent again. A failure that may be
    /// another record's does not give it up.
    fn count(
        &mut self,
        number: Number,
        failure: &Failure,
        is_own: bool,
        answer: &mut Answer<'_>,
    ) -> bool {
        use FailureClass::{Throttled, Timeout, Unavailable};
        let Some(most) = self.options.retry.max_attempts else { return true };
        // Failures that a person has to mend are waited for: given up, an expired token would empty the journal into the dead
        // letters.
        if !matches!(failure.class, Unavailable | Throttled | Timeout) {
            return true;
        }
        let failures = &mut self.window.get(number).failures;
        *failures += 1;
        if !is_own {
            *failures = (*failures).min(most.saturating_sub(1));
        }
        let is_sent_again = *failures < most;
        if !is_sent_again {
            self.give_up(number, LetterClass::MaxAttempts, &failure.reason, answer);
        }
        is_sent_again
    }

    /// Gives up a record that is refused by itself. Answers any other failure: where too much is refused it is the
    /// sink that is wrong.
    fn refused(
        &mut self,
        number: Number,
        failure: Failure,
        answer: &mut Answer<'_>,
    ) -> Option<Failure> {
        let FailureClass::Refused(class) = failure.class else { return Some(failure) };
        let size = self.window.get(number).record.envelope.len();
        let is_its_size =
            class == RefusedClass::TooLarge && (1..size).contains(&self.health.largest);
        if class != RefusedClass::Unsendable && !is_its_size {
            if self.health.refused >= REFUSALS_IN_A_ROW {
                let Failure { reason, .. } = &failure;
                let words = format_args!(
                    "refuses everything, {REFUSALS_IN_A_ROW} events in a row: {reason}"
                );
                let reason = Secrets::none().reason(words);
                return Some(Failure { class: FailureClass::Misconfigured, reason, ..failure });
            }
            self.health.refused += 1;
        }
        self.give_up(number, LetterClass::Refused(class), &failure.reason, answer);
        None
    }

    pub(super) fn give_up(
        &mut self,
        number: Number,
        class: LetterClass,
        reason: &Reason,
        answer: &mut Answer<'_>,
    ) {
        let Entry { record, attempts, failures, first, .. } = self.window.get(number);
        let attempts = if class == LetterClass::MaxAttempts { failures } else { attempts };
        let after = answer.at.now.saturating_sub(first.unwrap_or(answer.at.now));
        let is_named = class != LetterClass::PartialSuccess;
        let is_blocked = class == LetterClass::Blocked;
        let letter = DeadLetter {
            number: 0,
            state: if is_blocked { LetterState::RetryRequested } else { LetterState::Kept },
            // Which events were rejected is not known.
            forward: self.options.forward.clone().filter(|_| is_named),
            unidentified: u64::from(!is_named),
            sink: self.options.sink.clone(),
            seq: record.seq,
            id: record.id().to_owned(),
            class: class.as_str().to_owned(),
            reason: reason.clone().into(),
            attempts: *attempts,
            first_ms: answer.at.time_ms.saturating_sub(after),
            time_ms: answer.at.time_ms,
            envelope: record.envelope.clone(),
        };
        match answer.consequences.letters.last_mut() {
            Some(last) if last.class == class && !is_blocked && last.reason == *reason => {
                last.events += 1;
            }
            _ => answer.consequences.letters.push(GivenUp {
                class,
                reason: reason.clone(),
                attempts: letter.attempts,
                record: record.clone(),
                events: 1,
            }),
        }
        self.window.close(number, Some(letter));
    }
}
