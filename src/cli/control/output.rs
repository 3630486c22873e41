//! What the commands print: text for people, in which nothing that came from outside can move the
//! cursor, and JSON for programs.

use std::{fmt::Write as _, io::Write as _, process::ExitCode};

use clap::ValueEnum;
use serde::Serialize;

use super::Failure;
use crate::{
    admin::api::Letter,
    journal::LetterState,
    plain::{escaped, plain},
};

/// The longest text of a cell, in characters; the last column's, since `show` has all of it.
const CELL: usize = 40;
const LAST_CELL: usize = 60;

/// Prints data on stdout.
pub(super) fn print(text: &str) -> Result<ExitCode, Failure> {
    // `tidings dead-letters list | head` is no failure.
    is_read(text).map(|_| ExitCode::SUCCESS)
}

/// Prints data on stdout; answers whether somebody still reads there.
pub(super) fn is_read(text: &str) -> Result<bool, Failure> {
    let mut stdout = std::io::stdout();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::from(&error)),
    }
}

/// Says something beside the data.
pub(super) fn note(what: &str) {
    // Nobody is left to tell when stderr is closed.
    let _ = writeln!(std::io::stderr(), "{what}");
}

/// As indented JSON.
pub(super) fn json(value: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::from(&error))?;
    Ok(escaped(&text) + "\n")
}

/// How letters are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ListFormat {
    /// A line for each
    Table,
    /// An array
    Json,
}

/// How one thing is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people
    Text,
    /// An object
    Json,
}

/// A line for each letter.
pub(super) fn table(letters: &[Letter]) -> String {
    let head = ["NUMBER", "TIME", "SINK", "CLASS", "ATTEMPTS", "STATE", "OBJECT", "REASON"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(letters.iter().map(|letter| {
        vec![
            letter.number.to_string(),
            letter.time.clone(),
            cut(&letter.sink, CELL),
            cut(&letter.class, CELL),
            letter.attempts.to_string(),
            state(letter).to_owned(),
            cut(&object(letter), CELL),
            cut(&letter.reason, LAST_CELL),
        ]
    }));
    aligned(&rows, "  ")
}

/// A line for each row, whose columns begin below each other.
pub(super) fn aligned(rows: &[Vec<String>], gap: &str) -> String {
    let widths = widths(rows);
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            // Writing to a string cannot fail.
            let _ = write!(line, "{cell:width$}{gap}");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The width of each column, in characters.
pub(super) fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    (0..columns).map(|column| width(column).unwrap_or(0)).collect()
}

/// Everything about one.
pub(super) fn whole(letter: &Letter) -> String {
    let unidentified = match letter.unidentified {
        0 => String::new(),
        n => format!("{n} events of a batch, which of them the receiver did not say"),
    };
    let lines = [
        ("number", letter.number.to_string()),
        ("sink", letter.sink.clone()),
        ("state", state(letter).to_owned()),
        ("class", letter.class.clone()),
        ("reason", letter.reason.clone()),
        ("attempts", letter.attempts.to_string()),
        ("first sent", letter.first_time.clone()),
        ("given up", letter.time.clone()),
        ("forward to", letter.forward.clone().unwrap_or_default()),
        ("object", object(letter)),
        ("id", letter.id.clone()),
        ("position", letter.position.to_string()),
        ("refused", unidentified),
    ];
    let mut text = String::new();
    for (name, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
        let _ = writeln!(text, "{:12}{}", format!("{name}:"), plain(value));
    }
    if let Some(envelope) = &letter.envelope {
        // Read, to be indented; its members keep their order.
        let pretty = serde_json::from_str::<serde_json::Value>(envelope.get())
            .and_then(|value| serde_json::to_string_pretty(&value))
            .unwrap_or_else(|_| envelope.get().to_owned());
        let _ = writeln!(text, "envelope:");
        pretty.lines().for_each(|line| {
            let _ = writeln!(text, "  {}", plain(line));
        });
    }
    text
}

fn state(letter: &Letter) -> &'static str {
    match letter.state {
        LetterState::Kept => "kept",
        LetterState::RetryRequested => "retry",
    }
}

fn object(letter: &Letter) -> String {
    letter.object.as_ref().map(ToString::to_string).unwrap_or_default()
}

/// The beginning of a text, on one line.
pub(super) fn cut(text: &str, most: usize) -> String {
    let text = plain(text);
    if text.chars().count() <= most {
        return text.into_owned();
    }
    let kept: String = text.chars().take(most - 1).collect();
    kept.trim_end().to_owned() + "…"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::DeadLetter;

    fn letters() -> Vec<Letter> {
        let envelope = br#"{"id":"de6021c7-1259","cluster":{},"change":"created","time":"t","observedTime":"t","occurrences":1,"delta":1,"replayed":false,"event":{"metadata":{"name":"web-1.1"},"involvedObject":{"kind":"Pod","namespace":"shop","name":"web-1"},"message":"esc \u001b[31m"}}"#;
        let letter = DeadLetter {
            number: 7,
            sink: "pager".to_owned(),
            seq: 1259,
            id: "de6021c7-1259".to_owned(),
            class: "invalid".to_owned(),
            reason: "HTTP 400 Bad Request: \u{1b}[31mno such field\r\nin the body of what was sent, and more of it"
                .to_owned(),
            attempts: 1,
            first_ms: 1_795_000_000_000,
            time_ms: 1_795_000_061_000,
            unidentified: 0,
            state: LetterState::Kept,
            forward: Some("archive".to_owned()),
            envelope: bytes::Bytes::from_static(envelope),
        };
        let unidentified = DeadLetter {
            number: 12,
            sink: "otel".to_owned(),
            unidentified: 3,
            id: String::new(),
            state: LetterState::RetryRequested,
            envelope: bytes::Bytes::new(),
            ..letter.clone()
        };
        vec![Letter::whole(&unidentified), Letter::whole(&letter)]
    }

    #[test]
    fn a_table_has_a_line_for_each_whatever_is_in_it() {
        insta::assert_snapshot!(table(&letters()));
        insta::assert_snapshot!(table(&[]), @"NUMBER  TIME  SINK  CLASS  ATTEMPTS  STATE  OBJECT  REASON");
    }

    #[test]
    fn one_is_shown_with_all_that_is_known() {
        insta::assert_snapshot!(whole(&letters()[1]));
        insta::assert_snapshot!(whole(&letters()[0]));
    }

    #[test]
    fn json_has_what_the_receiver_said_word_for_word() {
        insta::assert_snapshot!(json(&letters()).unwrap());
    }
}
