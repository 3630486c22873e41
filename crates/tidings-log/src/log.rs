//! The one writer of the log.

mod background_sync;
mod in_place;
mod rotation;

use std::{collections::BTreeMap, io, path::PathBuf, sync::Arc, time::Duration};

pub use self::background_sync::{SyncDone, SyncJob};
use self::rotation::Active;
use super::{
    Directory, Frame, FrameBuilder, LogHandle, OpenError, Position, Resume,
    disk::{Disk, RealDisk},
    format,
    recovery::{self, Mark},
    segments::Shared,
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
#[derive(Clone, Copy, Debug, PartialEq)]
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
    /// After the last record that is there. What views know of the numbers from here to the tail
    /// is not in the log any more: the resume points do not cover it, and it is read again.
    pub survived: Position,
    /// Before the oldest record that is kept.
    pub oldest: Position,
    /// Where each source stands.
    pub resume: BTreeMap<Arc<str>, Resume>,
    /// When it was last appended to, in milliseconds since the epoch, if it ever was.
    pub newest_ms: Option<u64>,
    /// The uid of the cluster that the records are of, if it was known.
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
    #[error("cannot write to the journal {}: {source}", path.display())]
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
}

impl Log {
    /// Opens the log of a directory, damaged or not. `floor` is the highest sequence that any view of
    /// the log knows; the next record's is above it.
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
        let mut found = recovery::recover(&*disk, directory, now_ms)?;
        recovery::raise(&mut found.tail, floor.saturating_add(1));
        let damages = directory.damages();
        if let Some(damage) = found.missing_end(floor, now_ms) {
            damages.note(damage);
        }
        let shared = Arc::new(Shared::new(damages.clone()));
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
            survived: found.survived,
            oldest,
            resume: found.resume.clone(),
            newest_ms: (found.newest_ms > 0).then_some(found.newest_ms),
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
            self.note_synced();
        }
        self.publish(frame.first, at);
        Ok(frame)
    }

    /// Brings everything appended so far to stable storage; with [`Sync::Never`] it does nothing.
    /// To be done before a view is saved, at stop, and at the interval of
    /// [`Sync::Interval`].
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
        if self.has_unsynced() {
            if !self.is_in_place(now_ms)? {
                return self.start_segment(now_ms);
            }
            let Some(active) = &self.active else { return Ok(()) };
            self.sync_failed = true;
            self.disk.sync(&active.file)?;
            self.sync_failed = false;
        }
        self.note_synced();
        Ok(())
    }

    /// States which cluster the records are of; the next append writes it down, if it is news.
    pub fn set_cluster_uid(&mut self, uid: &str) {
        if self.cluster.as_deref() != Some(uid) {
            self.cluster = Some(uid.to_owned());
            self.start_due = true;
        }
    }

    /// Unlinks the oldest sealed segments, while the directory takes more than the retention size
    /// (half of it is always the log's) and while all of a segment is older than the retention age;
    /// and seals a segment that was started more than an hour ago. Files that were
    /// [set aside](Directory::set_aside) go when they are as old, and make room before segments do.
    /// Cheap enough for each second.
    ///
    /// A segment that holds the record `hold` or a later one is kept in any case.
    ///
    /// # Errors
    ///
    /// What the operating system answers to unlinking or to listing the directory.
    pub fn retain(&mut self, now_ms: u64, hold: Option<u64>) -> io::Result<Retained> {
        if self.active.as_ref().is_some_and(|active| self.is_full(active, 0, now_ms)) {
            // If that fails the next append tries again and says why.
            let _ = self.start_segment(now_ms);
        }
        let mut other = self.directory.other_bytes()?;
        let age = u64::try_from(self.options.retention_age.as_millis()).unwrap_or(u64::MAX);
        let size = self.options.retention_size;
        let log_bytes = self.shared.lock().log_bytes();
        other = other.saturating_sub(self.directory.drop_aside(
            now_ms,
            age,
            size,
            log_bytes + other,
        )?);
        let mut retained = Retained { segments: 0, bytes: 0, oldest: self.tail, disk_bytes: 0 };
        loop {
            let mut row = self.shared.lock();
            row.other_bytes = other;
            retained.disk_bytes = row.log_bytes() + other;
            retained.oldest = row.oldest();
            let too_large = retained.disk_bytes > size && row.log_bytes() > size / 2;
            let oldest = row.pop_first_if(|segment, next| {
                let spare = hold.is_none_or(|hold| hold >= next);
                let old = now_ms.saturating_sub(segment.newest_ms) > age;
                spare && (old || too_large)
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

    /// How much is kept, and how safely.
    pub fn options(&self) -> &LogOptions {
        &self.options
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
        let full = self.is_full(active, size, now_ms);
        full || active.broken || self.start_due || self.sync_failed
    }

    /// Whether a segment is to be sealed before another `size` bytes go into it. One without
    /// records is not, however many frames it has: its successor would have the same name.
    fn is_full(&self, active: &Active, size: u64, now_ms: u64) -> bool {
        let limit = (self.options.retention_size / SEGMENTS).max(MIN_SEGMENT);
        self.tail.next > active.start.position.next
            && active.first_frame_ms.is_some_and(|first| {
                active.length + size > limit || now_ms.saturating_sub(first) >= SEAL_AFTER_MS
            })
    }

    fn mark(&self, length: u64) -> Mark {
        let resume = self.resume.clone();
        Mark { position: self.tail, newest_ms: self.newest_ms, resume, length }
    }

    fn has_unsynced(&self) -> bool {
        self.active.as_ref().is_some_and(|active| active.length > active.synced.length)
    }

    fn note_synced(&mut self) {
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
        row.times.note(first, self.newest_ms);
        if let Some(segment) = row.last_mut() {
            segment.length = active.length;
            segment.newest_ms = self.newest_ms;
            segment.index.note(first, at);
        }
    }
}
