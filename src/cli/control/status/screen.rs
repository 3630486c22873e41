//! The status for people: one screen, with the problems first.

use std::{fmt::Write as _, time::Duration};

use super::super::output::{aligned, cut, widths};
use crate::{
    admin::{GapStatus, JournalStatus, Problem, SinkStatus, SourceStatus, Status, counted, humane},
    bridge::JournalOptions,
    plain::plain,
};

/// The columns of a terminal.
const WIDTH: usize = 80;
/// The last column of a table has as many at least.
const LEAST: usize = 10;
/// The longest text of a problem, in characters; the JSON has all of it.
const TEXT: usize = 400;
/// So many gaps are shown, the newest.
const GAPS: usize = 3;

/// All of it; the rates are those since `before`.
pub(super) fn screen(
    now: &Status,
    before: &Status,
    elapsed: Duration,
    journal: &JournalOptions,
) -> String {
    let mut text = problems(&now.problems);
    let name = now.cluster.name.as_deref().unwrap_or("without a name");
    let uid = now.cluster.uid.as_ref().map_or_else(String::new, |uid| format!(" ({uid})"));
    // Writing to a string cannot fail.
    let _ =
        writeln!(text, "\ntidings {}, cluster {}{}", plain(&now.version), plain(name), plain(&uid));
    let head = ["SOURCE", "WATCH", "LAST DATA", "LAST ERROR"];
    text += &table(&head, now.sources.iter().map(source));
    text += &self::journal(&now.journal, journal);
    let head = [
        "NAME",
        "KIND",
        "STATE",
        "PENDING",
        "LAG",
        "RATE",
        "DELIVERED",
        "DEAD",
        "LOST",
        "LAST ERROR",
    ];
    text += &table(&head, now.sinks.iter().map(|sink| self::sink(sink, before, elapsed)));
    text + &gaps(&now.ingest.recent_gaps)
}

/// The beginning of a screen, where the problems are, as far as it fits a terminal with so many lines.
pub(super) fn fitting(screen: &str, rows: usize) -> String {
    let (lines, room) = (screen.lines().count(), rows.saturating_sub(2));
    if lines <= room {
        return screen.to_owned();
    }
    let kept: String = screen.split_inclusive('\n').take(room).collect();
    format!("{kept}… and {} more\n", counted((lines - room) as u64, "line", "lines"))
}

fn problems(problems: &[Problem]) -> String {
    let mut text = match problems.len() {
        0 => "no problems\n".to_owned(),
        n => counted(n as u64, "problem", "problems") + "\n",
    };
    for Problem { part, what, hint } in problems {
        let _ = writeln!(text, "\n  {}", plain(part));
        wrap(&mut text, what);
        wrap(&mut text, &format!("hint: {hint}"));
    }
    text
}

/// Adds lines that are indented and, where words allow it, no longer than a terminal is wide.
fn wrap(text: &mut String, words: &str) {
    const INDENT: &str = "    ";
    let mut line = String::new();
    for word in cut(words, TEXT).split_whitespace() {
        if !line.is_empty()
            && INDENT.len() + line.chars().count() + 1 + word.chars().count() > WIDTH
        {
            let _ = writeln!(text, "{INDENT}{line}");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    let _ = writeln!(text, "{INDENT}{line}");
}

/// A table below an empty line; its last column gets what the others leave of a line.
fn table<const N: usize>(head: &[&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let head = head.map(str::to_owned).to_vec();
    let mut rows: Vec<_> = std::iter::once(head).chain(rows.map(Vec::from)).collect();
    let taken: usize = widths(&rows).iter().take(N - 1).map(|width| width + 1).sum();
    for last in rows.iter_mut().filter_map(|row| row.last_mut()) {
        *last = cut(last, WIDTH.saturating_sub(taken).max(LEAST));
    }
    format!("\n{}", aligned(&rows, " "))
}

fn source(source: &SourceStatus) -> [String; 4] {
    let watch = match source.stream_closed_seconds {
        _ if source.stream_open => "open".to_owned(),
        Some(closed) => format!("closed {}", humane(closed)),
        None => "never open".to_owned(),
    };
    let answered = source.watch_age_seconds.map_or("never".to_owned(), |age| humane(age) + " ago");
    [
        plain(&source.source).into_owned(),
        watch,
        answered,
        source.last_error.clone().unwrap_or_default(),
    ]
}

fn journal(journal: &JournalStatus, options: &JournalOptions) -> String {
    let state = match (&journal.error, &*journal.blocked_by) {
        (Some(_), _) => "not writable",
        (None, []) => "writable",
        (None, _) => "writable, but a sink blocks intake",
    };
    let (size, most) = (bytes(journal.bytes), bytes(options.log.retention_size));
    let records = counted(journal.records, "record", "records");
    format!("\njournal: {size} of {most}, {records}, {state}\n")
}

fn sink(sink: &SinkStatus, before: &Status, elapsed: Duration) -> [String; 10] {
    let was = before.sinks.iter().find(|was| was.name == sink.name);
    let delivered = was.map_or(0, |was| sink.delivered.saturating_sub(was.delivered));
    let rate = delivered as f64 / elapsed.as_secs_f64().max(0.001);
    [
        plain(&sink.name).into_owned(),
        plain(&sink.kind).into_owned(),
        sink.state.as_str().to_owned(),
        sink.pending.to_string(),
        humane(sink.lag_seconds),
        format!("{rate:.1}/s"),
        sink.delivered.to_string(),
        sink.dead_lettered.to_string(),
        sink.lost.to_string(),
        sink.last_error.clone().unwrap_or_default(),
    ]
}

fn gaps(gaps: &[GapStatus]) -> String {
    let mut text = String::new();
    for gap in &gaps[gaps.len().saturating_sub(GAPS)..] {
        let GapStatus { source, from, to, replayed, skipped_increments: skipped, epoch, .. } = gap;
        let kind = if *epoch { "new epoch" } else { "gap" };
        let _ =
            writeln!(text, "\n{kind} of {} from {} to {}", plain(source), plain(from), plain(to));
        let events = counted(*replayed, "event", "events");
        let increments = counted(*skipped, "increment", "increments");
        let _ = writeln!(text, "    {events} replayed, {increments} skipped");
    }
    text
}

/// A size for people: `1.2 MiB`.
fn bytes(bytes: u64) -> String {
    let (mut size, mut units) = (bytes as f64, ["KiB", "MiB", "GiB", "TiB"].iter());
    let mut unit = "B";
    while size >= 1024.0
        && let Some(next) = units.next()
    {
        (size, unit) = (size / 1024.0, next);
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{size:.1} {unit}") }
}

#[cfg(test)]
mod tests;
