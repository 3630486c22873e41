//! How far a sink is, and what became of every record before that.
//!
//! A watcher settles records in journal order; the keeper saves what is settled, in one transaction
//! with the dead letters of it. So `seen = delivered + filtered + correlated away + dead-lettered +
//! lost + pending` holds at each moment and across restarts, by construction: the position and the
//! totals change under one lock and are saved as one value. What the receiver has behind the position is delivered
//! and not pending from the moment of its answer, under the same lock. What the correlator holds is pending,
//! wherever the position is.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Instant,
};

use serde::{Deserialize, Serialize};
use tidings_log::Resume;
use tokio::sync::oneshot;

use super::{
    Latencies, Overflow, Reason, correlation::Correlator, log_lines::LogLines, shared::lock,
};
use crate::{
    event::Missing,
    journal::{
        CorrelatorInputs, DeadLetter, Destinations, Inputs, LetterFate, LetterOutcome, Ranges,
        SavedCorrelator, SinkState, Standing, Totals,
    },
};

/// How a sink does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SinkCondition {
    /// Nothing has been sent yet.
    #[default]
    Idle,
    /// The last attempt was answered for every event.
    Healthy,
    /// The last attempt failed; the next one follows by itself.
    Retrying,
    /// Only a person can mend what the receiver complains of. It is tried again slowly.
    Misconfigured,
    /// It was stopped on a running bridge, which goes on without it.
    Stopped,
}

impl SinkCondition {
    /// Every condition.
    pub const ALL: [Self; 5] =
        [Self::Idle, Self::Healthy, Self::Retrying, Self::Misconfigured, Self::Stopped];

    /// The spelling in status and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Healthy => "healthy",
            Self::Retrying => "retrying",
            Self::Misconfigured => "misconfigured",
            Self::Stopped => "stopped",
        }
    }
}

/// What one unit of work came to.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// Where the sink stands now.
    pub(super) standing: Standing,
    /// Added to the totals.
    pub(super) totals: Totals,
    /// Resume points of sources that are covered now.
    pub(super) resumes: Vec<(Arc<str>, Resume)>,
    pub(super) dead_letters: Vec<DeadLetter>,
    /// The correlator, at a position that is not beyond this one's.
    pub(super) correlator: Option<SavedCorrelator>,
    /// What the correlator decided by,
    pub(super) inputs: Inputs,
    /// and what all records before took in the log; 0 without one.
    pub(super) read_bytes: u64,
    /// Are told when all of this is on the disk.
    pub(super) waiting: Vec<oneshot::Sender<()>>,
}

impl Settled {
    /// Adds what comes next.
    pub(super) fn add(&mut self, next: Self) {
        self.standing = next.standing;
        self.totals += next.totals;
        for (source, resume) in next.resumes {
            match self.resumes.iter_mut().find(|(known, _)| *known == source) {
                Some((_, known)) => *known = resume.max(*known),
                None => self.resumes.push((source, resume)),
            }
        }
        self.dead_letters.extend(next.dead_letters);
        self.inputs.merge(&next.inputs, 0..next.inputs.len());
        if let Some(correlator) = next.correlator {
            self.inputs.drop_before(correlator.position.next);
            self.correlator = Some(correlator);
        }
        self.read_bytes = next.read_bytes;
        self.waiting.extend(next.waiting);
    }
}

/// What of a sink is to be saved.
#[derive(Debug)]
pub(super) struct Changes {
    pub(super) state: SinkState,
    pub(super) unsaved: Unsaved,
}

/// What is to be saved once.
#[derive(Debug, Default)]
pub(super) struct Unsaved {
    pub(super) dead_letters: Vec<DeadLetter>,
    /// What became of letters that this sink was sent.
    pub(super) letter_fates: Vec<LetterFate>,
    pub(super) correlator: Option<SavedCorrelator>,
    /// What it decided by since, or since the last save.
    pub(super) inputs: Option<CorrelatorInputs>,
    pub(super) waiting: Vec<oneshot::Sender<()>>,
}

