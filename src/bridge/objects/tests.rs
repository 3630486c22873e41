//! The view under random events: whoever decides on a record decides the same.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use proptest::prelude::*;
use tidings_kube::correlator::Key;

use super::{
    Known, Reference,
    sighting::{Answer, Decision, Finding, News, Sighting},
    versions::Versions,
    view::View,
};
use crate::{
    event::{Missing, ObjectInfo},
    journal::{ObjectsCommit, ObjectsView, SavedObject},
};

const BUDGET_MS: u64 = 250;
const CACHE: usize = 2;
const SINKS: usize = 3;
const OBJECTS: u8 = 5;

fn info(number: u8) -> Arc<Known> {
    let node = Some(format!("node-{number}"));
    Arc::new(Known::new(ObjectInfo { node, ..ObjectInfo::default() }))
}

fn finding(number: u8, incomplete: bool) -> Finding {
    Finding { known: info(number), fingerprint: number.into(), place: None, incomplete }
}

fn reference() -> Reference {
    let text = || Box::from("");
    Reference { api_version: text(), kind: text(), namespace: text(), name: text(), uid: text() }
}

#[derive(Clone, Debug)]
enum What {
    Same,
    Known(u8),
    Partial(u8),
    Missing,
    Unknown,
}

#[derive(Clone, Debug)]
enum Step {
    /// A record about an object is journalled, and what ingest finds comes so much later.
    Record(u8, What, u64),
    /// An answer for an object.
    Answer(u8, Option<u8>),
    Trouble(u8),
    GiveUp(u8),
    /// A sink goes on by so many records, waiting for each as long as it has to.
    Go(usize, usize),
    Pass(u64),
    /// What is new is taken.
    Take(bool),
    /// What was taken is on the disk, or is not.
    Saved(bool),
    /// Retention drops so many records.
    Drop(u64),
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let object = 0..OBJECTS;
    let what = prop_oneof![
        2 => Just(What::Same),
        3 => (0u8..4).prop_map(What::Known),
        2 => (0u8..4).prop_map(What::Partial),
        1 => Just(What::Missing),
        4 => Just(What::Unknown),
    ];
    let late = prop_oneof![9 => Just(0u64), 1 => Just(400u64)];
    prop_oneof![
        8 => (object.clone(), what, late).prop_map(|(o, what, late)| Step::Record(o, what, late)),
        4 => (object.clone(), prop::option::of(0u8..4)).prop_map(|(o, a)| Step::Answer(o, a)),
        1 => object.clone().prop_map(Step::Trouble),
        1 => object.prop_map(Step::GiveUp),
        6 => (0..SINKS, 1usize..4).prop_map(|(sink, count)| Step::Go(sink, count)),
        4 => (1u64..300).prop_map(Step::Pass),
        3 => any::<bool>().prop_map(Step::Take),
        3 => prop::bool::weighted(0.8).prop_map(Step::Saved),
        1 => (1u64..20).prop_map(Step::Drop),
        1 => Just(Step::Crash),
    ]
}

/// What the state store does with a commit.
#[derive(Default)]
struct Stored {
    objects: BTreeMap<u128, SavedObject>,
    view: Option<ObjectsView>,
    positions: [usize; SINKS],
}

impl Stored {
    fn commit(&mut self, commit: &ObjectsCommit, positions: [usize; SINKS]) {
        for (key, new) in &commit.changed {
            let object = self.objects.entry(*key).or_default();
            object.last = object.last.max(new.last);
            for (from, what) in &new.versions {
                object.versions.retain(|(before, _)| before < from);
                object.versions.push((*from, what.clone()));
            }
            if object.versions.is_empty() {
                self.objects.remove(key);
            }
        }
        self.objects.retain(|_, object| object.last >= commit.oldest);
        self.view = commit.view.or(self.view);
        self.positions = positions;
    }
}

struct World {
    view: View,
    stored: Stored,
    now_ms: u64,
    /// Which object each record is about, and when it was journalled; the first has the sequence 1.
    records: Vec<(u8, u64)>,
    positions: [usize; SINKS],
    /// What is about to be saved, with where the sinks were then.
    taken: Option<(ObjectsCommit, [usize; SINKS])>,
    /// The sequence of the oldest record in the log.
    oldest: u64,
    /// What was decided, and by how many sinks it was counted on when the state was saved.
    decided: BTreeMap<usize, ObjectInfo>,
}

