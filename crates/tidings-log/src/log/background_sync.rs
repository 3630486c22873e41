//! A sync in two halves, so that appends go on while the disk is busy with it.

use std::{fs::File, io, path::PathBuf, sync::Arc};

use super::{Log, Sync, rotation::Active};
use crate::recovery::Mark;

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

impl SyncDone {
    /// Whether everything is on stable storage.
    pub fn is_ok(&self) -> bool {
        self.result.is_ok()
    }
}

impl Log {
    /// The first half of a sync that another thread does, so that appends go on meanwhile; nothing
    /// when everything is on stable storage already.
    ///
    /// # Errors
    ///
    /// As [`sync`](Self::sync), where an earlier sync failed and is mended here; or the file cannot
    /// be opened a second time.
    pub fn begin_sync(&mut self, now_ms: u64) -> io::Result<Option<SyncJob>> {
        if self.sync_failed {
            return self.sync(now_ms).map(|()| None);
        }
        if self.options.sync == Sync::Never || !self.has_unsynced() {
            return Ok(None);
        }
        // What has no name would be synced for nobody, and what took its name is another file.
        if !self.is_in_place(now_ms)? {
            return self.start_segment(now_ms).map(|()| None);
        }
        let Some(active) = &self.active else { return Ok(None) };
        // Opened, not cloned: the system tells of a failed write once for each open file, and a
        // rotation that syncs this segment meanwhile has to hear of it too.
        let file = File::open(&*active.path)?;
        let mark = self.mark(active.length);
        Ok(Some(SyncJob { file, path: Arc::clone(&active.path), mark }))
    }

    /// The second half.
    ///
    /// # Errors
    ///
    /// As [`sync`](Self::sync).
    pub fn end_sync(&mut self, done: SyncDone, now_ms: u64) -> io::Result<()> {
        let SyncDone { path, mark, result } = done;
        // A segment that was sealed meanwhile was synced for it.
        let same = |active: &&mut Active| Arc::ptr_eq(&active.path, &path);
        let Some(active) = self.active.as_mut().filter(same) else {
            return Ok(());
        };
        if result.is_err() {
            self.sync_failed = true;
            return self.sync(now_ms);
        }
        // A sync that began before another one failed, or before the file was taken away, is no reason
        // to write less of it again.
        if !self.sync_failed && mark.length > active.synced.length {
            active.synced = mark;
        }
        Ok(())
    }
}
