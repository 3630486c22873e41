//! How far a sink is, and what became of every record before that.
//!
//! A watcher settles records in journal order; the checkpointer saves what is settled, in one transaction
//! with the dead letters of it. So `seen = delivered + filtered + correlated away + dead-lettered +
//! lost + pending` holds at each moment and across restarts, by construction: the position and the
//! totals change under one lock and are saved as one value. What the correlator holds is pending,
//! wherever the position is.

mod snapshot;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Instant,
};

use tokio::sync::oneshot;

pub use self::snapshot::{
    Enrichments, HeldBy, HeldUp, NamespaceSetAside, ResendCounts, SinkCondition, SinkSnapshot,
};
use super::{Overflow, correlation::Correlator, log_lines::LogLines, shared::lock};
use crate::journal::{
    CorrelatorInputs, DeadLetter, DeadLetterFate, DeadLetterOutcome, Inputs, PassedChanges, Ranges,
    Resume, SavedCorrelator, SetAsideChanges, SinkState, Standing, Totals,
};

/// The result of one unit of work.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// Where the sink stands now.
    pub(super) standing: Standing,
    /// Added to the totals.
    pub(super) totals: Totals,
    /// Resume points of sources that are covered now.
    pub(super) resumes: Vec<(Arc<str>, Resume)>,
    pub(super) dead_letters: Vec<DeadLetter>,
    /// Records behind the position that have their fates now, or are set aside,
    pub(super) passed: Vec<u64>,
    /// and those that the position has passed since.
    pub(super) covered: Vec<u64>,
    /// Records that are set aside, or have their fates after that.
    pub(super) set_aside: SetAsideChanges,
    /// The correlator, at a position that is not beyond this one's.
    pub(super) correlator: Option<SavedCorrelator>,
    /// The inputs that the correlator decided by,
    pub(super) inputs: Inputs,
    /// and what all records before took in the log; 0 without one.
    pub(super) read_bytes: u64,
    /// Are told when all of this is on the disk.
    pub(super) waiting: Vec<oneshot::Sender<()>>,
}

impl Settled {
    /// Adds what is gathered next.
    pub(super) fn add(&mut self, next: Self) {
        self.standing = next.standing;
        self.totals += next.totals;
        merge(&mut self.resumes, next.resumes);
        self.inputs.merge(&next.inputs, 0..next.inputs.len());
        if let Some(correlator) = next.correlator {
            self.inputs.drop_before(correlator.position.next);
            self.correlator = Some(correlator);
        }
        self.read_bytes = next.read_bytes;
        self.waiting.extend(next.waiting);
    }
}

/// Adds later resume points to others.
fn merge(
    resumes: &mut Vec<(Arc<str>, Resume)>,
    later: impl IntoIterator<Item = (Arc<str>, Resume)>,
) {
    for (source, resume) in later {
        match resumes.iter_mut().find(|(known, _)| *known == source) {
            Some((_, known)) => *known = resume.max(*known),
            None => resumes.push((source, resume)),
        }
    }
}

/// The part of a sink's state that is to be saved.
#[derive(Debug)]
pub(super) struct Changes {
    pub(super) state: SinkState,
    pub(super) unsaved: Unsaved,
}

/// Changes that are to be saved once.
#[derive(Debug, Default)]
pub(super) struct Unsaved {
    pub(super) dead_letters: Vec<DeadLetter>,
    pub(super) passed: PassedChanges,
    pub(super) set_aside: SetAsideChanges,
    /// The fates of dead letters that this sink was sent.
    pub(super) letter_fates: Vec<DeadLetterFate>,
    pub(super) correlator: Option<SavedCorrelator>,
    /// The inputs that it decided by since, or since the last save.
    pub(super) inputs: Option<CorrelatorInputs>,
    pub(super) waiting: Vec<oneshot::Sender<()>>,
}

impl Unsaved {
    /// The first record that was set aside and has its fate.
    fn released(&self) -> Option<u64> {
        self.set_aside.iter().find(|(_, copy)| copy.is_none()).map(|(sequence, _)| *sequence)
    }

    /// The correlator knows what it decided by before.
    fn save(&mut self, correlator: SavedCorrelator) {
        if let Some(inputs) = &mut self.inputs {
            inputs.inputs.drop_before(correlator.position.next);
        }
        self.correlator = Some(correlator);
    }
}

