//! The one writer of the log.

use std::{
    collections::BTreeMap, fs::File, io, path::Path, path::PathBuf, sync::Arc, time::Duration,
};

use super::{
    Directory, Frame, FrameBuilder, LogHandle, OpenError, Position, Resume,
    disk::{Disk, RealDisk},
    format::{self, SegmentHeader},
    recovery::{self, Reopened},
    scan::{CHUNK, Scanner},
    segments::{Index, Segment, Shared},
};

/// A segment is sealed when it would grow beyond this share of the retention size,
const SEGMENTS: u64 = 16;
/// but not before it has this many bytes,
const MIN_SEGMENT: u64 = 64 << 10;
/// or when its first frame is this old, in milliseconds.
const SEAL_AFTER_MS: u64 = 60 * 60 * 1000;

/// When what was appended is brought to stable storage. A crash of the process alone loses nothing
/// in any of these; a crash of the machine loses what was not synced, and the resume points with
/// it, so that it is read from the source again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Before an append returns.
    Always,
    /// When the owner calls [`Log::sync`], to be done this often.
    Interval(Duration),
    /// When the operating system pleases.
    Never,
}

/// How much is kept and how safely.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// The most that the directory may take on disk, in bytes.
    pub retention_size: u64,
    /// How long a record is kept.
    pub retention_age: Duration,
    /// When to sync.
    pub sync: Sync,
}

/// What opening found.
#[derive(Clone, Debug)]
pub struct Opened {
    /// Where the next record goes.
    pub tail: Position,
    /// Before the oldest record that is kept.
    pub oldest: Position,
    /// Where each source stands.
    pub resume: BTreeMap<Arc<str>, Resume>,
    /// The uid of the cluster whose events the log holds, if it was known.
    pub cluster_uid: Option<String>,
    /// How many bytes were cut off the end: a write that a crash tore.
    pub cut_bytes: u64,
    /// How many damaged regions were stepped over in what was read.
    pub damaged: u64,
    /// How many bytes of frames were read to open the log; the last segment's as a rule.
    pub scanned_bytes: u64,
}

/// Why an append failed. Nothing of it is in the log, the builder is as it was, and the same append
/// may be tried again.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The disk is full or failing.
    #[error(
        "cannot write to the journal {}: {source}\nhint: free some space on its disk, or lower \
         journal.retention.size", path.display()
    )]
    Disk {
        /// The file or directory.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// The frame is larger than a reader would take. It will not fit another time either.
    #[error("a journal frame of {bytes} bytes is larger than {}", format::MAX_BODY)]
    TooLarge {
        /// What [`FrameBuilder::bytes`] says.
        bytes: usize,
    },
}

/// What retention did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retained {
    /// How many segments were unlinked.
    pub segments: u32,
    /// How many bytes they had.
    pub bytes: u64,
    /// Before the oldest record that is left.
    pub oldest: Position,
    /// What the directory takes now, in bytes.
    pub disk_bytes: u64,
}

/// A place in the log and what holds there.
#[derive(Clone, Debug)]
struct Mark {
    position: Position,
    newest_ms: u64,
    resume: BTreeMap<Arc<str>, Resume>,
    /// Where that is in the active segment.
    length: u64,
}

/// The segment that is appended to.
struct Active {
    file: File,
    path: Arc<PathBuf>,
    length: u64,
    first_frame_ms: Option<u64>,
    /// Up to here it is on stable storage, as far as is known.
    synced: Mark,
    /// What follows `length` could not be cut off: no frame can go there.
    broken: bool,
}

/// A sync of what was appended so far, to be run on any thread.
#[derive(Debug)]
pub struct SyncJob {
    file: File,
    path: Arc<PathBuf>,
    mark: Mark,
}

/// What came of a [`SyncJob`].
#[derive(Debug)]
pub struct SyncDone {
    path: Arc<PathBuf>,
    mark: Mark,
    result: io::Result<()>,
}

impl SyncJob {
    /// Waits until everything is on stable storage; [`Log::end_sync`] takes the answer.
    pub fn run(self) -> SyncDone {
        SyncDone { result: self.file.sync_data(), path: self.path, mark: self.mark }
    }
}

