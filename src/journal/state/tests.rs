//! The state, whole and damaged.

use super::*;
use crate::{
    event::{SeenEntry, UidKey},
    journal::Resume,
};

const LIMIT: u64 = 100;

fn letter(seq: u64, sink: &str, bytes: usize) -> DeadLetter {
    DeadLetter {
        sink: sink.to_owned(),
        seq,
        id: format!("uid-{seq}"),
        class: "invalid".to_owned(),
        reason: "no".to_owned(),
        attempts: 3,
        first_ms: 1,
        time_ms: 2,
        unidentified: 0,
        envelope: vec![b'x'; bytes].into(),
    }
}

fn entry(resource_version: u64) -> SeenEntry {
    SeenEntry::new(resource_version, 2, 1)
}

fn sample() -> StateCommit {
    let sink = SinkState {
        position: Position { next: 41, skipped: 3 },
        totals: Totals { delivered: 30, lost: 7, ..Totals::default() },
        held: 1,
        held_mark: 77,
        positions: [("all".to_owned(), Resume { epoch: 1, resource_version: 9 })].into(),
    };
    let correlator = SavedCorrelator {
        position: Position { next: 38, skipped: 3 },
        bytes: Bytes::from_static(b"state"),
    };
    let source = SourceState {
        id: 1,
        first_start_ms: 5,
        as_of: 41,
        resume: Resume { epoch: 1, resource_version: 9 },
        last_heard_ms: Some(77),
        whole_from: Some(3),
        witness: Some(SavedWitness { epoch: 1, resource_version: 8, ..SavedWitness::default() }),
        unfinished: Some(Unfinished { replayed: 2, skipped: 1 }),
    };
    StateCommit {
        sinks: [("audit".to_owned(), sink)].into(),
        correlators: [("audit".to_owned(), correlator)].into(),
        seen: Arc::new((0..500).map(|uid| (UidKey(uid), Some(entry(uid as u64)))).collect()),
        sources: [("all".to_owned(), source)].into(),
        applied: 40,
        objects: ObjectsCommit::default(),
        dead_letters: vec![letter(12, "audit", 30), letter(13, "pager", 30)],
        cluster_uid: Some("c".to_owned()),
    }
}

fn is_sample(state: &State, loaded: &Loaded) -> bool {
    let (sample, seen) = (sample(), state.seen());
    loaded.sinks == sample.sinks
        && loaded.correlators == sample.correlators
        && loaded.sources == sample.sources
        && loaded.applied == sample.applied
        && loaded.cluster_uid == sample.cluster_uid
        && seen.len() == 500
        && sample.seen.iter().all(|(uid, entry)| seen.get(*uid).unwrap() == *entry)
}

#[test]
fn what_was_committed_is_loaded_and_what_was_not_named_stays() {
    let dir = tempfile::tempdir().unwrap();
    let directory = Directory::open(dir.path()).unwrap();
    let (mut state, loaded) = State::open(&directory, LIMIT, 0).unwrap();
    assert_eq!((loaded.applied, loaded.highest_sequence()), (1, 0));
    assert!(state.seen().is_empty());
    state.commit(&sample()).unwrap();
    drop(state);
    let (mut state, loaded) = State::open(&directory, LIMIT, 0).unwrap();
    assert!(is_sample(&state, &loaded) && loaded.set_aside.is_none());
    assert_eq!(loaded.highest_sequence(), 40);
    // The same low 32 bits as another one.
    let twin = UidKey(8 | 1 << 64);
    let seen = vec![
        (UidKey(7), None),
        (UidKey(9), Some(entry(10))),
        (UidKey(900), Some(entry(2))),
        (UidKey(901), None),
        (twin, Some(entry(4))),
    ];
    let seen = Arc::new(seen);
    state.commit(&StateCommit { seen, applied: 50, ..StateCommit::default() }).unwrap();
    // Reads go beside the commits.
    let seen = state.seen();
    let check = |seen: &SeenTable| {
        assert_eq!(seen.len(), 501);
        let versions = [7, 8, 9, 900, 901, twin.0]
            .map(|uid| seen.get(UidKey(uid)).unwrap().map(|entry| entry.resource_version));
        assert_eq!(versions, [None, Some(8), Some(10), Some(2), None, Some(4)]);
        assert_eq!(
            seen.page(UidKey(499), 9).unwrap(),
            [(499, 499), (900, 2), (twin.0, 4)].map(|(uid, version)| (UidKey(uid), entry(version)))
        );
        assert_eq!(seen.page(UidKey(0), 2).unwrap().len(), 2);
    };
    check(&seen);
    let gone = Arc::new(vec![(UidKey(8), None)]);
    drop((state, seen));
    let (mut state, loaded) = State::open(&directory, LIMIT, 0).unwrap();
    assert_eq!((loaded.sinks.len(), loaded.sources.len()), (1, 1));
    assert_eq!(loaded.highest_sequence(), 49);
    check(&state.seen());
    state.commit(&StateCommit { seen: gone, applied: 50, ..StateCommit::default() }).unwrap();
    assert_eq!(state.seen().get(UidKey(8)).unwrap(), None);
    assert_eq!(state.seen().get(twin).unwrap(), Some(entry(4)));
}

