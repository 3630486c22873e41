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
                self.offset = end;
            }
        }
        // A walk that rests keeps no memory.
        self.chunk = Bytes::new();
        Ok(None)
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

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::{
        super::{FrameBuilder, Position, Resume, disk::RealDisk},
        *,
    };

    fn frame(first: u64, bytes: usize) -> Vec<u8> {
        let mut builder = FrameBuilder::new("all".into(), Resume::default());
        builder.record(|out| out.resize(out.len() + bytes, b'x'));
        builder.seal(Position { next: first, skipped: 0 }, 1).to_vec()
    }

    fn walk(content: &[u8], ends: &[usize]) -> (Vec<(u64, u64)>, u64) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        let (mut scanner, mut found) = (Scanner::default(), Vec::new());
        for end in ends {
            while let Some((at, frame)) = scanner.next(&RealDisk, &file, *end as u64).unwrap() {
                found.push((at, frame.first));
            }
        }
        scanner.finish();
        (found, scanner.damaged())
    }

    #[test]
    fn a_frame_after_damage_is_found_wherever_its_marker_lies() {
        let good = frame(1, 10);
        for around in [0, CHUNK, 2 * CHUNK] {
            for length in around.saturating_sub(80)..around + 9 {
                let mut content = vec![MARKER[0]; length];
                content.extend_from_slice(&good);
                let expected = (vec![(length as u64, 1)], u64::from(length > 0));
                assert_eq!(walk(&content, &[content.len()]), expected, "{length} bytes before it");
            }
        }
    }

    #[test]
    fn frames_larger_than_a_chunk_and_across_its_end_are_read() {
        let mut content = Vec::new();
        let mut expected = Vec::new();
        for (first, bytes) in [(1, 3 * CHUNK), (2, CHUNK - 100), (3, 300), (4, 5)] {
            expected.push((content.len() as u64, first));
            content.extend_from_slice(&frame(first, bytes));
        }
        assert_eq!(walk(&content, &[content.len()]), (expected, 0));
    }

    #[test]
    fn a_walk_goes_on_after_damage_at_what_was_the_end() {
        let mut content = frame(1, 10);
        let damaged = content.len();
        content.extend_from_slice(&frame(2, 10));
        // Its length now reaches beyond everything.
        content[damaged + 14] = 1;
        let end = content.len();
        content.extend_from_slice(&frame(3, 10));
        let expected = (vec![(0, 1), (end as u64, 3)], 1);
        assert_eq!(walk(&content, &[damaged, end, content.len()]), expected);
    }

    #[test]
    fn a_file_that_is_shorter_than_was_said_ends_in_damage() {
        let content = frame(1, 10);
        assert_eq!(walk(&content, &[content.len() + 500]), (vec![(0, 1)], 1));
        assert_eq!(walk(&content, &[content.len() + 5]), (vec![(0, 1)], 1));
    }
}
