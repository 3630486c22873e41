//! A file of the log that is taken away while it is appended to.
//!
//! A process goes on writing to a file that has no name any more, and nobody will ever find what is
//! in it. So the name is looked at, and where it is gone all that the open file has is written again
//! under it. Where that cannot be read any more, because somebody has cut the file, too, the log goes on
//! without it.

use std::io;

use super::{Log, rotation::Active};
use crate::{Damage, DamageKind, private, scan::Scanner};

impl Log {
    /// Sees that the directory is there and that what was appended is in it under its name. What is
    /// not is written again, if need be in a directory that is made again, and stated as damage.
    /// Cheap enough for each second.
    ///
    /// # Errors
    ///
    /// What the operating system answers; nothing can be appended then, until a later call succeeds.
    pub fn keep_in_place(&mut self, now_ms: u64) -> io::Result<()> {
        if self.is_in_place(now_ms)? { Ok(()) } else { self.start_segment(now_ms) }
    }

    /// Whether what was appended is under its name. Where it is not, the next segment takes over all of
    /// it, in a directory that is there.
    pub(super) fn is_in_place(&mut self, now_ms: u64) -> io::Result<bool> {
        let Some(active) = &mut self.active else {
            return self.directory.keep_in_place(now_ms).map(|()| true);
        };
        let is_there = private::is_at(&active.file, &active.path)?;
        if is_there && active.file.metadata()?.len() >= active.length {
            return self.directory.keep_in_place(now_ms).map(|()| true);
        }
        // As after a sync that failed: a new segment takes over all frames, and its name.
        active.synced = active.start.clone();
        self.sync_failed = true;
        let another = (!is_there && active.path.exists()).then(|| active.name());
        self.directory.keep_in_place(now_ms)?;
        if let Some(name) = another {
            let reason = "it took the place of a file that is in use";
            self.directory.set_aside(&name, reason, now_ms)?;
        }
        Ok(false)
    }

    /// Whether the open file has all frames from an offset on.
    pub(super) fn has_all_from(&self, active: &Active, from: u64) -> io::Result<bool> {
        let mut scanner = Scanner::default();
        scanner.restart(from);
        let mut end = from;
        while let Some((at, frame)) = scanner.next(&*self.disk, &active.file, active.length)? {
            if at != end {
                break;
            }
            end += frame.bytes() as u64;
        }
        Ok(end == active.length)
    }

    /// States that a segment was taken away: its frames have a place again, or cannot be had any more,
    /// which their readers count.
    pub(super) fn note_taken_away(&self, old: &Active, is_cut: bool, now_ms: u64) {
        self.directory.damages().note(Damage {
            kind: DamageKind::File,
            file: old.name(),
            offset: 0,
            bytes: 0,
            from_ms: Some(old.start.newest_ms).filter(|ms| *ms > 0),
            to_ms: now_ms,
            records: 0,
            reason: if is_cut { Damage::CUT } else { Damage::TAKEN_AWAY }.to_owned(),
        });
    }
}
