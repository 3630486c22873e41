//! All that a journal's directory holds, read through without changing anything in it: for people.
//!
//! A survey takes no lock, so it may be done beside a running bridge. The log can be read then; the state
//! belongs to the bridge, and is said to be held.

mod log;

use std::{
    collections::BTreeMap,
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::{
    Damage, POSITIONS, Positions, Resume, Totals, delivered,
    directory::{asides, bytes_of_path},
    private,
    state::{NAME as STATE, look},
};

/// So many problems are named; the others are counted.
const NAMED: usize = 1000;

/// The contents of a journal.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Survey {
    /// The directory.
    pub path: PathBuf,
    /// A bridge runs on it.
    pub held: bool,
    /// The size on disk, in bytes, of all of it.
    pub bytes: u64,
    /// The cluster whose Events these are, if the log says.
    pub cluster_uid: Option<String>,
    /// Sequence of the next record, by the log.
    pub next_sequence: u64,
    /// The log.
    pub segments: Vec<SegmentSurvey>,
    /// By source, up to where the log has it.
    pub sources: BTreeMap<String, Resume>,
    /// Bytes at the end of the log that are no frame: a write that a crash tore, or that is going
    /// on. They are cut off when the journal is opened.
    pub torn_bytes: u64,
    /// The state beside the log; nothing if it could not be read.
    pub state: Option<StateSurvey>,
    /// Files that were set aside, by the name of the directory, with their bytes on disk.
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

/// The state beside the log.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StateSurvey {
    /// By name.
    pub sinks: BTreeMap<String, SinkSurvey>,
    /// How many dead letters are kept.
    pub dead_letters: u64,
    /// The size of their envelopes.
    pub dead_letter_bytes: u64,
    /// The view `seen` holds every record before this sequence.
    pub applied: u64,
    /// The highest sequence that any part of it knows.
    pub highest_sequence: u64,
}

/// One sink, as the state has it.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SinkSurvey {
    /// The sequence after the last record with a fate.
    pub next_sequence: u64,
    /// Records of the log from there on, and what is held.
    pub pending: u64,
    /// The number of versions that the correlator holds.
    pub held: u64,
    /// Records that are set aside: the state has copies of them.
    pub set_aside: u64,
    /// The fates.
    pub totals: Totals,
    /// By source, up to where everything has a fate and is not held.
    pub positions: BTreeMap<String, Resume>,
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
    /// The problem, in words.
    pub what: String,
}

/// Why a directory cannot be looked at.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}: {source}\nhint: give the directory of a journal that this user may read", path.display())]
pub struct SurveyError {
    path: PathBuf,
    source: io::Error,
}

impl SurveyError {
    fn of(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self { path: path.to_owned(), source }
    }
}

impl Survey {
    /// Reads everything: all frames, and all of the state.
    ///
    /// # Errors
    ///
    /// The directory or a file in it is not there, or may not be read. What is damaged is no error.
    pub fn of(path: &Path) -> Result<Self, SurveyError> {
        let mut survey = Self { path: path.to_owned(), ..Self::default() };
        fs::read_dir(path).map_err(SurveyError::of(path))?;
        survey.held = is_held(path);
        survey.bytes = bytes_of_path(path).map_err(SurveyError::of(path))?;
        for aside in asides(path).map_err(SurveyError::of(path))? {
            let name = aside.path.file_name().unwrap_or_default().to_string_lossy();
            survey.set_aside.insert(name.into_owned(), aside.bytes);
        }
        survey.log()?;
        survey.state();
        survey.positions()?;
        survey.delivered();
        Ok(survey)
    }

    fn state(&mut self) {
        let path = self.path.join(STATE);
        if self.held || !path.exists() {
            return;
        }
        let looked = look(&path);
        // What is written by a bridge that has started meanwhile is no damage.
        self.held = is_held(&self.path);
        if self.held {
            return;
        }
        let look = match looked {
            Ok(look) => look,
            Err(reason) => return self.problem(STATE, None, reason),
        };
        let highest_sequence = look.loaded.highest_sequence();
        if highest_sequence >= self.next_sequence {
            let end = self.segments.last().map_or("the log", |last| &last.file).to_owned();
            let at = self.segments.last().map(|last| last.bytes);
            let what = format!(
                "the log ends before record {}, and the state knows {highest_sequence}",
                self.next_sequence
            );
            self.problem(&end, at, what);
        }
        let next = self.next_sequence;
        let sinks = look.loaded.sinks.into_iter().map(|(name, sink)| {
            let survey = SinkSurvey {
                next_sequence: sink.standing.position.next,
                pending: next
                    .saturating_sub(sink.standing.position.next)
                    .saturating_sub(sink.passed.count())
                    + sink.standing.held.versions
                    + sink.set_aside,
                set_aside: sink.set_aside,
                held: sink.standing.held.versions,
                totals: sink.totals,
                positions: sink.positions,
            };
            (name, survey)
        });
        self.state = Some(StateSurvey {
            sinks: sinks.collect(),
            dead_letters: look.dead_letters,
            dead_letter_bytes: look.dead_letter_bytes,
            applied: look.loaded.applied,
            highest_sequence,
        });
    }

    fn positions(&mut self) -> Result<(), SurveyError> {
        let path = self.path.join(POSITIONS);
        match private::read_file(&path) {
            Ok(bytes) => {
                if let Err(reason) = Positions::read(&bytes) {
                    self.problem(POSITIONS, None, reason);
                }
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                self.problem(POSITIONS, None, e.to_string());
            }
            Err(e) => return Err(SurveyError::of(&path)(e)),
        }
        Ok(())
    }

    /// How far each sink was delivered cannot be beyond the log.
    fn delivered(&mut self) {
        let Ok(entries) = fs::read_dir(self.path.join(delivered::DIR)) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let next = self.next_sequence;
            // One that is being written anew begins with a dot.
            let content = (!name.starts_with('.')).then(|| delivered::read(&entry.path()));
            let Some(Ok(content)) = content else { continue };
            let had = content.noted.delivered.end();
            if had > next && !self.held {
                let what = format!("it says {had}, and the log ends at {next}");
                self.problem(&format!("{}/{name}", delivered::DIR), None, what);
            }
        }
    }

    fn damage(&mut self, damage: &Damage) {
        let text = damage.to_string();
        let what = text.split_once(": ").map_or(&*text, |(_, what)| what);
        self.problem(&damage.file, Some(damage.offset), what.to_owned());
    }

    fn problem(&mut self, file: &str, offset: Option<u64>, what: String) {
        self.problem_count += 1;
        if self.problems.len() < NAMED {
            self.problems.push(Problem { file: file.to_owned(), offset, what });
        }
    }
}

/// Whether a process holds the lock. It is held here for as long as it takes to ask.
fn is_held(path: &Path) -> bool {
    File::open(path.join("lock"))
        .is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}
