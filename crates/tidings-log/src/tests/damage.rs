//! What is said of damage, and what becomes of the files that cannot be used.

use super::*;
use crate::{Damage, DamageKind, Survey};

/// One frame at each of these times, of one record each; answers where each begins.
fn frames_at(bench: &Bench, times: &[u64]) -> Vec<u64> {
    let (mut log, _) = bench.open();
    let path = |bench: &Bench| bench.segments().pop().unwrap();
    let mut places = Vec::new();
    for (n, time) in times.iter().enumerate() {
        let mut builder = frame_of(&["record"], n as u64 + 1);
        // The segment is made with the first of them.
        let at = if n == 0 { 0 } else { fs::metadata(path(bench)).unwrap().len() };
        log.append(&mut builder, *time).unwrap();
        places.push(at);
    }
    places
}

fn flip(path: &Path, at: u64) {
    let mut bytes = fs::read(path).unwrap();
    bytes[usize::try_from(at).unwrap()] ^= 1;
    fs::write(path, bytes).unwrap();
}

fn asides(bench: &Bench) -> Vec<String> {
    let entries = fs::read_dir(bench.dir.path()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name.starts_with("damaged-")).collect();
    names.sort();
    names
}

#[test]
fn what_is_missing_is_said_once_with_its_interval() {
    let bench = Bench::interval();
    let places = frames_at(&bench, &[1000, 2000, 3000, 4000]);
    let path = bench.segments().remove(0);
    flip(&path, places[1] + 30);
    flip(&path, places[2] + 30);
    let (log, _) = bench.open();
    for _ in 0..3 {
        assert_eq!(log.handle().reader(1).read(usize::MAX).unwrap().len(), 2);
    }
    // One that begins behind it does not come by it.
    log.handle().reader(4).read(usize::MAX).unwrap();
    let handle = log.handle();
    let damages = handle.damages();
    let expected = Damage {
        kind: DamageKind::Records,
        file: "00000000000000000001.log".to_owned(),
        offset: places[1],
        bytes: places[3] - places[1],
        from_ms: Some(1000),
        to_ms: 4000,
        records: 2,
        reason: String::new(),
    };
    assert_eq!(damages.newest(), std::slice::from_ref(&expected));
    assert_eq!((damages.count(), damages.records()), (1, 2));
    assert_eq!(damages.take_unreported(), [expected]);
    assert_eq!(damages.take_unreported(), []);
    let said = damages.newest()[0].to_string();
    for part in ["2 records at most", "1970-01-01T00:00:01Z to 1970-01-01T00:00:04Z"] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn a_segment_that_is_gone_or_cut_is_missed_by_who_reads_it() {
    for gone in [true, false] {
        let bench = Bench::interval();
        let (mut log, _) = bench.open();
        fill(&mut log, 9);
        drop(log);
        let path = bench.segments().remove(1);
        if gone {
            fs::remove_file(&path).unwrap();
        } else {
            File::options().write(true).open(&path).unwrap().set_len(500).unwrap();
        }
        let (log, _) = bench.open();
        let read = log.handle().reader(1).read(usize::MAX).unwrap().len() as u64;
        let handle = log.handle();
        let damages = handle.damages();
        assert_eq!((damages.count(), damages.records()), (1, 9 - read));
        assert!(read < 9, "{read}");
    }
}

#[test]
fn an_end_that_is_missing_is_said_with_what_the_views_know_of_it() {
    let bench = Bench::interval();
    let places = frames_at(&bench, &[1000, 2000, 3000]);
    flip(&bench.segments().remove(0), places[1] + 20);
    let path = bench.segments().remove(0);
    File::options().write(true).open(path).unwrap().set_len(places[2]).unwrap();
    // Without a view that knows better it is a write that was torn.
    let (log, opened) = bench.open();
    assert!(opened.cut_bytes > 0);
    assert_eq!(log.handle().damages().count(), 0);
    drop(log);
    let (log, opened) = bench.open_above(3);
    assert_eq!((opened.survived.next, opened.tail.next), (2, 4));
    let damage = log.handle().damages().newest().pop().unwrap();
    assert_eq!((damage.kind, damage.records, damage.from_ms), (DamageKind::End, 2, Some(1000)));
}

#[test]
fn what_cannot_be_used_is_set_aside_for_some_time() {
    let bench = Bench::interval();
    for hour in 0..6 {
        fs::create_dir(bench.dir.path().join(format::segment_name(hour))).unwrap();
        let directory = Directory::open(bench.dir.path(), &[]).unwrap();
        let disk = Box::new(bench.disk.clone());
        let (log, _) = Log::open_on(disk, &directory, bench.options, 0, hour * HOUR + 7).unwrap();
        let damage = log.handle().damages().newest().pop().unwrap();
        assert_eq!((damage.kind, damage.to_ms), (DamageKind::File, hour * HOUR + 7));
        assert!(damage.reason.contains("damaged-1970-01-01T0"), "{damage}");
    }
    let name = |hour: u64| format!("damaged-1970-01-01T{hour:02}-00-00Z");
    assert_eq!(asides(&bench), [2, 3, 4, 5].map(name));
    assert!(bench.dir.path().join(name(5)).join(format::segment_name(5)).is_dir());
    // By age as records go.
    let (mut log, _) = bench.open();
    log.retain(28 * HOUR, None).unwrap();
    assert_eq!(asides(&bench), [4, 5].map(name));
    // For want of room all but the newest, before any segment goes; and that, where it is large.
    fs::write(bench.dir.path().join(name(4)).join("state.redb"), vec![1; 2 << 20]).unwrap();
    let retained = log.retain(6 * HOUR, None).unwrap();
    assert_eq!(asides(&bench), [5].map(name));
    assert!(retained.disk_bytes < 1 << 20);
    fs::write(bench.dir.path().join(name(5)).join("state.redb"), vec![1; 2 << 20]).unwrap();
    log.retain(6 * HOUR, None).unwrap();
    assert_eq!(asides(&bench), [""; 0]);
}

#[test]
fn a_segment_without_a_frame_that_can_be_read_is_set_aside() {
    let bench = Bench::interval();
    let (mut log, _) = bench.open();
    fill(&mut log, 4);
    drop(log);
    let last = bench.segments().pop().unwrap();
    fs::write(&last, vec![7; 3000]).unwrap();
    let (log, _) = bench.open();
    let aside = bench.dir.path().join(&asides(&bench)[0]).join(last.file_name().unwrap());
    assert_eq!(fs::read(aside).unwrap(), vec![7; 3000]);
    assert_eq!(log.handle().damages().newest().len(), 1);
}

#[test]
fn a_lock_that_is_no_file_is_said_to_be_none() {
    let bench = Bench::interval();
    fs::create_dir(bench.dir.path().join("lock")).unwrap();
    let error = Directory::open(bench.dir.path(), &[]).unwrap_err();
    assert!(matches!(error, OpenError::NotALock { .. }), "{error}");
}

/// Every file, and what is in it.
fn contents(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(contents(&path));
        } else {
            files.push((path.clone(), fs::read(path).unwrap()));
        }
    }
    files.sort();
    files
}

