//! Checks of the values of a document, with the problems that they find.
//!
//! A value that cannot be had is `None` and its problem is on the list, so that checking goes on and one
//! run shows all problems.

use std::time::Duration;

use super::{
    CheckSecrets, Error, Misplaced, Path, Problem, Size, SourceFile, Span, Text, Variables, Wrong,
    locate::locate,
    secrets::resolve,
    wrong,
    yaml::{Node, Origin},
};

pub(crate) struct Checks<'a> {
    pub(crate) file: &'a SourceFile,
    pub(crate) root: &'a Node,
    variables: &'a Variables,
    secrets: CheckSecrets,
    pub(crate) problems: Vec<Problem>,
    /// Where secrets stand in the file itself.
    pub(crate) plain_secrets: Vec<String>,
    /// Whether a signing secret without prefix is shown with it: to whoever asks at a terminal, and
    /// never at a start, whose words go into a log.
    pub(crate) shows_signing: bool,
}

impl<'a> Checks<'a> {
    /// Begins with the problems that reading has found.
    pub(crate) fn new(
        file: &'a SourceFile,
        root: &'a Node,
        variables: &'a Variables,
        secrets: CheckSecrets,
        problems: Vec<Problem>,
    ) -> Self {
        let plain_secrets = Vec::new();
        Self { file, root, variables, secrets, problems, plain_secrets, shows_signing: false }
    }

    /// Gives out the result, if there are no problems.
    pub(crate) fn finish<T>(self, made: T) -> Result<T, Error> {
        if self.problems.is_empty() { Ok(made) } else { Err(Error::new(self.problems)) }
    }

    /// Reports a problem with the value at a path.
    pub(crate) fn wrong(&mut self, path: &Path, wrong: Wrong) {
        self.problems.push(self.file.problem(path.origin(self.root), wrong.at(path)));
    }

    /// Reports a problem with a key rather than with its value.
    pub(crate) fn wrong_key(&mut self, path: &Path, wrong: Wrong) {
        self.problems.push(self.file.problem(path.key_origin(self.root), wrong.at(path)));
    }

    /// The value of a text.
    pub(crate) fn text(&mut self, path: &Path, text: &Text) -> Option<String> {
        resolve(text, self.variables, self.secrets).unwrap_or_else(|wrong| {
            self.wrong(path, wrong);
            None
        })
    }

    /// The value of a text that may be absent, but not empty.
    pub(crate) fn optional(&mut self, path: &Path, text: Option<&Text>) -> Option<String> {
        let value = self.text(path, text?)?;
        if value.is_empty() {
            self.wrong(
                path,
                wrong("expected a value, found an empty one").hint("write one, or remove the key"),
            );
        }
        Some(value)
    }

    /// The value of a text that a check is about.
    pub(crate) fn checked<E: Into<Misplaced>>(
        &mut self,
        path: &Path,
        text: &Text,
        check: impl FnOnce(&str) -> Result<(), E>,
    ) -> Option<String> {
        self.parsed(path, text, |value| check(value).map(|()| value.to_owned()))
    }

    /// The value that is made of a text, which may have lines and columns of its own, as an expression or a
    /// template has.
    pub(crate) fn parsed<T, E: Into<Misplaced>>(
        &mut self,
        path: &Path,
        text: &Text,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let source = self.text(path, text)?;
        let Misplaced { wrong: Wrong { what, hint }, offset } = match parse(&source) {
            Ok(parsed) => return Some(parsed),
            Err(error) => error.into(),
        };
        let what = shown_of(text, what);
        let (file, origin) = (self.file, path.origin(self.root));
        let problem = match (offset, text, origin) {
            (Some(offset), Text::Plain(_), Origin::File(span)) => {
                let at = locate(file.text(), span, &source, offset);
                file.problem_at(at, Wrong { what, hint }.at(path))
            }
            (Some(offset), ..) => {
                let before = &source[..offset];
                let line = before.matches('\n').count() + 1;
                let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
                let what = format!("{what} (line {line}, column {column} of the text)");
                file.problem(origin, Wrong { what, hint }.at(path))
            }
            (None, ..) => file.problem(origin, Wrong { what, hint }.at(path)),
        };
        self.problems.push(problem);
        None
    }

    /// The number of a key, or its default.
    pub(crate) fn within(
        &mut self,
        path: &Path,
        value: Option<u64>,
        most: u32,
        default: u32,
    ) -> u32 {
        let Some(value) = value else { return default };
        if (1..=most.into()).contains(&value) {
            return value as u32;
        }
        let what = format!("expected a number from 1 to {most}, found {value}");
        self.wrong(path, wrong(what).hint(format!("the default is {default}")));
        default
    }

    /// A duration above zero; `shown` is the default as it is written.
    pub(crate) fn duration(
        &mut self,
        path: &Path,
        value: Option<Span>,
        default: Duration,
        shown: &str,
    ) -> Duration {
        let value = value.map_or(default, |span| span.0);
        if value.is_zero() {
            let wrong = wrong("expected a duration above zero, found `0s`");
            self.wrong(path, wrong.hint(format!("the default is `{shown}`")));
        }
        value
    }

    /// A size above zero, in bytes; `shown` is the default as it is written.
    pub(crate) fn size(
        &mut self,
        path: &Path,
        value: Option<Size>,
        default: u64,
        shown: &str,
    ) -> u64 {
        let value = value.map_or(default, |size| size.0);
        if value == 0 {
            let wrong = wrong("expected a size above zero, found 0");
            self.wrong(path, wrong.hint(format!("the default is `{shown}`")));
        }
        value
    }
}

/// A message about the value of a text. What comes by reference may be a secret wherever it stands, and
/// is not quoted.
pub(crate) fn shown_of(text: &Text, message: String) -> String {
    match text {
        Text::Plain(_) => message,
        Text::Env(_) | Text::File(_) => without_quotations(&message),
    }
}

/// A message without what it quotes in backticks.
fn without_quotations(message: &str) -> String {
    let mut outside = true;
    let mut pieces = Vec::new();
    for piece in message.split('`') {
        pieces.push(if outside { piece } else { "…" });
        outside = !outside;
    }
    pieces.join("`")
}

/// The refusals of bad values, a line each.
#[cfg(test)]
pub(crate) fn refused<T>(
    results: impl IntoIterator<Item = (&'static str, Result<T, Wrong>)>,
) -> String {
    let line = |(input, result): (&str, Result<T, Wrong>)| match result {
        Ok(_) => panic!("{input:?} is taken"),
        Err(Wrong { what, hint }) => format!("{input:?}: {what} / {}", hint.unwrap_or_default()),
    };
    results.into_iter().map(line).collect::<Vec<_>>().join("\n")
}
