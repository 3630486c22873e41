//! Walking the frames of one segment, stepping over what is damaged.

use std::{fs::File, io};

use bytes::{Buf as _, Bytes};

use super::{
    disk::Disk,
    format::MARKER,
    frame::{Decoded, Frame, SourceNames, decode},
};

/// The least that is read at once, in bytes.
pub(super) const CHUNK: usize = 256 << 10;

/// Reads frames from one file, in chunks. Frames share their chunk's memory.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    /// Where the next frame is looked for.
    offset: u64,
    /// What was read ahead, from `offset` on.
    chunk: Bytes,
    /// Whether what precedes `offset` is not a frame.
    in_damage: bool,
    damaged: u64,
    names: SourceNames,
}

impl Scanner {
    /// Starts over, at an offset of perhaps another file.
    pub(super) fn restart(&mut self, offset: u64) {
        self.offset = offset;
        self.chunk = Bytes::new();
        self.in_damage = false;
    }

    /// Where the next frame is looked for.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// How many damaged regions were stepped over; one that ends where the file does is counted
    /// by [`finish`](Self::finish), because at the end of a log it is a torn write and no damage.
    pub(super) fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Counts a damaged region at the end of the file.
    pub(super) fn finish(&mut self) {
        self.damaged += u64::from(self.in_damage);
        self.in_damage = false;
    }

    /// The next frame that counts and its offset, looking no further than `end`. Nothing: there is
    /// none before `end`; asked again with a larger `end` the walk goes on from there.
    pub(super) fn next(
        &mut self,
        disk: &dyn Disk,
        file: &File,
        end: u64,
    ) -> io::Result<Option<(u64, Frame)>> {
        while self.offset < end {
            let left = end - self.offset;
            let here = self.chunk.slice(..clamp(left, self.chunk.len()));
            let needed = match decode(&here, &mut self.names) {
                Decoded::Frame(frame) => {
                    self.damaged += u64::from(self.in_damage);
                    self.in_damage = false;
                    let at = self.offset;
                    self.advance(frame.bytes());
                    return Ok(Some((at, frame)));
                }
                Decoded::Short(needed) if needed as u64 <= left => needed,
                Decoded::Short(_) | Decoded::Bad if !here.is_empty() => {
                    self.in_damage = true;
                    let skip = memchr::memmem::find(&here[1..], &MARKER)
                        .map_or(here.len().saturating_sub(MARKER.len() - 1).max(1), |at| at + 1);
                    self.advance(skip);
                    continue;
                }
                _ => 1,
            };
            if self.fill(disk, file, needed, left)? < needed {
                // The file is shorter than it was said to be.
                self.in_damage = true;
                self.restart_after_loss(end);
            }
        }
        Ok(None)
    }

    fn restart_after_loss(&mut self, end: u64) {
        self.offset = end;
        self.chunk = Bytes::new();
    }

    fn advance(&mut self, bytes: usize) {
        self.offset += bytes as u64;
        self.chunk.advance(bytes);
    }

    /// Reads a new chunk at `offset`; answers how much there is.
    fn fill(
        &mut self,
        disk: &dyn Disk,
        file: &File,
        needed: usize,
        left: u64,
    ) -> io::Result<usize> {
        let mut chunk = vec![0; clamp(left, needed.max(CHUNK))];
        let length = disk.read_at(file, &mut chunk, self.offset)?;
        chunk.truncate(length);
        self.chunk = chunk.into();
        Ok(length)
    }
}

fn clamp(left: u64, length: usize) -> usize {
    usize::try_from(left).map_or(length, |left| left.min(length))
}