/// The log, to append to. There is one for a [`Directory`]; read through [`Log::handle`].
pub struct Log {
    directory: Directory,
    disk: Box<dyn Disk>,
    options: LogOptions,
    shared: Arc<Shared>,
    active: Option<Active>,
    tail: Position,
    newest_ms: u64,
    resume: BTreeMap<Arc<str>, Resume>,
    cluster: Option<String>,
    /// No frame may go into the active segment any more: its header does not say what it should,
    /// or its successor may have been written halfway.
    start_due: bool,
    /// A sync failed. What it should have written may be gone from the page cache's dirty list, so
    /// that another sync of the same file would succeed and mean nothing.
    sync_failed: bool,
    last_sync_ms: u64,
}

impl Log {
    /// Opens the log of a directory, whatever state it is in. `floor` is the highest sequence that
    /// any view knows ([`Loaded::highest_sequence`](super::Loaded::highest_sequence)); the next
    /// record's is above it.
    ///
    /// # Errors
    ///
    /// [`OpenError::Access`] and [`OpenError::Newer`]; never on damage.
    pub fn open(
        directory: &Directory,
        options: LogOptions,
        floor: u64,
        now_ms: u64,
    ) -> Result<(Self, Opened), OpenError> {
        Self::open_on(Box::new(RealDisk), directory, options, floor, now_ms)
    }

    pub(super) fn open_on(
        disk: Box<dyn Disk>,
        directory: &Directory,
        options: LogOptions,
        floor: u64,
        now_ms: u64,
    ) -> Result<(Self, Opened), OpenError> {
        let mut found = recovery::recover(&*disk, directory)?;
        recovery::raise(&mut found.tail, floor.saturating_add(1));
        let shared = Arc::new(Shared::default());
        let oldest = {
            let mut row = shared.lock();
            row.tail = found.tail;
            row.other_bytes = directory.other_bytes().unwrap_or(0);
            for segment in found.segments {
                row.push(segment);
            }
            row.oldest()
        };
        let opened = Opened {
            tail: found.tail,
            oldest,
            resume: found.resume.clone(),
            cluster_uid: found.cluster.clone(),
            cut_bytes: found.cut_bytes,
            damaged: found.damaged,
            scanned_bytes: found.scanned_bytes,
        };
        let mut log = Self {
            directory: directory.clone(),
            disk,
            options,
            active: found.active.map(|reopened| Active::reopen(reopened, &shared)),
            shared,
            tail: found.tail,
            newest_ms: found.newest_ms,
            resume: found.resume,
            cluster: found.cluster,
            start_due: false,
            sync_failed: false,
            last_sync_ms: now_ms,
        };
        if found.header_lost {
            // So that what it said does not hang on a segment that retention may take. On a full
            // disk it fails, and the next append does it.
            let _ = log.start_segment(now_ms);
        }
        Ok((log, opened))
    }

    /// Writes the frame at the tail. After that readers see it, and with [`Sync::Always`] it is on
    /// stable storage; the builder is empty again.
    ///
    /// # Errors
    ///
    /// [`AppendError`]: nothing was appended and the builder is as it was. The log stays usable, and
    /// the same builder may be given again, with more in it or not.
    pub fn append(
        &mut self,
        builder: &mut FrameBuilder,
        now_ms: u64,
    ) -> Result<Arc<Frame>, AppendError> {
        let size = builder.bytes();
        if size > format::MAX_BODY {
            return Err(AppendError::TooLarge { bytes: size });
        }
        if self.must_start_segment(size as u64, now_ms) {
            self.start_segment(now_ms).map_err(|source| self.disk_error(source))?;
        }
        let Some(active) = &mut self.active else {
            return Err(self.disk_error(io::ErrorKind::NotFound.into()));
        };
        let start = self.tail;
        let at = active.length;
        let bytes = builder.seal(start, now_ms);
        let mut written = self.disk.write_all_at(&active.file, bytes, at);
        if written.is_ok() && self.options.sync == Sync::Always {
            written = self.disk.sync(&active.file);
            self.sync_failed |= written.is_err();
        }
        if let Err(source) = written {
            builder.unseal();
            active.broken = self.disk.set_len(&active.file, at).is_err();
            return Err(AppendError::Disk { path: active.path.to_path_buf(), source });
        }
        let frame = Arc::new(builder.take(start, now_ms));
        active.length += frame.bytes() as u64;
        active.first_frame_ms.get_or_insert(now_ms);
        self.tail = frame.end();
        self.newest_ms = self.newest_ms.max(now_ms);
        match self.resume.get_mut(&frame.source) {
            Some(resume) => *resume = frame.resume,
            None => _ = self.resume.insert(Arc::clone(&frame.source), frame.resume),
        }
        if self.options.sync == Sync::Always {
            self.note_synced(now_ms);
        }
        self.publish(frame.first, at);
        Ok(frame)
    }