impl Unsaved {
    /// The correlator knows what it decided by before.
    fn save(&mut self, correlator: SavedCorrelator) {
        if let Some(inputs) = &mut self.inputs {
            inputs.inputs.drop_before(correlator.position.next);
        }
        self.correlator = Some(correlator);
    }
}

/// What a sink was told of the objects of its events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enrichments {
    known: u64,
    /// In the order of [`Missing::ALL`].
    missing: [u64; Missing::ALL.len()],
}

impl Enrichments {
    /// Counts an event of which the object is known, or missing.
    pub(super) fn count(&mut self, missing: Option<Missing>) {
        let reason = Missing::ALL.iter().position(|reason| Some(*reason) == missing);
        *reason.map_or(&mut self.known, |reason| &mut self.missing[reason]) += 1;
    }

    /// Each outcome, `known` or why it is missing, and of how many events.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let missing = Missing::ALL.map(Missing::as_str).into_iter().zip(self.missing);
        std::iter::once(("known", self.known)).chain(missing)
    }
}

impl std::ops::AddAssign for Enrichments {
    fn add_assign(&mut self, more: Self) {
        self.known += more.known;
        for (sum, more) in self.missing.iter_mut().zip(more.missing) {
            *sum += more;
        }
    }
}

/// The oldest event without a fate, where it failed: the position of the sink stays before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenHead {
    /// Its id.
    pub id: String,
    /// The object that it is about: kind, namespace and name.
    pub object: Reason,
    /// Its namespace.
    pub namespace: Reason,
    /// When it was sent first, in milliseconds since the epoch.
    pub since_ms: u64,
    /// Its last failure, in the receiver's words.
    pub last_error: Reason,
}

/// What is known of a sink, for the status page and the metrics.
#[derive(Clone, Debug)]
pub struct SinkSnapshot {
    /// Its name in the configuration.
    pub name: String,
    /// Its transport.
    pub kind: &'static str,
    /// What happens when it has not had more than the journal is to hold.
    pub overflow: Overflow,
    /// Where it stands.
    pub standing: Standing,
    /// The fates up to there.
    pub totals: Totals,
    /// How many events the receiver has behind that position.
    pub delivered_ahead: u64,
    /// How it does.
    pub condition: SinkCondition,
    /// Nothing was taken since it failed as a whole: it is not one event that it fails for.
    pub takes_nothing: bool,
    /// Its condition while it takes nothing, unless it has failed with nothing but Events of a bridge in hand.
    pub trouble: Option<SinkCondition>,
    /// The last failure, until the next success.
    pub last_error: Option<Reason>,
    /// Attempts since the start of the process, and how many of them failed.
    pub attempts: u64,
    /// See `attempts`.
    pub failed_attempts: u64,
    /// Events that `match` could not be evaluated for, and that went through.
    pub match_errors: u64,
    /// Events delivered that the receiver knew to have had before, since the start of the process.
    pub duplicates: u64,
    /// Events that it has had cut to its `maxEvent`, since the start of the process.
    pub truncated: u64,
    /// How long events took to it, since the start of the process.
    pub latencies: Latencies,
    /// What it was told of objects since the start of the process; nothing if it does not ask.
    pub enrichments: Option<Enrichments>,
    /// Events that were parked since the start of the process, those of a bridge's own left out.
    pub parked: u64,
    /// The last of them, and why.
    pub last_parked: Option<Reason>,
    /// There was no room for the last that was to be parked.
    pub parking_full: bool,
    /// The ingest time of the oldest record in hand, in milliseconds since the epoch.
    pub oldest_in_hand_ms: Option<u64>,
    /// That record, where it failed.
    pub head: Option<OpenHead>,
    /// Beside the fates, since the start of the process.
    pub errands: ErrandCounts,
}

