//! A file of the journal that the disk does not give at the start, for once or for longer.

use std::path::Path;

use futures_util::future::BoxFuture;

use super::*;
use crate::{
    bridge::{Sink, transport::Outcome},
    event::Batch,
    journal::faults,
};

/// EIO, ENOMEM, ENFILE, EMFILE, ETIMEDOUT, ESTALE: nothing of what is in a file.
const ERRORS: [i32; 6] = [5, 12, 23, 24, 110, 116];

struct Nowhere;

impl Sink for Nowhere {
    fn send<'a>(&'a self, _: &'a Batch) -> BoxFuture<'a, Outcome> {
        Box::pin(std::future::ready(Outcome::Delivered))
    }
}

fn sink() -> SinkOptions {
    SinkOptions {
        correlate: CorrelateMode::None,
        start: SinkStart::Oldest,
        ..SinkOptions::new("out", "nowhere", Arc::new(Nowhere))
    }
}

/// A journal with records in several segments, of which the state knows the first half and the note of
/// what was delivered most.
fn make_sample(options: &JournalOptions) {
    let append_some = |restored: &mut Restored, versions: std::ops::Range<u64>| {
        for version in versions {
            let uid = format!("{version:030000}");
            append(&mut restored.log, &uid, version);
        }
    };
    let mut restored = Restored::open(options).unwrap();
    append_some(&mut restored, 1..6);
    restored.sinks.sink(&sink(), None).map_err(|_| "no sink").unwrap();
    drop(restored);
    let mut restored = Restored::open(options).unwrap();
    let sinks = [("out".to_owned(), SinkState::default())].into();
    restored.state.commit(&StateCommit { sinks, ..StateCommit::default() }).unwrap();
    save(&mut restored);
    append_some(&mut restored, 6..11);
    let mut had = restored.sinks.sink(&sink(), None).map_err(|_| "no sink").unwrap().had;
    for sequence in 1..10 {
        had.add(sequence);
    }
    had.write(now_ms(), Standing::default);
    Positions::default().store(&restored.directory).unwrap();
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &to);
        } else {
            std::fs::copy(path, to).unwrap();
        }
    }
}

/// The start of a bridge with one sink. Answers whether all is there that the sample has, or why it
/// does not start.
fn starts_whole(options: &JournalOptions) -> Result<bool, String> {
    let restored = Restored::open(options).map_err(|error| error.to_string())?;
    let from = restored.sinks.sink(&sink(), None).map_err(|error| error.to_string())?;
    let whole = restored.directory.damages().count() == 0
        && restored.log.handle().tail().next == 11
        && (1..11).all(|n| known(&restored, &format!("{n:030000}")) == Some(n))
        && from.had.earlier().delivered.iter().eq([&(1..10)])
        && restored.sinks.positions.is_none();
    Ok(whole)
}

#[test]
fn a_start_goes_on_after_a_read_that_fails_once_wherever_it_comes() {
    let dir = tempfile::tempdir().unwrap();
    let (sample, trial) = (dir.path().join("sample"), dir.path().join("trial"));
    let mut options = options(&sample);
    // Of 64 KiB each.
    options.log.retention_size = 1 << 20;
    make_sample(&options);
    options.path.clone_from(&trial);
    let starts = |failing: Vec<(u32, i32)>| {
        let _ = std::fs::remove_dir_all(&trial);
        copy(&sample, &trial);
        faults::fail(failing);
        let started = starts_whole(&options);
        (started, faults::fail([]))
    };
    let (started, reads) = starts(Vec::new());
    assert_eq!(started, Ok(true));
    assert!(reads > 15, "{reads}");
    for read in 0..reads {
        let code = ERRORS[read as usize % ERRORS.len()];
        assert_eq!(starts(vec![(read, code)]).0, Ok(true), "read {read} of {reads}");
    }
    // For as long as it is tried.
    for read in 0..reads {
        let (started, _) = starts((read..read + 1000).map(|read| (read, 5)).collect());
        let said = started.unwrap_err();
        assert!(
            said.contains(": Input/output error (os error 5)\nhint: the file was left"),
            "{said}"
        );
        assert_eq!(starts_whole(&options), Ok(true), "after read {read} of {reads}");
    }
}