#[test]
fn what_a_first_start_left_of_seen_without_sources_is_not_trusted() {
    let dir = tempfile::tempdir().unwrap();
    let directory = Directory::open(dir.path()).unwrap();
    let (mut state, _) = State::open(&directory, LIMIT, 0).unwrap();
    let seen = sample().seen;
    state.commit(&StateCommit { seen, applied: 1, ..StateCommit::default() }).unwrap();
    drop(state);
    let (state, _) = State::open(&directory, LIMIT, 0).unwrap();
    assert!(state.seen().is_empty());
    assert_eq!(state.seen().get(UidKey(3)).unwrap(), None);
}

#[test]
fn the_newest_dead_letters_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let directory = Directory::open(dir.path()).unwrap();
    let (mut state, _) = State::open(&directory, LIMIT, 0).unwrap();
    state.commit(&sample()).unwrap();
    let mut of_audit = state.dead_letters(Some("audit"), 10).unwrap();
    assert_eq!(of_audit.pop(), Some(letter(12, "audit", 30)));
    assert!(of_audit.is_empty());
    let dead_letters = vec![letter(14, "audit", 60)];
    state.commit(&StateCommit { dead_letters, ..StateCommit::default() }).unwrap();
    drop(state);
    let (mut state, _) = State::open(&directory, LIMIT, 0).unwrap();
    let dead_letters = vec![letter(15, "audit", 5)];
    state.commit(&StateCommit { dead_letters, ..StateCommit::default() }).unwrap();
    let seqs = |state: &State, limit| {
        let letters = state.dead_letters(None, limit).unwrap();
        letters.into_iter().map(|letter| letter.seq).collect::<Vec<_>>()
    };
    assert_eq!(seqs(&state, 10), [15, 14, 13]);
    assert_eq!(seqs(&state, 1), [15]);
    assert_eq!(state.dead_letter_count(), 3);
}

#[test]
fn a_commit_after_a_failed_one_opens_the_file_again() {
    let dir = tempfile::tempdir().unwrap();
    let directory = Directory::open(dir.path()).unwrap();
    let (mut state, _) = State::open(&directory, LIMIT, 0).unwrap();
    state.commit(&StateCommit { seen: sample().seen, ..StateCommit::default() }).unwrap();
    state.store.close();
    assert!(state.dead_letters(None, 1).unwrap().is_empty());
    // Not: it is not there.
    assert!(state.seen().get(UidKey(1)).is_err());
    assert!(state.objects().get(1).is_err());
    state.commit(&sample()).unwrap();
    assert_eq!(state.seen().get(UidKey(1)).unwrap(), Some(entry(1)));
    drop(state);
    let (state, loaded) = State::open(&directory, LIMIT, 0).unwrap();
    assert!(is_sample(&state, &loaded));
}

#[test]
fn whatever_is_damaged_the_state_opens_as_it_was_or_anew() {
    let dir = tempfile::tempdir().unwrap();
    let directory = Directory::open(dir.path()).unwrap();
    let (mut state, _) = State::open(&directory, LIMIT, 0).unwrap();
    state.commit(&sample()).unwrap();
    drop(state);
    let path = dir.path().join(NAME);
    let whole = std::fs::read(&path).unwrap();
    let mut anew = 0;
    for case in 0..120 {
        let mut bytes = whole.clone();
        let at = whole.len() * case / 120;
        match case % 3 {
            0 => bytes.truncate(at),
            1 => bytes[at] ^= 1 << (case % 8),
            _ => bytes.iter_mut().skip(at).take(4096).for_each(|byte| *byte = !*byte),
        }
        std::fs::write(&path, &bytes).unwrap();
        let (mut state, loaded) = State::open(&directory, LIMIT, case as u64).unwrap();
        if let Some((aside, reason)) = &loaded.set_aside {
            assert_eq!(std::fs::read(aside).unwrap().len(), bytes.len(), "{reason}");
            std::fs::remove_file(aside).unwrap();
            anew += 1;
        }
        // An empty file is a new one to redb.
        assert!(is_sample(&state, &loaded) || loaded.set_aside.is_some() || bytes.is_empty());
        state.commit(&sample()).unwrap();
    }
    assert!(anew > 0);
}

