//! Dead letters of one namespace do not take the place of others'.

use super::*;

fn of(namespace: &str, seq: u64, bytes: usize) -> DeadLetter {
    let event = format!(
        r#"{{"metadata":{{"namespace":"{namespace}"}},"message":"{}"}}"#,
        "x".repeat(bytes)
    );
    let envelope = format!(r#"{{"id":"uid-{seq}","delta":1,"replayed":false,"event":{event}}}"#);
    DeadLetter { envelope: envelope.into(), ..letter(seq, "audit", 0) }
}

fn open(directory: &Directory) -> State {
    State::open(directory, 64 << 10, 0).unwrap().0
}

#[test]
fn the_oldest_of_a_namespace_that_has_more_than_its_share_go_first() {
    let dir = tempfile::tempdir().unwrap();
    let directory = crate::journal::open(dir.path()).unwrap();
    let mut state = open(&directory);
    // Alone, it has all.
    add(&mut state, (0..14).map(|seq| of("loud", seq, 4096)).collect());
    assert_eq!(state.dead_letters().namespaces()[0].letters, 14);
    add(&mut state, (100..120).map(|seq| of("quiet", seq, 100)).collect());
    drop(state);
    let mut state = open(&directory);
    for seq in 200..300 {
        add(&mut state, vec![of("loud", seq, 4096)]);
    }
    let letters = state.dead_letters();
    let kept = seqs(&letters, &query(None, 1000, None));
    assert_eq!(kept.iter().filter(|seq| (100..120).contains(*seq)).count(), 20);
    let loud: Vec<_> = kept.into_iter().filter(|seq| !(100..120).contains(seq)).collect();
    assert_eq!(loud, (300 - loud.len() as u64..300).rev().collect::<Vec<_>>(), "the newest stay");
    let namespaces = letters.namespaces();
    let names: Vec<_> = namespaces.iter().map(|n| (&*n.namespace, n.letters)).collect();
    assert_eq!(names, [("loud", loud.len() as u64), ("quiet", 20)]);
    let counts = letters.counts()["audit"];
    assert_eq!(counts.letters + counts.overflowed, 134);
    assert_eq!(namespaces.iter().map(|n| n.bytes).sum::<u64>(), counts.bytes);
    assert!(counts.bytes <= 64 << 10);
}

#[test]
fn where_none_has_more_than_its_share_the_oldest_of_all_go() {
    let dir = tempfile::tempdir().unwrap();
    let mut state = open(&crate::journal::open(dir.path()).unwrap());
    for seq in 0..200 {
        add(&mut state, vec![of(&format!("n{}", seq % 8), seq, 2048)]);
    }
    let kept = seqs(&state.dead_letters(), &query(None, 1000, None));
    assert_eq!(kept, (200 - kept.len() as u64..200).rev().collect::<Vec<_>>());
    assert!(kept.len() > 20);
}

fn parked(namespace: &str, seq: u64, bytes: usize) -> DeadLetter {
    let class = DeadLetter::BLOCKED.to_owned();
    DeadLetter { class, state: LetterState::RetryRequested, ..of(namespace, seq, bytes) }
}

#[test]
fn parked_letters_take_a_quarter_for_a_namespace_and_half_in_all_and_none_goes_for_want_of_room() {
    let dir = tempfile::tempdir().unwrap();
    let directory = crate::journal::open(dir.path()).unwrap();
    let mut state = open(&directory);
    let letters = state.dead_letters();
    let mut seq = 0;
    for (namespace, most) in [("a", 16 << 10), ("b", 16 << 10)] {
        while letters.has_room_to_park(namespace, 1400, 1400) {
            seq += 1;
            add(&mut state, vec![parked(namespace, seq, 1024)]);
        }
        let of_namespace = |n: &&NamespaceLetters| n.namespace == namespace;
        let bytes = letters.namespaces().iter().find(of_namespace).map_or(0, |n| n.bytes);
        assert!((most - most / 4..=most).contains(&bytes), "{namespace}: {bytes}");
    }
    assert!(!letters.has_room_to_park("a", 4096, 0) && !letters.has_room_to_park("d", 0, 4096));
    add(&mut state, (100..300).map(|seq| of("loud", seq, 1024)).collect());
    let counts = letters.counts()["audit"];
    assert_eq!((counts.parked, counts.due), (seq, seq));
    assert!(counts.overflowed > 0 && counts.bytes <= 64 << 10);
    // They come by namespace, the oldest first, but those that were never sent before them.
    let due = letters.due_namespaces("audit").unwrap();
    assert_eq!(due.iter().map(|(namespace, _)| &**namespace).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(due[1].1, 0, "they were sent");
    assert_eq!(letters.due_namespaces("other").unwrap(), []);
    let due = letters.due("audit", "b", 0..u64::MAX, 2, 1 << 20).unwrap();
    assert!(due[0].seq + 1 == due[1].seq && due[1].seq < seq);
    add(&mut state, vec![DeadLetter { attempts: 0, ..parked("b", 500, 10) }]);
    let due = letters.due("audit", "b", 0..u64::MAX, 1, 1 << 20).unwrap();
    assert_eq!(
        (due[0].seq, letters.due_namespaces("audit").unwrap()[1].1),
        (500, due[0].number + 1)
    );
    assert_eq!(letters.due("audit", "b", 0..u64::MAX, 9, 10).unwrap().len(), 1, "by size");
    // Without any others they have to go where there is less room than was said.
    drop((state, letters));
    let (mut state, _) = State::open(&directory, 8 << 10, 0).unwrap();
    add(&mut state, vec![of("loud", 400, 10)]);
    let counts = state.dead_letters().counts()["audit"];
    assert!(counts.bytes <= 8 << 10 && counts.parked == counts.letters, "{counts:?}");
}

#[test]
fn letters_that_were_due_in_an_earlier_journal_are_due() {
    let dir = tempfile::tempdir().unwrap();
    let directory = crate::journal::open(dir.path()).unwrap();
    let mut state = open(&directory);
    add(&mut state, vec![parked("a", 1, 10), of("a", 2, 10)]);
    let made = state.store.with_database(|database| {
        let transaction = database.begin_write()?;
        transaction.delete_table(dead_letters::DUE)?;
        transaction.open_table(dead_letters::DUE_BY_SINK)?.insert(("audit", 0), ())?;
        transaction.commit()?;
        Ok(())
    });
    made.unwrap();
    drop(state);
    let state = open(&directory);
    let due = state.dead_letters().due("audit", "a", 0..u64::MAX, 9, 1 << 20).unwrap();
    assert_eq!(due.iter().map(|letter| letter.seq).collect::<Vec<_>>(), [1]);
}