/// The part of the log that has to stay for a sink to go on after a crash.
#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    /// The last attempt to save failed.
    failing: bool,
    /// Where the sink stands by what has been saved; before the first save, at the start with what is
    /// held since,
    standing: Standing,
    /// and by what is being saved.
    then_standing: Standing,
    /// The first of the records that were set aside and have had their fates, which is being saved.
    then_released: Option<u64>,
}

#[derive(Debug)]
struct Inner {
    snapshot: SinkSnapshot,
    kept: Kept,
    /// The correlator holds versions back.
    holds_back: bool,
    positions: BTreeMap<String, Resume>,
    /// Resume points that are covered but for what is set aside.
    covered_later: Vec<(Arc<str>, Resume)>,
    /// See [`SinkState::passed`].
    passed: Ranges,
    unsaved: Unsaved,
    /// The envelopes in that, in bytes.
    unsaved_bytes: usize,
    changed: bool,
    settled_at: Instant,
}

impl Inner {
    /// Notes records behind the position as passed, and others as covered by it.
    fn pass(&mut self, passed: &[u64], covered: &[u64]) {
        if passed.is_empty() && self.passed.is_empty() {
            return;
        }
        let changes = &mut self.unsaved.passed;
        for sequence in passed {
            changes.add(&mut self.passed, *sequence..sequence + 1);
        }
        for sequence in covered {
            changes.remove(&mut self.passed, *sequence);
        }
        // Last: a summary has the sequence of a version that the position may have passed.
        changes.drop_before(&mut self.passed, self.snapshot.standing.unsettled_from());
        self.snapshot.passed = self.passed.count();
    }

    /// Notes resume points, once nothing before them is set aside: without the state, its copies are gone.
    fn cover(&mut self, resumes: Vec<(Arc<str>, Resume)>) {
        if self.snapshot.set_aside > 0 {
            return merge(&mut self.covered_later, resumes);
        }
        for (source, resume) in std::mem::take(&mut self.covered_later).into_iter().chain(resumes) {
            // Frames without records are read once from the log and once live.
            let known = self.positions.get(&*source).copied().unwrap_or_default();
            if resume > known {
                self.positions.insert(source.to_string(), resume);
            }
        }
    }

    fn holds(&self) -> bool {
        self.snapshot.standing.held.versions > 0 || self.kept.standing.held.versions > 0
    }
}

