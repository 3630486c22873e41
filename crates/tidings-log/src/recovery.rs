//! Opening a log that may have been cut or damaged anywhere.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io,
    path::PathBuf,
    sync::Arc,
};

use super::{
    Damage, DamageKind, Directory, OpenError, Position, Resume,
    disk::Disk,
    format::{self, HeaderRead, SEGMENT_PREFIX, SegmentHeader},
    scan::Scanner,
    segments::{Index, Segment},
};

/// What a recovery found.
#[derive(Default)]
pub(super) struct Recovered {
    pub segments: Vec<Segment>,
    /// The last segment, if it can be appended to.
    pub active: Option<Reopened>,
    /// Where the next record goes.
    pub tail: Position,
    /// After the last record that survived.
    pub survived: Position,
    /// The file and the offset after it.
    pub end: (String, u64),
    /// The last file's name says that every number before this has been given out.
    pub last_first: u64,
    pub resume: BTreeMap<Arc<str>, Resume>,
    pub cluster: Option<String>,
    pub newest_ms: u64,
    pub cut_bytes: u64,
    pub damaged: u64,
    pub scanned_bytes: u64,
    /// The last segment's header is damaged: what it should say must be written anew.
    pub header_lost: bool,
}

impl Recovered {
    /// What is missing at the end of the log, if a view knows records up to `floor`, or the name of
    /// a file says that there were some.
    pub(super) fn missing_end(&self, floor: u64, now_ms: u64) -> Option<Damage> {
        let known = floor.saturating_add(1).max(self.last_first);
        let records = known.saturating_sub(self.survived.next);
        let (file, offset) = self.end.clone();
        (records > 0).then(|| Damage {
            kind: DamageKind::End,
            file,
            offset,
            bytes: 0,
            from_ms: (self.newest_ms > 0).then_some(self.newest_ms),
            to_ms: now_ms.max(self.newest_ms),
            records,
            reason: String::new(),
        })
    }

    fn mark(&self) -> Mark {
        let (position, newest_ms) = (self.tail, self.newest_ms);
        Mark { position, newest_ms, resume: self.resume.clone(), length: 0 }
    }
}

/// A place in the log and what holds there.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    pub position: Position,
    pub newest_ms: u64,
    pub resume: BTreeMap<Arc<str>, Resume>,
    /// Where that is in the segment.
    pub length: u64,
}

/// A segment that is appended to again.
pub(super) struct Reopened {
    pub file: File,
    /// What its header says or, where that is damaged, must have said.
    pub start: Mark,
    pub length: u64,
    /// The time of its first frame.
    pub first_frame_ms: Option<u64>,
}

/// A file of the log before it is known what to make of it.
struct Found {
    first: u64,
    path: PathBuf,
    length: u64,
    header: Option<(SegmentHeader, u64)>,
}

impl Found {
    fn open(&self) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(&self.path)
    }

    fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Where its first frame is looked for.
    fn data_start(&self) -> u64 {
        self.header.as_ref().map_or(0, |(_, end)| *end)
    }
}

/// Reads what there is: every header, and all frames from the last whole header on. That is the
/// last segment alone, unless its header is damaged.
pub(super) fn recover(
    disk: &dyn Disk,
    directory: &Directory,
    now_ms: u64,
) -> Result<Recovered, OpenError> {
    let mut found = list(disk, directory, now_ms)?;
    let mut out = Recovered::default();
    let base = found.iter().rposition(|segment| segment.header.is_some()).unwrap_or(0);
    if let Some((header, _)) = found.get(base).and_then(|segment| segment.header.as_ref()) {
        out.tail = Position { next: header.first, skipped: header.skipped };
        out.cluster.clone_from(&header.cluster);
        out.newest_ms = header.newest_ms;
        out.resume = header.resume.iter().map(|(k, v)| (k.as_str().into(), *v)).collect();
    }
    // One for each segment; those before `base` are not walked.
    let mut walks: Vec<_> = (0..base).map(|_| Walk::default()).collect();
    let mut before_last = out.mark();
    for at in base..found.len() {
        let limit = found.get(at + 1).map(|next| next.first);
        if limit.is_none() {
            before_last = out.mark();
        }
        walks.push(walk(disk, &found[at], limit, &mut out));
    }
    out.survived = out.tail;
    let end = found.last().zip(walks.last());
    out.end = end.map_or_else(Default::default, |(last, walk)| (last.name(), walk.end));
    // What the last file's name says has been given out, even if nothing of it can be read.
    out.last_first = found.last().map_or(1, |last| last.first);
    raise(&mut out.tail, out.last_first);
    out.header_lost = found.last().is_some_and(|last| last.header.is_none());
    let last_first = out.last_first;
    set_unusable_aside(disk, directory, now_ms, &mut found, &mut walks, &mut out);
    if let (Some(last), Some(walk)) = (found.last_mut(), walks.last())
        && last.first == last_first
    {
        out.active = reopen(disk, last, walk, before_last, &mut out.cut_bytes);
    }
    if let (Some(last), None) = (found.last(), &out.active) {
        // A segment that is not appended to again must not share its name with the next one.
        raise(&mut out.tail, last.first + 1);
    }
    out.segments = describe(disk, found, walks, &out);
    Ok(out)
}