/// What a sink was sent outside the journal's order, since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrandCounts {
    /// Dead letters of other sinks that it took.
    pub forwarded: u64,
    /// Dead letters of other sinks that it refused.
    pub forwards_refused: u64,
    /// Events that it was sent once more by a replay.
    pub replayed: u64,
}

/// What of the log has to stay for a sink to go on after a crash.
#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    /// The last attempt to save failed.
    failing: bool,
    /// Where the sink stands by what has been saved; before the first save, at the start with what is
    /// held since,
    standing: Standing,
    /// and by what is being saved.
    then_standing: Standing,
}

#[derive(Debug)]
struct Inner {
    snapshot: SinkSnapshot,
    kept: Kept,
    /// The correlator holds versions back.
    holds_back: bool,
    positions: BTreeMap<String, Resume>,
    destinations: Destinations,
    unsaved: Unsaved,
    /// The size of the envelopes of dead letters that are to be saved,
    unsaved_letters: u64,
    /// and of those that are being saved.
    saving_letters: u64,
    changed: bool,
    settled_at: Instant,
}

impl Inner {
    fn settle(&mut self, settled: Settled) {
        self.settled_at = Instant::now();
        let next = settled.standing.position.next;
        if settled.read_bytes > 0 && next > self.snapshot.standing.position.next {
            let Settled { read_bytes, inputs, .. } = &settled;
            let decided = self.unsaved.inputs.get_or_insert_default();
            decided.add(next, *read_bytes, inputs);
        }
        self.snapshot.standing = settled.standing;
        self.snapshot.totals += settled.totals;
        for (source, resume) in settled.resumes {
            // Frames without records are read once from the log and once live.
            let known = self.positions.get(&*source).copied().unwrap_or_default();
            if resume > known {
                self.positions.insert(source.to_string(), resume);
            }
        }
        let size = |letter: &DeadLetter| letter.envelope.len() as u64;
        self.unsaved_letters += settled.dead_letters.iter().map(size).sum::<u64>();
        self.unsaved.dead_letters.extend(settled.dead_letters);
        self.unsaved.waiting.extend(settled.waiting);
        if let Some(correlator) = settled.correlator {
            self.unsaved.save(correlator);
        }
        self.changed = true;
    }

    fn holds(&self) -> bool {
        self.snapshot.standing.held.versions > 0 || self.kept.standing.held.versions > 0
    }
}

/// One sink's progress, shared by its watcher, the keeper and the admin server.
#[derive(Debug)]
pub struct SinkProgress {
    /// What the log has of single events of it.
    pub(super) lines: LogLines,
    inner: Mutex<Inner>,
}

impl SinkProgress {
    /// As it was saved, with its correlator there.
    pub(super) fn new(
        name: &str,
        kind: &'static str,
        overflow: Overflow,
        saved: SinkState,
        correlator: Option<&Correlator>,
        had: &Ranges,
    ) -> Self {
        let held = correlator.map(Correlator::holding).unwrap_or_default();
        let standing = Standing { held, ..saved.standing };
        let snapshot = SinkSnapshot {
            name: name.to_owned(),
            kind,
            overflow,
            standing,
            totals: saved.totals,
            delivered_ahead: had.count_from(saved.standing.position.next),
            condition: SinkCondition::default(),
            takes_nothing: false,
            trouble: None,
            last_error: None,
            attempts: 0,
            failed_attempts: 0,
            match_errors: 0,
            duplicates: 0,
            truncated: 0,
            latencies: Latencies::default(),
            enrichments: None,
            parked: 0,
            last_parked: None,
            parking_full: false,
            oldest_in_hand_ms: None,
            head: None,
            errands: ErrandCounts::default(),
        };
        let positions = saved.positions;
        // A sink that is new has to be saved once, or its start would be chosen again; so has its
        // correlator, because what comes after is brought up from there.
        let holds_back = correlator.is_some_and(Correlator::holds_back);
        let correlator = Some(Correlator::save(correlator, standing.position));
        let unsaved = Unsaved { correlator, ..Unsaved::default() };
        let standing = Standing { held, ..Standing::default() };
        let mut destinations = saved.destinations;
        destinations.made.sort_unstable();
        let inner = Inner {
            snapshot,
            kept: Kept { standing, ..Kept::default() },
            holds_back,
            positions,
            destinations,
            unsaved,
            unsaved_letters: 0,
            saving_letters: 0,
            changed: true,
            settled_at: Instant::now(),
        };
        Self { lines: LogLines::new(name), inner: Mutex::new(inner) }
    }

