//! The checkpointer: its words, and what it does beside saving.

use std::path::Path;

use super::*;
use crate::{
    bridge::{JournalOptions, Watchdog, heard::Levels, state::restore::Restored},
    event::Record,
    journal::{DeadLetter, DeadLetterQuery, LogOptions, SinkState},
};

fn checkpointer(journal: &Path) -> Checkpointer {
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
    let dead_letters = restored.state.dead_letters();
    let identified = (Arc::default(), Arc::default());
    let log = restored.log.handle();
    let view =
        BridgeView::new(Vec::new(), log, dead_letters, None, identified, Watchdog::default());
    let Restored { state, directory, seen, applied, .. } = restored;
    let stores = Stores { state, directory, seen, objects: None, applied, heartbeats: Vec::new() };
    Checkpointer::new(stores, &view, Vec::new(), None, watch::channel(()).0)
}

#[tokio::test]
async fn a_state_that_a_command_failed_on_is_opened_again_with_nothing_to_save() {
    let dir = tempfile::tempdir().unwrap();
    let mut checkpointer = checkpointer(dir.path());
    let letters = checkpointer.stores.state.dead_letters();
    checkpointer.stores.state.close();
    assert!(letters.list(&DeadLetterQuery::default(), |_| ()).is_err());
    let taken = checkpointer.take(false, false);
    checkpointer.save(taken, false);
    assert!(letters.list(&DeadLetterQuery::default(), |_| ()).is_ok());
}

#[tokio::test]
async fn the_view_seen_is_saved_soon_where_the_journal_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let mut checkpointer = checkpointer(dir.path());
    let demand = checkpointer.stores.seen.demand();
    let mut save = || {
        let taken = checkpointer.take(false, false);
        checkpointer.save(taken, false);
    };
    save();
    std::fs::remove_file(dir.path().join("state.redb")).unwrap();
    save();
    assert_eq!(*demand.borrow(), Demand::None, "the damage is found by then, and not reported");
    save();
    assert_eq!(*demand.borrow(), Demand::Soon);
}

#[tokio::test(start_paused = true)]
async fn positions_that_cannot_be_written_are_said_once_and_so_is_their_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut checkpointer = checkpointer(dir.path());
    let (levels, _guard) = Levels::heard();
    let mut save = |times: u32| {
        for _ in 0..times {
            checkpointer.last_positions -= POSITIONS_EVERY;
            let taken = checkpointer.take(false, false);
            checkpointer.save(taken, false);
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
    let mut checkpointer = checkpointer(dir.path());
    let (levels, _guard) = Levels::heard();
    // There is room for two of them and not for three.
    let mut put_away = |seq| {
        let record = Record { seq, envelope: vec![b'x'; 400 << 10].into() };
        let letter = DeadLetter::new("a", &record, "invalid", "no", 1, [1, 2]);
        let sinks = [("a".to_owned(), SinkState::default())].into();
        let commit = StateCommit { sinks, dead_letters: vec![letter], ..StateCommit::default() };
        checkpointer.save((commit, Waiting::new()), false);
        levels.take()
    };
    let said: Vec<usize> = (1..=5).map(|seq| put_away(seq).len()).collect();
    assert_eq!(said, [0, 0, 1, 0, 0]);
    tokio::time::advance(OVERFLOW_TOLD_EVERY).await;
    assert_eq!(put_away(6), [tracing::Level::ERROR]);
}
