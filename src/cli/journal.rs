//! `tidings journal inspect` and `tidings journal verify`: what a journal holds, and whether it is
//! whole. Neither writes anything or takes a lock, so both may be run beside a bridge.

use std::{fmt, path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use tidings_log::{Problem, SegmentSurvey};

use super::{EXIT_CONFIGURATION, failed, print};
use crate::{
    config,
    journal::{StateSurvey, Survey},
};

/// Of the segments so many are shown, the newest.
const SEGMENTS: usize = 20;

#[derive(Debug, Args)]
pub(super) struct JournalArguments {
    #[command(subcommand)]
    command: JournalCommand,
}

#[derive(Debug, Subcommand)]
enum JournalCommand {
    /// Show what the journal holds: segments, sources, sinks, dead letters, what was set aside
    Inspect(Where),
    /// Read every frame and all of the state; the exit code is 1 if anything is damaged
    Verify(Where),
}

#[derive(Debug, Args)]
struct Where {
    /// The configuration file of the bridge; only its section `journal` is read
    #[arg(long, value_name = "FILE", required_unless_present = "path", conflicts_with = "path")]
    config: Option<PathBuf>,
    /// The journal's directory
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
    /// How to answer
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

pub(super) fn journal(arguments: JournalArguments) -> ExitCode {
    let (place, verify) = match arguments.command {
        JournalCommand::Inspect(place) => (place, false),
        JournalCommand::Verify(place) => (place, true),
    };
    let Where { config, path, output } = place;
    let path = match (path, config) {
        (Some(path), _) => path,
        (None, config) => {
            match config::load_journal(&config.unwrap_or_default(), std::env::vars_os()) {
                Ok(settings) => settings.journal.path,
                Err(error) => return failed(&error, EXIT_CONFIGURATION),
            }
        }
    };
    let survey = match Survey::of(&path) {
        Ok(survey) => survey,
        Err(error) => {
            let hint = "give the directory of a journal that this user may read";
            return failed(&format_args!("{error}\nhint: {hint}"), 1);
        }
    };
    let text = match (output, verify) {
        (Output::Json, _) => match serde_json::to_string_pretty(&survey) {
            Ok(json) => json + "\n",
            Err(error) => return failed(&error, 1),
        },
        (Output::Text, true) => Verified(&survey).to_string(),
        (Output::Text, false) => Inspected(&survey).to_string(),
    };
    let printed = print(&text);
    if verify && survey.log.problem_count > 0 { ExitCode::FAILURE } else { printed }
}

/// The answer of `verify`.
struct Verified<'a>(&'a Survey);

impl fmt::Display for Verified<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let survey = self.0;
        problems(f, survey)?;
        let frames: u64 = survey.log.segments.iter().map(|segment| segment.frames).sum();
        let records: u64 = survey.log.segments.iter().map(|segment| segment.records).sum();
        let segments = match survey.log.segments.len() {
            1 => "1 segment".to_owned(),
            n => format!("{n} segments"),
        };
        let verdict = match survey.log.problem_count {
            0 => "no damage".to_owned(),
            1 => "1 problem".to_owned(),
            n => format!("{n} problems"),
        };
        write!(
            f,
            "{}: {verdict} in {segments}, {frames} frames, {records} records",
            survey.log.path.display()
        )?;
        match (&survey.state, survey.log.held) {
            (_, true) => writeln!(f, "; the state was not read: a bridge has it")?,
            (Some(_), false) => writeln!(f, " and the state")?,
            (None, false) => writeln!(f)?,
        }
        if survey.log.torn_bytes > 0 {
            let bytes = survey.log.torn_bytes;
            writeln!(
                f,
                "the last write is not whole: {bytes} bytes, which the next start cuts off"
            )?;
        }
        Ok(())
    }
}

/// The answer of `inspect`.
struct Inspected<'a>(&'a Survey);

impl fmt::Display for Inspected<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let survey = self.0;
        let held = if survey.log.held { ", in use by a bridge" } else { "" };
        writeln!(f, "{}: {} bytes{held}", survey.log.path.display(), survey.log.bytes)?;
        if let Some(uid) = &survey.log.cluster_uid {
            writeln!(f, "cluster {uid}")?;
        }
        writeln!(f, "next sequence {}", survey.log.next_sequence)?;
        segments(f, &survey.log.segments)?;
        writeln!(f, "\nsources, and up to where the log has them")?;
        for (source, at) in &survey.log.sources {
            writeln!(f, "  {source}  resourceVersion {}, epoch {}", at.resource_version, at.epoch)?;
        }
        match &survey.state {
            Some(state) => state_of(f, state)?,
            None if survey.log.held => writeln!(
                f,
                "\nsinks: the state is held by the bridge; `tidings status` shows them"
            )?,
            None => writeln!(f, "\nsinks: there is no state that can be read")?,
        }
        if !survey.log.set_aside.is_empty() {
            writeln!(f, "\nset aside because of damage")?;
        }
        for (name, bytes) in &survey.log.set_aside {
            writeln!(f, "  {name}  {bytes} bytes")?;
        }
        if survey.log.problem_count > 0 {
            writeln!(f, "\nproblems")?;
        }
        problems(f, survey)
    }
}

fn segments(f: &mut fmt::Formatter<'_>, segments: &[SegmentSurvey]) -> fmt::Result {
    writeln!(f, "\nsegments")?;
    let skipped = segments.len().saturating_sub(SEGMENTS);
    if skipped > 0 {
        writeln!(f, "  … {skipped} older ones; --output json has them all")?;
    }
    for segment in &segments[skipped..] {
        let SegmentSurvey { file, bytes, frames, records, .. } = segment;
        write!(f, "  {file}  {bytes} bytes, {frames} frames, {records} records")?;
        match (segment.from_ms, segment.to_ms) {
            (Some(from), Some(to)) => writeln!(f, ", {} to {}", time(from), time(to))?,
            _ => writeln!(f)?,
        }
    }
    Ok(())
}

fn state_of(f: &mut fmt::Formatter<'_>, state: &StateSurvey) -> fmt::Result {
    writeln!(f, "\nsinks")?;
    for (name, sink) in &state.sinks {
        let totals = &sink.totals;
        writeln!(
            f,
            "  {name}  next sequence {}, pending {}, held {}; delivered {}, filtered {}, \
             correlated away {}, dead-lettered {}, lost {}; redelivered {}",
            sink.next_sequence,
            sink.pending,
            sink.held,
            totals.delivered,
            totals.filtered,
            totals.correlated_away,
            totals.dead_lettered,
            totals.lost,
            totals.redelivered,
        )?;
    }
    writeln!(f, "\ndead letters {}, {} bytes", state.dead_letters, state.dead_letter_bytes)
}

fn problems(f: &mut fmt::Formatter<'_>, survey: &Survey) -> fmt::Result {
    for Problem { file, offset, what } in &survey.log.problems {
        match offset {
            Some(offset) => writeln!(f, "{file} at {offset}: {what}")?,
            None => writeln!(f, "{file}: {what}")?,
        }
    }
    let unnamed = survey.log.problem_count - survey.log.problems.len() as u64;
    if unnamed > 0 {
        writeln!(f, "… and {unnamed} more")?;
    }
    Ok(())
}

/// A time for people; what is no time as the number that it is.
fn time(ms: u64) -> String {
    let time = Timestamp::from_millisecond(ms.cast_signed());
    time.map_or_else(|_| ms.to_string(), |time| time.to_string())
}
