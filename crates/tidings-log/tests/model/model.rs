//! What was appended, as a plain vector, and what follows from it.

use std::{
    collections::BTreeMap,
    fs,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use proptest::sample::Index;
use tidings_log::{
    Directory, Frame, FrameBuilder, Log, LogOptions, Position, Reader, Resume, Sync,
};

use super::{Damage, Op};

/// A frame that was appended, and where its bytes were put.
struct Appended {
    frame: Arc<Frame>,
    /// Records ever appended before it, by the model's own count.
    ordinal: u64,
    path: PathBuf,
    place: Range<usize>,
    bytes: Vec<u8>,
}

impl Appended {
    fn stands_in(&self, files: &BTreeMap<PathBuf, Vec<u8>>) -> bool {
        let Some(file) = files.get(&self.path) else { return false };
        // A segment without records is rewritten under the same name when its header changes.
        file.get(self.place.clone()) == Some(&self.bytes)
            || memchr::memmem::find(file, &self.bytes).is_some()
    }

    fn end(&self) -> u64 {
        self.ordinal + u64::from(self.frame.count())
    }
}

struct Following {
    reader: Reader,
    started: bool,
    /// How many records were ever appended before its place.
    ordinal: u64,
    /// The first of the model's frames that it has not passed.
    next: usize,
}

pub(super) struct Model {
    dir: tempfile::TempDir,
    options: LogOptions,
    log: Option<Log>,
    appended: Vec<Appended>,
    readers: Vec<Following>,
    floor: u64,
    now: u64,
    versions: [u64; 3],
    payload: u64,
    /// How much of the last segment a crash leaves for sure, and which one that is.
    synced: (PathBuf, u64),
    cluster: Option<String>,
}

const SOURCES: [&str; 3] = ["all", "ns/kube-system", "ns/default?type=Warning"];

impl Model {
    pub(super) fn new(retention_size: u64, sync: Sync) -> Self {
        let age = Duration::from_hours(3);
        let mut model = Self {
            dir: tempfile::tempdir().unwrap(),
            options: LogOptions { retention_size, retention_age: age, sync },
            log: None,
            appended: Vec::new(),
            readers: Vec::new(),
            floor: 0,
            now: 1_700_000_000_000,
            versions: [0; 3],
            payload: 0,
            synced: (PathBuf::new(), 0),
            cluster: None,
        };
        model.open();
        model
    }

    fn log(&mut self) -> &mut Log {
        self.log.as_mut().unwrap()
    }

    fn paths(&self) -> Vec<PathBuf> {
        let mut paths: Vec<_> = fs::read_dir(self.dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|e| e == "log"))
            .collect();
        paths.sort();
        paths
    }

    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        self.paths().into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
    }

    fn pick(&self, file: Index) -> Option<PathBuf> {
        let paths = self.paths();
        (!paths.is_empty()).then(|| file.get(&paths).clone())
    }

    fn open(&mut self) {
        let files = self.files();
        let directory = Directory::open(self.dir.path(), &[]).unwrap();
        let (log, opened) = Log::open(&directory, self.options, self.floor, self.now).unwrap();
        let tail = opened.tail;
        assert!(tail.next > self.floor, "{tail:?} is not above the floor {}", self.floor);
        // What was cut is as if it had never been appended; only what was damaged may be cut.
        let kept = self
            .appended
            .partition_point(|a| a.end() <= tail.ordinal() && a.frame.next() <= tail.next);
        for cut in &self.appended[kept..] {
            // A frame without records at the very tail leaves no trace in the position.
            let empty = cut.frame.count() == 0 && cut.ordinal == tail.ordinal();
            assert!(empty || !cut.stands_in(&files), "an undamaged frame was cut");
        }
        self.appended.truncate(kept);
        // What the last file no longer has at its end was torn off and is not lost. The position
        // does not tell for frames without records.
        let last_file = files.keys().next_back();
        let torn = |a: &mut Appended| Some(&a.path) == last_file && !a.stands_in(&files);
        while let Some(torn) = self.appended.pop_if(torn) {
            assert_eq!(torn.frame.count(), 0, "what was torn off is counted as written");
        }
        for (at, source) in SOURCES.iter().enumerate() {
            let of_source = || self.appended.iter().rev().filter(|a| &*a.frame.source == *source);
            let most = of_source().map(|a| a.frame.resume.resource_version).next();
            let least = of_source().find(|a| a.stands_in(&files));
            let least = least.map(|a| a.frame.resume.resource_version);
            let resume = opened.resume.get(*source).map(|resume| resume.resource_version);
            assert!(resume <= most, "{source} is resumed at {resume:?}, ahead of {most:?}");
            assert!(resume >= least, "{source} is resumed at {resume:?}, behind {least:?}");
            self.versions[at] = resume.unwrap_or(0);
        }
        if let Some(uid) = &opened.cluster_uid {
            assert!(self.cluster.is_some(), "{uid} was never stated");
        }
        assert_eq!(tail.ordinal(), self.appended.last().map_or(0, Appended::end));
        self.log = Some(log);
        self.note_synced();
    }

    fn close(&mut self) {
        self.readers.clear();
        self.log = None;
    }

    fn note_synced(&mut self) {
        self.synced = self.paths().pop().map_or((PathBuf::new(), 0), |path| {
            let length = fs::metadata(&path).unwrap().len();
            (path, length)
        });
    }

    fn append(&mut self, source: u8, sizes: &[u16], forgotten: u8, advance: u8) {
        let at = usize::from(source);
        // No two frames are alike.
        self.now += 1;
        self.versions[at] += u64::from(advance);
        let mut builder = FrameBuilder::new(SOURCES[at].into(), Resume::default());
        for size in sizes {
            self.payload += 1;
            let text = format!("{{\"n\":{},\"fill\":\"", self.payload);
            builder.record(|out| {
                out.extend_from_slice(text.as_bytes());
                out.resize(out.len() + usize::from(*size), b'a' + (size % 26) as u8);
            });
        }
        for n in 0..forgotten {
            builder.forget(u128::from(self.payload) << 8 | u128::from(n));
        }
        builder.set_resume(Resume { epoch: 0, resource_version: self.versions[at] });
        let now = self.now;
        let before = self.log().tail();
        let frame = self.log().append(&mut builder, now).unwrap();
        assert_eq!(frame.start(), before);
        assert_eq!(frame.count() as usize, sizes.len());
        assert_eq!(self.log().tail(), frame.end());
        let path = self.paths().pop().unwrap();
        let file = fs::read(&path).unwrap();
        if path != self.synced.0 {
            // A new segment exists only once its header is synced, and all before it.
            self.synced = (path.clone(), (file.len() - frame.bytes()) as u64);
        }
        if self.options.sync == Sync::Always {
            self.note_synced();
        }
        let place = file.len() - frame.bytes()..file.len();
        let bytes = file[place.clone()].to_vec();
        let ordinal = frame.start().ordinal();
        assert_eq!(ordinal, self.appended.last().map_or(0, Appended::end));
        self.appended.push(Appended { frame, ordinal, path, place, bytes });
    }

    fn start_reader(&mut self, start: Index, within: Index) {
        let oldest = self.log().handle().oldest();
        let from = if self.appended.is_empty() {
            oldest
        } else {
            let frame = &start.get(&self.appended).frame;
            let into = within.index(frame.count() as usize + 1) as u64;
            Position { next: frame.first + into, skipped: frame.skipped }
        };
        let reader = self.log().handle().reader(from.next);
        let next = self
            .appended
            .partition_point(|a| a.frame.next() <= from.next && a.frame.first < from.next);
        self.readers.push(Following { reader, started: false, ordinal: from.ordinal(), next });
        if self.readers.len() > 3 {
            self.readers.remove(0);
        }
    }

    fn read(&mut self, at: usize, max_bytes: usize) {
        let files = self.files();
        let tail = self.log().tail();
        let following = &mut self.readers[at];
        let frames = following.reader.read(max_bytes).unwrap();
        let mut total = 0;
        for frame in &frames {
            assert!(total < max_bytes, "more was read than was asked for");
            total += frame.bytes();
            let rest = &self.appended[following.next..];
            let passed = &self.appended[..following.next];
            if frame.count() == 0 && passed.iter().any(|a| a.frame == *frame) {
                // Its segment was rewritten behind the reader; to forget twice is to forget.
                continue;
            }
            let found =
                rest.iter().position(|a| a.frame.start() == frame.start() && a.frame == *frame);
            let found = found.expect("a frame was read that was not appended, or not in order");
            for passed in &rest[..found] {
                assert!(!passed.stands_in(&files), "an undamaged frame was not read");
            }
            let start = frame.start().ordinal();
            assert_eq!(start, rest[found].ordinal);
            assert!(start >= following.ordinal || !following.started, "a record was read twice");
            // Every record between what was read before and this is missing, and no other.
            let missing: u64 = rest[..found]
                .iter()
                .map(|a| a.end() - a.ordinal.max(following.ordinal).min(a.end()))
                .sum();
            assert_eq!(start.saturating_sub(following.ordinal), missing);
            let records: Vec<_> = frame.records().collect();
            assert!(records.iter().map(|(seq, _)| *seq).eq(frame.first..frame.next()));
            following.ordinal = frame.end().ordinal();
            following.started = true;
            following.next += found + 1;
        }
        if frames.is_empty() {
            for passed in &self.appended[following.next..] {
                assert!(!passed.stands_in(&files), "an undamaged frame was not read");
            }
            assert_eq!(following.reader.position(), tail);
            following.next = self.appended.len();
            following.ordinal = tail.ordinal();
            following.started = true;
        } else {
            assert_eq!(following.reader.position().ordinal(), following.ordinal);
        }
    }

    fn retain(&mut self, hold: Option<Index>) {
        let hold = hold.filter(|_| !self.appended.is_empty());
        let hold = hold.map(|hold| hold.get(&self.appended).frame.first);
        let now = self.now;
        let before = self.files();
        let last = self.paths().pop();
        let retained = self.log().retain(now, hold).unwrap();
        let paths = self.paths();
        assert_eq!(
            before.keys().filter(|path| !paths.contains(path)).count(),
            retained.segments as usize
        );
        assert!(last.is_none_or(|last| paths.contains(&last) || paths.last() > Some(&last)));
        assert!(
            retained.disk_bytes <= self.options.retention_size
                || paths.len() == 1
                || hold.is_some()
        );
        for appended in &self.appended {
            let held = hold.is_some_and(|hold| appended.frame.next() > hold);
            assert!(
                !held || !before.contains_key(&appended.path) || paths.contains(&appended.path)
            );
        }
        if Some(&self.synced.0) != paths.last() {
            self.note_synced();
        }
    }

    fn damage(&mut self, damage: &Damage) {
        let edit = |path: &Path, edit: &mut dyn FnMut(&mut Vec<u8>)| {
            let mut bytes = fs::read(path).unwrap();
            edit(&mut bytes);
            fs::write(path, bytes).unwrap();
        };
        match damage {
            Damage::Flip { file, at, bit } => {
                let Some(path) = self.pick(*file) else { return };
                edit(&path, &mut |bytes| {
                    if !bytes.is_empty() {
                        let at = at.index(bytes.len());
                        bytes[at] ^= 1 << bit;
                    }
                });
            }
            Damage::Zeros { file, at, length } => {
                let Some(path) = self.pick(*file) else { return };
                edit(&path, &mut |bytes| {
                    let at = at.index(bytes.len() + 1);
                    bytes[at..].iter_mut().take(usize::from(*length)).for_each(|byte| *byte = 0);
                });
            }
            Damage::Truncate { file, at } => {
                let Some(path) = self.pick(*file) else { return };
                edit(&path, &mut |bytes| bytes.truncate(at.index(bytes.len() + 1)));
            }
            Damage::Garbage { file, bytes: garbage } => {
                let Some(path) = self.pick(*file) else { return };
                edit(&path, &mut |bytes| bytes.extend_from_slice(garbage));
            }
            Damage::Delete { file } => {
                let Some(path) = self.pick(*file) else { return };
                fs::remove_file(path).unwrap();
            }
            Damage::Touch => {
                let next = self.appended.last().map_or(1, |a| a.frame.next());
                let path = self.dir.path().join(format!("{next:020}.log"));
                if !path.exists() {
                    fs::write(path, "").unwrap();
                }
            }
        }
    }

    pub(super) fn apply(&mut self, op: &Op) {
        match op {
            Op::Append { source, sizes, forgotten, advance } => {
                self.append(*source, sizes, *forgotten, *advance);
            }
            Op::Sync => {
                let now = self.now;
                self.log().sync(now).unwrap();
                if self.options.sync != Sync::Never {
                    self.note_synced();
                }
            }
            Op::Floor => self.floor = self.log().tail().next - 1,
            Op::Tick(ms) => self.now += u64::from(*ms),
            Op::Retain { hold } => self.retain(*hold),
            Op::Reader { start, within } => self.start_reader(*start, *within),
            Op::Read { reader, max_bytes } if !self.readers.is_empty() => {
                self.read(reader.index(self.readers.len()), *max_bytes as usize);
            }
            Op::Read { .. } => {}
            Op::Crash { cut } => {
                self.close();
                let (path, synced) = self.synced.clone();
                if let Ok(file) = fs::OpenOptions::new().write(true).open(&path) {
                    let loose = file.metadata().unwrap().len() - synced;
                    file.set_len(synced + cut.index(loose as usize + 1) as u64).unwrap();
                }
                self.open();
            }
            Op::Damage(damages) => {
                self.close();
                for damage in damages {
                    self.damage(damage);
                }
                self.open();
            }
            Op::LiveFlip { file, at, bit } => {
                // Readers may have read it ahead; those that follow have not.
                self.readers.clear();
                let Some(path) = self.pick(*file) else { return };
                let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
                let length = file.metadata().unwrap().len() as usize;
                if length == 0 {
                    return;
                }
                let at = at.index(length) as u64;
                let mut byte = [0];
                std::os::unix::fs::FileExt::read_exact_at(&file, &mut byte, at).unwrap();
                byte[0] ^= 1 << bit;
                std::os::unix::fs::FileExt::write_all_at(&file, &byte, at).unwrap();
            }
            Op::ClusterUid(uid) => {
                let uid = format!("cluster-{uid}");
                self.log().set_cluster_uid(&uid);
                self.cluster = Some(uid);
            }
        }
    }

    /// Everything that can be read is, from the oldest record on.
    pub(super) fn finish(&mut self) {
        self.readers.clear();
        let oldest = self.log().handle().oldest();
        let reader = self.log().handle().reader(oldest.next);
        let next = self
            .appended
            .partition_point(|a| a.frame.next() <= oldest.next && a.frame.first < oldest.next);
        let files = self.files();
        assert!(
            !self.appended[..next].iter().any(|a| a.stands_in(&files)),
            "older than the oldest"
        );
        let ordinal = oldest.ordinal();
        self.readers.push(Following { reader, started: false, ordinal, next });
        while self.readers[0].next < self.appended.len() {
            self.read(0, 100_000);
        }
        self.read(0, 1);
    }
}
