//! Files that are taken away while they are in use.

use super::*;
use crate::DamageKind;

fn damages(log: &Log) -> Vec<(DamageKind, String)> {
    let newest = log.handle().damages().newest();
    newest.into_iter().map(|damage| (damage.kind, damage.file)).collect()
}

#[test]
fn a_last_segment_that_is_taken_away_is_written_again_and_stated() {
    for sync in [Sync::Always, Sync::Interval(Duration::from_secs(1)), Sync::Never] {
        let bench = Bench::new(sync);
        let (mut log, _) = bench.open();
        append(&mut log, "one", 1);
        log.sync(1).unwrap();
        append(&mut log, "two", 2);
        let mut before = log.handle().reader(1);
        assert_eq!(texts(&before.read(1).unwrap()), ["one"]);
        let name = bench.segments().remove(0);
        fs::remove_file(&name).unwrap();
        let mut behind = log.handle().reader(1);
        for _ in 0..2 {
            // Nothing is passed over: it is there again in a moment.
            assert_eq!(behind.read(usize::MAX).unwrap_err().kind(), io::ErrorKind::NotFound);
        }
        // Before anybody has noticed.
        append(&mut log, "three", 3);
        log.keep_in_place(5).unwrap();
        append(&mut log, "four", 4);
        assert_eq!(texts(&behind.read(usize::MAX).unwrap()), ["one", "two", "three", "four"]);
        assert_eq!(texts(&before.read(usize::MAX).unwrap()), ["two", "three", "four"]);
        let file = name.file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(damages(&log), [(DamageKind::File, file.clone())]);
        log.keep_in_place(6).unwrap();
        fs::remove_file(&name).unwrap();
        log.keep_in_place(7).unwrap();
        fs::remove_file(&name).unwrap();
        log.keep_in_place(8).unwrap();
        assert_eq!(damages(&log).len(), 3, "each time is told");
        drop(log);
        let (log, opened) = bench.open();
        assert_eq!(read_all(&log), ["one", "two", "three", "four"]);
        assert_eq!((opened.damaged, opened.cut_bytes, version_of(&opened.resume)), (0, 0, Some(4)));
    }
}

#[test]
fn a_last_segment_that_is_cut_is_stated_and_the_log_goes_on_behind_it() {
    for sync in [Sync::Always, Sync::Interval(Duration::from_secs(1)), Sync::Never] {
        for (unlinked, half) in [(true, false), (false, false), (true, true), (false, true)] {
            let bench = Bench::new(sync);
            let (mut log, _) = bench.open();
            append(&mut log, "one", 1);
            log.sync(1).unwrap();
            let name = bench.segments().remove(0);
            let whole = fs::metadata(&name).unwrap().len();
            append(&mut log, "two", 2);
            let file = fs::File::options().write(true).open(&name).unwrap();
            // A frame and the beginning of another, or nothing.
            file.set_len(if half { whole + 9 } else { 0 }).unwrap();
            if unlinked {
                fs::remove_file(&name).unwrap();
            }
            log.keep_in_place(3).unwrap();
            let file = name.file_name().unwrap().to_str().unwrap().to_owned();
            assert_eq!(damages(&log), [(DamageKind::File, file)], "before anybody has read it");
            log.keep_in_place(4).unwrap();
            append(&mut log, "three", 4);
            let left = read_all(&log);
            let mut expected = vec!["one".to_owned(), "three".to_owned()];
            expected.drain(..usize::from(unlinked || !half));
            assert_eq!(left, expected, "{unlinked} {half}");
            assert_eq!(log.handle().damages().records(), 3 - left.len() as u64);
            drop(log);
            let (log, opened) = bench.open();
            assert_eq!(read_all(&log), left);
            assert_eq!((opened.tail.next, version_of(&opened.resume)), (4, Some(4)));
        }
    }
}

#[test]
fn a_directory_that_is_taken_away_is_made_again_with_what_is_open_and_the_rest_is_stated() {
    let bench = Bench::interval();
    let (mut log, _) = bench.open();
    fill(&mut log, 9);
    assert!(bench.segments().len() > 2);
    let mut reader = log.handle().reader(1);
    let had = texts(&reader.read(1).unwrap()).len() as u64;
    fs::remove_dir_all(bench.dir.path()).unwrap();
    log.keep_in_place(5).unwrap();
    assert_eq!(bench.segments().len(), 1);
    append(&mut log, "after", 100);
    let mut last = reader.position().ordinal();
    let mut missing = 0;
    loop {
        let frames = reader.read(usize::MAX).unwrap();
        if frames.is_empty() {
            break;
        }
        for frame in frames {
            missing += frame.start().ordinal() - last;
            last = frame.end().ordinal();
        }
    }
    assert_eq!(last, log.tail().ordinal());
    assert!(had > 0 && missing > 0);
    let handle = log.handle();
    assert_eq!(handle.damages().records(), missing, "{:?}", handle.damages().newest());
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(bench.dir.path()).unwrap());
    assert_eq!(mode & 0o777, 0o700);
    assert!(matches!(Directory::open(bench.dir.path(), &[]), Err(OpenError::Held { .. })));
    drop((log, reader, handle));
    let (log, opened) = bench.open();
    assert_eq!(version_of(&opened.resume), Some(100));
    assert_eq!(read_all(&log).last().map(String::as_str), Some("after"));
}