impl World {
    fn new() -> Self {
        let now_ms = 1_000_000;
        Self {
            view: View::new(None, Duration::from_millis(BUDGET_MS), CACHE, 1, now_ms),
            stored: Stored::default(),
            now_ms,
            records: Vec::new(),
            positions: [0; SINKS],
            taken: None,
            oldest: 1,
            decided: BTreeMap::new(),
        }
    }

    fn key(&self, object: u8) -> Key {
        self.view.keys.separated(&[&object.to_string()])
    }

    fn sighting(&self, object: u8, what: &What) -> Sighting {
        let key = self.key(object);
        let remembered = self.view.remembered(key, self.now_ms);
        let news = match what {
            // Only what is known is the same.
            What::Same if matches!(remembered, super::sighting::Remembered::Known(_)) => News::None,
            What::Same | What::Unknown => News::Unknown(reference(), None),
            What::Known(number) => News::Known(finding(*number, false)),
            What::Partial(number) => News::Partial(finding(*number, true), reference()),
            What::Missing => News::Missing(Missing::NotFound),
        };
        Sighting { key, news }
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Record(object, what, late_ms) => {
                let seq = self.records.len() as u64 + 1;
                let time_ms = self.now_ms;
                self.records.push((object, time_ms));
                let sighting = self.sighting(object, &what);
                if late_ms > 0 {
                    // A sink may read it from the log meanwhile.
                    self.now_ms += late_ms;
                    self.go(0, 1)?;
                }
                self.view.observe(seq, time_ms, [Some(sighting)]);
            }
            Step::Answer(object, answer) => {
                let key = self.key(object);
                // The resolver has the stored versions before it answers.
                self.load(key);
                let answer = match answer {
                    Some(number) => Answer::Known(finding(number, number == 0)),
                    None => Answer::Missing(Missing::NotFound),
                };
                self.view.answer(key, answer, self.now_ms);
            }
            Step::Trouble(object) => {
                let key = self.key(object);
                self.view.answer(key, Answer::Trouble(Missing::Unavailable), self.now_ms);
            }
            Step::GiveUp(object) => {
                self.view.answer(self.key(object), Answer::Nothing, self.now_ms);
            }
            Step::Go(sink, count) => self.go(sink, count)?,
            Step::Pass(ms) => self.now_ms += ms,
            Step::Take(all) if self.taken.is_none() => {
                let positions = self.positions;
                self.taken = Some((self.view.take(all, self.oldest), positions));
            }
            Step::Saved(done) => {
                if let Some((commit, positions)) = self.taken.take() {
                    if done {
                        self.stored.commit(&commit, positions);
                        self.view.saved(&commit);
                    } else {
                        self.view.put_back(&commit);
                    }
                }
            }
            Step::Take(_) => {}
            Step::Drop(records) => {
                let tail = self.records.len() as u64 + 1;
                self.oldest = (self.oldest + records).min(tail);
                for position in &mut self.positions {
                    *position = (*position).max(self.oldest as usize - 1);
                }
            }
            Step::Crash => self.crash(),
        }
        Ok(())
    }

    fn load(&self, key: Key) {
        let stored = self.stored.objects.get(&super::stored_key(key)).cloned();
        self.view.loaded(key, stored);
    }

    fn go(&mut self, sink: usize, count: usize) -> Result<(), TestCaseError> {
        for _ in 0..count {
            let at = self.positions[sink];
            let Some((object, time_ms)) = self.records.get(at).copied() else { return Ok(()) };
            let decided = self.decide(object, at as u64 + 1, time_ms);
            self.positions[sink] += 1;
            let before = self.decided.entry(at).or_insert_with(|| decided.clone());
            prop_assert_eq!(&*before, &decided, "record {}", at + 1);
        }
        Ok(())
    }

    fn decide(&mut self, object: u8, seq: u64, time_ms: u64) -> ObjectInfo {
        loop {
            match self.view.decide(self.key(object), seq, time_ms, self.now_ms) {
                Decision::Known(known) => return known.info.clone(),
                Decision::Miss => {
                    let missing = Some(Missing::Timeout);
                    return ObjectInfo { missing, ..ObjectInfo::default() };
                }
                Decision::Wait(until_ms) => {
                    assert!(until_ms > self.now_ms, "it waits for what is over");
                    self.now_ms = until_ms;
                }
                Decision::Read => self.load(self.key(object)),
            }
        }
    }

    /// What was not saved is gone; what no saved position counts on may be decided otherwise.
    fn crash(&mut self) {
        self.taken = None;
        let oldest = self.oldest as usize - 1;
        self.positions = self.stored.positions.map(|position| position.max(oldest));
        let counted = self.stored.positions.into_iter().max().unwrap_or(0);
        self.decided.retain(|at, _| *at < counted);
        let budget = Duration::from_millis(BUDGET_MS);
        let tail = self.records.len() as u64 + 1;
        // Before anything was saved the keys are others.
        self.view = View::new(self.stored.view, budget, CACHE, tail, self.now_ms + 1000);
        // Nobody waits for the recovery before something is saved.
        let commit = self.view.take(true, self.oldest);
        self.stored.commit(&commit, self.stored.positions);
        self.view.saved(&commit);
        let (from, undecided) = self.view.to_recover();
        for seq in from.max(self.oldest)..tail {
            let (object, _) = self.records[usize::try_from(seq).unwrap() - 1];
            let key = self.key(object);
            if seq >= undecided {
                self.load(key);
            }
            if seq < undecided || self.view.is_decided(key, seq) {
                self.view.touch(key, seq);
            } else {
                let sighting = self.sighting(object, &What::Unknown);
                self.view.observe(seq, self.now_ms, [Some(sighting)]);
            }
        }
        self.view.recovered(tail, self.now_ms);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_record_is_enriched_alike_live_late_and_after_a_crash(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut world = World::new();
        for step in steps {
            world.step(step)?;
        }
        // A sink that is late reads everything, from wherever it is kept.
        for sink in 0..SINKS {
            world.positions[sink] = world.oldest as usize - 1;
            let all = world.records.len();
            world.go(sink, all)?;
        }
    }

    #[test]
    fn versions_answer_as_a_plain_list_does(
        pushes in prop::collection::vec((1u64..50, 0u8..3), 0..12),
        oldest in 1u64..60,
    ) {
        let (mut versions, mut list) = (Versions::default(), Vec::<(u64, u8)>::new());
        for (from, number) in pushes {
            if versions.push(from, info(number)) {
                list.retain(|(before, _)| *before < from);
                list.push((from, number));
            } else {
                prop_assert_eq!(list.last().map(|(_, number)| *number), Some(number));
            }
        }
        let saved: Vec<_> = versions.after(0).iter().map(super::versions::Version::save).collect();
        let whole = Versions::load(saved);
        versions.drop_before(oldest);
        for seq in 1..80 {
            let expected = list.iter().rev().find(|(from, _)| *from <= seq);
            let expected = expected.map(|(_, number)| info(*number).info.clone());
            let at = |versions: &Versions| versions.at(seq).map(|v| v.known.info.clone());
            prop_assert_eq!(at(&whole), expected.clone());
            if seq >= oldest {
                prop_assert_eq!(at(&versions), expected);
            }
        }
    }
}

