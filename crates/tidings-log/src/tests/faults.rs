//! The log where the disk fails it.

use super::*;
use crate::AppendError;

#[test]
fn a_write_cut_short_leaves_the_log_and_the_builder_as_they_were() {
    let bench = Bench::interval();
    let (mut log, _) = bench.open();
    append(&mut log, "one", 1);
    let mut reader = log.handle().reader(1);
    for cut in [0, 1, 70] {
        bench.disk.set(&[Fault::Write(cut)]);
        let mut builder = frame_of(&["two", "three"], 3);
        builder.forget(9);
        let error = log.append(&mut builder, 2).unwrap_err();
        assert!(error.to_string().contains("cannot write to the journal"), "{error}");
        assert_eq!((builder.count(), log.tail().next), (2, log.handle().tail().next));
        reader.read(usize::MAX).unwrap();
        bench.disk.set(&[]);
        builder.record(|out| out.extend_from_slice(b"four"));
        let frame = log.append(&mut builder, 3).unwrap();
        assert_eq!(frame.forgotten, [9]);
        let frames = reader.read(usize::MAX).unwrap();
        assert_eq!((texts(&frames), reader.damaged()), (texts(&[frame]), 0));
    }
    assert_eq!(bench.segments().len(), 1);
    drop(log);
    let (log, opened) = bench.open();
    assert_eq!((opened.cut_bytes, opened.damaged, read_all(&log).len()), (0, 0, 10));
}

#[test]
fn where_a_write_cut_short_cannot_be_taken_back_another_segment_is_started() {
    let bench = Bench::interval();
    let (mut log, _) = bench.open();
    append(&mut log, "one", 1);
    bench.disk.set(&[Fault::Write(70), Fault::SetLen]);
    let mut builder = frame_of(&["two"], 2);
    log.append(&mut builder, 2).unwrap_err();
    bench.disk.set(&[]);
    log.append(&mut builder, 2).unwrap();
    assert_eq!((read_all(&log), bench.segments().len()), (vec!["one".into(), "two".into()], 2));
    drop(log);
    let (log, opened) = bench.open();
    assert_eq!((opened.damaged, opened.tail.ordinal()), (0, 2));
    assert_eq!(read_all(&log), ["one", "two"]);
}

#[test]
fn a_whole_frame_that_failed_and_could_not_be_taken_back_is_not_read_beside_its_second_try() {
    let bench = Bench::new(Sync::Always);
    let (mut log, _) = bench.open();
    append(&mut log, "one", 1);
    bench.disk.set(&[Fault::Sync, Fault::SetLen]);
    let mut builder = frame_of(&["two"], 2);
    log.append(&mut builder, 2).unwrap_err();
    assert_eq!(read_all(&log), ["one"]);
    log.append(&mut builder, 2).unwrap_err();
    bench.disk.set(&[]);
    builder.record(|out| out.extend_from_slice(b"three"));
    log.append(&mut builder, 2).unwrap();
    assert_eq!(read_all(&log), ["one", "two", "three"]);
    drop(log);
    assert_eq!(read_all(&bench.open().0), ["one", "two", "three"]);
}

#[test]
fn what_a_failed_sync_should_have_written_is_written_again_elsewhere() {
    for synced_first in [true, false] {
        let bench = Bench::interval();
        let (mut log, _) = bench.open();
        if synced_first {
            append(&mut log, "one", 1);
            log.sync(1).unwrap();
        }
        append(&mut log, "two", 2);
        append(&mut log, "three", 3);
        let mut reader = log.handle().reader(1);
        let before = texts(&reader.read(1).unwrap()).len() as u64;
        bench.disk.set(&[Fault::Sync]);
        for _ in 0..3 {
            log.sync(2).unwrap_err();
            log.append(&mut frame_of(&["refused"], 9), 2).unwrap_err();
        }
        // What the log holds is still there to read.
        assert_eq!(read_all(&log).last().map(String::as_str), Some("three"));
        bench.disk.set(&[]);
        log.sync(3).unwrap();
        append(&mut log, "four", 4);
        log.sync(4).unwrap();
        let expected = ["one", "two", "three", "four"];
        let expected = &expected[usize::from(!synced_first)..];
        assert_eq!(read_all(&log), expected);
        let rest = reader.read(usize::MAX).unwrap();
        assert_eq!(texts(&rest), expected[before as usize..], "a reader goes on in the copy");
        assert_eq!(rest[0].start().ordinal(), before);
        assert_eq!(bench.segments().len(), 1 + usize::from(synced_first));
        drop(log);
        let (log, opened) = bench.open();
        assert_eq!((read_all(&log).len(), opened.damaged), (expected.len(), 0));
        assert_eq!(version_of(&opened.resume), Some(4));
    }
}

