//! The state, whole and damaged.

use std::collections::BTreeMap;

use tidings_log::Resume;

use super::*;
use crate::{
    event::{SeenEntry, UidKey},
    journal::{Holding, Standing},
};

mod gone;
mod letter_shares;
mod unread;

const LIMIT: u64 = 1000;

fn letter(seq: u64, sink: &str, bytes: usize) -> DeadLetter {
    DeadLetter {
        number: 0,
        state: LetterState::Kept,
        forward: None,
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

fn inputs(next: u64, of: std::ops::Range<u64>) -> CorrelatorInputs {
    let mut inputs = Inputs::default();
    of.for_each(|seq| inputs.push(seq, [seq as u8; 89]));
    CorrelatorInputs { next, read_bytes: next * 100, inputs }
}

fn sample() -> StateCommit {
    let sink = SinkState {
        standing: Standing {
            position: Position { next: 41, skipped: 3 },
            held: Holding { versions: 1, mark: 77, first: None },
        },
        totals: Totals { delivered: 30, lost: 7, ..Totals::default() },
        positions: [("all".to_owned(), Resume { epoch: 1, resource_version: 9 })].into(),
        destinations: Destinations { day: 20_000, made: vec![(u64::MAX, 7)] },
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
        inputs: [("audit".to_owned(), inputs(41, 38..41))].into(),
        seen: Arc::new((0..500).map(|uid| (UidKey(uid), Some(entry(uid as u64)))).collect()),
        sources: [("all".to_owned(), source)].into(),
        applied: 40,
        objects: ObjectsCommit::default(),
        dead_letters: vec![letter(12, "audit", 30), letter(13, "pager", 30)],
        letter_fates: BTreeMap::new(),
        cluster_uid: Some("c".to_owned()),
        heartbeats: Some(vec!["h-1".to_owned(), "h-2".to_owned()]),
    }
}

fn is_sample(state: &State, loaded: &Loaded) -> bool {
    let (sample, seen) = (sample(), state.seen());
    loaded.sinks == sample.sinks
        && loaded.correlators == sample.correlators
        && loaded.inputs == sample.inputs
        && loaded.sources == sample.sources
        && loaded.applied == sample.applied
        && loaded.cluster_uid == sample.cluster_uid
        && Some(&loaded.heartbeats) == sample.heartbeats.as_ref()
        && seen.len() == 500
        && sample.seen.iter().all(|(uid, entry)| seen.get(*uid).unwrap() == *entry)
}

#[test]
fn what_was_committed_is_loaded_and_what_was_not_named_stays() {
    let dir = tempfile::tempdir().unwrap();
    let directory = crate::journal::open(dir.path()).unwrap();
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
fn inputs_of_a_correlator_add_up_until_it_is_saved_behind_them() {
    let dir = tempfile::tempdir().unwrap();
    let directory = crate::journal::open(dir.path()).unwrap();
    let commit = |saved: Option<u64>, new: Option<CorrelatorInputs>| {
        let (mut state, _) = State::open(&directory, LIMIT, 0).unwrap();
        let correlator = saved.map(|next| SavedCorrelator {
            position: Position { next, skipped: 0 },
            bytes: Bytes::from_static(b"state"),
        });
        let mut commit = StateCommit::default();
        commit.correlators.extend(correlator.map(|saved| ("audit".to_owned(), saved)));
        commit.inputs.extend(new.map(|new| ("audit".to_owned(), new)));
        let other = ("pager".to_owned(), inputs(4, 1..4));
        commit.inputs.extend([other]);
        state.commit(&commit).unwrap();
        drop(state);
        let (_, loaded) = State::open(&directory, LIMIT, 0).unwrap();
        assert_eq!(loaded.inputs["pager"], inputs(4, 1..4));
        loaded.inputs.get("audit").cloned()
    };
    assert_eq!(commit(Some(10), None), None);
    assert_eq!(commit(None, Some(inputs(15, 10..14))), Some(inputs(15, 10..14)));
    assert_eq!(commit(None, Some(inputs(20, 15..15))), Some(inputs(20, 10..14)));
    assert_eq!(commit(None, Some(inputs(25, 21..25))).unwrap().inputs.len(), 8);
    // It was saved in the midst of the last ones, which stay whole.
    assert_eq!(commit(Some(22), Some(inputs(30, 25..30))).unwrap().inputs.len(), 9);
    assert_eq!(commit(Some(30), None), None);
}

#[test]
fn what_a_first_start_left_of_seen_without_sources_is_not_trusted() {
    let dir = tempfile::tempdir().unwrap();
    let directory = crate::journal::open(dir.path()).unwrap();
    let (mut state, _) = State::open(&directory, LIMIT, 0).unwrap();
    let seen = sample().seen;
    state.commit(&StateCommit { seen, applied: 1, ..StateCommit::default() }).unwrap();
    drop(state);
    let (state, _) = State::open(&directory, LIMIT, 0).unwrap();
    assert!(state.seen().is_empty());
    assert_eq!(state.seen().get(UidKey(3)).unwrap(), None);
}

#[test]
fn a_commit_after_a_failed_one_opens_the_file_again() {
    let dir = tempfile::tempdir().unwrap();
    let directory = crate::journal::open(dir.path()).unwrap();
    let (mut state, _) = State::open(&directory, LIMIT, 0).unwrap();
    state.commit(&StateCommit { seen: sample().seen, ..StateCommit::default() }).unwrap();
    state.store.close();
    assert!(state.dead_letters().list(&LetterQuery::default()).is_err());
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
    let directory = crate::journal::open(dir.path()).unwrap();
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
    let (mut state, _) = State::open(&crate::journal::open(dir.path()).unwrap(), LIMIT, 0).unwrap();
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
    let (state, loaded) =
        State::open(&crate::journal::open(dir.path()).unwrap(), 1 << 30, 0).unwrap();
    assert_eq!((loaded.objects, loaded.highest_sequence()), (Some(view), 8));
    assert_eq!(state.objects().get(1).unwrap().unwrap().last, 9);
}

#[test]
fn every_object_is_looked_at_before_long() {
    let dir = tempfile::tempdir().unwrap();
    let (mut state, _) = State::open(&crate::journal::open(dir.path()).unwrap(), LIMIT, 0).unwrap();
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
    let directory = crate::journal::open(dir.path()).unwrap();
    let (mut state, _) = State::open(&directory, LIMIT, 0).unwrap();
    let failed = state.store.with_database(|database| {
        let transaction = database.begin_write()?;
        write(&transaction, &sample())?;
        transaction.commit()?;
        Err::<(), _>(redb::Error::PreviousIo)
    });
    assert!(failed.is_err() && state.seen().get(UidKey(7)).is_ok_and(|entry| entry.is_none()));
    state.commit(&sample()).unwrap();
    assert_eq!(state.seen().get(UidKey(7)).unwrap(), Some(entry(7)));
    assert_eq!(state.seen().len(), 500);
}

fn query(sink: Option<&str>, limit: usize, before: Option<u64>) -> LetterQuery {
    LetterQuery { sink: sink.map(str::to_owned), class: None, limit, before }
}

fn seqs(letters: &DeadLettersReader, query: &LetterQuery) -> Vec<u64> {
    letters.list(query).unwrap().into_iter().map(|letter| letter.seq).collect()
}

fn add(state: &mut State, dead_letters: Vec<DeadLetter>) {
    state.commit(&StateCommit { dead_letters, ..StateCommit::default() }).unwrap();
}

fn settle(state: &mut State, by: &str, number: u64, outcome: LetterOutcome) {
    let letter_fates = [(by.to_owned(), vec![LetterFate { number, outcome }])].into();
    state.commit(&StateCommit { letter_fates, ..StateCommit::default() }).unwrap();
}

#[test]
fn the_newest_dead_letters_are_kept_and_what_goes_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let directory = crate::journal::open(dir.path()).unwrap();
    let size = json(&letter(12, "audit", 0)).len() as u64 + 100;
    let (mut state, _) = State::open(&directory, 3 * size, 0).unwrap();
    let letters = state.dead_letters();
    add(&mut state, (12..=14).map(|seq| letter(seq, "audit", 100)).collect());
    let counts = LetterCounts { letters: 3, events: 3, bytes: 3 * size, ..Default::default() };
    assert_eq!(letters.counts(), [("audit".to_owned(), counts)].into());
    let several = DeadLetter { unidentified: 4, ..letter(15, "pager", 100) };
    add(&mut state, vec![several]);
    assert_eq!(seqs(&letters, &query(None, 10, None)), [15, 14, 13]);
    assert_eq!(seqs(&letters, &query(None, 1, None)), [15]);
    assert_eq!(seqs(&letters, &query(None, 2, Some(3))), [14, 13]);
    assert_eq!(seqs(&letters, &query(Some("audit"), 9, None)), [14, 13]);
    let (audit, pager) = (letters.counts()["audit"], letters.counts()["pager"]);
    assert_eq!((audit.letters, audit.overflowed, pager.letters, pager.events), (2, 1, 1, 4));
    // A smaller bound holds from the next commit on, and the numbers go on after a start.
    drop((state, letters));
    let (mut state, _) = State::open(&directory, 2 * size, 0).unwrap();
    state.drop_letters(&Letters::Numbers(vec![3])).unwrap();
    add(&mut state, vec![letter(16, "audit", 100)]);
    let letters = state.dead_letters();
    let listed = letters.list(&query(None, 9, None)).unwrap();
    let numbers: Vec<_> = listed.iter().map(|letter| (letter.number, letter.seq)).collect();
    assert_eq!(numbers, [(4, 16), (2, 14)]);
    assert_eq!((letters.counts()["audit"].overflowed, letters.counts()["pager"].dropped), (2, 4));
}

#[test]
fn a_letter_is_due_until_it_has_been_sent() {
    let dir = tempfile::tempdir().unwrap();
    let directory = crate::journal::open(dir.path()).unwrap();
    let (mut state, _) = State::open(&directory, 1 << 20, 0).unwrap();
    let forward = |seq| DeadLetter { forward: Some("other".to_owned()), ..letter(seq, "a", 9) };
    add(&mut state, vec![letter(1, "a", 9), forward(2), letter(3, "gone", 9), forward(4)]);
    let unidentified = DeadLetter { unidentified: 2, ..letter(5, "a", 9) };
    add(&mut state, vec![unidentified]);
    let configured = ["a".to_owned(), "other".to_owned()];
    for (numbers, why) in
        [(vec![0, 9], "no dead letter 9"), (vec![0, 2], "`gone` is not"), (vec![0, 4], "which")]
    {
        let error = state.retry_letters(&Letters::Numbers(numbers), &configured).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
    let gone = Letters::Of { sink: Some("gone".to_owned()), class: None };
    assert!(state.retry_letters(&gone, &configured).is_err());
    let letters = state.dead_letters();
    assert_eq!((letters.due_count("a"), letters.due_count("other")), (0, 2), "nothing is marked");
    let all = Letters::Of { sink: None, class: Some("invalid".to_owned()) };
    assert_eq!(state.retry_letters(&all, &configured).unwrap(), 3);
    drop((state, letters));
    let (mut state, _) = State::open(&directory, 1 << 20, 0).unwrap();
    let letters = state.dead_letters();
    let due = |sink: &str, from: u64| {
        let due = letters.due(sink, "", from..u64::MAX, 2, 1 << 20).unwrap();
        due.into_iter().map(|letter| letter.number).collect::<Vec<_>>()
    };
    let later = DeadLetter::TRIED + 2;
    assert_eq!((due("a", 0), due("a", later), due("other", 0)), (vec![0, 1], vec![3], vec![1, 3]));
    settle(&mut state, "a", 0, LetterOutcome::Delivered);
    let refused = || LetterOutcome::Refused {
        class: "too-large".to_owned(),
        reason: "1 MiB".to_owned(),
        time_ms: 77,
    };
    settle(&mut state, "a", 1, refused());
    settle(&mut state, "other", 1, LetterOutcome::Forwarded);
    assert_eq!((due("a", 0), due("other", 0)), (vec![3], vec![3]));
    let again = letters.get(1).unwrap().unwrap();
    assert_eq!(
        (again.state, &*again.class, &*again.reason),
        (LetterState::Kept, "too-large", "1 MiB")
    );
    assert_eq!((again.attempts, again.first_ms, again.time_ms, again.forward), (4, 1, 77, None));
    // Dropped while it was on its way, and delivered all the same.
    assert_eq!(state.drop_letters(&Letters::Numbers(vec![3])).unwrap(), 1);
    assert_eq!((due("a", 0), due("other", 0), letters.counts()["a"].dropped), (vec![], vec![], 1));
    settle(&mut state, "a", 3, LetterOutcome::Delivered);
    settle(&mut state, "other", 3, LetterOutcome::Forwarded);
    // What is shown as a counter does not fall.
    let counts = letters.counts()["a"];
    assert_eq!((counts.dropped, counts.arrived, counts.events), (1, 1, 3));
    drop(state);
    let (mut state, _) = State::open(&directory, 1 << 20, 0).unwrap();
    assert_eq!(state.dead_letters().counts()["a"], counts);
    assert!(state.drop_letters(&Letters::Numbers(vec![3])).is_err());
}

/// As when an fsync fails whose write is in the file.
#[test]
fn counts_do_not_drift_when_a_failed_commit_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let directory = crate::journal::open(dir.path()).unwrap();
    let (mut state, _) = State::open(&directory, 1 << 20, 0).unwrap();
    add(&mut state, vec![letter(1, "a", 9), letter(2, "a", 9)]);
    state.drop_letters(&Letters::Numbers(vec![1])).unwrap();
    let commit = StateCommit {
        dead_letters: vec![letter(3, "a", 9)],
        letter_fates: [(
            "a".to_owned(),
            vec![LetterFate { number: 0, outcome: LetterOutcome::Delivered }],
        )]
        .into(),
        ..StateCommit::default()
    };
    let mut dead = state.dead.clone();
    let failed = state.store.with_database(|database| {
        let transaction = database.begin_write()?;
        dead.write(&transaction, &commit.dead_letters, &commit.letter_fates)?;
        transaction.commit()?;
        Err::<(), _>(redb::Error::PreviousIo)
    });
    state.dead.in_doubt = failed.is_err();
    state.commit(&commit).unwrap();
    let counts = state.dead_letters().counts()["a"];
    assert_eq!((counts.letters, counts.events, counts.dropped), (1, 1, 1));
    drop(state);
    let (state, _) = State::open(&directory, 1 << 20, 0).unwrap();
    assert_eq!(state.dead_letters().counts()["a"], counts);
}

/// As when an fsync fails whose write is in the file, and a command comes before the commit is made
/// again.
#[test]
fn letters_are_not_changed_while_a_failed_commit_is_to_be_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let directory = crate::journal::open(dir.path()).unwrap();
    let (mut state, _) = State::open(&directory, 1 << 20, 0).unwrap();
    add(&mut state, vec![letter(1, "a", 9)]);
    let again = StateCommit { dead_letters: vec![letter(2, "a", 9)], ..StateCommit::default() };
    let mut dead = state.dead.clone();
    let failed = state.store.with_database(|database| {
        let transaction = database.begin_write()?;
        dead.write(&transaction, &again.dead_letters, &again.letter_fates)?;
        transaction.commit()?;
        Err::<(), _>(redb::Error::PreviousIo)
    });
    state.note_failed_commit();
    assert!(failed.is_err());
    let all = Letters::Of { sink: None, class: None };
    let refused = state.drop_letters(&all).unwrap_err();
    assert!(matches!(refused, LetterError::Store(_)), "{refused}");
    state.commit(&again).unwrap();
    assert_eq!(state.drop_letters(&all).unwrap(), 2);
    let counts = state.dead_letters().counts()["a"];
    assert_eq!((counts.events, counts.dropped), (0, 2));
}
