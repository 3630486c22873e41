//! The facts that need a person, the most urgent first. Readiness and liveness state the same facts.

use jiff::{
    SignedDuration,
    fmt::friendly::{Spacing, SpanPrinter},
};
use serde::{Deserialize, Serialize};

use super::{ConfigurationStatus, HeadStatus, PartStatus, SinkStatus, SourceStatus, Status};
use crate::bridge::{BlockedBy, SinkCondition};

/// A watch that has been closed for so long is not one that is just being renewed.
const STREAM_MAY_BE_CLOSED_SECONDS: f64 = 60.0;
/// Three probes of an open watch have had no answer after so long.
const SILENT_SECONDS: f64 = 50.0;

/// One fact that needs a person. Facts that nobody can mend, such as a gap or an event that was lost,
/// are none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The part that it is about: `journal`, `configuration`, `cluster`, `source *`, `sink pager`, or one of
    /// [`Status::parts`].
    pub part: String,
    /// The fact, with the last error where there is one.
    pub what: String,
    /// The remedy.
    pub hint: String,
}

fn problem(part: impl Into<String>, what: impl Into<String>, hint: impl Into<String>) -> Problem {
    Problem { part: part.into(), what: what.into(), hint: hint.into() }
}

/// All that there are.
pub(super) fn of(status: &Status, not_identified: Option<&str>) -> Vec<Problem> {
    let Status { sources, journal, sinks, dead_letters, parts, .. } = status;
    let mut problems = stuck(parts);
    problems.extend(intake(journal.error.as_deref(), &journal.blocked_by, sources, not_identified));
    problems.extend(sources.iter().filter_map(silent));
    problems.extend(journal.state_error.as_ref().map(|error| {
        problem(
            "journal",
            format!("the state beside the log cannot be saved: {error}"),
            "check the disk of journal.path, and restart Tidings if it stays so; what was delivered since is then delivered \
             again, under the same ids",
        )
    }));
    problems.extend(status.configuration.as_ref().and_then(rejected));
    for kind in [misconfigured, stopped, overrun, retrying] {
        problems.extend(sinks.iter().filter_map(kind));
    }
    for kind in [parking_full, parked] {
        problems.extend(sinks.iter().filter_map(kind));
    }
    let kept = dead_letters.iter().map(|(sink, counts)| {
        let of_sink = sinks.iter().find(|status| status.name == *sink);
        (sink, counts.letters.saturating_sub(of_sink.map_or(0, |status| status.parked)))
    });
    problems.extend(kept.filter(|(_, letters)| *letters > 0).map(|(sink, letters)| {
        problem(
            format!("sink {sink}"),
            format!("{} kept", counted(letters, "dead letter is", "dead letters are")),
            format!(
                "`tidings dead-letters list --config FILE --sink {sink}` shows them and why: `retry` \
                 them when the receiver is corrected, or `drop` them"
            ),
        )
    }));
    problems.extend(journal.damage.as_ref().map(|damage| {
        let newest = damage.newest.last().map_or("", |newest| &newest.message);
        let places = counted(damage.places, "place", "places");
        let records = counted(damage.records, "record", "records");
        problem(
            "journal",
            format!("damage found since the start: {places}, at most {records} missing: {newest}"),
            "check the disk of journal.path; `tidings journal verify --config FILE` shows where it is",
        )
    }));
    problems
}

/// Why the bridge is not alive.
pub(super) fn stuck(parts: &[PartStatus]) -> Vec<Problem> {
    let one = |part: &PartStatus| {
        let (doing, seconds) = (part.doing.as_ref()?, part.stuck_seconds?);
        Some(problem(
            &*part.part,
            format!("{} is stuck: {doing}, for {:.0} s", part.part, seconds.floor()),
            "check the disk of journal.path, which hangs most likely; if it stays so, restart Tidings",
        ))
    };
    parts.iter().filter_map(one).collect()
}

/// Why the bridge is not ready: the journal takes events, and each source has a stream open or had one
/// a minute ago.
pub(super) fn intake(
    journal_error: Option<&str>,
    blocked: &[BlockedBy],
    sources: &[SourceStatus],
    not_identified: Option<&str>,
) -> Vec<Problem> {
    const UNCONNECTED: &str = "not connected yet";
    let journal = journal_error.map(|error| {
        // Some of these errors have a hint of their own.
        let (error, hint) = error.split_once("\nhint: ").unwrap_or((
            error,
            "free space on the disk of journal.path, or repair it; reading continues by itself",
        ));
        problem("journal", format!("the journal cannot be written: {error}"), hint)
    });
    let blocked = blocked.iter().map(|BlockedBy { sink, bytes }| {
        problem(
            format!("sink {sink}"),
            format!(
                "intake stands still: the sink {sink} has not had {bytes} bytes of the journal"
            ),
            format!(
                "repair the receiver, set sinks.{sink}.overflow to dropOldest, or raise \
                 journal.retention.size and restart Tidings"
            ),
        )
    });
    let cluster = sources.is_empty().then(|| {
        let why = not_identified.unwrap_or(UNCONNECTED);
        problem(
            "cluster",
            format!("the cluster has not been identified: {why}"),
            "check source.kubeconfig, source.proxy and the API server; Tidings tries again by itself",
        )
    });
    let is_closed = |source: &&SourceStatus| {
        source.stream_closed_seconds.is_none_or(|closed| closed > STREAM_MAY_BE_CLOSED_SECONDS)
    };
    let closed =
        sources.iter().filter(is_closed).map(|SourceStatus { source, last_error, .. }| {
            let why = last_error.as_deref().unwrap_or(UNCONNECTED);
            problem(
                format!("source {source}"),
                format!("no Events of {source} are read: {why}"),
                "check that the API server answers, and grant list and watch on events to the account \
                 (deploy/install.yaml); Tidings tries again by itself. The API server deletes an Event \
                 after an hour, by default",
            )
        });
    journal.into_iter().chain(blocked).chain(cluster).chain(closed).collect()
}