    /// Brings everything appended so far to stable storage; with [`Sync::Never`] it does nothing.
    /// To be done before each commit of the state, at stop, and when [`sync_due`](Self::sync_due).
    ///
    /// # Errors
    ///
    /// What the operating system answers. What a failed sync should have written is written again,
    /// into a new segment, by the next one; until that succeeds each call answers an error.
    pub fn sync(&mut self, now_ms: u64) -> io::Result<()> {
        if self.options.sync == Sync::Never {
            return Ok(());
        }
        if self.sync_failed {
            return self.start_segment(now_ms);
        }
        let Some(active) = &self.active else { return Ok(()) };
        if active.length > active.synced.length {
            self.sync_failed = true;
            self.disk.sync(&active.file)?;
            self.sync_failed = false;
        }
        self.note_synced(now_ms);
        Ok(())
    }

    /// The first half of a sync that another thread does, so that appends go on meanwhile; nothing
    /// when everything is on stable storage already, or a failed sync is to be mended first by
    /// [`sync`](Self::sync).
    pub fn begin_sync(&self) -> Option<SyncJob> {
        let active = self.active.as_ref().filter(|_| !self.sync_failed)?;
        if self.options.sync == Sync::Never || active.length == active.synced.length {
            return None;
        }
        let file = active.file.try_clone().ok()?;
        let mark = self.mark(active.length);
        Some(SyncJob { file, path: Arc::clone(&active.path), mark })
    }

    /// The second half.
    ///
    /// # Errors
    ///
    /// As [`sync`](Self::sync).
    pub fn end_sync(&mut self, done: SyncDone, now_ms: u64) -> io::Result<()> {
        let SyncDone { path, mark, result } = done;
        // A segment that was sealed meanwhile was synced for it.
        let Some(active) = self.active.as_mut().filter(|active| active.path == path) else {
            return Ok(());
        };
        match result {
            Ok(()) => {
                if mark.length > active.synced.length {
                    active.synced = mark;
                }
                self.last_sync_ms = now_ms;
                Ok(())
            }
            Err(_) => {
                self.sync_failed = true;
                self.sync(now_ms)
            }
        }
    }

    /// Whether the interval of [`Sync::Interval`] has passed since the last sync.
    pub fn sync_due(&self, now_ms: u64) -> bool {
        match self.options.sync {
            Sync::Interval(interval) => {
                u128::from(now_ms.saturating_sub(self.last_sync_ms)) >= interval.as_millis()
            }
            Sync::Always | Sync::Never => self.sync_failed,
        }
    }

    /// States which cluster the events are of; the next append writes it down, if it is news.
    pub fn set_cluster_uid(&mut self, uid: &str) {
        if self.cluster.as_deref() != Some(uid) {
            self.cluster = Some(uid.to_owned());
            self.start_due = true;
        }
    }