    /// Another run begins with what is saved, and with its correlator there.
    pub(super) fn begin_again(
        &self,
        (kind, overflow): (&'static str, Overflow),
        saved: &SinkState,
        correlator: Option<&Correlator>,
        had: &Ranges,
    ) {
        let before = self.snapshot().totals;
        let totals = Totals {
            lost: saved.totals.lost.saturating_sub(before.lost),
            redelivered: saved.totals.redelivered.saturating_sub(before.redelivered),
            ..Totals::default()
        };
        let held = correlator.map(Correlator::holding).unwrap_or_default();
        let standing = Standing { held, ..saved.standing };
        lock(&self.inner).holds_back = correlator.is_some_and(Correlator::holds_back);
        let correlator = Some(Correlator::save(correlator, standing.position));
        let settled = Settled { standing, totals, correlator, ..Settled::default() };
        self.settle(Some(settled), had);
        self.update(|sink| {
            (sink.kind, sink.overflow) = (kind, overflow);
            sink.condition = SinkCondition::Idle;
            (sink.takes_nothing, sink.trouble, sink.last_error) = (false, None, None);
        });
    }

    /// What is known now.
    pub fn snapshot(&self) -> SinkSnapshot {
        lock(&self.inner).snapshot.clone()
    }

    /// Its name in the configuration.
    pub(super) fn name(&self) -> String {
        lock(&self.inner).snapshot.name.clone()
    }

    pub(super) fn overflow(&self) -> Overflow {
        lock(&self.inner).snapshot.overflow
    }

    /// The sequence of the first record that the log has to keep, for this sink to go on after a
    /// crash with the same fates for all of them.
    pub(super) fn keep_from(&self) -> u64 {
        lock(&self.inner).kept.standing.unsettled_from()
    }

    /// Whether its correlator holds versions back.
    pub(super) fn holds_back(&self) -> bool {
        let inner = lock(&self.inner);
        inner.holds_back || inner.holds()
    }

    /// Whether the correlator holds something, or did when it was saved last.
    pub(super) fn holds(&self) -> bool {
        lock(&self.inner).holds()
    }

    /// The sequence of the first record that it has not been given, or that is not settled.
    pub(super) fn next(&self) -> u64 {
        lock(&self.inner).snapshot.standing.position.next
    }

    /// Where it stood when it was saved last.
    pub(super) fn saved_standing(&self) -> Standing {
        lock(&self.inner).kept.standing
    }

    /// The sequence of the first record that it has not had; while that cannot be saved, as it was
    /// saved last, because the log has to keep as much.
    pub(super) fn unsettled_from(&self) -> u64 {
        let inner = lock(&self.inner);
        let Inner { kept, snapshot, .. } = &*inner;
        if kept.failing {
            kept.standing.unsettled_from()
        } else {
            snapshot.standing.unsettled_from()
        }
    }

    /// When something was settled last; at first, when it began.
    pub(super) fn settled_at(&self) -> Instant {
        lock(&self.inner).settled_at
    }

    /// Takes what is settled. `had` is what the receiver has, also behind the position.
    pub(super) fn settle(&self, settled: Option<Settled>, had: &Ranges) {
        let mut inner = lock(&self.inner);
        if let Some(settled) = settled {
            inner.settle(settled);
        }
        // Under the same lock: no event is counted twice.
        let next = inner.snapshot.standing.position.next;
        inner.snapshot.delivered_ahead = had.count_from(next);
    }

    /// The size of the envelopes of dead letters that are not saved yet, in bytes.
    pub(super) fn unsaved_letters(&self) -> u64 {
        let inner = lock(&self.inner);
        inner.unsaved_letters + inner.saving_letters
    }

    /// Asks the destinations of the day for one, which may be new and has to be saved then.
    pub(super) fn destinations<T>(&self, ask: impl FnOnce(&mut Destinations) -> T) -> T {
        let mut inner = lock(&self.inner);
        let before = (inner.destinations.day, inner.destinations.made.len());
        let answer = ask(&mut inner.destinations);
        inner.changed |= (inner.destinations.day, inner.destinations.made.len()) != before;
        answer
    }

    /// Takes in what became of a letter that the sink was sent once more, or that another sink
    /// forwards to it. An event of its own that it has now moves from one fate to another.
    pub(super) fn settle_letter(&self, fate: LetterFate) {
        let mut inner = lock(&self.inner);
        let totals = &mut inner.snapshot.totals;
        if fate.outcome == LetterOutcome::Delivered {
            totals.dead_lettered = totals.dead_lettered.saturating_sub(1);
            totals.delivered += 1;
            totals.retried += 1;
        }
        inner.unsaved.letter_fates.push(fate);
        inner.changed = true;
    }

    /// Answers when everything that is settled so far is on the disk.
    pub(super) fn when_saved(&self) -> oneshot::Receiver<()> {
        let (waiting, saved) = oneshot::channel();
        let mut inner = lock(&self.inner);
        inner.unsaved.waiting.push(waiting);
        inner.changed = true;
        saved
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut SinkSnapshot)) {
        change(&mut lock(&self.inner).snapshot);
    }

