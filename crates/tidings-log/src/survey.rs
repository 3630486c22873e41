//! All that a journal directory holds of a log, read through without changing anything in it: for people.
//!
//! A survey may be made beside the process that appends: the lock is asked for, and let go of at once.

use std::{
    collections::BTreeMap,
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::{
    Damage, Position, Resume,
    directory::{LOCK, asides, bytes_of_path},
    disk::RealDisk,
    format::{self, HeaderRead, SegmentHeader},
    recovery::read_header,
    scan::Scanner,
    trail::Trail,
};

/// So many problems are named; the others are counted.
const NAMED: usize = 1000;

/// The log of a directory and what is beside it, as a survey finds them.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Survey {
    /// The directory.
    pub path: PathBuf,
    /// A process holds its lock.
    pub held: bool,
    /// Bytes that it takes on disk, all told.
    pub bytes: u64,
    /// The cluster that the records are of, if the log says.
    pub cluster_uid: Option<String>,
    /// Sequence of the next record.
    pub next_sequence: u64,
    /// The segments of the log.
    pub segments: Vec<SegmentSurvey>,
    /// By source, up to where the log has it.
    pub sources: BTreeMap<String, Resume>,
    /// Bytes at the end of the log that are no frame: a write that a crash tore, or that is going
    /// on. They are cut off when the log is opened.
    pub torn_bytes: u64,
    /// Files that were set aside, by the name of the directory, with the bytes on disk.
    pub set_aside: BTreeMap<String, u64>,
    /// How many problems there are.
    pub problem_count: u64,
    /// The first thousand of them.
    pub problems: Vec<Problem>,
}

/// One segment of the log.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SegmentSurvey {
    /// The name of the file.
    pub file: String,
    /// Its length.
    pub bytes: u64,
    /// The sequence that it starts at, as its name says.
    pub first_sequence: u64,
    /// Frames that can be read.
    pub frames: u64,
    /// Records in them.
    pub records: u64,
    /// The time of the first of them, in milliseconds since the epoch.
    pub from_ms: Option<u64>,
    /// The time of the last of them, in milliseconds since the epoch.
    pub to_ms: Option<u64>,
}

/// Something that is not as it should be.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// The file, by its name in the directory.
    pub file: String,
    /// Where in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Its description.
    pub what: String,
}

/// Why a directory cannot be looked at.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}: {source}", path.display())]
pub struct SurveyError {
    path: PathBuf,
    source: io::Error,
}

impl SurveyError {
    /// Makes an error of the operating system's answer about a path.
    pub fn of(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self { path: path.to_owned(), source }
    }
}

/// A segment as it was listed.
struct Listed {
    first: u64,
    path: PathBuf,
    name: String,
}

impl Survey {
    /// Reads everything: all frames of all segments.
    ///
    /// # Errors
    ///
    /// The directory or a file in it is not there, or may not be read. What is damaged is no error.
    pub fn of(path: &Path) -> Result<Self, SurveyError> {
        let mut survey = Self { path: path.to_owned(), ..Self::default() };
        fs::read_dir(path).map_err(SurveyError::of(path))?;
        survey.bytes = bytes_of_path(path).map_err(SurveyError::of(path))?;
        survey.held = survey.ask_held();
        for aside in asides(path).map_err(SurveyError::of(path))? {
            let name = aside.path.file_name().unwrap_or_default().to_string_lossy();
            survey.set_aside.insert(name.into_owned(), aside.bytes);
        }
        survey.log()?;
        Ok(survey)
    }

