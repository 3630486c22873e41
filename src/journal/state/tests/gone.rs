//! A state that is taken away while it is in use.

use super::*;

#[test]
fn a_file_that_is_taken_away_is_written_again_and_stated() {
    for with_directory in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        let directory = crate::journal::open(dir.path()).unwrap();
        let (mut state, _) = State::open(&directory, LIMIT, 0).unwrap();
        state.commit(&sample()).unwrap();
        state.keep_in_place(1).unwrap();
        assert_eq!(directory.damages().count(), 0);
        if with_directory {
            std::fs::remove_dir_all(dir.path()).unwrap();
        } else {
            std::fs::remove_file(&path).unwrap();
        }
        state.keep_in_place(2).unwrap();
        let said: Vec<_> = directory.damages().newest().into_iter().map(|d| d.file).collect();
        assert!(said.contains(&NAME.to_owned()), "{said:?}");
        assert_eq!(said.len(), 1 + usize::from(with_directory));
        // It is read and committed to as before.
        assert_eq!(state.seen().get(UidKey(8)).unwrap(), Some(entry(8)));
        state.commit(&StateCommit { applied: 40, ..StateCommit::default() }).unwrap();
        drop(state);
        let (state, loaded) = State::open(&directory, LIMIT, 0).unwrap();
        assert!(is_sample(&state, &loaded) && loaded.set_aside.is_none());
        assert_eq!(state.dead_letters().counts().len(), 2);
    }
}

#[test]
fn while_it_cannot_be_written_again_none_is_made_that_would_know_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let directory = crate::journal::open(dir.path()).unwrap();
    let (mut state, _) = State::open(&directory, LIMIT, 0).unwrap();
    state.commit(&sample()).unwrap();
    std::fs::remove_dir_all(dir.path()).unwrap();
    std::fs::write(dir.path(), "a file").unwrap();
    let error = state.keep_in_place(2).unwrap_err().to_string();
    assert!(error.contains("state.redb"), "{error}");
    state.close();
    state.commit(&StateCommit { applied: 41, ..StateCommit::default() }).unwrap_err();
    std::fs::remove_file(dir.path()).unwrap();
    state.commit(&StateCommit { applied: 41, ..StateCommit::default() }).unwrap_err();
    state.keep_in_place(3).unwrap();
    state.commit(&StateCommit { applied: 40, ..StateCommit::default() }).unwrap();
    drop(state);
    let (state, loaded) = State::open(&directory, LIMIT, 0).unwrap();
    assert!(is_sample(&state, &loaded));
}
