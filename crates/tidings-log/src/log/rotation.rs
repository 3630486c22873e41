//! Sealing a segment and starting the next.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    super::{
        Position,
        format::{self, SegmentHeader},
        recovery::{Mark, Reopened},
        scan::{CHUNK, Scanner},
        segments::{Index, Segment, Shared},
    },
    Log, Sync,
};

/// The segment that is appended to.
pub(super) struct Active {
    pub file: File,
    pub path: Arc<PathBuf>,
    pub length: u64,
    pub first_frame_ms: Option<u64>,
    /// What its header says.
    pub start: Mark,
    /// Up to here it is on stable storage, as far as is known.
    pub synced: Mark,
    /// What follows `length` could not be cut off: no frame can go there.
    pub broken: bool,
}

impl Log {
    /// Seals the active segment and starts another one. After a failed sync the new one starts with
    /// a copy of what that should have written.
    pub(super) fn start_segment(&mut self, now_ms: u64) -> io::Result<()> {
        self.start_due = true;
        // One that was taken away since somebody looked must not be sealed.
        let in_place = self.is_in_place(now_ms)?;
        if !self.sync_failed {
            // What the new header speaks of must be there before the header is.
            self.sync(now_ms)?;
        }
        let is_cut = match &self.active {
            Some(active) if !in_place => !self.has_all_from(active, active.start.length)?,
            _ => false,
        };
        // Where the new segment starts: as a rule at the tail, without a copy of anything.
        let base = match &self.active {
            _ if is_cut => self.mark(0),
            Some(active) if self.sync_failed && !active.is_start(active.synced.position) => {
                active.synced.clone()
            }
            // It takes over the name, so it takes over the frames too.
            Some(active) if self.sync_failed || active.is_start(self.tail) => active.start.clone(),
            _ => self.mark(0),
        };
        let carried = self.active.as_ref().filter(|_| base.length > 0);
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
        let written =
            self.write_segment(&temporary, &path, &header, carried.map(|from| (from, base.length)));
        let (file, length, index) = written.inspect_err(|_| {
            // Removed at the next open, if not now.
            let _ = self.disk.remove(&temporary);
        })?;
        let first_frame_ms = carried.and(Some(now_ms));
        let path = Arc::new(path);
        let segment = Segment {
            generation: 0,
            first: base.position.next,
            start: base.position,
            path: Arc::clone(&path),
            data_start: header.len() as u64,
            length,
            before_ms: base.newest_ms,
            newest_ms: self.newest_ms,
            index,
        };
        let old = self.active.take();
        if let (Some(old), false) = (&old, in_place) {
            self.note_taken_away(old, is_cut, now_ms);
        }
        let kept = |active: &Active| if base.length > 0 { base.length } else { active.length };
        let old = old.as_ref().map(|old| (old, kept(old)));
        self.replace_last(segment, old);
        let start = Mark { length: header.len() as u64, ..base };
        let synced = start.clone();
        self.active =
            Some(Active { file, path, length, first_frame_ms, start, synced, broken: false });
        // The file has its name, so it is the one that is in use; but after a power cut it could be
        // without one: then all of it is written again.
        self.sync_failed = true;
        if self.options.sync != Sync::Never {
            self.disk.sync_directory(self.directory.path())?;
        }
        if let Some((old, kept)) = old.filter(|_| !is_cut) {
            // If this fails, readers go by the row and a recovery by the new segment's name.
            let _ = self.disk.set_len(&old.file, kept);
        }
        self.start_due = false;
        self.sync_failed = false;
        self.note_synced();
        Ok(())
    }

    /// Writes a segment and gives it its name.
    fn write_segment(
        &self,
        temporary: &Path,
        path: &Path,
        header: &[u8],
        carried: Option<(&Active, u64)>,
    ) -> io::Result<(File, u64, Index)> {
        let file = self.disk.create(temporary)?;
        self.disk.write_all_at(&file, header, 0)?;
        let mut length = header.len() as u64;
        let mut index = Index::default();
        if let Some((active, from)) = carried {
            length += self.carry_over(active, from, &file, length, &mut index)?;
        }
        if self.options.sync != Sync::Never {
            self.disk.sync(&file)?;
        }
        self.disk.rename(temporary, path)?;
        Ok((file, length, index))
    }

    /// Copies the frames from an offset on; answers how many bytes that was.
    fn carry_over(
        &self,
        active: &Active,
        from: u64,
        to: &File,
        at: u64,
        index: &mut Index,
    ) -> io::Result<u64> {
        let mut scanner = Scanner::default();
        scanner.restart(from);
        let mut expected = from;
        while let Some((offset, frame)) = scanner.next(&*self.disk, &active.file, active.length)? {
            if offset != expected {
                break;
            }
            expected += frame.bytes() as u64;
            index.note(frame.first, offset - from + at);
        }
        if self.sync_failed && expected != active.length {
            // The page cache no longer has it. Opening the log again cuts it off and rolls the
            // resume points back with it.
            return Err(io::Error::other("what a failed sync should have written cannot be read"));
        }
        let mut buffer = vec![0; CHUNK];
        let mut done = from;
        while done < active.length {
            let length = usize::try_from(active.length - done).map_or(CHUNK, |n| n.min(CHUNK));
            let length = self.disk.read_at(&active.file, &mut buffer[..length], done)?;
            if length == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.disk.write_all_at(to, &buffer[..length], at + done - from)?;
            done += length as u64;
        }
        Ok(active.length - from)
    }

    /// Puts a new segment at the end of the row. The one before it loses what the new one has too:
    /// everything from `kept` on.
    fn replace_last(&self, segment: Segment, old: Option<(&Active, u64)>) {
        let mut row = self.shared.lock();
        match old {
            // The file went with its name.
            Some((old, _)) if old.path == segment.path => _ = row.pop_last(),
            Some((_, kept)) => {
                if let Some(last) = row.last_mut() {
                    last.length = kept;
                }
            }
            None => {}
        }
        row.push(segment);
    }
}

impl Active {
    /// The name of its file.
    pub(super) fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Whether a segment that starts at `position` would have this one's name, and this one has
    /// frames.
    pub(super) fn is_start(&self, position: Position) -> bool {
        self.first_frame_ms.is_some() && position.next == self.start.position.next
    }

    pub(super) fn reopen(reopened: Reopened, shared: &Shared) -> Self {
        let path = shared.lock().last_mut().map(|segment| Arc::clone(&segment.path));
        Self {
            file: reopened.file,
            path: path.unwrap_or_default(),
            length: reopened.length,
            first_frame_ms: reopened.first_frame_ms,
            // What the process before us appended may not have been synced.
            synced: reopened.start.clone(),
            start: reopened.start,
            broken: false,
        }
    }
}
