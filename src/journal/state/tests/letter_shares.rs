//! Dead letters of one namespace do not take the place of others'.

use super::*;
use crate::journal::state::letter_shares::LetterShares;

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
    let directory = Directory::open(dir.path()).unwrap();
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
fn oldest_letters_of_all_go_where_none_has_more_than_its_share() {
    let dir = tempfile::tempdir().unwrap();
    let mut state = open(&Directory::open(dir.path()).unwrap());
    for seq in 0..200 {
        add(&mut state, vec![of(&format!("n{}", seq % 8), seq, 2048)]);
    }
    let kept = seqs(&state.dead_letters(), &query(None, 1000, None));
    assert_eq!(kept, (200 - kept.len() as u64..200).rev().collect::<Vec<_>>());
    assert!(kept.len() > 20);
}

/// Each insertion of a flood makes room for one. What stands before the oldest of the flood is passed over
/// once, and not with each.
#[test]
fn a_flood_reads_past_the_letters_of_others_once() {
    let mut shares = LetterShares::default();
    let envelope = |namespace| of(namespace, 0, 1).envelope;
    for number in 0..1000 {
        shares.count(number, &envelope("quiet"), 100, u64::saturating_add);
    }
    for number in 1000..1010 {
        shares.count(number, &envelope("loud"), 100, u64::saturating_add);
    }
    assert_eq!((shares.from("quiet"), shares.from("loud"), shares.from("none")), (0, 1000, 0));
    shares.count(1000, &envelope("loud"), 100, u64::saturating_sub);
    shares.gone_below("loud", 1001);
    // Of one that is written anew the place stays.
    shares.count(1005, &envelope("loud"), 100, u64::saturating_sub);
    shares.count(1005, &envelope("loud"), 100, u64::saturating_add);
    assert_eq!(shares.from("loud"), 1001);
    shares.gone_below("none", 7);
    assert_eq!(shares.from("none"), 0);
}