#[test]
fn a_survey_finds_what_is_damaged_and_changes_nothing() {
    let bench = Bench::interval();
    let (mut log, _) = bench.open();
    fill(&mut log, 9);
    let survey = Survey::of(bench.dir.path()).unwrap();
    assert_eq!((survey.held, survey.problem_count, survey.next_sequence), (true, 0, 10));
    drop(log);
    let before = contents(bench.dir.path());
    let survey = Survey::of(bench.dir.path()).unwrap();
    assert_eq!((survey.held, survey.problem_count), (false, 0), "{survey:?}");
    let records: u64 = survey.segments.iter().map(|segment| segment.records).sum();
    assert_eq!((records, survey.sources["all"].resource_version), (9, 8));
    assert_eq!(contents(bench.dir.path()), before);
    // In the frames of the second segment, and in the header of the third.
    let segments = bench.segments();
    flip(&segments[1], 30_000);
    flip(&segments[2], 3);
    let before = contents(bench.dir.path());
    let survey = Survey::of(bench.dir.path()).unwrap();
    let problems: Vec<_> = survey.problems.iter().map(|problem| &*problem.file).collect();
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    for expected in [&*name(&segments[1]), &*name(&segments[2])] {
        assert!(problems.contains(&expected), "{survey:?}");
    }
    assert_eq!(contents(bench.dir.path()), before);
    assert!(Survey::of(&bench.dir.path().join("nowhere")).is_err());
}
