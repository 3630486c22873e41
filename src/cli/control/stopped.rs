//! The dead letters in the journal of a bridge that does not run.

use tidings_log::OpenError as LogError;

use super::Failure;
use crate::{
    admin::api::{Letter, Refusal, Selection},
    config::JournalOnly,
    journal::{DeadLettersReader, LetterError, LetterQuery, Letters, OpenError, ReadError, State},
};

/// Letters read at once: an envelope may be 1.5 MiB long, and a list needs little of it.
const READ_AT_ONCE: usize = 16;

/// The journal, held for as long as this lives.
pub(super) struct Stopped<'a> {
    /// Nothing: none was ever kept in it.
    store: Option<(State, DeadLettersReader)>,
    sinks: &'a [String],
}

impl<'a> Stopped<'a> {
    /// Opens it as it is; nothing is made that is not there, and nothing is set aside.
    pub(super) fn open(of: &'a JournalOnly) -> Result<Self, Failure> {
        let path = &of.journal.path;
        if !path.is_dir() {
            return Err(Failure::new(
                format_args!("there is no journal {}", path.display()),
                "run the command where the bridge runs, with its configuration and as its user",
            ));
        }
        let directory = crate::journal::open(path).map_err(|error| match error {
            OpenError::Log(LogError::Held { .. }) => Failure::new(
                format_args!(
                    "the journal {} is held by a process that does not listen on its admin.sock",
                    path.display(),
                ),
                "a bridge that starts or stops does not listen: try again; if it stays so, the \
                 bridge's log says why",
            ),
            other => Failure::from(&other),
        })?;
        let state = State::open_as_it_is(&directory).map_err(|error| Failure::from(&error))?;
        let store = state.map(|state| {
            let letters = state.dead_letters();
            (state, letters)
        });
        Ok(Self { store, sinks: &of.sinks })
    }

    /// The newest, and whether there are more.
    pub(super) fn list(
        &self,
        sink: Option<&str>,
        class: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<Letter>, bool), Failure> {
        let Some((_, reader)) = &self.store else { return Ok((Vec::new(), false)) };
        let (sink, class) = (sink.map(str::to_owned), class.map(str::to_owned));
        let mut query = LetterQuery { sink, class, limit: READ_AT_ONCE, before: None };
        let mut letters = Vec::new();
        while letters.len() <= limit {
            let read = reader.list(&query).map_err(|error| Failure::from(&error))?;
            letters.extend(read.iter().map(Letter::listed));
            query.before = read.last().map(|letter| letter.number);
            if read.len() < READ_AT_ONCE {
                break;
            }
        }
        let more = letters.len() > limit;
        letters.truncate(limit);
        Ok((letters, more))
    }

    pub(super) fn show(&self, number: u64) -> Result<Letter, Failure> {
        let read = |(_, reader): &(State, DeadLettersReader)| reader.get(number);
        let read: Result<_, ReadError> = self.store.as_ref().map(read).transpose();
        match read.map_err(|error| Failure::from(&error))?.flatten() {
            Some(letter) => Ok(Letter::whole(&letter)),
            None => Err(Failure::from(&LetterError::NoSuchLetter(number))),
        }
    }

    pub(super) fn retry(&mut self, which: Selection) -> Result<u64, Failure> {
        let sinks = self.sinks;
        self.change(which, |state, letters| state.retry_letters(letters, sinks))
    }

    pub(super) fn drop_letters(&mut self, which: Selection) -> Result<u64, Failure> {
        self.change(which, State::drop_letters)
    }

    fn change(
        &mut self,
        which: Selection,
        change: impl FnOnce(&mut State, &Letters) -> Result<u64, LetterError>,
    ) -> Result<u64, Failure> {
        let letters = which.letters().map_err(|error: Refusal| Failure::from(&error))?;
        let changed = match (&mut self.store, &letters) {
            (Some((state, _)), letters) => change(state, letters),
            (None, Letters::Numbers(numbers)) if !numbers.is_empty() => {
                Err(LetterError::NoSuchLetter(numbers[0]))
            }
            (None, _) => Ok(0),
        };
        changed.map_err(|error| Failure::from(&error))
    }
}
