//! Output of the commands: text for people, in which nothing that came from outside can move the
//! cursor, and JSON for programs.

use std::{fmt::Write as _, process::ExitCode};

use clap::ValueEnum;
use serde::Serialize;

use super::Failure;
use crate::{
    admin::api::DeadLetterView,
    bridge::HeldUp,
    cli::written,
    journal::DeadLetterState,
    plain::{escaped, plain},
};

/// The longest text of a cell, in characters; the last column's, since `show` has all of it.
const CELL: usize = 40;
const LAST_CELL: usize = 60;

pub(super) fn print(text: &str) -> Result<ExitCode, Failure> {
    written(text).map_err(|error| Failure::from(&error))?;
    Ok(ExitCode::SUCCESS)
}

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

pub(super) fn put_away(held: &HeldUp) -> String {
    let HeldUp { by, namespace, object, id, events, reason } = held;
    let behind = match events.saturating_sub(1) {
        0 => String::new(),
        behind => format!(", with {behind} more behind it"),
    };
    let reason = reason.as_deref().map_or(String::new(), |reason| format!(": {reason}"));
    let waited = format!("{object} in {namespace} ({id}), which waited in a {}", by.as_str());
    let said = plain(&format!("{waited}{behind}{reason}")).into_owned();
    said + "\nput away: `tidings dead-letters list` has it within a second\n"
}

pub(super) fn table(letters: &[DeadLetterView]) -> String {
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
    let widths: Vec<usize> = (0..head.len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            // Writing to a string cannot fail.
            let _ = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

pub(super) fn whole(letter: &DeadLetterView) -> String {
    let unidentified = match letter.unidentified {
        0 => String::new(),
        n => format!("{n} events of a batch; the receiver did not say which"),
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

fn state(letter: &DeadLetterView) -> &'static str {
    match letter.state {
        DeadLetterState::Kept => "kept",
        DeadLetterState::RetryRequested => "retry",
    }
}

fn object(letter: &DeadLetterView) -> String {
    letter.object.as_ref().map(ToString::to_string).unwrap_or_default()
}

/// The beginning of a text, on one line.
fn cut(text: &str, most: usize) -> String {
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
    use crate::{event::Record, journal::DeadLetter};

    fn letters() -> Vec<DeadLetterView> {
        let envelope = br#"{"id":"de6021c7-1259","cluster":{},"change":"created","time":"t","observedTime":"t","occurrences":1,"delta":1,"replayed":false,"event":{"metadata":{"name":"web-1.1"},"involvedObject":{"kind":"Pod","namespace":"shop","name":"web-1"},"message":"esc \u001b[31m"}}"#;
        let record = Record { seq: 1259, envelope: bytes::Bytes::from_static(envelope) };
        let reason = "HTTP 400 Bad Request: \u{1b}[31mno such field\r\nin the body of what was sent, and more of it";
        let times_ms = [1_795_000_000_000, 1_795_000_061_000];
        let letter = DeadLetter {
            number: 7,
            forward: Some("archive".to_owned()),
            ..DeadLetter::new("pager", &record, "invalid", reason, 1, times_ms)
        };
        let unidentified = DeadLetter {
            number: 12,
            sink: "otel".to_owned(),
            unidentified: 3,
            id: String::new(),
            state: DeadLetterState::RetryRequested,
            envelope: bytes::Bytes::new(),
            ..letter.clone()
        };
        vec![DeadLetterView::whole(&unidentified), DeadLetterView::whole(&letter)]
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
