//! A state that cannot be read for once, or for longer.

use super::{super::file::faults, *};

/// EIO, ENOMEM, ENFILE, EMFILE, ETIMEDOUT, ESTALE: nothing of what is in the file.
const ERRORS: [i32; 6] = [5, 12, 23, 24, 110, 116];

/// A directory with the sample: closed in order, or left as by a kill, so that opening repairs it.
fn with_sample(killed: bool) -> (tempfile::TempDir, Directory) {
    let dir = tempfile::tempdir().unwrap();
    let directory = crate::journal::open(dir.path()).unwrap();
    let (mut state, _) = State::open(&directory, LIMIT, 0).unwrap();
    state.commit(&sample()).unwrap();
    let (path, copy) = (dir.path().join(NAME), dir.path().join("copy"));
    if killed {
        std::fs::copy(&path, &copy).unwrap();
    }
    drop(state);
    if killed {
        std::fs::rename(&copy, &path).unwrap();
    }
    (dir, directory)
}

#[test]
fn a_read_that_fails_is_no_damage_wherever_it_comes() {
    for killed in [false, true] {
        let (dir, directory) = with_sample(killed);
        let opens_whole = || {
            let (state, loaded) = State::open(&directory, LIMIT, 0).unwrap();
            assert!(is_sample(&state, &loaded) && loaded.set_aside.is_none());
            assert_eq!(state.dead_letters().counts().len(), 2);
        };
        let before = std::fs::read(dir.path().join(NAME)).unwrap();
        faults::fail([]);
        opens_whole();
        let reads = faults::fail([]);
        assert!(reads > 3, "{reads}");
        let mut refused = 0;
        for read in 0..reads {
            std::fs::write(dir.path().join(NAME), &before).unwrap();
            let code = ERRORS[read as usize % ERRORS.len()];
            faults::fail([(read, code)]);
            match State::open(&directory, LIMIT, 0) {
                Err(error @ OpenError::Unread { .. }) => {
                    refused += 1;
                    let said = error.to_string();
                    assert!(said.contains("state.redb") && said.contains("\nhint: "), "{said}");
                }
                Err(error) => panic!("read {read}: {error}"),
                Ok((_, loaded)) => assert!(loaded.set_aside.is_none(), "read {read}"),
            }
            faults::fail([]);
            opens_whole();
        }
        assert!(refused > 3, "{refused} of {reads}");
        assert_eq!(directory.damages().count(), 0);
    }
}

#[test]
fn a_file_that_ends_too_soon_or_is_none_is_damage_and_set_aside() {
    let (dir, directory) = with_sample(false);
    let path = dir.path().join(NAME);
    let length = std::fs::metadata(&path).unwrap().len();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(length / 2).unwrap();
    let (state, loaded) = State::open(&directory, LIMIT, 0).unwrap();
    assert!(loaded.set_aside.is_some());
    drop(state);
    let (dir, directory) = with_sample(false);
    let path = dir.path().join(NAME);
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let (_state, loaded) = State::open(&directory, LIMIT, 0).unwrap();
    assert!(loaded.set_aside.is_some());
}