#[test]
fn a_clock_that_is_set_back_holds_nobody() {
    let now_ms = 10_000_000;
    let view = View::new(None, Duration::from_millis(BUDGET_MS), CACHE, 1, now_ms);
    let key = view.keys.separated(&["object"]);
    let unknown = Sighting { key, news: News::Unknown(reference(), None) };
    view.observe(1, now_ms, [Some(unknown)]);
    view.loaded(key, None);
    let waits = view.decide(key, 1, now_ms, now_ms - 10);
    assert!(matches!(waits, Decision::Wait(_)), "{waits:?}");
    let an_hour_before = view.decide(key, 1, now_ms, now_ms - 3_600_000);
    assert!(matches!(an_hour_before, Decision::Miss), "{an_hour_before:?}");
}

/// With a search of all objects for each it would take minutes.
#[test]
fn a_flood_of_objects_that_all_wait_is_no_more_work_for_each() {
    const FLOOD: u64 = 30_000;
    let view = View::new(None, Duration::from_millis(BUDGET_MS), CACHE, 1, 0);
    let key = |seq: u64| view.keys.separated(&[&seq.to_string()]);
    for seq in 1..=FLOOD {
        let unknown = Sighting { key: key(seq), news: News::Unknown(reference(), None) };
        view.observe(seq, 0, [Some(unknown)]);
    }
    for seq in 1..=FLOOD {
        view.loaded(key(seq), None);
        let decision = view.decide(key(seq), seq, 0, BUDGET_MS);
        assert!(matches!(decision, Decision::Miss), "{decision:?}");
    }
    (1..=FLOOD).for_each(|seq| view.answer(key(seq), Answer::Nothing, BUDGET_MS));
    view.saved(&view.take(true, 1));
    // What is saved can be forgotten again.
    assert!((1..=FLOOD).filter(|seq| view.is_whole(key(*seq))).count() <= CACHE);
}
