//! Parking: records that the receiver fails for become dead letters that are sent again by themselves.
//!
//! A wrong decision costs such a record time, and no more. It is taken only on evidence that the receiver takes others.

use std::collections::{HashMap, HashSet};

use rustc_hash::FxBuildHasher;

use super::{
    Delivery, Millis, Number,
    answers::{Answer, LetterClass},
    keys::Keys,
    window::{Entry, State},
};
use crate::bridge::{Failure, Reason, Secrets, Status};

/// Failures of a record alone, each followed by a success of others, before it is parked,
const CONFIRMED: u32 = 5;
/// and the shortest time from the first of them.
const AT_LEAST: Millis = 60_000;
/// Failures of records of a namespace in a row, with successes of others between them, before it is shut.
const IN_A_ROW: u32 = 8;
/// The wait before a record of a namespace that is shut is sent as a probe. It doubles with each,
const PROBED_AFTER: Millis = 60_000;
/// up to this.
const PROBED_AT_LEAST: Millis = 600_000;
/// So long after its last probe a namespace that is shut is forgotten, if none of its records are there.
const FORGOTTEN_AFTER: Millis = 3_600_000;

/// The failures of a record alone.
#[derive(Clone, Debug)]
pub(super) struct Alone {
    /// The first of them.
    since: Millis,
    /// Failures with a success of others between them and the next.
    confirmed: u32,
    /// `Health::successes` at the last failure.
    successes: u64,
    /// Set if no answer came in time.
    pub(super) is_silent: bool,
}

/// A namespace of which records failed alone, and none was taken since.
#[derive(Debug)]
pub(super) struct Blame {
    /// Failures in a row, each of another record than the last, with a success of others between.
    in_a_row: u32,
    /// `Health::successes` at the last.
    successes: u64,
    /// The record that failed last.
    last: Number,
    is_silent: bool,
    reason: Reason,
    shut: Option<Shut>,
}

/// A namespace whose records are parked without being sent.
#[derive(Clone, Copy, Debug)]
struct Shut {
    /// When the next of its records is sent as a probe,
    probed_at: Millis,
    /// the wait before the one after that,
    wait: Millis,
    /// and the last probe.
    probe: Option<Number>,
}

impl Blame {
    /// Whether it matters although none of its records are there.
    pub(super) fn is_kept(&self, now: Millis) -> bool {
        self.shut.is_some_and(|shut| now < shut.probed_at + FORGOTTEN_AFTER)
    }
}

impl Delivery {
    /// Counts the failure of a record alone. Returns true if it was parked.
    pub(super) fn failed_alone(
        &mut self,
        number: Number,
        failure: &Failure,
        answer: &mut Answer<'_>,
    ) -> bool {
        let (now, successes) = (answer.at.now, self.health.successes);
        let is_silent = failure.status == Status::Silence;
        let entry = self.window.get(number);
        let Keys { object, namespace } = entry.keys(&self.hashes);
        let new = || Box::new(Alone { since: now, confirmed: 0, successes, is_silent });
        let alone = entry.alone.get_or_insert_with(new);
        let is_confirmed = successes > alone.successes;
        alone.confirmed += u32::from(is_confirmed);
        alone.successes = successes;
        alone.is_silent |= is_silent;
        let alone = alone.clone();
        self.blame(namespace, number, failure, is_silent);
        let is_enough = alone.confirmed >= CONFIRMED && now >= alone.since + AT_LEAST;
        let is_parked = is_confirmed
            && (is_enough || self.is_crowded())
            && self.park(number, &failure.reason, answer);
        if is_parked {
            // The next record of the object inherits the evidence: one more failure parks it.
            let hashes = &self.hashes;
            let of_object = |entry: &mut Entry| entry.keys(hashes).object == object;
            let next = self.window.entries_mut().find_map(|e| of_object(e).then_some(e.number));
            if let Some(next) = next {
                self.set_alone(next, alone, &failure.reason);
            }
        }
        is_parked
    }

    /// Whether the window has half of what it may ever have: one failure that was followed by a success is enough.
    fn is_crowded(&self) -> bool {
        let (records, bytes) = self.most_in_window();
        2 * self.window.open() >= records || 2 * self.window.bytes() >= bytes
    }

    /// Has a record sent by itself, as if it had failed alone.
    fn set_alone(&mut self, number: Number, alone: Box<Alone>, failure: &Reason) {
        self.window.get(number).alone = Some(alone);
        self.window.fail(number, State::Queued, failure);
    }