    /// Asks whether a process holds the lock now. The question itself holds it for a moment.
    pub fn ask_held(&self) -> bool {
        File::open(self.path.join(LOCK))
            .is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    /// Adds a problem.
    pub fn problem(&mut self, file: &str, offset: Option<u64>, what: String) {
        self.problem_count += 1;
        if self.problems.len() < NAMED {
            self.problems.push(Problem { file: file.to_owned(), offset, what });
        }
    }

    fn damage(&mut self, damage: &Damage) {
        let text = damage.to_string();
        let what = text.split_once(": ").map_or(&*text, |(_, what)| what);
        self.problem(&damage.file, Some(damage.offset), what.to_owned());
    }

    /// Walks every frame of every segment.
    fn log(&mut self) -> Result<(), SurveyError> {
        let mut trail = Trail::default();
        let mut tail = Position::START;
        let mut begun = false;
        let listed = self.list()?;
        for (at, segment) in listed.iter().enumerate() {
            let file = match fs::File::open(&segment.path) {
                Ok(file) => file,
                // Retired since it was listed.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(SurveyError::of(&segment.path)(e)),
            };
            let length = file.metadata().map_err(SurveyError::of(&segment.path))?.len();
            let header = match read_header(&RealDisk, &file, length) {
                Ok(HeaderRead::Whole(header, end)) => Some((header, end)),
                Ok(HeaderRead::Newer(version)) => {
                    let what = format!("it is of the newer format {version}");
                    self.problem(&segment.name, Some(0), what);
                    continue;
                }
                Ok(HeaderRead::Damaged) | Err(_) => None,
            };
            self.enter(segment, header.as_ref(), &mut trail, &mut tail, begun);
            begun = true;
            let start = header.map_or(0, |(_, end)| end);
            let limit = listed.get(at + 1).map(|next| next.first);
            let mut survey = SegmentSurvey {
                file: segment.name.clone(),
                bytes: length,
                first_sequence: segment.first,
                ..SegmentSurvey::default()
            };
            let mut scanner = Scanner::default();
            scanner.restart(start);
            let mut end = start;
            loop {
                let (offset, frame) = match scanner.next(&RealDisk, &file, length) {
                    Ok(Some(found)) => found,
                    Ok(None) => break,
                    Err(error) => {
                        self.problem(&segment.name, Some(scanner.offset()), error.to_string());
                        break;
                    }
                };
                if limit.is_some_and(|limit| frame.next() > limit) || !tail.admits(&frame) {
                    continue;
                }
                if let Some(damage) = trail.frame(offset, &frame) {
                    self.damage(&damage);
                }
                end = offset + frame.bytes() as u64;
                tail = frame.end();
                survey.frames += 1;
                survey.records += u64::from(frame.count());
                survey.from_ms.get_or_insert(frame.time_ms);
                survey.to_ms = survey.to_ms.max(Some(frame.time_ms));
                self.sources.insert(frame.source.to_string(), frame.resume);
            }
            self.segments.push(survey);
            if limit.is_none() {
                self.torn_bytes = length.saturating_sub(end);
            } else if end < length {
                let what = format!("{} bytes at the end cannot be read", length - end);
                self.problem(&segment.name, Some(end), what);
            }
        }
        self.next_sequence = tail.next;
        Ok(())
    }

    /// The files of the log in order.
    fn list(&mut self) -> Result<Vec<Listed>, SurveyError> {
        let mut listed = Vec::new();
        for entry in
            fs::read_dir(&self.path).map_err(SurveyError::of(&self.path.clone()))?.flatten()
        {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(first) = format::segment_first(&name) else { continue };
            if entry.path().is_dir() {
                self.problem(&name, None, "it is no file".to_owned());
                continue;
            }
            listed.push(Listed { first, path: entry.path(), name });
        }
        listed.sort_unstable_by_key(|segment| segment.first);
        Ok(listed)
    }

    /// Goes on in a segment: is something missing before it?
    fn enter(
        &mut self,
        segment: &Listed,
        header: Option<&(SegmentHeader, u64)>,
        trail: &mut Trail,
        tail: &mut Position,
        begun: bool,
    ) {
        let Some((header, start)) = header else {
            self.problem(&segment.name, Some(0), "its header cannot be read".to_owned());
            if !begun {
                // What was before it is not known.
                *tail = Position { next: segment.first, skipped: 0 };
            }
            trail.enter(segment.name.clone(), 0, *tail, 0);
            return;
        };
        let here = Position { next: header.first, skipped: header.skipped };
        if begun && let Some(damage) = trail.leave(trail.offset(), here, header.newest_ms) {
            self.damage(&damage);
        }
        *tail = here;
        trail.enter(segment.name.clone(), *start, here, header.newest_ms);
        for (source, resume) in &header.resume {
            self.sources.insert(source.clone(), *resume);
        }
        if header.cluster.is_some() {
            self.cluster_uid.clone_from(&header.cluster);
        }
    }
}
