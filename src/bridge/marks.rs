//! What is saved of a source beside the log: its last sign of life, its witness, and what a list
//! that is not whole yet has brought.
//!
//! Ingest sets it, about once a second while anything is heard, and the keeper saves it with
//! whatever else it saves. For a sign of life alone it does so only when that is
//! [`WORTH_A_COMMIT_MS`] newer than the one that is saved: a cluster in which something happens every
//! second costs a commit every other second at most, and one in which nothing happens costs none.

use std::sync::{Arc, Mutex};

use tidings_log::Resume;

use super::shared::lock;
use crate::journal::SourceState;

/// A sign of life that is so much newer is saved for its own sake, in milliseconds. A gap begins at
/// the last that was saved, so this bounds by how much it is stated too long after a crash.
const WORTH_A_COMMIT_MS: u64 = 1_900;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct SourceMarks {
    key: Arc<str>,
    marks: Mutex<Marks>,
}

#[derive(Debug)]
struct Marks {
    now: SourceState,
    changed: bool,
    /// It says more than a new sign of life.
    urgent: bool,
    /// The sign of life that is saved.
    saved_ms: Option<u64>,
}

impl SourceMarks {
    /// Marks that have not been saved yet.
    pub(super) fn new(key: Arc<str>, now: SourceState) -> Self {
        let marks = Marks { now, changed: true, urgent: true, saved_ms: None };
        Self { key, marks: Mutex::new(marks) }
    }

    pub(super) fn key(&self) -> &Arc<str> {
        &self.key
    }

    /// Sets them; with `urgent` they are saved with the next commit.
    pub(super) fn set(&self, now: SourceState, urgent: bool) {
        let marks = &mut *lock(&self.marks);
        marks.now = now;
        marks.changed = true;
        marks.urgent |= urgent;
    }

    /// The source has come here in the log, which is saved with what else there is.
    pub(super) fn come_to(&self, resume: Resume, next: u64) {
        let marks = &mut *lock(&self.marks);
        (marks.now.resume, marks.now.as_of) = (resume, next);
    }

    /// Takes them to be saved, if that is due, or if they are news and something else is saved
    /// `anyway`.
    pub(super) fn take(&self, anyway: bool) -> Option<SourceState> {
        let marks = &mut *lock(&self.marks);
        let heard_ms = marks.now.last_heard_ms;
        // Either way: a clock may be set back.
        let newer = heard_ms.unwrap_or(0).abs_diff(marks.saved_ms.unwrap_or(0));
        let due = anyway || marks.urgent || newer >= WORTH_A_COMMIT_MS;
        if !marks.changed || !due {
            return None;
        }
        (marks.changed, marks.urgent, marks.saved_ms) = (false, false, heard_ms);
        Some(marks.now.clone())
    }

    /// What was taken last could not be saved.
    pub(super) fn put_back(&self) {
        let marks = &mut *lock(&self.marks);
        (marks.changed, marks.urgent) = (true, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_of_life_are_saved_every_other_second_at_most_and_what_is_urgent_at_once() {
        let heard = |ms| SourceState { last_heard_ms: Some(ms), ..SourceState::default() };
        let marks = SourceMarks::new("*".into(), heard(10_000));
        assert_eq!(marks.take(false), Some(heard(10_000)), "the first");
        assert_eq!(marks.take(true), None, "no news");
        marks.set(heard(11_000), false);
        assert_eq!(marks.take(false), None);
        marks.set(heard(12_000), false);
        assert_eq!(marks.take(false), Some(heard(12_000)));
        marks.set(heard(12_500), false);
        assert_eq!(marks.take(true), Some(heard(12_500)));
        marks.set(heard(12_600), true);
        assert_eq!(marks.take(false), Some(heard(12_600)));
        marks.put_back();
        assert_eq!(marks.take(false), Some(heard(12_600)));
        marks.set(heard(5_000), false);
        assert_eq!(marks.take(false), Some(heard(5_000)), "a clock that was set back");
    }
}