    fn blame(&mut self, namespace: u64, number: Number, failure: &Failure, is_silent: bool) {
        let (successes, reason) = (self.health.successes, failure.reason.clone());
        let new = || Blame { in_a_row: 1, successes, last: number, is_silent, reason, shut: None };
        let blame = self.blames.entry(namespace).or_insert_with(new);
        if successes > blame.successes && number != blame.last {
            blame.in_a_row += 1;
        }
        (blame.successes, blame.last) = (successes, number);
        blame.is_silent |= is_silent;
    }

    /// A record of the namespace was taken.
    pub(super) fn acquit(&mut self, number: Number) {
        if !self.blames.is_empty() {
            let Keys { namespace, .. } = self.window.get(number).keys(&self.hashes);
            self.blames.remove(&namespace);
        }
    }

    /// Shuts namespaces, and parks the records of those that are.
    pub(super) fn park_shut(&mut self, answer: &mut Answer<'_>) {
        if self.blames.is_empty() || self.is_failing() {
            return;
        }
        self.shut(answer.at.now);
        if !self.blames.values().any(|blame| blame.shut.is_some()) {
            return;
        }
        let (now, successes) = (answer.at.now, self.health.successes);
        let (mut wanted, mut probes) = (Vec::new(), Vec::new());
        for entry in self.window.entries_mut() {
            let Keys { namespace, .. } = entry.keys(&self.hashes);
            let Some(Blame { shut: Some(shut), is_silent, reason, .. }) =
                self.blames.get_mut(&namespace)
            else {
                continue;
            };
            let (number, is_queued) = (entry.number, entry.state == State::Queued);
            if entry.state == State::InFlight || shut.probe == Some(number) && is_queued {
                continue;
            }
            if now >= shut.probed_at && is_queued {
                let wait = (2 * shut.wait).min(PROBED_AT_LEAST);
                *shut = Shut { probed_at: now + wait, wait, probe: Some(number) };
                probes.push((number, *is_silent, reason.clone()));
            } else {
                wanted.push((number, namespace));
            }
        }
        for (number, is_silent, reason) in probes {
            let alone = Alone { since: now, confirmed: 0, successes, is_silent };
            self.set_alone(number, Box::new(alone), &reason);
        }
        // A namespace without room for one has none for later ones.
        let mut full = HashSet::<u64, FxBuildHasher>::default();
        for (number, namespace) in wanted {
            if full.contains(&namespace) {
                continue;
            }
            let reason = self.blames[&namespace].reason.clone();
            if !self.park(number, &reason, answer) {
                full.insert(namespace);
            }
        }
    }

    /// Shuts namespaces of which enough failed, that fill half of the window or were not answered in time.
    fn shut(&mut self, now: Millis) {
        let (records, bytes) = self.window_size();
        let is_full = self.window.open() >= records || self.window.bytes() >= bytes;
        let mut sizes = HashMap::<u64, (usize, u64), FxBuildHasher>::default();
        let may_be_shut = |blame: &Blame| blame.in_a_row >= IN_A_ROW && blame.shut.is_none();
        if is_full && self.blames.values().any(may_be_shut) {
            for entry in self.window.entries_mut() {
                let Keys { namespace, .. } = entry.keys(&self.hashes);
                let (open, size) = sizes.entry(namespace).or_default();
                (*open, *size) = (*open + 1, *size + entry.record.envelope.len() as u64);
            }
        }
        for (namespace, blame) in &mut self.blames {
            let (open, size) = sizes.get(namespace).copied().unwrap_or_default();
            let fills = 2 * open >= records || 2 * size >= bytes;
            if may_be_shut(blame) && (fills || blame.is_silent) {
                let (wait, probe) = (PROBED_AFTER, None);
                blame.shut = Some(Shut { probed_at: now + wait, wait, probe });
            }
        }
    }

    /// Parks a record, if there is room for it.
    fn park(&mut self, number: Number, reason: &Reason, answer: &mut Answer<'_>) -> bool {
        let entry = self.window.get(number);
        let is_sent = entry.first.is_some();
        let has_room = answer.caller.has_room(&entry.record, is_sent);
        if has_room {
            let words = format_args!(
                "not sent, as the receiver fails for others of its namespace: {reason}"
            );
            let reason = if is_sent { reason.clone() } else { Secrets::none().reason(words) };
            self.give_up(number, LetterClass::Blocked, &reason, answer);
        }
        has_room
    }
}