/// Takes the segments out of which nothing can be read. One that is empty was never written.
fn set_unusable_aside(
    disk: &dyn Disk,
    directory: &Directory,
    now_ms: u64,
    found: &mut Vec<Found>,
    walks: &mut Vec<Walk>,
    out: &mut Recovered,
) {
    for at in (0..found.len()).rev() {
        let (segment, walk) = (&found[at], &walks[at]);
        let usable = segment.header.is_some() || walk.start.is_some() || walk.unread;
        // Those before the last whole header were not walked.
        if usable || !matches!(first_frame(disk, segment), Ok(None)) {
            continue;
        }
        let reason = "no frame can be read in it; the log goes on without it";
        let gone = match segment.length {
            0 => disk.remove(&segment.path).is_ok(),
            _ => directory.set_aside(&segment.name(), reason, now_ms).is_ok(),
        };
        if !gone {
            continue;
        }
        // Between two others its readers find that it is missing, and at the end the views do.
        if let (0, Some(next)) = (at, found.get(1)) {
            let header = next.header.as_ref();
            let to_ms = header.map_or(0, |(header, _)| header.newest_ms).max(out.newest_ms);
            directory.damages().note(Damage {
                kind: DamageKind::Records,
                file: segment.name(),
                offset: 0,
                bytes: segment.length,
                from_ms: None,
                to_ms,
                records: next.first.saturating_sub(segment.first),
                reason: String::new(),
            });
        }
        out.cut_bytes += if at + 1 == found.len() { segment.length } else { 0 };
        found.remove(at);
        walks.remove(at);
    }
}

/// Moves a position up to `next`; the numbers between are never used.
pub(super) fn raise(position: &mut Position, next: u64) {
    let by = next.saturating_sub(position.next);
    position.next += by;
    position.skipped += by;
}

/// The files of the log in order, with their headers.
fn list(disk: &dyn Disk, directory: &Directory, now_ms: u64) -> Result<Vec<Found>, OpenError> {
    let mut found = Vec::new();
    let entries =
        std::fs::read_dir(directory.path()).map_err(OpenError::access(directory.path()))?;
    for entry in entries.flatten() {
        let Some(first) = entry.file_name().to_str().and_then(format::segment_first) else {
            continue;
        };
        let path = entry.path();
        if !entry.metadata().is_ok_and(|metadata| metadata.is_file()) {
            let reason = "it is no file, and takes the place of a segment of the log";
            directory.set_aside_or_fail(&path, reason, now_ms)?;
            continue;
        }
        let opened = OpenOptions::new().read(true).write(true).open(&path);
        let file = opened.map_err(OpenError::access(&path))?;
        let length = file.metadata().map_err(OpenError::access(&path))?.len();
        let header = match read_header(disk, &file, length) {
            Ok(HeaderRead::Newer(version)) => {
                return Err(OpenError::Newer { path, found: version });
            }
            Ok(HeaderRead::Whole(header, bytes)) => Some((header, bytes)),
            // A header that cannot be read is as good as a damaged one.
            Ok(HeaderRead::Damaged) | Err(_) => None,
        };
        found.push(Found { first, path, length, header });
    }
    found.sort_unstable_by_key(|segment| segment.first);
    Ok(found)
}

pub(super) fn read_header(
    disk: &dyn Disk,
    file: &File,
    file_length: u64,
) -> io::Result<HeaderRead> {
    let mut bytes = vec![0; SEGMENT_PREFIX];
    let read = disk.read_at(file, &mut bytes, 0)?;
    let Some(length) = SegmentHeader::length(&bytes[..read]) else {
        return Ok(HeaderRead::Damaged);
    };
    if length as u64 > file_length {
        return Ok(HeaderRead::Damaged);
    }
    bytes.resize(length, 0);
    let read = disk.read_at(file, &mut bytes[SEGMENT_PREFIX..], SEGMENT_PREFIX as u64)?;
    Ok(SegmentHeader::decode(&bytes[..SEGMENT_PREFIX + read]))
}

