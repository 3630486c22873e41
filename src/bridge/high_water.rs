//! Which deliveries after a crash are made again.
//!
//! The state store saves cursors once a second. What was delivered after the last save is
//! delivered again after a `kill -9`, under the same ids; how much that is, is worth knowing. Eight
//! bytes in a file of its own, written after each batch and never synced, say so: they outlive the
//! process, and if the machine goes down with them, it is only a count. They also tell, of what
//! retention took before it could be delivered again, that it is not lost.

use std::{fs::File, io, os::unix::fs::FileExt as _, path::Path};

/// The sequence up to which one sink has had records, over all runs.
#[derive(Debug)]
pub(super) struct HighWater {
    file: File,
    /// What it was when the process started.
    had: u64,
    highest: u64,
}

impl HighWater {
    pub(super) fn open(journal: &Path, sink: &str) -> io::Result<Self> {
        let dir = journal.join("delivered");
        std::fs::create_dir_all(&dir)?;
        let path = dir.join(sink);
        let file =
            File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        let mut bytes = [0; 8];
        // A file that was just made, or cut by a crash of the machine, says nothing.
        let had = file.read_exact_at(&mut bytes, 0).map_or(0, |()| u64::from_le_bytes(bytes));
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