    /// Unlinks the oldest sealed segments, while the directory takes more than the retention size
    /// and while all of a segment is older than the retention age; and seals a segment that was
    /// started more than an hour ago. Cheap enough for each second.
    ///
    /// A segment that holds the record `hold` or a later one is kept in any case.
    ///
    /// # Errors
    ///
    /// What the operating system answers to unlinking or to listing the directory.
    pub fn retain(&mut self, now_ms: u64, hold: Option<u64>) -> io::Result<Retained> {
        let started = self.active.as_ref().and_then(|active| active.first_frame_ms);
        if started.is_some_and(|started| now_ms.saturating_sub(started) >= SEAL_AFTER_MS) {
            // If that fails the next append tries again and says why.
            let _ = self.start_segment(now_ms);
        }
        let other = self.directory.other_bytes()?;
        let age = u64::try_from(self.options.retention_age.as_millis()).unwrap_or(u64::MAX);
        let size = self.options.retention_size;
        let mut retained = Retained { segments: 0, bytes: 0, oldest: self.tail, disk_bytes: 0 };
        loop {
            let mut row = self.shared.lock();
            row.other_bytes = other;
            retained.disk_bytes = row.log_bytes() + other;
            retained.oldest = row.oldest();
            let oldest = row.pop_first_if(|segment, next| {
                let spare = hold.is_none_or(|hold| hold >= next);
                let old = now_ms.saturating_sub(segment.newest_ms) > age;
                spare && (old || retained.disk_bytes > size)
            });
            drop(row);
            let Some(oldest) = oldest else { break };
            if let Err(e) = self.disk.remove(&oldest.path) {
                self.shared.lock().push_first(oldest);
                return Err(e);
            }
            retained.segments += 1;
            retained.bytes += oldest.length;
        }
        if retained.segments > 0 {
            self.disk.sync_directory(self.directory.path())?;
        }
        Ok(retained)
    }

    /// The directory that it is in.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The log for reading.
    pub fn handle(&self) -> LogHandle {
        LogHandle { shared: Arc::clone(&self.shared) }
    }

    /// Where the next record goes.
    pub fn tail(&self) -> Position {
        self.tail
    }

    /// Where each source stands.
    pub fn resume(&self) -> &BTreeMap<Arc<str>, Resume> {
        &self.resume
    }

    fn disk_error(&self, source: io::Error) -> AppendError {
        AppendError::Disk { path: self.directory.path().to_owned(), source }
    }

    fn must_start_segment(&self, size: u64, now_ms: u64) -> bool {
        let Some(active) = &self.active else { return true };
        let limit = (self.options.retention_size / SEGMENTS).max(MIN_SEGMENT);
        let full = active.first_frame_ms.is_some_and(|first| {
            active.length + size > limit || now_ms.saturating_sub(first) >= SEAL_AFTER_MS
        });
        full || active.broken || self.start_due || self.sync_failed
    }

    fn mark(&self, length: u64) -> Mark {
        let resume = self.resume.clone();
        Mark { position: self.tail, newest_ms: self.newest_ms, resume, length }
    }

    fn note_synced(&mut self, now_ms: u64) {
        self.last_sync_ms = now_ms;
        let Some(length) = self.active.as_ref().map(|active| active.length) else { return };
        let mark = self.mark(length);
        if let Some(active) = &mut self.active {
            active.synced = mark;
        }
    }

    /// Shows the readers the frame that was written at `at` of the active segment.
    fn publish(&self, first: u64, at: u64) {
        let Some(active) = &self.active else { return };
        let mut row = self.shared.lock();
        row.tail = self.tail;
        if let Some(segment) = row.last_mut() {
            segment.length = active.length;
            segment.newest_ms = self.newest_ms;
            segment.index.note(first, at);
        }
    }

    /// Seals the active segment and starts another one. After a failed sync the new one starts with
    /// a copy of what that should have written.
    fn start_segment(&mut self, now_ms: u64) -> io::Result<()> {
        self.start_due = true;
        if !self.sync_failed {
            // What the new header speaks of must be there before the header is.
            self.sync(now_ms)?;
        }
        let carried = self.active.as_ref().filter(|_| self.sync_failed);
        let base = match carried {
            Some(active) => active.synced.clone(),
            None => self.mark(0),
        };
        let header = SegmentHeader {
            version: format::VERSION,
            first: base.position.next,
            skipped: base.position.skipped,
            created_ms: now_ms,
            newest_ms: base.newest_ms,
            cluster: self.cluster.clone(),
            resume: base.resume.iter().map(|(k, v)| (k.to_string(), *v)).collect(),
        }
        .encode();
        let path = self.directory.path().join(format::segment_name(base.position.next));
        let temporary = path.with_extension("log.tmp");
        let written = self.write_segment(&temporary, &path, &header, carried);
        let (file, length, index) = written.inspect_err(|_| {
            // Removed at the next open, if not now.
            let _ = self.disk.remove(&temporary);
        })?;
        let first_frame_ms = carried.filter(|active| active.length > base.length);
        let first_frame_ms = first_frame_ms.map(|_| now_ms);
        let old = self.active.take();
        let path = Arc::new(path);
        let segment = Segment {
            generation: 0,
            first: base.position.next,
            start: base.position,
            path: Arc::clone(&path),
            data_start: header.len() as u64,
            length,
            newest_ms: self.newest_ms,
            index,
        };
        self.replace_last(segment, old.as_ref());
        self.active =
            Some(Active { file, path, length, first_frame_ms, synced: base, broken: false });
        self.start_due = false;
        self.sync_failed = false;
        self.note_synced(now_ms);
        Ok(())
    }