/// One sink's progress, shared by its watcher, the checkpointer and the admin server.
#[derive(Debug)]
pub struct SinkProgress {
    /// The lines of the log about single events of it.
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
    ) -> Self {
        let held = correlator.map(Correlator::holding).unwrap_or_default();
        let standing = Standing { held, ..saved.standing };
        let snapshot = SinkSnapshot { standing, ..SinkSnapshot::new(name, kind, overflow, &saved) };
        let positions = saved.positions;
        // A sink that is new has to be saved once, or its start would be chosen again; so has its
        // correlator, because what comes after is brought up from there.
        let holds_back = correlator.is_some_and(Correlator::holds_back);
        let correlator = Some(Correlator::save(correlator, standing.position));
        let passed = PassedChanges::all(&saved.passed);
        let unsaved = Unsaved { passed, correlator, ..Unsaved::default() };
        let standing = Standing { held, ..Standing::default() };
        let inner = Inner {
            snapshot,
            kept: Kept { standing, ..Kept::default() },
            holds_back,
            positions,
            covered_later: Vec::new(),
            passed: saved.passed,
            unsaved,
            unsaved_bytes: 0,
            changed: true,
            settled_at: Instant::now(),
        };
        Self { lines: LogLines::new(name), inner: Mutex::new(inner) }
    }

    /// Another run begins with what is saved, and with its correlator there.
    pub(super) fn begin_again(
        &self,
        kind: &'static str,
        saved: &SinkState,
        correlator: Option<&Correlator>,
    ) {
        let before = self.snapshot().totals;
        let totals = Totals {
            lost: saved.totals.lost.saturating_sub(before.lost),
            redelivered: saved.totals.redelivered.saturating_sub(before.redelivered),
            ..Totals::default()
        };
        let held = correlator.map(Correlator::holding).unwrap_or_default();
        let standing = Standing { held, ..saved.standing };
        let mut inner = lock(&self.inner);
        inner.holds_back = correlator.is_some_and(Correlator::holds_back);
        inner.passed = saved.passed.clone();
        inner.unsaved.passed = PassedChanges::all(&saved.passed);
        inner.snapshot.passed = saved.passed.count();
        inner.snapshot.set_aside = saved.set_aside;
        // The run says anew who waits behind whom.
        inner.snapshot.held_up = 0;
        inner.snapshot.heads.clear();
        inner.snapshot.set_aside_of.clear();
        drop(inner);
        let correlator = Some(Correlator::save(correlator, standing.position));
        self.settle(Settled { standing, totals, correlator, ..Settled::default() });
        self.update(|sink| {
            sink.kind = kind;
            sink.condition = SinkCondition::Idle;
        });
    }

    /// The state as it is now.
    pub fn snapshot(&self) -> SinkSnapshot {
        lock(&self.inner).snapshot.clone()
    }

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

    /// Where it stands, and which records behind that are passed.
    pub(super) fn passed(&self) -> (Standing, Ranges) {
        let inner = lock(&self.inner);
        (inner.snapshot.standing, inner.passed.clone())
    }

    /// How many records behind the position have their fates, or are set aside.
    pub(super) fn passed_count(&self) -> u64 {
        lock(&self.inner).snapshot.passed
    }

    /// Where it stood when it was saved last: what was set aside then, and has its fate since, is held there.
    pub(super) fn saved_standing(&self) -> Standing {
        let inner = lock(&self.inner);
        let Standing { position, mut held } = inner.kept.standing;
        let released = [inner.kept.then_released, inner.unsaved.released()];
        held.first = released.into_iter().flatten().chain(held.first).min();
        Standing { position, held }
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

    /// How many records before a sequence were passed, and not by the position.
    pub(crate) fn passed_before(&self, sequence: u64) -> u64 {
        lock(&self.inner).passed.count_in(0..sequence)
    }

    /// When something was settled last; at first, when it began.
    pub(super) fn settled_at(&self) -> Instant {
        lock(&self.inner).settled_at
    }

    pub(super) fn settle(&self, settled: Settled) {
        let mut inner = lock(&self.inner);
        inner.settled_at = Instant::now();
        let next = settled.standing.position.next;
        if settled.read_bytes > 0 && next > inner.snapshot.standing.position.next {
            let Settled { read_bytes, inputs, .. } = &settled;
            let decided = inner.unsaved.inputs.get_or_insert_default();
            decided.add(next, *read_bytes, inputs);
        }
        inner.snapshot.standing = settled.standing;
        inner.snapshot.totals += settled.totals;
        inner.pass(&settled.passed, &settled.covered);
        for change in settled.set_aside.values() {
            let count = &mut inner.snapshot.set_aside;
            *count = if change.is_some() { *count + 1 } else { count.saturating_sub(1) };
        }
        inner.unsaved_bytes += envelope_bytes(&settled.set_aside, &settled.dead_letters);
        inner.unsaved.set_aside.extend(settled.set_aside);
        inner.cover(settled.resumes);
        inner.unsaved.dead_letters.extend(settled.dead_letters);
        inner.unsaved.waiting.extend(settled.waiting);
        if let Some(correlator) = settled.correlator {
            inner.unsaved.save(correlator);
        }
        inner.changed = true;
    }

    /// Takes in what became of a letter that the sink was sent once more, or that another sink
    /// forwards to it. An event of its own that it has now moves from one fate to another.
    pub(super) fn settle_letter(&self, fate: DeadLetterFate) {
        let mut inner = lock(&self.inner);
        let totals = &mut inner.snapshot.totals;
        if fate.outcome == DeadLetterOutcome::Delivered {
            totals.dead_lettered = totals.dead_lettered.saturating_sub(1);
            totals.delivered += 1;
            totals.retried += 1;
        }
        inner.unsaved.letter_fates.push(fate);
        inner.changed = true;
    }

    /// The envelopes of copies and dead letters that are still to be saved, in bytes.
    pub(super) fn unsaved_bytes(&self) -> usize {
        lock(&self.inner).unsaved_bytes
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

    /// Takes what is to be saved, if anything changed since the last call.
    pub(super) fn take_changes(&self) -> Option<Changes> {
        let mut inner = lock(&self.inner);
        if !std::mem::take(&mut inner.changed) {
            return None;
        }
        let unsaved = std::mem::take(&mut inner.unsaved);
        inner.unsaved_bytes = 0;
        inner.kept.then_standing = inner.snapshot.standing;
        inner.kept.then_released = unsaved.released();
        Some(Changes { state: state_of(&inner), unsaved })
    }

    /// Takes in that what was taken has been saved.
    pub(super) fn saved(&self) {
        let kept = &mut lock(&self.inner).kept;
        kept.standing = kept.then_standing;
        kept.then_released = None;
        kept.failing = false;
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
        unsaved.passed.append(std::mem::take(&mut inner.unsaved.passed));
        unsaved.set_aside.append(&mut inner.unsaved.set_aside);
        unsaved.waiting.append(&mut inner.unsaved.waiting);
        if let Some(CorrelatorInputs { next, read_bytes, inputs }) = &inner.unsaved.inputs {
            unsaved.inputs.get_or_insert_default().add(*next, *read_bytes, inputs);
        }
        if let Some(newer) = inner.unsaved.correlator.take() {
            unsaved.save(newer);
        }
        inner.unsaved_bytes = envelope_bytes(&unsaved.set_aside, &unsaved.dead_letters);
        inner.unsaved = unsaved;
        inner.changed = true;
        inner.kept.then_released = None;
        inner.kept.failing = true;
    }
}

fn envelope_bytes(copies: &SetAsideChanges, letters: &[DeadLetter]) -> usize {
    let copies = copies.values().flatten().map(|copy| copy.envelope.len());
    copies.chain(letters.iter().map(|letter| letter.envelope.len())).sum()
}

fn state_of(inner: &Inner) -> SinkState {
    SinkState {
        standing: inner.snapshot.standing,
        totals: inner.snapshot.totals,
        positions: inner.positions.clone(),
        // Saved apart: there may be very many.
        passed: Ranges::default(),
        set_aside: inner.snapshot.set_aside,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Delivered, Directory, Position, SetAside};

    #[test]
    fn a_run_begins_with_nobody_held_up() {
        let saved = SinkState::default();
        let progress = SinkProgress::new("a", "webhook", Overflow::Block, saved.clone(), None);
        progress.update(|sink| {
            let (namespace, by) = ("shop".to_owned(), HeldBy::Queue);
            let (object, id) = ("Pod/web".to_owned(), "u-1".to_owned());
            sink.set_aside_of = vec![NamespaceSetAside { namespace: namespace.clone(), events: 1 }];
            sink.heads = vec![HeldUp { by, namespace, object, id, events: 7, reason: None }];
            sink.held_up = 7;
        });
        progress.begin_again("webhook", &saved, None);
        let SinkSnapshot { held_up, heads, set_aside_of, .. } = progress.snapshot();
        assert_eq!((held_up, heads, set_aside_of), (0, vec![], vec![]));
    }

    #[test]
    fn a_summary_of_a_version_before_the_position_is_not_behind_it() {
        let saved = SinkState::default();
        let progress = SinkProgress::new("a", "webhook", Overflow::Block, saved, None);
        let standing =
            Standing { position: Position { next: 10, skipped: 0 }, ..Standing::default() };
        progress.settle(Settled { standing, passed: vec![3, 12], ..Settled::default() });
        assert_eq!(progress.passed_count(), 1);
    }

    #[test]
    fn a_record_that_was_set_aside_and_arrived_is_known_until_the_state_knows_it() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(dir.path()).unwrap();
        let open = || Delivered::open(&directory, "a", 100, 1 << 40, 0).unwrap();
        let kind = "webhook";
        let progress = SinkProgress::new("a", kind, Overflow::Block, SinkState::default(), None);
        let position = Position { next: 100, skipped: 0 };
        let change = |copy| {
            let standing = Standing { position, ..Standing::default() };
            let set_aside = [(5, copy)].into();
            progress.settle(Settled { standing, set_aside, ..Settled::default() });
        };
        change(Some(SetAside { attempts: 1, first_ms: 1, envelope: "{}".into() }));
        progress.take_changes();
        progress.saved();
        let mut had = open();
        had.add(5);
        change(None);
        for (now_ms, saves, knows) in [(0, 0, true), (9_000, 1, true), (18_000, 2, false)] {
            if saves == 1 {
                progress.take_changes();
            } else if saves == 2 {
                progress.saved();
            }
            // Taken away, the file is written anew, without what the state knows.
            std::fs::remove_file(dir.path().join("delivered/a")).unwrap();
            had.add(100 + now_ms);
            had.write(now_ms + 5_000, || progress.saved_standing());
            assert_eq!(open().earlier().delivered.contains(5), knows, "{saves}");
        }
    }
}
