//! `tidings dead-letters`.

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use clap::{ArgGroup, Args, Subcommand};

use super::{
    access::DeadLetters,
    output::{self, Format, ListFormat},
    with_journal,
};
use crate::{admin::api::Selection, suggest::did_you_mean};

/// The classes of dead letters, as docs/dead-letters.md has them.
const CLASSES: [&str; 5] = ["invalid", "too-large", "blocked", "max-attempts", "partial-success"];

/// See the command's own help.
#[derive(Debug, Args)]
pub(crate) struct DeadLettersArguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List dead letters, the newest first
    List {
        #[command(flatten)]
        config: Config,
        /// Only dead letters of this sink
        #[arg(long, value_name = "NAME")]
        sink: Option<String>,
        /// Only dead letters of this class
        #[arg(long, value_parser = CLASSES)]
        class: Option<String>,
        /// At most this many
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
        limit: u64,
        /// The output format
        #[arg(long, value_enum, default_value_t = ListFormat::Table)]
        output: ListFormat,
    },
    /// Show all that is known of a dead letter, including the event
    Show {
        #[command(flatten)]
        config: Config,
        /// Its number, as `list` prints it
        number: u64,
        /// The output format
        #[arg(long, value_enum, default_value_t = Format::Text)]
        output: Format,
    },
    /// Send dead letters again; those that are delivered are no longer dead letters
    Retry {
        #[command(flatten)]
        config: Config,
        #[command(flatten)]
        which: Which,
    },
    /// Make a dead letter of the event that holds others up at a sink, the first that the status names
    PutAway {
        #[command(flatten)]
        config: Config,
        /// The sink
        #[arg(long, value_name = "NAME")]
        sink: String,
    },
    /// Drop dead letters for good
    Drop {
        #[command(flatten)]
        config: Config,
        #[command(flatten)]
        which: Which,
    },
}

#[derive(Debug, Args)]
struct Config {
    /// The configuration file of the bridge; only its section `journal` is read
    #[arg(long = "config", value_name = "FILE")]
    path: PathBuf,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("which").required(true)))]
struct Which {
    /// Their numbers, as `list` prints them
    #[arg(value_name = "NUMBER", group = "which")]
    numbers: Vec<u64>,
    /// All dead letters
    #[arg(long, group = "which")]
    all: bool,
    /// With --all: only those of this sink
    #[arg(long, value_name = "NAME", requires = "all", conflicts_with = "numbers")]
    sink: Option<String>,
    /// With --all: only those of this class
    #[arg(long, value_parser = CLASSES, requires = "all", conflicts_with = "numbers")]
    class: Option<String>,
}

impl From<Which> for Selection {
    fn from(Which { numbers, all, sink, class }: Which) -> Self {
        Self { numbers: (!all).then_some(numbers), all, sink, class }
    }
}

/// Runs the command.
pub(crate) fn dead_letters(arguments: DeadLettersArguments) -> ExitCode {
    match arguments.command {
        Command::List { config, sink, class, limit, output } => {
            with_journal(&config.path, async move |journal| {
                let letters = DeadLetters::of(&journal).await?;
                let limit = usize::try_from(limit).unwrap_or(usize::MAX);
                let (list, more) = letters.list(sink.as_deref(), class.as_deref(), limit).await?;
                if more {
                    note(&format!("there are older ones, too: --limit shows more than {limit}"));
                }
                match output {
                    ListFormat::Table if list.is_empty() => {
                        note(&format!("there are none{}", doubt(sink.as_deref(), &journal.sinks)));
                        Ok(ExitCode::SUCCESS)
                    }
                    ListFormat::Table => output::print(&output::table(&list)),
                    ListFormat::Json => output::print(&output::json(&list)?),
                }
            })
        }
        Command::Show { config, number, output } => {
            with_journal(&config.path, async move |journal| {
                let letter = DeadLetters::of(&journal).await?.show(number).await?;
                output::print(&match output {
                    Format::Text => output::whole(&letter),
                    Format::Json => output::json(&letter)?,
                })
            })
        }
        Command::Retry { config, which } => with_journal(&config.path, async move |journal| {
            let mut letters = DeadLetters::of(&journal).await?;
            let sink = which.sink.clone();
            let count = letters.retry(which.into()).await?;
            note_none(count, sink.as_deref(), &journal.sinks);
            let when = if letters.is_running() { "" } else { " when the bridge starts again" };
            output::print(&format!("{}: will be sent again{when}\n", counted(count)))
        }),
        Command::PutAway { config, sink } => with_journal(&config.path, async move |journal| {
            let held = DeadLetters::of(&journal).await?.put_away(sink).await?;
            output::print(&output::put_away(&held))
        }),
        Command::Drop { config, which } => with_journal(&config.path, async move |journal| {
            let sink = which.sink.clone();
            let count = DeadLetters::of(&journal).await?.drop_letters(which.into()).await?;
            note_none(count, sink.as_deref(), &journal.sinks);
            output::print(&format!("{}: dropped\n", counted(count)))
        }),
    }
}

fn counted(count: u64) -> String {
    format!("{count} dead letter{}", if count == 1 { "" } else { "s" })
}

/// Where nothing was found for a sink, its name may be to blame.
fn note_none(count: u64, sink: Option<&str>, sinks: &[String]) {
    let doubt = doubt(sink, sinks);
    if count == 0 && !doubt.is_empty() {
        note(&format!("there are none{doubt}"));
    }
}

/// That no sink has this name. It is no error: letters of a sink that was there once are kept.
fn doubt(sink: Option<&str>, sinks: &[String]) -> String {
    let Some(name) = sink.filter(|name| !sinks.iter().any(|sink| sink == name)) else {
        return String::new();
    };
    let all = || format!("the sinks are {}", sinks.join(", "));
    let hint = did_you_mean(name, sinks.iter().map(String::as_str), all);
    format!(", nor is a sink `{name}` configured: {hint}")
}

fn note(what: &str) {
    // Nobody is left to tell when stderr is closed.
    let _ = writeln!(std::io::stderr(), "{what}");
}
