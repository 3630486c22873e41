//! What the log promises, a test for each rule that cost somebody a journal once.

mod damage;
mod faults;
mod gone;

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use super::{
    Directory, Frame, FrameBuilder, Log, LogOptions, OpenError, Opened, Position, Resume, Sync,
    disk::{Disk, RealDisk},
    format,
};

const HOUR: u64 = 3_600_000;

/// What a disk is to fail at next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Create,
    /// After so many bytes.
    Write(usize),
    SetLen,
    Sync,
    Rename,
    SyncDirectory,
    Remove,
}

/// A disk that fails as it is told, each time until told otherwise.
#[derive(Clone, Default)]
struct FaultyDisk {
    faults: Arc<Mutex<Vec<Fault>>>,
    read: Arc<AtomicU64>,
}

impl FaultyDisk {
    fn set(&self, faults: &[Fault]) {
        *self.faults.lock().unwrap() = faults.to_vec();
    }

    fn check(&self, fault: Fault) -> io::Result<()> {
        if self.faults.lock().unwrap().contains(&fault) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

impl Disk for FaultyDisk {
    fn create(&self, path: &Path) -> io::Result<File> {
        self.check(Fault::Create)?;
        RealDisk.create(path)
    }

    fn write_all_at(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        let faults = self.faults.lock().unwrap();
        let full = faults.iter().find_map(|fault| match fault {
            Fault::Write(bytes) => Some(*bytes),
            _ => None,
        });
        let Some(length) = full else { return RealDisk.write_all_at(file, bytes, at) };
        RealDisk.write_all_at(file, &bytes[..length.min(bytes.len())], at)?;
        Err(io::ErrorKind::StorageFull.into())
    }

    fn read_at(&self, file: &File, into: &mut [u8], at: u64) -> io::Result<usize> {
        let read = RealDisk.read_at(file, into, at)?;
        self.read.fetch_add(read as u64, Relaxed);
        Ok(read)
    }

    fn set_len(&self, file: &File, length: u64) -> io::Result<()> {
        self.check(Fault::SetLen)?;
        RealDisk.set_len(file, length)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.check(Fault::Sync)?;
        RealDisk.sync(file)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(Fault::Rename)?;
        RealDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.check(Fault::Remove)?;
        RealDisk.remove(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.check(Fault::SyncDirectory)?;
        RealDisk.sync_directory(path)
    }
}

struct Bench {
    dir: tempfile::TempDir,
    disk: FaultyDisk,
    options: LogOptions,
}

impl Bench {
    fn new(sync: Sync) -> Self {
        let options =
            LogOptions { retention_size: 1 << 20, retention_age: Duration::from_hours(24), sync };
        Self { dir: tempfile::tempdir().unwrap(), disk: FaultyDisk::default(), options }
    }

    fn interval() -> Self {
        Self::new(Sync::Interval(Duration::from_secs(1)))
    }

    fn open_above(&self, floor: u64) -> (Log, Opened) {
        let directory = Directory::open(self.dir.path(), &[]).unwrap();
        let disk = Box::new(self.disk.clone());
        Log::open_on(disk, &directory, self.options, floor, 0).unwrap()
    }

    fn open(&self) -> (Log, Opened) {
        self.open_above(0)
    }

    fn segments(&self) -> Vec<PathBuf> {
        let mut paths: Vec<_> = fs::read_dir(self.dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|e| e == "log"))
            .collect();
        paths.sort();
        paths
    }
}

fn frame_of(texts: &[&str], version: u64) -> FrameBuilder {
    let mut builder = FrameBuilder::new("all".into(), Resume::default());
    for text in texts {
        builder.record(|out| out.extend_from_slice(text.as_bytes()));
    }
    builder.set_resume(Resume { epoch: 0, resource_version: version });
    builder
}

fn append(log: &mut Log, text: &str, version: u64) -> Arc<Frame> {
    log.append(&mut frame_of(&[text], version), 1).unwrap()
}

/// Fills segments: 20 kB a record, three records a segment.
fn fill(log: &mut Log, records: u64) {
    for n in 0..records {
        append(log, &"x".repeat(20_000), n);
    }
}

fn texts(frames: &[Arc<Frame>]) -> Vec<String> {
    let records = frames.iter().flat_map(|frame| frame.records().collect::<Vec<_>>());
    records.map(|(_, bytes)| String::from_utf8(bytes.to_vec()).unwrap()).collect()
}

fn read_all(log: &Log) -> Vec<String> {
    texts(&log.handle().reader(1).read(usize::MAX).unwrap())
}

fn version_of(resume: &std::collections::BTreeMap<Arc<str>, Resume>) -> Option<u64> {
    resume.get("all").map(|resume| resume.resource_version)
}

#[test]
fn the_next_sequence_is_above_every_one_a_view_knows() {
    let bench = Bench::interval();
    let (mut log, opened) = bench.open_above(41);
    assert_eq!(opened.tail, Position { next: 42, skipped: 41 });
    append(&mut log, "one", 1);
    let end = append(&mut log, "two", 2).end();
    assert_eq!(end, Position { next: 44, skipped: 41 });
    drop(log);
    let path = bench.segments().remove(0);
    let length = fs::metadata(&path).unwrap().len();
    File::options().write(true).open(&path).unwrap().set_len(length - 1).unwrap();
    let (mut log, opened) = bench.open_above(43);
    assert!(opened.cut_bytes > 0);
    assert_eq!(version_of(&opened.resume), Some(1), "the resume point is cut with its record");
    assert_eq!(opened.tail, Position { next: 44, skipped: 42 });
    append(&mut log, "two again", 2);
    let frames = log.handle().reader(1).read(usize::MAX).unwrap();
    assert_eq!((frames[0].end().ordinal(), frames[1].start().ordinal()), (1, 1), "nothing is lost");
}

#[test]
fn only_the_last_segment_is_read_to_open_a_log() {
    let bench = Bench::interval();
    let (mut log, _) = bench.open();
    fill(&mut log, 45);
    drop(log);
    let segments = bench.segments();
    assert!(segments.len() >= 15);
    let last = fs::metadata(segments.last().unwrap()).unwrap().len();
    bench.disk.read.store(0, Relaxed);
    let (_, opened) = bench.open();
    let read = bench.disk.read.load(Relaxed);
    assert!(opened.scanned_bytes < last);
    assert!(read < last + segments.len() as u64 * 1024, "{read} bytes were read");
}

#[test]
fn a_damaged_header_costs_no_frame_and_no_resume_point() {
    for damage in [0usize, 9, 40] {
        let bench = Bench::interval();
        let (mut log, _) = bench.open();
        log.append(
            &mut FrameBuilder::new("other".into(), Resume { epoch: 2, resource_version: 7 }),
            1,
        )
        .unwrap();
        fill(&mut log, 8);
        log.set_cluster_uid("uid");
        fill(&mut log, 1);
        let written = read_all(&log).len();
        drop(log);
        let path = bench.segments().pop().unwrap();
        let mut bytes = fs::read(&path).unwrap();
        bytes[damage] ^= 4;
        fs::write(&path, bytes).unwrap();
        let before = bench.segments().len();
        let (log, opened) = bench.open();
        assert_eq!((read_all(&log).len(), opened.damaged), (written, 1));
        assert_eq!(opened.resume["other"], Resume { epoch: 2, resource_version: 7 });
        assert_eq!(bench.segments().len(), before + 1, "the resume points are written anew");
        drop(log);
        let (log, opened) = bench.open();
        assert_eq!((read_all(&log).len(), opened.damaged), (written, 0));
        assert_eq!(opened.resume["other"], Resume { epoch: 2, resource_version: 7 });
    }
}

#[test]
fn an_empty_last_segment_falls_back_to_the_one_before() {
    let bench = Bench::interval();
    let (mut log, _) = bench.open();
    append(&mut log, "one", 1);
    drop(log);
    let empty = bench.dir.path().join(format::segment_name(9));
    fs::write(&empty, "").unwrap();
    let (log, opened) = bench.open();
    assert_eq!((read_all(&log).len(), version_of(&opened.resume)), (1, Some(1)));
    assert_eq!(opened.tail.ordinal(), 1);
    assert!(opened.tail.next >= 9);
}

#[test]
fn damage_in_the_middle_is_stepped_over_and_counted() {
    let bench = Bench::interval();
    let (mut log, _) = bench.open();
    append(&mut log, "one", 1);
    let at = fs::metadata(&bench.segments()[0]).unwrap().len();
    append(&mut log, "two", 2);
    append(&mut log, "three", 3);
    drop(log);
    let path = bench.segments().remove(0);
    let mut bytes = fs::read(&path).unwrap();
    // The length of the second frame now reaches far into the third.
    bytes[at as usize + 12] ^= 0x40;
    fs::write(&path, bytes).unwrap();
    let (log, opened) = bench.open();
    assert_eq!((opened.damaged, opened.cut_bytes, version_of(&opened.resume)), (1, 0, Some(3)));
    let mut reader = log.handle().reader(1);
    let frames = reader.read(usize::MAX).unwrap();
    assert_eq!((texts(&frames), reader.damaged()), (vec!["one".into(), "three".into()], 1));
    assert_eq!(frames[1].start().ordinal() - frames[0].end().ordinal(), 1);
}

#[test]
fn a_record_is_found_behind_frames_without_records() {
    let bench = Bench::interval();
    let (mut log, _) = bench.open();
    append(&mut log, "one", 1);
    for version in [2, 3] {
        log.append(&mut frame_of(&[], version), 1).unwrap();
    }
    append(&mut log, "two", 4);
    log.append(&mut frame_of(&[], 5), 1).unwrap();
    for _ in 0..2 {
        let record = |sequence| log.handle().record(sequence).unwrap();
        let texts = [1, 2, 3].map(record);
        assert_eq!(texts, [Some("one".into()), Some("two".into()), None]);
        drop(log);
        log = bench.open().0;
    }
}

#[test]
fn a_payload_that_holds_a_frame_is_not_read_as_one() {
    let bench = Bench::interval();
    let (mut log, _) = bench.open();
    let marker = String::from_utf8_lossy(&format::MARKER).into_owned();
    append(&mut log, &marker, 1);
    append(&mut log, "two", 2);
    drop(log);
    let path = bench.segments().remove(0);
    let mut bytes = fs::read(&path).unwrap();
    let at = memchr::memmem::find(&bytes, &format::MARKER).unwrap();
    bytes[at] = 0;
    fs::write(&path, bytes).unwrap();
    assert_eq!(read_all(&bench.open().0), ["two"]);
}

#[test]
fn a_newer_format_is_refused_and_left_alone() {
    let bench = Bench::interval();
    let header = format::SegmentHeader {
        version: format::VERSION + 1,
        first: 1,
        skipped: 0,
        created_ms: 0,
        newest_ms: 0,
        cluster: None,
        resume: [].into(),
    };
    let path = bench.dir.path().join(format::segment_name(1));
    fs::write(&path, header.encode()).unwrap();
    let directory = Directory::open(bench.dir.path(), &[]).unwrap();
    let error = Log::open(&directory, bench.options, 0, 0).err().unwrap();
    assert!(matches!(error, OpenError::Newer { .. }), "{error}");
    assert_eq!(fs::read(&path).unwrap(), header.encode());
}

#[test]
fn retention_takes_the_oldest_by_size_and_leaves_what_is_held() {
    let bench = Bench::interval();
    let (mut log, _) = bench.open();
    fill(&mut log, 90);
    let mut behind = log.handle().reader(1);
    let mut inside = log.handle().reader(1);
    assert_eq!(inside.read(1).unwrap().len(), 1);
    let kept = log.retain(2, Some(2)).unwrap();
    assert_eq!((kept.segments, kept.oldest), (0, Position::START), "the first segment is held");
    let retained = log.retain(2, Some(50)).unwrap();
    assert!(retained.segments > 0 && retained.disk_bytes <= 1 << 20);
    assert_eq!(retained.oldest, log.handle().oldest());
    assert!(retained.oldest.next <= 50);
    for reader in [&mut behind, &mut inside] {
        let from = reader.position();
        let frames = reader.read(usize::MAX).unwrap();
        assert_eq!(frames[0].start(), retained.oldest);
        assert_eq!(frames[0].start().ordinal() - from.ordinal(), retained.oldest.next - from.next);
        assert_eq!(reader.damaged(), 0);
    }
}

#[test]
fn half_of_the_size_is_the_logs_whatever_is_beside_it() {
    let bench = Bench::interval();
    let (mut log, _) = bench.open();
    fill(&mut log, 90);
    fs::write(bench.dir.path().join("state.redb"), vec![0; 2 << 20]).unwrap();
    assert!(log.retain(2, None).unwrap().segments > 0);
    let left: u64 = bench.segments().iter().map(|path| path.metadata().unwrap().len()).sum();
    assert!((3 << 17..=1 << 19).contains(&left), "{left}");
}

#[test]
fn retention_by_age_keeps_the_resume_points_of_an_idle_log() {
    let bench = Bench::interval();
    let (mut log, _) = bench.open();
    fill(&mut log, 7);
    let tail = log.tail();
    assert_eq!(log.retain(HOUR, None).unwrap().segments, 0);
    drop(log);
    // How old the segments are is known after a restart too.
    let (mut log, _) = bench.open();
    assert_eq!(log.retain(24 * HOUR, None).unwrap().segments, 0);
    log.retain(25 * HOUR, None).unwrap();
    assert_eq!(bench.segments().len(), 1);
    assert_eq!((log.handle().oldest(), read_all(&log).len()), (tail, 0));
    let mut reader = log.handle().reader(3);
    assert!(reader.read(1).unwrap().is_empty());
    assert_eq!(reader.position(), tail, "what is lost shows at the tail");
    drop(log);
    let (_, opened) = bench.open();
    assert_eq!((version_of(&opened.resume), opened.tail), (Some(6), tail));
}

#[test]
fn the_cluster_is_written_down_with_the_next_append() {
    let bench = Bench::interval();
    let (mut log, _) = bench.open();
    append(&mut log, "one", 1);
    log.set_cluster_uid("uid");
    append(&mut log, "two", 2);
    drop(log);
    let (log, opened) = bench.open();
    assert_eq!(opened.cluster_uid.as_deref(), Some("uid"));
    assert_eq!(read_all(&log), ["one", "two"]);
}

#[test]
fn a_reader_from_the_start_of_a_segment_sees_what_was_forgotten_just_before() {
    let bench = Bench::interval();
    let (mut log, _) = bench.open();
    append(&mut log, "one", 1);
    let mut builder = frame_of(&[], 2);
    builder.forget(5);
    log.append(&mut builder, 1).unwrap();
    log.set_cluster_uid("uid");
    append(&mut log, "two", 3);
    let frames = log.handle().reader(2).read(usize::MAX).unwrap();
    assert_eq!((frames.len(), &*frames[0].forgotten), (2, &[5][..]));
}

#[test]
fn a_reader_finds_its_place_without_reading_all_before_it() {
    let mut bench = Bench::interval();
    bench.options.retention_size = 1 << 30;
    let (mut log, _) = bench.open();
    fill(&mut log, 100);
    let rest = log.handle().bytes_from(90);
    assert!((11 * 20_000..11 * 21_000 + 300_000).contains(&rest), "{rest}");
    assert_eq!(log.handle().bytes_from(101), 0);
    assert_eq!(log.handle().reader(90).read(1).unwrap()[0].first, 90);
}

#[test]
fn a_segment_of_an_earlier_run_is_read_from_its_start_only_once() {
    let mut bench = Bench::interval();
    bench.options.retention_size = 48 << 20;
    let (mut log, _) = bench.open();
    fill(&mut log, 200);
    drop(log);
    let (log, _) = bench.open();
    assert!(bench.segments().len() > 1);
    let handle = log.handle();
    let rest = 102 * 20_000..102 * 21_000 + 300_000;
    assert!(!rest.contains(&handle.bytes_from(100)));
    assert!(handle.record(100).unwrap().is_some());
    assert!(rest.contains(&handle.bytes_from(100)), "{}", handle.bytes_from(100));
    assert_eq!(handle.reader(100).read(1).unwrap()[0].first, 100);
}

#[test]
fn readers_beside_the_writer_miss_nothing_that_retention_leaves() {
    let bench = Bench::new(Sync::Never);
    let (mut log, _) = bench.open();
    let records = 3_000;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let handle = log.handle();
            scope.spawn(move || {
                let mut reader = handle.reader(1);
                let (mut read, mut lost) = (0, 0);
                while reader.position().next <= records {
                    let mut at = reader.position();
                    let frames = reader.read(50_000).unwrap();
                    for frame in &frames {
                        lost += frame.start().ordinal() - at.ordinal();
                        read += u64::from(frame.count());
                        at = frame.end();
                    }
                    lost += reader.position().ordinal() - at.ordinal();
                }
                assert_eq!((read + lost, reader.damaged()), (records, 0));
            });
        }
        for n in 0..records {
            append(&mut log, &"x".repeat(2_000), n);
            if n % 100 == 0 {
                log.retain(1, None).unwrap();
            }
        }
    });
}