/// What reading a segment through gave.
#[derive(Default)]
struct Walk {
    /// The position before its first frame.
    start: Option<Position>,
    /// The offset of its first frame.
    first_at: u64,
    /// The end of its last frame; what follows is not a frame.
    end: u64,
    first_frame_ms: Option<u64>,
    index: Index,
    /// The file could not be read to its end.
    unread: bool,
}

/// Reads a segment through and takes its frames into account.
fn walk(disk: &dyn Disk, segment: &Found, limit: Option<u64>, out: &mut Recovered) -> Walk {
    let mut walk = Walk { end: segment.data_start(), ..Walk::default() };
    let mut scanner = Scanner::default();
    scanner.restart(segment.data_start());
    if walk_frames(disk, segment, limit, &mut scanner, &mut walk, out).is_err() {
        walk.unread = true;
        out.damaged += 1;
    } else if limit.is_some() {
        scanner.finish();
    }
    out.damaged += scanner.damaged();
    out.scanned_bytes += scanner.offset().saturating_sub(segment.data_start());
    walk
}

fn walk_frames(
    disk: &dyn Disk,
    segment: &Found,
    limit: Option<u64>,
    scanner: &mut Scanner,
    walk: &mut Walk,
    out: &mut Recovered,
) -> io::Result<()> {
    let file = segment.open()?;
    while let Some((at, frame)) = scanner.next(disk, &file, segment.length)? {
        walk.end = at + frame.bytes() as u64;
        let beyond = limit.is_some_and(|limit| frame.next() > limit);
        if beyond || !out.tail.admits(&frame) {
            out.damaged += 1;
            continue;
        }
        if walk.start.is_none() {
            walk.start = Some(frame.start());
            walk.first_at = at;
        }
        walk.first_frame_ms.get_or_insert(frame.time_ms);
        walk.index.note(frame.first, at);
        out.tail = frame.end();
        out.newest_ms = out.newest_ms.max(frame.time_ms);
        out.resume.insert(frame.source, frame.resume);
    }
    Ok(())
}

/// Cuts what is no frame off the end of the last segment. Where that cannot be done the segment
/// stays as it is, and the next append starts another one.
fn reopen(
    disk: &dyn Disk,
    last: &mut Found,
    walk: &Walk,
    before: Mark,
    cut_bytes: &mut u64,
) -> Option<Reopened> {
    let start = match &last.header {
        Some((_, data_start)) => Mark { length: *data_start, ..before },
        None => Mark { position: walk.start?, length: walk.first_at, ..before },
    };
    if walk.unread {
        return None;
    }
    let file = last.open().ok()?;
    if last.length > walk.end {
        disk.set_len(&file, walk.end).ok()?;
        *cut_bytes += last.length - walk.end;
        last.length = walk.end;
    }
    let (length, first_frame_ms) = (last.length, walk.first_frame_ms);
    Some(Reopened { file, start, length, first_frame_ms })
}

/// What the writer and readers are to know of the segments.
fn describe(disk: &dyn Disk, found: Vec<Found>, walks: Vec<Walk>, out: &Recovered) -> Vec<Segment> {
    // From the last to the first, because each header knows how new the log was before it.
    let mut newest_ms = out.newest_ms;
    let mut next_start = out.tail;
    let mut segments: Vec<_> = found
        .into_iter()
        .zip(walks)
        .rev()
        .map(|(segment, walk)| {
            let data_start = segment.data_start();
            let this_newest = newest_ms;
            let mut before_ms = 0;
            if let Some((header, _)) = &segment.header {
                newest_ms = header.newest_ms;
                before_ms = header.newest_ms;
                next_start = Position { next: header.first, skipped: header.skipped };
            } else {
                let first = walk.start.or_else(|| first_frame(disk, &segment).ok()?);
                // What may be missing between its name and its first frame is of it.
                let skipped = first.unwrap_or(next_start).skipped;
                let skipped = skipped.min(segment.first.saturating_sub(1));
                next_start = Position { next: segment.first, skipped };
            }
            Segment {
                generation: 0,
                first: segment.first,
                start: next_start,
                path: Arc::new(segment.path),
                data_start,
                length: segment.length,
                before_ms,
                newest_ms: this_newest,
                index: walk.index,
            }
        })
        .collect();
    segments.reverse();
    segments
}

/// Where a segment without a header starts, by the first frame that can be read.
fn first_frame(disk: &dyn Disk, segment: &Found) -> io::Result<Option<Position>> {
    let next = Scanner::default().next(disk, &segment.open()?, segment.length)?;
    Ok(next.map(|(_, frame)| frame.start()))
}
