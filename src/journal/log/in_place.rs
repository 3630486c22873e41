//! A file of the log that is taken away while it is appended to.
//!
//! A process goes on writing to a file that has no name any more, and nobody will ever find what is
//! in it. So the name is looked at, and where it is gone all that the open file has is written again
//! under it.

use std::io;

use super::Log;
use crate::journal::{Damage, DamageKind, private};

impl Log {
    /// Sees that the directory is there and that what was appended is in it under its name. What is
    /// not is stated as damage and written again, if need be in a directory that is made again.
    /// Cheap enough for each second.
    ///
    /// # Errors
    ///
    /// What the operating system answers; nothing can be appended then, until a later call succeeds.
    pub fn keep_in_place(&mut self, now_ms: u64) -> io::Result<()> {
        let Some(active) = &mut self.active else { return self.directory.stand(now_ms) };
        if private::is_at(&active.file, &active.path)? {
            return self.directory.stand(now_ms);
        }
        // As after a sync that failed: a new segment takes over all frames, and its name.
        active.synced = active.start.clone();
        self.sync_failed = true;
        let name = active.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.directory.damages().note(Damage {
            kind: DamageKind::File,
            file: name.clone(),
            // So that it is told again when it happens again.
            offset: active.length,
            bytes: 0,
            from_ms: Some(active.start.newest_ms).filter(|ms| *ms > 0),
            to_ms: now_ms,
            records: 0,
            reason:
                "it was taken away while it was in use; what is in it is written again from the \
                     file that is still open"
                    .to_owned(),
        });
        let another = active.path.exists();
        self.directory.stand(now_ms)?;
        if another {
            let reason = "it took the place of a file that is in use";
            self.directory.set_aside(&name, reason, now_ms)?;
        }
        self.start_segment(now_ms)
    }
}
