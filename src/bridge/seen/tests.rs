//! The view against a plain map, and its bound.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::journal::{State, StateCommit};

type Model = BTreeMap<UidKey, SeenEntry>;

/// Few uids, and of their fingerprints each stands for several.
fn uid(number: u8) -> UidKey {
    UidKey(u128::from(number % 5) | u128::from(number) << 64)
}

#[derive(Clone, Debug)]
enum Step {
    Frame(Vec<(u8, Option<(u64, u16)>)>),
    Take,
    /// What was taken is committed, or that fails.
    Commit(bool),
    /// The process ends without a word, and another one starts.
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let change = (0..40u8, proptest::option::of((1..1000u64, 0..3u16)));
    prop_oneof![
        6 => proptest::collection::vec(change, 0..20).prop_map(Step::Frame),
        2 => Just(Step::Take),
        2 => proptest::bool::weighted(0.7).prop_map(Step::Commit),
        1 => Just(Step::Crash),
    ]
}

fn check(seen: &Seen, model: &Model) {
    for number in 0..45 {
        assert_eq!(seen.get(uid(number)).unwrap(), model.get(&uid(number)).copied());
    }
    for source in 0..3 {
        let mut all = seen.of_source(source);
        let mut found = Vec::new();
        while let Some(uid) = all.next_uid().unwrap() {
            found.push(uid);
        }
        assert!(found.is_sorted_by(|one, next| one < next), "{found:?}");
        // Others are allowed: a change that is not saved hides them.
        found.retain(|uid| seen.get(*uid).unwrap().is_some_and(|entry| entry.source() == source));
        let own = model.iter().filter(|(_, entry)| entry.source() == source);
        assert_eq!(found, own.map(|(uid, _)| *uid).collect::<Vec<_>>());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn it_knows_what_a_map_knows(steps in proptest::collection::vec(step(), 1..60)) {
        let dir = tempfile::tempdir().unwrap();
        let directory = crate::journal::open(dir.path()).unwrap();
        let (mut state, _) = State::open(&directory, 0, 0).unwrap();
        let sources = [("*".to_owned(), crate::journal::SourceState::default())];
        state.commit(&StateCommit { sources: sources.into(), ..StateCommit::default() }).unwrap();
        let mut seen = Seen::new(state.seen(), 0);
        let (mut model, mut saved) = (Model::new(), Model::new());
        let mut applied = 1;
        let mut taken: Option<(Batch, u64, Model)> = None;
        for step in steps {
            match step {
                Step::Frame(changes) => {
                    let mut frame = SeenChanges::default();
                    for (number, change) in changes {
                        let entry = change.map(|(version, source)| SeenEntry::new(version, 1, source));
                        frame.insert(uid(number), entry);
                        match entry {
                            Some(entry) => model.insert(uid(number), entry),
                            None => model.remove(&uid(number)),
                        };
                    }
                    applied += 1;
                    seen.add(frame, applied);
                }
                Step::Take if taken.is_none() => {
                    taken = seen.take().map(|(batch, up_to)| (batch, up_to, model.clone()));
                    if let Some((batch, up_to, _)) = &taken {
                        prop_assert!(batch.is_sorted_by(|one, next| one.0 < next.0));
                        prop_assert_eq!(*up_to, applied);
                    }
                }
                Step::Take => {}
                Step::Commit(succeeds) => match taken.take() {
                    Some((seen, applied, then)) if succeeds => {
                        state.commit(&StateCommit { seen, applied, ..StateCommit::default() }).unwrap();
                        saved = then;
                    }
                    Some((_, applied, _)) => seen.put_back(applied),
                    None => {}
                },
                Step::Crash => {
                    taken = None;
                    drop((seen, state));
                    let loaded;
                    (state, loaded) = State::open(&directory, 0, 0).unwrap();
                    seen = Seen::new(state.seen(), loaded.applied);
                    model.clone_from(&saved);
                    applied = loaded.applied;
                }
            }
            check(&seen, &model);
        }
    }
}

#[test]
fn more_than_it_may_hold_waits_for_the_keeper() {
    let dir = tempfile::tempdir().unwrap();
    let directory = crate::journal::open(dir.path()).unwrap();
    let (mut state, _) = State::open(&directory, 0, 0).unwrap();
    let seen = Seen::new(state.seen(), 0);
    let demand = seen.demand();
    let many = |from: usize, count: usize| -> SeenChanges {
        let changes = from..from + count;
        changes.map(|uid| (UidKey(uid as u128), Some(SeenEntry::new(1, 1, 0)))).collect()
    };
    seen.add(many(0, MANY - 1), 2);
    assert_eq!(*demand.borrow(), Demand::None);
    seen.add(many(MANY - 1, 1), 3);
    assert_eq!(*demand.borrow(), Demand::Soon);
    assert!(seen.has_room(MOST - MANY) && !seen.has_room(MOST - MANY + 1));
    seen.add(many(MANY, MOST - MANY), 4);
    assert!(!seen.wait_for_room(1, Duration::ZERO));
    assert_eq!(*demand.borrow(), Demand::Now);

    let waited = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| seen.wait_for_room(1, Duration::from_secs(60)));
        let (batch, applied) = seen.take().unwrap();
        assert_eq!((batch.len(), applied, *demand.borrow()), (MOST, 4, Demand::None));
        state.commit(&StateCommit { seen: batch, applied, ..StateCommit::default() }).unwrap();
        waiting.join().unwrap()
    });
    assert!(waited && seen.take().is_none());
    assert_eq!(seen.get(UidKey(5)).unwrap(), Some(SeenEntry::new(1, 1, 0)));
    // A single frame is never too large.
    assert!(seen.has_room(2 * MOST));
}

#[test]
fn what_waits_stays_bounded_however_often_it_cannot_be_saved() {
    let dir = tempfile::tempdir().unwrap();
    let directory = crate::journal::open(dir.path()).unwrap();
    let (state, _) = State::open(&directory, 0, 0).unwrap();
    let seen = Seen::new(state.seen(), 0);
    let mut uids = 0..;
    let mut fill = |seen: &Seen| {
        let mut added = 0;
        while seen.has_room(1000) {
            let uids = uids.by_ref().take(1000).map(UidKey);
            seen.add(uids.map(|uid| (uid, None)).collect(), 2);
            added += 1000;
        }
        added
    };
    assert!(fill(&seen) > 0);
    for round in 0..5 {
        // Ingest goes on while it is being saved, which is known to work only the first time.
        let (_, applied) = seen.take().unwrap();
        assert_eq!(fill(&seen) > 0, round == 0, "{round}");
        seen.put_back(applied);
        assert_eq!(fill(&seen), 0, "{round}");
    }
    seen.take().unwrap();
    seen.saved(2);
    assert!(fill(&seen) > 0);
}

#[test]
fn what_is_asked_for_with_nothing_to_save_is_not_asked_for_without_end() {
    let dir = tempfile::tempdir().unwrap();
    let directory = crate::journal::open(dir.path()).unwrap();
    let (state, _) = State::open(&directory, 0, 0).unwrap();
    let seen = Seen::new(state.seen(), 0);
    // The directory is larger than it should be, and intake stands still.
    seen.save_soon();
    assert!(seen.take().is_none());
    assert_eq!(*seen.demand().borrow(), Demand::None);
}
