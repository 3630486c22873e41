//! What the keeper says, and what it does beside saving.

use std::path::Path;

use tidings_log::LogOptions;

use super::*;
use crate::{
    bridge::{JournalOptions, Watchdog, heard::Levels, restore::Restored},
    journal::{DeadLetter, LetterQuery, LetterState, SinkState},
};

fn keeper(journal: &Path) -> Keeper {
    let restored = Restored::open(&JournalOptions {
        path: journal.to_owned(),
        log: LogOptions {
            retention_size: 1 << 20,
            retention_age: Duration::from_hours(1),
            sync: Sync::Never,
        },
        dead_letters: 1 << 20,
        max_event: 256 << 10,
    })
    .unwrap();
    Keeper {
        state: restored.state,
        directory: restored.directory,
        sinks: Sinks::default(),
        saving: Vec::new(),
        seen: restored.seen,
        objects: None,
        log: restored.log.handle(),
        cluster: Arc::default(),
        sources: Vec::new(),
        saved_cluster_uid: None,
        saved_heartbeats: Vec::new(),
        own_writes: None,
        applied: restored.applied,
        last_positions: Instant::now(),
        last_seen: Instant::now(),
        state_error: Arc::default(),
        positions_failing: false,
        overflow_told: None,
        pulse: Watchdog::default().pulse("the keeper"),
        letters_changed: watch::channel(Retries::default()).0,
    }
}

#[tokio::test]
async fn a_state_that_a_command_failed_on_is_opened_again_with_nothing_to_save() {
    let dir = tempfile::tempdir().unwrap();
    let mut keeper = keeper(dir.path());
    let letters = keeper.state.dead_letters();
    keeper.state.close();
    assert!(letters.list(&LetterQuery::default()).is_err());
    let taken = keeper.take(false, false);
    keeper.save(taken, false);
    assert!(letters.list(&LetterQuery::default()).is_ok());
}

#[tokio::test(start_paused = true)]
async fn positions_that_cannot_be_written_are_said_once_and_so_is_their_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut keeper = keeper(dir.path());
    let (levels, _guard) = Levels::heard();
    let mut save = |times: u32| {
        for _ in 0..times {
            keeper.last_positions -= POSITIONS_EVERY;
            let taken = keeper.take(false, false);
            keeper.save(taken, false);
        }
    };
    // Written under this name first.
    let in_the_way = dir.path().join("positions.json.tmp");
    for _ in 0..2 {
        std::fs::create_dir(&in_the_way).unwrap();
        save(3);
        assert_eq!(levels.take(), [tracing::Level::WARN]);
        std::fs::remove_dir(&in_the_way).unwrap();
        save(3);
        assert_eq!(levels.take(), [tracing::Level::INFO]);
    }
}

#[tokio::test(start_paused = true)]
async fn that_dead_letters_go_for_want_of_room_is_said_once_in_a_while() {
    let dir = tempfile::tempdir().unwrap();
    let mut keeper = keeper(dir.path());
    let (levels, _guard) = Levels::heard();
    // There is room for two of them and not for three.
    let mut put_away = |seq| {
        let letter = DeadLetter {
            number: 0,
            state: LetterState::Kept,
            forward: None,
            sink: "a".to_owned(),
            seq,
            id: format!("uid-{seq}"),
            class: "invalid".to_owned(),
            reason: "no".to_owned(),
            attempts: 1,
            first_ms: 1,
            time_ms: 2,
            unidentified: 0,
            envelope: vec![b'x'; 400 << 10].into(),
        };
        let sinks = [("a".to_owned(), SinkState::default())].into();
        let commit = StateCommit { sinks, dead_letters: vec![letter], ..StateCommit::default() };
        keeper.save((commit, Waiting::new()), false);
        levels.take()
    };
    let said: Vec<usize> = (1..=5).map(|seq| put_away(seq).len()).collect();
    assert_eq!(said, [0, 0, 1, 0, 0]);
    tokio::time::advance(OVERFLOW_TOLD_EVERY).await;
    assert_eq!(put_away(6), [tracing::Level::ERROR]);
}
