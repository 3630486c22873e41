//! A state store with any bytes changed, and a `positions.json` of any bytes: both open, the damaged
//! one is set aside, and what is committed then is there after the next opening.
//!
//! The input is a list of changes: four bytes, of which three say where and one how many of the
//! bytes that follow are put there. What is behind the last whole change is `positions.json`.
#![no_main]

use std::{collections::BTreeMap, sync::OnceLock};

use libfuzzer_sys::fuzz_target;
use tidings::journal::{LetterQuery, OpenError, Positions, SinkState, Standing, State, StateCommit};
use tidings_log::Position;

/// Enough for tests; the newest are kept.
const DEAD_LETTER_BYTES: u64 = 1 << 20;

fn commit(next: u64) -> StateCommit {
    let position = Position { next, skipped: 0 };
    let standing = Standing { position, ..Standing::default() };
    let state = SinkState { standing, ..SinkState::default() };
    StateCommit { sinks: BTreeMap::from([("audit".to_owned(), state)]), ..StateCommit::default() }
}

/// A store as the program leaves it.
fn store() -> &'static [u8] {
    static STORE: OnceLock<Vec<u8>> = OnceLock::new();
    STORE.get_or_init(|| {
        // The library below says what it finds by panics, which are caught; only what nobody
        // catches is a crash.
        std::panic::set_hook(Box::new(|_| {}));
        let dir = tempfile::tempdir().expect("a directory");
        let directory = tidings::journal::open(dir.path()).expect("a journal directory");
        let (mut state, _) = State::open(&directory, DEAD_LETTER_BYTES, 0).expect("a new store");
        for next in 1..20 {
            state.commit(&commit(next)).expect("a commit");
        }
        drop(state);
        std::fs::read(dir.path().join("state.redb")).expect("the file")
    })
}

fuzz_target!(|data: &[u8]| {
    let mut bytes = store().to_vec();
    let mut rest = data;
    while let [high, middle, low, count, more @ ..] = rest {
        let count = usize::from(*count);
        if more.len() < count {
            break;
        }
        let at = (usize::from(*high) << 16 | usize::from(*middle) << 8 | usize::from(*low))
            % bytes.len();
        let (put, left) = more.split_at(count);
        let end = (at + count).min(bytes.len());
        bytes[at..end].copy_from_slice(&put[..end - at]);
        rest = left;
    }
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("state.redb"), bytes).expect("a file");
    std::fs::write(dir.path().join("positions.json"), rest).expect("a file");
    let directory = tidings::journal::open(dir.path()).expect("a journal directory");
    if let Err(error) = Positions::load(&directory) {
        assert!(!error.to_string().is_empty());
    }
    let mut state = match State::open(&directory, DEAD_LETTER_BYTES, 1) {
        Ok((state, _)) => state,
        Err(OpenError::Newer { .. }) => return,
        Err(error) => panic!("damage keeps it from opening: {error}"),
    };
    // A page that opening did not look at may be damaged: an error, and the next start sets it aside.
    let committed = state.commit(&commit(77)).is_ok();
    let query = LetterQuery { sink: None, class: None, limit: 10, before: None };
    let letters = state.dead_letters().list(&query);
    drop(state);
    let Ok((_, loaded)) = State::open(&directory, DEAD_LETTER_BYTES, 2) else {
        panic!("it does not open again: {letters:?}");
    };
    if committed && loaded.set_aside.is_none() {
        assert_eq!(loaded.sinks["audit"].standing.position.next, 77);
    }
});
