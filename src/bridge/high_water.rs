//! Which deliveries after a crash are made again.
//!
//! The state store saves cursors once a second. What was delivered after the last save is
//! delivered again after a `kill -9`, under the same ids; how much that is, is worth knowing. Eight
//! bytes in a file of its own, written after each batch and never synced, say so: they outlive the
//! process, and if the machine goes down with them, it is only a count. They also tell, of what
//! retention took before it could be delivered again, that it is not lost.

use std::{fs::File, io, os::unix::fs::FileExt as _, path::Path};

use super::{restore::Restored, shared::now_ms};

/// The directory of these files, in that of the journal.
const DIR: &str = "delivered";

/// What a file says; nothing if it was just made, or cut by a crash of the machine.
fn read(path: &Path) -> io::Result<Option<u64>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// The sequence up to which one sink has had records, over all runs.
#[derive(Debug)]
pub(super) struct HighWater {
    file: File,
    /// What it was when the process started.
    had: u64,
    highest: u64,
}

impl HighWater {
    pub(super) fn open(restored: &Restored, sink: &str) -> io::Result<Self> {
        let directory = &restored.directory;
        let (dir, path) = (directory.path().join(DIR), format!("{DIR}/{sink}"));
        let cost = "from here on the redelivered are counted anew";
        if dir.exists() && !dir.is_dir() {
            directory.set_aside(DIR, &format!("it is no directory; {cost}"), now_ms())?;
        }
        std::fs::create_dir_all(&dir)?;
        let tail = restored.log.tail().next;
        match read(&dir.join(sink)) {
            Ok(Some(had)) if had > tail => {
                let reason = format!("it says {had}, and the log ends at {tail}; {cost}");
                directory.set_aside(&path, &reason, now_ms())?;
            }
            Err(e) if e.kind() == io::ErrorKind::IsADirectory => {
                directory.set_aside(&path, &format!("it is no file; {cost}"), now_ms())?;
            }
            Ok(_) | Err(_) => {}
        }
        let path = dir.join(sink);
        let file =
            File::options().read(true).write(true).create(true).truncate(false).open(&path)?;
        let had = read(&path)?.unwrap_or(0);
        Ok(Self { file, had, highest: had })
    }

    /// Whether the sink has had the record in an earlier run.
    pub(super) fn had(&self, seq: u64) -> bool {
        seq < self.had
    }

    /// The sequence up to which the sink has had records in earlier runs.
    pub(super) fn at_start(&self) -> u64 {
        self.had
    }

    /// Everything before `next` has been delivered.
    pub(super) fn raise(&mut self, next: u64) {
        if next > self.highest {
            self.highest = next;
            // It is only a count: not worth an error when the disk is full.
            let _ = self.file.write_all_at(&next.to_le_bytes(), 0);
        }
    }
}