#[test]
fn a_failed_sync_that_leaves_the_copied_frames_behind_does_not_repeat_them() {
    let bench = Bench::interval();
    let (mut log, _) = bench.open();
    append(&mut log, "one", 1);
    log.sync(1).unwrap();
    append(&mut log, "two", 2);
    bench.disk.set(&[Fault::Sync]);
    log.sync(2).unwrap_err();
    bench.disk.set(&[Fault::SetLen]);
    log.sync(2).unwrap();
    append(&mut log, "three", 3);
    assert_eq!(read_all(&log), ["one", "two", "three"]);
    drop(log);
    assert_eq!(read_all(&bench.open().0), ["one", "two", "three"]);
}

#[test]
fn a_segment_that_cannot_be_started_is_started_by_a_later_append() {
    let steps = [Fault::Create, Fault::Write(9), Fault::Sync, Fault::Rename, Fault::SyncDirectory];
    for fault in steps {
        let bench = Bench::interval();
        let (mut log, _) = bench.open();
        let big = "x".repeat(60_000);
        append(&mut log, &big, 1);
        bench.disk.set(&[fault]);
        let mut builder = frame_of(&[&big], 2);
        let error = log.append(&mut builder, 1).unwrap_err();
        assert!(matches!(error, AppendError::Disk { .. }), "{fault:?}");
        // One that would still fit does not go where its successor may have been begun.
        log.append(&mut frame_of(&["small"], 2), 1).unwrap_err();
        bench.disk.set(&[]);
        append(&mut log, "small", 2);
        log.append(&mut builder, 1).unwrap();
        let expected = [big.as_str(), "small", &big];
        assert_eq!(read_all(&log), expected, "{fault:?}");
        drop(log);
        let (log, opened) = bench.open();
        assert_eq!((read_all(&log).len(), opened.damaged), (3, 0), "{fault:?}");
    }
}

#[test]
fn what_cannot_be_unlinked_stays_in_the_log() {
    let bench = Bench::interval();
    let (mut log, _) = bench.open();
    fill(&mut log, 90);
    bench.disk.set(&[Fault::Remove]);
    log.retain(2, None).unwrap_err();
    assert_eq!(read_all(&log).len(), 90);
    bench.disk.set(&[]);
    assert!(log.retain(2, None).unwrap().segments > 0);
}

#[test]
fn frames_without_records_are_not_lost_to_a_successor_of_the_same_name() {
    for fault in [None, Some(Fault::Sync)] {
        let bench = Bench::interval();
        let (mut log, _) = bench.open();
        let mut builder = frame_of(&[], 1);
        builder.forget(5);
        log.append(&mut builder, 1).unwrap();
        log.sync(1).unwrap();
        builder.forget(6);
        log.append(&mut builder, 1).unwrap();
        log.retain(2 * HOUR, None).unwrap();
        log.set_cluster_uid("uid");
        bench.disk.set(fault.as_slice());
        assert_eq!(log.sync(2).is_err(), fault.is_some());
        bench.disk.set(&[]);
        append(&mut log, "one", 2);
        for reopened in [false, true] {
            let frames = log.handle().reader(1).read(usize::MAX).unwrap();
            let forgotten: Vec<_> = frames.iter().flat_map(|f| f.forgotten.clone()).collect();
            assert_eq!((texts(&frames), forgotten), (vec!["one".into()], vec![5, 6]));
            assert_eq!(bench.segments().len(), 1);
            if !reopened {
                drop(log);
                log = bench.open().0;
            }
        }
    }
}
