//! Segment files of any bytes: the log opens, reads in order to its end, and takes what comes next.
//!
//! The first two bytes say how long the first of two segments is.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use tidings_log::{Directory, FrameBuilder, Log, LogOptions, OpenError, Resume, Sync};

const OPTIONS: LogOptions = LogOptions {
    retention_size: 1 << 20,
    retention_age: Duration::from_secs(3600),
    sync: Sync::Never,
};

fuzz_target!(|data: &[u8]| {
    let [low, high, bytes @ ..] = data else { return };
    let (first, second) = bytes.split_at(bytes.len().min(u16::from_le_bytes([*low, *high]).into()));
    let dir = tempfile::tempdir().expect("a directory");
    let directory = Directory::open(dir.path(), &[]).expect("a journal directory");
    for (name, bytes) in [("00000000000000000001.log", first), ("00000000000000000004.log", second)]
    {
        if !bytes.is_empty() {
            std::fs::write(dir.path().join(name), bytes).expect("a file");
        }
    }
    let (mut log, opened) = match Log::open(&directory, OPTIONS, 9, 1_000) {
        Ok(opened) => opened,
        Err(OpenError::Newer { .. }) => return,
        Err(error) => panic!("damage keeps it from opening: {error}"),
    };
    assert!(opened.cut_bytes <= bytes.len() as u64);
    let read_all = |log: &Log| {
        let mut reader = log.handle().reader(0);
        let (mut records, mut next) = (0u64, 0);
        loop {
            let frames = reader.read(1 << 16).expect("damage is stepped over");
            if frames.is_empty() {
                break records;
            }
            for frame in frames {
                for (seq, _) in frame.records() {
                    assert!(seq >= next, "{seq} before {next}");
                    next = seq + 1;
                    records += 1;
                }
            }
        }
    };
    let before = read_all(&log);
    let mut builder = FrameBuilder::new("*".into(), Resume::default());
    builder.record(|out| out.extend_from_slice(b"{\"id\":\"u-1\"}"));
    let appended = log.append(&mut builder, 2_000).expect("it takes what comes next");
    assert!(appended.first > 9, "a sequence that a view knows is given out again");
    // Whole segments of different logs may contradict each other: then a reader that comes from
    // the one takes nothing of the other, nor of what follows it.
    let of_one_log = first.is_empty() || second.is_empty();
    let after = read_all(&log);
    assert!(after == before + 1 || !of_one_log && after == before, "{after} after {before}");
    let from_there = log.handle().reader(appended.first).read(1 << 16).expect("it can be read");
    assert_eq!(from_there.len(), 1, "what was appended is not read from there");
    drop(log);
    drop(directory);
    let directory = Directory::open(dir.path(), &[]).expect("a journal directory");
    let (log, _) = Log::open(&directory, OPTIONS, 0, 3_000).expect("it opens again");
    assert_eq!(read_all(&log), after, "what was read once is read again");
});
