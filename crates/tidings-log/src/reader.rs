//! Reading the log, behind the writer and beside it.

use std::{
    fs::File,
    io::{self, ErrorKind::NotFound},
    sync::Arc,
};

use super::{
    Frame, Position,
    disk::RealDisk,
    scan::Scanner,
    segments::{Shared, View},
    trail::Trail,
};

/// Reads the log in order, from a sequence to the tail and on as the tail moves.
///
/// What is damaged or was retired meanwhile is stepped over without an error; what is missing shows
/// as a difference of [ordinals](Position::ordinal) between where the last frame ended and where
/// the next one starts, or [`position`](Self::position) at the tail. Damage is noted besides, in
/// [`LogHandle::damages`](super::LogHandle::damages).
///
/// A reader keeps the segment open that it is in. Should retention unlink that one, its space is
/// freed at the next read or when the reader is dropped; so drop a reader that rests.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<Shared>,
    from: u64,
    /// After what was read; nothing before the first frame or tail.
    position: Option<Position>,
    /// The segment being read, or the least that may be read next.
    generation: Option<u64>,
    open: Option<(u64, File)>,
    scanner: Scanner,
    trail: Trail,
}

impl Reader {
    pub(super) fn new(shared: Arc<Shared>, from: u64) -> Self {
        let (scanner, trail) = (Scanner::default(), Trail::default());
        Self { shared, from, position: None, generation: None, open: None, scanner, trail }
    }

    /// The next frames, until they reach `max_bytes` (at least one, if there is one); empty at the
    /// tail. A frame that holds the first sequence asked for somewhere inside is returned whole.
    ///
    /// # Errors
    ///
    /// Only what the operating system answers to opening or reading a file that is there. The
    /// reader stays where it was and the call may be repeated.
    pub fn read(&mut self, max_bytes: usize) -> io::Result<Vec<Arc<Frame>>> {
        let mut frames = Vec::new();
        let mut bytes = 0;
        loop {
            let (view, tail) = {
                let row = self.shared.lock();
                (row.view(self.generation, self.position().next), row.tail)
            };
            let Some(view) = view else {
                self.reach(&frames, tail);
                return Ok(frames);
            };
            match self.read_segment(&view, max_bytes, &mut bytes, &mut frames) {
                Ok(true) => return Ok(frames),
                Ok(false) => {
                    let Some((_, next)) = view.limit else {
                        self.reach(&frames, tail);
                        return Ok(frames);
                    };
                    // Sealed and read to its end, or gone.
                    self.scanner.finish();
                    if self.open.take().is_some() || self.shared.lock().keeps(view.generation) {
                        let missing = self.trail.leave(view.length, next, view.newest_ms);
                        if let Some(damage) = missing {
                            self.shared.damages.note(damage);
                        }
                    }
                    self.generation = Some(view.generation + 1);
                }
                // Replaced or retired since it was looked up: there is another to read on in.
                Err(e) if e.kind() == NotFound && !self.shared.lock().is_last(view.generation) => {}
                // What was read comes first; the error comes again.
                Err(_) if !frames.is_empty() => return Ok(frames),
                Err(e) => return Err(e),
            }
        }
    }

    /// Everything before it has been returned, or is lost. Before the first read it is where the
    /// reader was started, with `skipped` 0.
    pub fn position(&self) -> Position {
        self.position.unwrap_or(Position { next: self.from, skipped: 0 })
    }

    /// How many damaged regions were stepped over.
    pub fn damaged(&self) -> u64 {
        self.scanner.damaged()
    }

    /// Reads on in one segment; answers whether enough was read.
    fn read_segment(
        &mut self,
        view: &View,
        max_bytes: usize,
        bytes: &mut usize,
        frames: &mut Vec<Arc<Frame>>,
    ) -> io::Result<bool> {
        let file = match &mut self.open {
            Some((generation, file)) if *generation == view.generation => file,
            open => {
                let file = match File::open(&*view.path) {
                    Ok(file) => Some(file),
                    // Retired since it was looked up, or taken away by hand. The last one is never
                    // retired, and the writer puts it in its place again.
                    Err(e) if e.kind() == NotFound && view.limit.is_some() => None,
                    Err(e) => return Err(e),
                };
                let name = view.path.file_name().unwrap_or_default().to_string_lossy();
                self.trail.enter(name.into_owned(), view.offset, view.start, view.before_ms);
                let Some(file) = file else { return Ok(false) };
                self.generation = Some(view.generation);
                self.scanner.restart(view.offset);
                &mut open.insert((view.generation, file)).1
            }
        };
        let mut note_from = view.note_from;
        while let Some((at, frame)) = self.scanner.next(&RealDisk, file, view.length)? {
            let beyond = view.limit.is_some_and(|(limit, _)| frame.next() > limit);
            if !beyond
                && self.trail.admits(&frame)
                && let Some(damage) = self.trail.frame(at, &frame)
            {
                self.shared.damages.note(damage);
            }
            let wanted = match self.position {
                Some(position) => position.admits(&frame),
                None => frame.next() > self.from || frame.first >= self.from,
            };
            if at >= note_from && !beyond {
                note_from = self.shared.lock().note(view.generation, frame.first, at);
            }
            if beyond || !wanted {
                continue;
            }
            self.position = Some(frame.end());
            *bytes += frame.bytes();
            frames.push(Arc::new(frame));
            if *bytes >= max_bytes {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Notes that there is nothing more up to `tail`.
    fn reach(&mut self, frames: &[Arc<Frame>], tail: Position) {
        if frames.is_empty() && tail.next >= self.position().next {
            self.position = Some(tail);
        }
    }
}