    /// Writes a segment and gives it its name.
    fn write_segment(
        &self,
        temporary: &Path,
        path: &Path,
        header: &[u8],
        carried: Option<&Active>,
    ) -> io::Result<(File, u64, Index)> {
        let file = self.disk.create(temporary)?;
        self.disk.write_all_at(&file, header, 0)?;
        let mut length = header.len() as u64;
        let mut index = Index::default();
        if let Some(active) = carried {
            length += self.carry_over(active, &file, length, &mut index)?;
        }
        let durable = self.options.sync != Sync::Never;
        if durable {
            self.disk.sync(&file)?;
        }
        self.disk.rename(temporary, path)?;
        if durable {
            self.disk.sync_directory(self.directory.path())?;
        }
        Ok((file, length, index))
    }

    /// Copies what is not known to be on stable storage; answers how much that was.
    fn carry_over(&self, from: &Active, to: &File, at: u64, index: &mut Index) -> io::Result<u64> {
        let mut scanner = Scanner::default();
        scanner.restart(from.synced.length);
        let mut expected = from.synced.length;
        while let Some((offset, frame)) = scanner.next(&*self.disk, &from.file, from.length)? {
            if offset != expected {
                break;
            }
            expected += frame.bytes() as u64;
            index.note(frame.first, offset - from.synced.length + at);
        }
        if expected != from.length {
            // The page cache no longer has it. Opening the log again cuts it off and rolls the
            // resume points back with it.
            return Err(io::Error::other("what a failed sync should have written cannot be read"));
        }
        let mut buffer = vec![0; CHUNK];
        let mut done = from.synced.length;
        while done < from.length {
            let length = usize::try_from(from.length - done).map_or(CHUNK, |n| n.min(CHUNK));
            let length = self.disk.read_at(&from.file, &mut buffer[..length], done)?;
            if length == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.disk.write_all_at(to, &buffer[..length], at + done - from.synced.length)?;
            done += length as u64;
        }
        Ok(from.length - from.synced.length)
    }

    /// Puts a new segment at the end of the row, and takes from the one before it what the new one
    /// has too.
    fn replace_last(&self, segment: Segment, old: Option<&Active>) {
        let mut row = self.shared.lock();
        if let Some(old) = old {
            if old.path == segment.path {
                // It had no frame of its own, and its name has been taken over.
                row.pop_last();
            } else if self.sync_failed
                && let Some(last) = row.last_mut()
            {
                last.length = old.synced.length;
            }
        }
        row.push(segment);
        drop(row);
        if let Some(old) = old.filter(|_| self.sync_failed) {
            // Readers go by the row, and a recovery by the new segment's name.
            let _ = self.disk.set_len(&old.file, old.synced.length);
        }
    }
}

impl Active {
    fn reopen(reopened: Reopened, shared: &Shared) -> Self {
        let path = shared.lock().last_mut().map(|segment| Arc::clone(&segment.path));
        let header = reopened.header;
        // What the process before us appended may not have been synced.
        let synced = Mark {
            position: Position { next: header.first, skipped: header.skipped },
            newest_ms: header.newest_ms,
            resume: header.resume.iter().map(|(k, v)| (k.as_str().into(), *v)).collect(),
            length: reopened.header_bytes,
        };
        Self {
            file: reopened.file,
            path: path.unwrap_or_default(),
            length: reopened.length,
            first_frame_ms: reopened.first_frame_ms,
            synced,
            broken: false,
        }
    }
}
