//! What is wrong with a configuration: where, what, and how to mend it.
//!
//! The text of a problem never carries a value that may be a secret, but for the hint of `check` on a
//! signing secret that lacks its prefix, and the excerpt shown beside it has every such value masked.

use std::{fmt, ops::Range, sync::Arc};

use miette::{LabeledSpan, MietteDiagnostic, NamedSource, Report};

use super::{
    mask::masked,
    yaml::{Node, Origin},
};
use crate::plain::{plain, visible};

/// A configuration that cannot be used, with every problem that was found in it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", .problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct Error {
    problems: Vec<Problem>,
}

impl Error {
    /// Problems in the order of the file; what is not in the file comes first.
    pub(super) fn new(mut problems: Vec<Problem>) -> Self {
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

/// One thing that is wrong.
///
/// Its `Display` is one line `place: what` and a line `hint: …` for each way to mend it.
#[derive(Clone, Debug)]
pub struct Problem {
    place: Place,
    what: String,
    hints: Vec<String>,
    /// The file with its secrets masked, where the problem is in a file that could be parsed.
    excerpt: Option<Arc<NamedSource<String>>>,
}

/// Where a problem is.
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
    /// One about a file as such.
    pub(super) fn of_file(file: &str, what: impl Into<String>) -> Self {
        let place = Place::File(file.to_owned());
        Self::at(place, what, None)
    }

    /// One about a variable of the environment.
    pub(super) fn of_env(name: &str, what: impl Into<String>) -> Self {
        Self::at(Place::Env(name.to_owned()), what, None)
    }

    fn at(
        place: Place,
        what: impl Into<String>,
        excerpt: Option<Arc<NamedSource<String>>>,
    ) -> Self {
        // It may quote the file.
        Self { place, what: plain(&what.into()).into_owned(), hints: Vec::new(), excerpt }
    }

    /// Adds a way to mend it.
    #[must_use]
    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Adds a way to mend it, if there is one.
    #[must_use]
    pub(super) fn maybe_hint(self, hint: Option<impl Into<String>>) -> Self {
        match hint {
            Some(hint) => self.hint(hint),
            None => self,
        }
    }

    /// What is wrong, without the place.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// The ways to mend it.
    pub fn hints(&self) -> &[String] {
        &self.hints
    }

    /// The problem for a terminal: with the lines around it and the place underlined.
    pub fn report(&self) -> Report {
        let mut diagnostic = MietteDiagnostic::new(match &self.place {
            Place::At { .. } => self.what.clone(),
            Place::File(_) | Place::Env(_) => format!("{}: {}", self.place, self.what),
        });
        if !self.hints.is_empty() {
            diagnostic = diagnostic.with_help(self.hints.join("\n"));
        }
        match (&self.place, &self.excerpt) {
            (Place::At { span, .. }, Some(excerpt)) => {
                let label = LabeledSpan::at(span.clone(), "here");
                Report::new(diagnostic.with_label(label)).with_source_code(Arc::clone(excerpt))
            }
            (Place::At { .. }, None) => {
                diagnostic.message = format!("{}: {}", self.place, self.what);
                Report::new(diagnostic)
            }
            (Place::File(_) | Place::Env(_), _) => Report::new(diagnostic),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)?;
        for hint in &self.hints {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
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
pub(super) struct SourceFile {
    name: String,
    text: String,
    excerpt: Option<Arc<NamedSource<String>>>,
}

impl SourceFile {
    pub(super) fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into(), excerpt: None }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// From now on problems show an excerpt: the tree tells what has to be masked in it.
    pub(super) fn parsed(&mut self, root: &Node) {
        let text = visible(&masked(&self.text, root));
        let source = NamedSource::new(&self.name, text).with_language("yaml");
        self.excerpt = Some(Arc::new(source));
    }

    /// A problem at some bytes of the file.
    pub(super) fn problem_at(&self, span: Range<usize>, what: impl Into<String>) -> Problem {
        let before = self.text.get(..span.start).unwrap_or(&self.text);
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        let place = Place::At {
            file: self.name.clone(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            span,
        };
        Problem::at(place, what, self.excerpt.clone())
    }

    /// A problem where a node or key comes from.
    pub(super) fn problem(&self, origin: &Origin, what: impl Into<String>) -> Problem {
        match origin {
            Origin::File(span) => self.problem_at(span.clone(), what),
            Origin::Env(name) => Problem::of_env(name, what),
        }
    }
}