#[test]
fn where_nothing_can_be_put_back_nothing_is_appended_until_it_can() {
    let bench = Bench::interval();
    let (mut log, _) = bench.open();
    append(&mut log, "one", 1);
    fs::remove_dir_all(bench.dir.path()).unwrap();
    fs::write(bench.dir.path(), "a file").unwrap();
    for _ in 0..2 {
        let error = log.keep_in_place(2).unwrap_err().to_string();
        assert!(error.contains(bench.dir.path().to_str().unwrap()), "{error}");
        log.append(&mut frame_of(&["refused"], 2), 2).unwrap_err();
    }
    fs::remove_file(bench.dir.path()).unwrap();
    log.keep_in_place(3).unwrap();
    append(&mut log, "two", 2);
    assert_eq!(read_all(&log), ["one", "two"]);
    drop(log);
    assert_eq!(read_all(&bench.open().0), ["one", "two"]);
}

#[test]
fn what_is_put_in_the_place_of_a_file_in_use_is_set_aside() {
    let bench = Bench::interval();
    let (mut log, _) = bench.open();
    append(&mut log, "one", 1);
    let name = bench.segments().remove(0);
    for text in ["something else", "and again"] {
        fs::remove_file(&name).unwrap();
        fs::write(&name, text).unwrap();
        log.keep_in_place(2).unwrap();
    }
    append(&mut log, "two", 2);
    assert_eq!(read_all(&log), ["one", "two"]);
    let aside = fs::read_dir(bench.dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let aside = { aside }.find(|path| path.to_string_lossy().contains("damaged-")).unwrap();
    let kept = aside.join(name.file_name().unwrap());
    assert_eq!(fs::read_to_string(&kept).unwrap(), "something else");
    assert_eq!(fs::read_to_string(format!("{}-2", kept.display())).unwrap(), "and again");
}

#[test]
fn a_directory_that_is_taken_away_twice_is_told_twice() {
    let bench = Bench::interval();
    let (mut log, _) = bench.open();
    append(&mut log, "one", 1);
    for time in 2..4 {
        fs::remove_dir_all(bench.dir.path()).unwrap();
        log.keep_in_place(time).unwrap();
        // The directory, and the segment in it.
        assert_eq!(damages(&log).len() as u64, 2 * (time - 1));
    }
    assert_eq!(read_all(&log), ["one"]);
}

#[test]
fn a_segment_that_was_taken_away_is_not_sealed_before_it_is_written_again() {
    for sync in [Sync::Always, Sync::Interval(Duration::from_secs(1)), Sync::Never] {
        let bench = Bench::new(sync);
        let (mut log, _) = bench.open();
        append(&mut log, "one", 1);
        fs::remove_file(&bench.segments()[0]).unwrap();
        // Its time has come before anybody has noticed.
        log.retain(2 * HOUR, None).unwrap();
        append(&mut log, "two", 2);
        assert_eq!(damages(&log).len(), 1);
        log.keep_in_place(2 * HOUR).unwrap();
        assert_eq!(read_all(&log), ["one", "two"]);
        drop(log);
        assert_eq!(read_all(&bench.open().0), ["one", "two"]);
    }
}

#[test]
fn a_sync_that_ends_after_its_file_was_taken_away_keeps_nothing_from_being_written_again() {
    let bench = Bench::interval();
    let (mut log, _) = bench.open();
    append(&mut log, "one", 1);
    let job = log.begin_sync(1).unwrap().unwrap();
    append(&mut log, "two", 2);
    fs::remove_file(&bench.segments()[0]).unwrap();
    bench.disk.set(&[Fault::Create]);
    log.keep_in_place(2).unwrap_err();
    log.end_sync(job.run(), 2).unwrap();
    bench.disk.set(&[]);
    append(&mut log, "three", 3);
    drop(log);
    assert_eq!(read_all(&bench.open().0), ["one", "two", "three"]);
}

#[test]
fn a_segment_that_is_written_again_after_a_failed_sync_was_not_taken_away() {
    let bench = Bench::interval();
    let (mut log, _) = bench.open();
    append(&mut log, "one", 1);
    bench.disk.set(&[Fault::Sync]);
    log.sync(1).unwrap_err();
    // It has its name, which a power cut may take again.
    bench.disk.set(&[Fault::SyncDirectory]);
    for _ in 0..2 {
        log.sync(2).unwrap_err();
        log.keep_in_place(2).unwrap();
        log.append(&mut frame_of(&["refused"], 2), 2).unwrap_err();
    }
    assert_eq!(read_all(&log), ["one"]);
    bench.disk.set(&[]);
    log.sync(3).unwrap();
    append(&mut log, "two", 3);
    assert_eq!((damages(&log), bench.segments().len()), (vec![], 1));
    drop(log);
    assert_eq!(read_all(&bench.open().0), ["one", "two"]);
}

#[test]
fn what_was_taken_away_is_put_back_before_it_is_synced() {
    for another in [false, true] {
        let bench = Bench::interval();
        let (mut log, _) = bench.open();
        append(&mut log, "one", 1);
        let name = bench.segments().remove(0);
        let take_away = || {
            fs::remove_file(&name).unwrap();
            if another {
                fs::write(&name, "something else").unwrap();
            }
        };
        take_away();
        log.sync(2).unwrap();
        assert_eq!(read_all(&log), ["one"]);
        append(&mut log, "two", 2);
        take_away();
        assert!(log.begin_sync(3).unwrap().is_none(), "it is synced when it is put back");
        assert_eq!(read_all(&log), ["one", "two"]);
        drop(log);
        assert_eq!(read_all(&bench.open().0), ["one", "two"]);
    }
}
