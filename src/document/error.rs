//! Problems of a configuration: where, what, and how to mend it.
//!
//! The text of a problem never carries a value that may be a secret, but for the hint of `check` on a
//! signing secret that lacks its prefix, and the excerpt shown beside it has every such value masked.

use std::{fmt, ops::Range, sync::Arc};

use miette::{LabeledSpan, MietteDiagnostic, NamedSource, Report};

use super::yaml::{Mistake, Origin};
use crate::{
    bridge::FilterError,
    plain::{plain, visible},
    template::TemplateError,
};

/// A configuration that cannot be used, with every problem that was found in it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", .problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct Error {
    problems: Vec<Problem>,
}

impl Error {
    /// Problems in the order of the file; what is not in the file comes first.
    pub(crate) fn new(mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| match &problem.place {
            Place::At { span, .. } => Some(span.start),
            Place::File(_) | Place::Env(_) => None,
        });
        Self { problems }
    }

    /// The problems, at least one.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        Self { problems: vec![problem] }
    }
}

/// The fault of a value, and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) what: String,
    pub(crate) hint: Option<String>,
}

pub(crate) fn wrong(what: impl Into<String>) -> Wrong {
    Wrong { what: what.into(), hint: None }
}

impl Wrong {
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// The same, of the value at a path.
    pub(crate) fn at(self, path: impl fmt::Display) -> Self {
        Self { what: format!("`{path}`: {}", self.what), ..self }
    }
}

/// The fault of a text that may have lines and columns of its own.
pub(crate) struct Misplaced {
    pub(crate) wrong: Wrong,
    /// The byte of the text at which it is wrong, where that is not the text as a whole.
    pub(crate) offset: Option<usize>,
}

impl From<Wrong> for Misplaced {
    fn from(wrong: Wrong) -> Self {
        Self { wrong, offset: None }
    }
}

impl From<FilterError> for Misplaced {
    fn from(FilterError { what, hint, offset }: FilterError) -> Self {
        Self { wrong: Wrong { what, hint }, offset: Some(offset) }
    }
}

impl From<TemplateError> for Misplaced {
    fn from(TemplateError { what, hint, offset }: TemplateError) -> Self {
        Self { wrong: Wrong { what, hint }, offset: Some(offset) }
    }
}

/// One thing that is wrong.
///
/// Its `Display` is one line `place: what`, and a line `hint: …` with a way to mend it.
#[derive(Clone, Debug)]
pub struct Problem {
    place: Place,
    wrong: Wrong,
    /// The file with its secrets masked, where the problem is in a file that could be parsed.
    excerpt: Option<Arc<NamedSource<String>>>,
}

#[derive(Clone, Debug)]
enum Place {
    /// In the file at this line and column, both from 1, columns in characters.
    At { file: String, line: usize, column: usize, span: Range<usize> },
    /// Anywhere in the file, or in the file as such.
    File(String),
    /// In this variable of the environment.
    Env(String),
}

impl Problem {
    pub(crate) fn of_file(file: &str, wrong: Wrong) -> Self {
        Self::at(Place::File(file.to_owned()), wrong, None)
    }

    pub(crate) fn of_env(name: &str, wrong: Wrong) -> Self {
        Self::at(Place::Env(name.to_owned()), wrong, None)
    }

    fn at(place: Place, wrong: Wrong, excerpt: Option<Arc<NamedSource<String>>>) -> Self {
        // It may quote the file.
        let wrong = Wrong { what: plain(&wrong.what).into_owned(), ..wrong };
        Self { place, wrong, excerpt }
    }

    /// The problem for a terminal: with the lines around it and the place underlined.
    pub fn report(&self) -> Report {
        let diagnostic = |what| {
            let diagnostic = MietteDiagnostic::new(what);
            match &self.wrong.hint {
                Some(hint) => diagnostic.with_help(hint),
                None => diagnostic,
            }
        };
        match (&self.place, &self.excerpt) {
            (Place::At { span, .. }, Some(excerpt)) => {
                let label = LabeledSpan::at(span.clone(), "here");
                let diagnostic = diagnostic(self.wrong.what.clone()).with_label(label);
                Report::new(diagnostic).with_source_code(Arc::clone(excerpt))
            }
            _ => Report::new(diagnostic(format!("{}: {}", self.place, self.wrong.what))),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.wrong.what)?;
        self.wrong.hint.iter().try_for_each(|hint| write!(f, "\n  hint: {hint}"))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At { file, line, column, .. } => write!(f, "{file}:{line}:{column}"),
            Self::File(file) => f.write_str(file),
            Self::Env(name) => write!(f, "environment variable {name}"),
        }
    }
}

/// The file under reading: turns byte ranges into places.
pub(crate) struct SourceFile {
    name: String,
    text: String,
    excerpt: Option<Arc<NamedSource<String>>>,
}

impl SourceFile {
    pub(crate) fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into(), excerpt: None }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Has problems show an excerpt from now on: of this text, which is the file with its secrets masked.
    pub(crate) fn show(&mut self, masked: &str) {
        let source = NamedSource::new(&self.name, visible(masked)).with_language("yaml");
        self.excerpt = Some(Arc::new(source));
    }

    /// The line of a byte, from 1.
    pub(crate) fn line(&self, at: usize) -> usize {
        self.text.get(..at).unwrap_or(&self.text).matches('\n').count() + 1
    }

    /// All mistakes in the bytes of the file.
    pub(crate) fn mistakes(&self, mistakes: impl IntoIterator<Item = Mistake>) -> Error {
        let problem = |(at, wrong)| self.problem_at(at, wrong);
        Error::new(mistakes.into_iter().map(problem).collect())
    }

    /// A problem at some bytes of the file.
    pub(crate) fn problem_at(&self, span: Range<usize>, wrong: Wrong) -> Problem {
        let before = self.text.get(..span.start).unwrap_or(&self.text);
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        let place = Place::At {
            file: self.name.clone(),
            line: self.line(span.start),
            column: before[line_start..].chars().count() + 1,
            span,
        };
        Problem::at(place, wrong, self.excerpt.clone())
    }

    /// A problem where a node or key comes from.
    pub(crate) fn problem(&self, origin: &Origin, wrong: Wrong) -> Problem {
        match origin {
            Origin::File(span) => self.problem_at(span.clone(), wrong),
            Origin::Env(name) => Problem::of_env(name, wrong),
        }
    }
}