#[test]
fn objects_are_kept_by_what_records_need_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let (mut state, _) = State::open(&Directory::open(dir.path()).unwrap(), LIMIT, 0).unwrap();
    let view = ObjectsView { secret: 7, applied: 5, decided: 6, next: 9 };
    let version = |from, what: &str| (from, what.as_bytes().to_vec());
    let commit = |state: &mut State, changed, oldest| {
        let objects = ObjectsCommit { changed, view: Some(view), oldest };
        state.commit(&StateCommit { objects, ..StateCommit::default() }).unwrap();
    };
    let object =
        |last, versions: &[(u64, Vec<u8>)]| SavedObject { last, versions: versions.into() };
    let reader = state.objects();
    commit(&mut state, vec![(1, object(3, &[version(2, "a")])), (2, object(4, &[]))], 1);
    // What is said again is no version, and of an object without versions nothing is kept.
    commit(&mut state, vec![(1, object(7, &[version(5, "a"), version(6, "b")]))], 1);
    assert_eq!(reader.get(1).unwrap(), Some(object(7, &[version(2, "a"), version(6, "b")])));
    assert_eq!(reader.get(2).unwrap(), None);
    // A record of the sequence 6 needs only the last of them.
    commit(
        &mut state,
        vec![(1, object(9, &[version(9, "c")])), (3, object(5, &[version(5, "")]))],
        6,
    );
    assert_eq!(reader.get(1).unwrap(), Some(object(9, &[version(6, "b"), version(9, "c")])));
    assert_eq!(reader.get(3).unwrap(), None);
    drop((state, reader));
    let (state, loaded) = State::open(&Directory::open(dir.path()).unwrap(), 1 << 30, 0).unwrap();
    assert_eq!((loaded.objects, loaded.highest_sequence()), (Some(view), 8));
    assert_eq!(state.objects().get(1).unwrap().unwrap().last, 9);
}

#[test]
fn every_object_is_looked_at_before_long() {
    let dir = tempfile::tempdir().unwrap();
    let (mut state, _) = State::open(&Directory::open(dir.path()).unwrap(), LIMIT, 0).unwrap();
    let view = Some(ObjectsView { secret: 7, applied: 1, decided: 1, next: 1 });
    let one = |n: u64| SavedObject { last: n, versions: vec![(1, b"a".to_vec())] };
    let changed = (1..=2500).map(|n| (u128::from(n), one(n))).collect();
    let objects = ObjectsCommit { changed, view, oldest: 1 };
    state.commit(&StateCommit { objects, ..StateCommit::default() }).unwrap();
    for _ in 0..6 {
        let objects = ObjectsCommit { changed: Vec::new(), view, oldest: 2400 };
        state.commit(&StateCommit { objects, ..StateCommit::default() }).unwrap();
    }
    let reader = state.objects();
    assert_eq!(
        [1, 2399, 2400, 2500].map(|key| reader.get(key).unwrap().is_some()),
        [false, false, true, true]
    );
}

/// An fsync may fail when everything is in the file already.
#[test]
fn what_a_failed_commit_has_stored_all_the_same_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let directory = Directory::open(dir.path()).unwrap();
    let (mut state, _) = State::open(&directory, LIMIT, 0).unwrap();
    let failed = state.store.with_database(|database| {
        let transaction = database.begin_write()?;
        write(&transaction, &sample(), &mut DeadLetters::default())?;
        transaction.commit()?;
        Err::<(), _>(redb::Error::PreviousIo)
    });
    assert!(failed.is_err() && state.seen().get(UidKey(7)).is_ok_and(|entry| entry.is_none()));
    state.commit(&sample()).unwrap();
    assert_eq!(state.seen().get(UidKey(7)).unwrap(), Some(entry(7)));
    assert_eq!(state.seen().len(), 500);
}
