//! All that a journal's directory holds, read through without changing anything in it: for people.
//!
//! It takes no lock, so it may be done beside a running bridge. The log can be read then; the state
//! belongs to the bridge, and is said to be held.

use std::{collections::BTreeMap, fs, io, path::Path};

use serde::Serialize;
use tidings_log::{Resume, SurveyError, private};

use super::{
    POSITIONS, Positions, Totals, delivered,
    state::{NAME as STATE, look},
};

/// What there is.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Survey {
    /// The directory and the log.
    #[serde(flatten)]
    pub log: tidings_log::Survey,
    /// The state beside the log; nothing if it could not be read.
    pub state: Option<StateSurvey>,
}

/// The state beside the log.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StateSurvey {
    /// By name.
    pub sinks: BTreeMap<String, SinkSurvey>,
    /// How many dead letters are kept.
    pub dead_letters: u64,
    /// What their envelopes take.
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
    /// What the correlator holds.
    pub held: u64,
    /// The fates.
    pub totals: Totals,
    /// By source, up to where everything has a fate and is not held.
    pub positions: BTreeMap<String, Resume>,
}

impl Survey {
    /// Reads everything: all frames, and all of the state.
    ///
    /// # Errors
    ///
    /// The directory or a file in it is not there, or may not be read. What is damaged is no error.
    pub fn of(path: &Path) -> Result<Self, SurveyError> {
        let mut survey = Self { log: tidings_log::Survey::of(path)?, state: None };
        survey.state();
        survey.positions()?;
        survey.delivered();
        Ok(survey)
    }

    fn state(&mut self) {
        let path = self.log.path.join(STATE);
        if self.log.held || !path.exists() {
            return;
        }
        let looked = look(&path);
        // The writes of a bridge that has started meanwhile are no damage.
        self.log.held = self.log.ask_held();
        if self.log.held {
            return;
        }
        let look = match looked {
            Ok(look) => look,
            Err(reason) => return self.log.problem(STATE, None, reason),
        };
        let highest_sequence = look.loaded.highest_sequence();
        if highest_sequence >= self.log.next_sequence {
            let end = self.log.segments.last().map_or("the log", |last| &last.file).to_owned();
            let at = self.log.segments.last().map(|last| last.bytes);
            let what = format!(
                "the log ends before record {}, and the state knows {highest_sequence}",
                self.log.next_sequence
            );
            self.log.problem(&end, at, what);
        }
        let next = self.log.next_sequence;
        let sinks = look.loaded.sinks.into_iter().map(|(name, sink)| {
            let survey = SinkSurvey {
                next_sequence: sink.standing.position.next,
                pending: next.saturating_sub(sink.standing.position.next)
                    + sink.standing.held.versions,
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
        let path = self.log.path.join(POSITIONS);
        match private::read_file(&path) {
            Ok(bytes) => {
                if let Err(reason) = Positions::read(&bytes) {
                    self.log.problem(POSITIONS, None, reason);
                }
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                self.log.problem(POSITIONS, None, e.to_string());
            }
            Err(e) => return Err(SurveyError::of(&path)(e)),
        }
        Ok(())
    }

    /// How far each sink was delivered cannot be beyond the log.
    fn delivered(&mut self) {
        let Ok(entries) = fs::read_dir(self.log.path.join(delivered::DIR)) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let next = self.log.next_sequence;
            // One that is being written anew begins with a dot.
            let content = (!name.starts_with('.')).then(|| delivered::read(&entry.path()));
            let Some(Ok(content)) = content else { continue };
            let had = content.noted.delivered.end();
            if had > next && !self.log.held {
                let what = format!("it says {had}, and the log ends at {next}");
                self.log.problem(&format!("{}/{name}", delivered::DIR), None, what);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::State;

    #[test]
    fn a_survey_finds_damage_beside_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let directory = crate::journal::open(dir.path()).unwrap();
        let (state, _) = State::open(&directory, 1, 0).unwrap();
        let survey = Survey::of(dir.path()).unwrap();
        assert!(survey.log.held && survey.state.is_none());
        drop((state, directory));
        let survey = Survey::of(dir.path()).unwrap();
        assert!(!survey.log.held && survey.state.is_some(), "{survey:?}");
        assert_eq!(survey.log.problem_count, 0, "{survey:?}");
        let state = dir.path().join(STATE);
        let length = fs::metadata(&state).unwrap().len();
        fs::write(&state, vec![0x5a; usize::try_from(length).unwrap()]).unwrap();
        fs::write(dir.path().join(POSITIONS), "{").unwrap();
        let survey = Survey::of(dir.path()).unwrap();
        let problems: Vec<_> = survey.log.problems.iter().map(|problem| &*problem.file).collect();
        assert_eq!(problems, [STATE, POSITIONS], "{survey:?}");
    }
}