    /// What is to be saved, if anything changed since the last call.
    pub(super) fn take_changes(&self) -> Option<Changes> {
        let mut inner = lock(&self.inner);
        if !std::mem::take(&mut inner.changed) {
            return None;
        }
        let unsaved = std::mem::take(&mut inner.unsaved);
        inner.kept.then_standing = inner.snapshot.standing;
        inner.saving_letters += std::mem::take(&mut inner.unsaved_letters);
        Some(Changes { state: state_of(&inner), unsaved })
    }

    /// What was taken has been saved.
    pub(super) fn saved(&self) {
        let mut inner = lock(&self.inner);
        inner.saving_letters = 0;
        inner.kept.standing = inner.kept.then_standing;
        inner.kept.failing = false;
    }

    /// The state without taking it, for `positions.json`.
    pub(super) fn state(&self) -> SinkState {
        state_of(&lock(&self.inner))
    }

    /// Saving failed: the changes are still to be saved.
    pub(super) fn put_back(&self, mut unsaved: Unsaved) {
        let mut inner = lock(&self.inner);
        unsaved.dead_letters.append(&mut inner.unsaved.dead_letters);
        unsaved.letter_fates.append(&mut inner.unsaved.letter_fates);
        unsaved.waiting.append(&mut inner.unsaved.waiting);
        if let Some(CorrelatorInputs { next, read_bytes, inputs }) = &inner.unsaved.inputs {
            unsaved.inputs.get_or_insert_default().add(*next, *read_bytes, inputs);
        }
        if let Some(newer) = inner.unsaved.correlator.take() {
            unsaved.save(newer);
        }
        inner.unsaved = unsaved;
        inner.unsaved_letters += std::mem::take(&mut inner.saving_letters);
        inner.changed = true;
        inner.kept.failing = true;
    }
}

fn state_of(inner: &Inner) -> SinkState {
    SinkState {
        standing: inner.snapshot.standing,
        totals: inner.snapshot.totals,
        positions: inner.positions.clone(),
        destinations: inner.destinations.clone(),
    }
}