/// An API server that does not answer any more; the watch is given up later.
fn silent(source: &SourceStatus) -> Option<Problem> {
    let age = source.watch_age_seconds.filter(|age| source.stream_open && *age > SILENT_SECONDS)?;
    Some(problem(
        format!("source {}", source.source),
        format!("the API server has not answered for {}, though the watch is open", humane(age)),
        "check the API server and the way to it; Tidings opens the watch again by itself",
    ))
}

/// A changed file that is not taken. The person who changed it believes that it is in force.
fn rejected(configuration: &ConfigurationStatus) -> Option<Problem> {
    let error = &configuration.rejected.as_ref()?.error;
    // The first mistake of several.
    let mut lines = error.lines();
    let error = lines.next().unwrap_or_default();
    let hint = lines.next().and_then(|line| line.trim_start().strip_prefix("hint: "));
    let hint = hint.unwrap_or("mend the file");
    Some(problem(
        "configuration",
        format!("the file is rejected, and the content before stays in force: {error}"),
        format!("{hint}. Tidings reads the file again by itself; its log has all mistakes"),
    ))
}

fn misconfigured(sink: &SinkStatus) -> Option<Problem> {
    (sink.state == SinkCondition::Misconfigured).then(|| {
        of_sink(
            sink,
            format!(
                "the sink is misconfigured and takes nothing, {} pending: {}",
                events(sink.pending),
                last_error(sink)
            ),
            format!(
                "correct the receiver; or sinks.{} or a secret that it refers to, which Tidings reads \
                 again by itself. Events wait within journal.retention",
                sink.name
            ),
        )
    })
}

fn stopped(sink: &SinkStatus) -> Option<Problem> {
    (sink.state == SinkCondition::Stopped).then(|| {
        of_sink(
            sink,
            format!("the sink is stopped, {} pending", events(sink.pending)),
            "Tidings starts a sink by itself that it has stopped for a changed configuration; start one that your program has \
             stopped. Events wait within journal.retention",
        )
    })
}

fn overrun(sink: &SinkStatus) -> Option<Problem> {
    (sink.overrun > 0).then(|| {
        of_sink(
            sink,
            format!(
                "the sink loses events: {} of {} pending are gone from the journal",
                sink.overrun, sink.pending
            ),
            format!(
                "repair the receiver, or raise journal.retention and restart Tidings; with \
                 sinks.{}.overflow: block it stops reading instead",
                sink.name
            ),
        )
    })
}

fn retrying(sink: &SinkStatus) -> Option<Problem> {
    if sink.state != SinkCondition::Retrying || sink.pending == 0 {
        return None;
    }
    let (pending, lag) = (events(sink.pending), humane(sink.lag_seconds));
    Some(match &sink.head {
        Some(HeadStatus { object, last_error, .. }) if !sink.takes_nothing => of_sink(
            sink,
            format!(
                "the receiver fails for some events, {pending} pending, the oldest for {lag} ({object}): {last_error}"
            ),
            "correct the receiver if it should take them. Tidings sends them again by itself, others meanwhile, and parks \
             an event that has failed for a minute while others were taken",
        ),
        _ => of_sink(
            sink,
            format!("attempts fail, {pending} pending, the oldest for {lag}: {}", last_error(sink)),
            "check the receiver and the way to it; Tidings tries again by itself, and events wait \
             within journal.retention",
        ),
    })
}

fn parked(sink: &SinkStatus) -> Option<Problem> {
    (sink.parked > 0).then(|| {
        of_sink(
            sink,
            format!(
                "{} parked: the receiver fails for them, or for others of their namespace",
                counted(sink.parked, "event is", "events are")
            ),
            format!(
                "`tidings dead-letters list --config FILE --sink {} --class blocked` shows them and why. Tidings sends them \
                 again by itself, and at once on `retry`; `drop` gives them up",
                sink.name
            ),
        )
    })
}

fn parking_full(sink: &SinkStatus) -> Option<Problem> {
    sink.parking_full.then(|| {
        of_sink(
            sink,
            "there is no room in journal.deadLetters to park an event that the receiver fails for".to_owned(),
            "correct the receiver, `drop` dead letters of the class `blocked`, or raise journal.deadLetters and \
             restart Tidings; until then the event holds up the position of the sink",
        )
    })
}

fn of_sink(sink: &SinkStatus, what: String, hint: impl Into<String>) -> Problem {
    problem(format!("sink {}", sink.name), what, hint)
}

fn last_error(sink: &SinkStatus) -> &str {
    sink.last_error.as_deref().unwrap_or("the receiver does not say why")
}

fn events(count: u64) -> String {
    counted(count, "event", "events")
}

/// How many there are, in words that fit.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Seconds for people: `3m12s`.
pub(crate) fn humane(seconds: f64) -> String {
    const PRINTER: SpanPrinter = SpanPrinter::new().spacing(Spacing::None);
    PRINTER.duration_to_string(&SignedDuration::from_secs(seconds as i64))
}

#[cfg(test)]
mod tests;
