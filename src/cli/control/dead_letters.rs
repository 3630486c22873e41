//! `tidings dead-letters`.

use std::{path::PathBuf, process::ExitCode};

use clap::{ArgGroup, Args, Subcommand};

use super::{
    letters::Letters,
    output::{self, Format, ListFormat, note},
    with_journal,
};
use crate::{admin::api::Selection, suggest::nearest};

/// The classes of dead letters, as the manual has them.
const CLASSES: [&str; 6] =
    ["invalid", "too-large", "unsendable", "max-attempts", "partial-success", "blocked"];

/// See the command's own help.
#[derive(Debug, Args)]
pub(in crate::cli) struct DeadLettersArguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List them, the newest first
    List {
        #[command(flatten)]
        config: Config,
        /// Only those of this sink
        #[arg(long, value_name = "NAME")]
        sink: Option<String>,
        /// Only those of this class
        #[arg(long, value_parser = CLASSES)]
        class: Option<String>,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
        limit: u64,
        /// How to print them
        #[arg(long, value_enum, default_value_t = ListFormat::Table)]
        output: ListFormat,
    },
    /// Show one with all that is known, the event included
    Show {
        #[command(flatten)]
        config: Config,
        /// Its number, as `list` has it
        number: u64,
        /// How to print it
        #[arg(long, value_enum, default_value_t = Format::Text)]
        output: Format,
    },
    /// Send some again; what is delivered is a dead letter no more
    Retry {
        #[command(flatten)]
        config: Config,
        #[command(flatten)]
        which: Which,
    },
    /// Forget some
    Drop {
        #[command(flatten)]
        config: Config,
        #[command(flatten)]
        which: Which,
    },
}

#[derive(Debug, Args)]
struct Config {
    /// The configuration file of the bridge, of which only `journal` is read
    #[arg(long = "config", value_name = "FILE")]
    path: PathBuf,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("which").required(true)))]
struct Which {
    /// Their numbers, as `list` has them
    #[arg(value_name = "NUMBER", group = "which")]
    numbers: Vec<u64>,
    /// All of them
    #[arg(long, group = "which")]
    all: bool,
    /// With --all: all of this sink
    #[arg(long, value_name = "NAME", requires = "all", conflicts_with = "numbers")]
    sink: Option<String>,
    /// With --all: all of this class
    #[arg(long, value_parser = CLASSES, requires = "all", conflicts_with = "numbers")]
    class: Option<String>,
}

impl From<Which> for Selection {
    fn from(Which { numbers, all, sink, class }: Which) -> Self {
        Self { numbers: (!all).then_some(numbers), all, sink, class }
    }
}

/// Runs the command.
pub(in crate::cli) fn dead_letters(arguments: DeadLettersArguments) -> ExitCode {
    match arguments.command {
        Command::List { config, sink, class, limit, output } => {
            with_journal(&config.path, async move |journal| {
                let letters = Letters::of(&journal).await?;
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
                let letter = Letters::of(&journal).await?.show(number).await?;
                output::print(&match output {
                    Format::Text => output::whole(&letter),
                    Format::Json => output::json(&letter)?,
                })
            })
        }
        Command::Retry { config, which } => with_journal(&config.path, async move |journal| {
            let mut letters = Letters::of(&journal).await?;
            let sink = which.sink.clone();
            let count = letters.retry(which.into()).await?;
            note_none(count, sink.as_deref(), &journal.sinks);
            let when = if letters.is_running() { "" } else { " when the bridge starts again" };
            output::print(&format!("{}: will be sent again{when}\n", counted(count)))
        }),
        Command::Drop { config, which } => with_journal(&config.path, async move |journal| {
            let sink = which.sink.clone();
            let count = Letters::of(&journal).await?.drop_letters(which.into()).await?;
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
    match sink {
        Some(name) if !sinks.iter().any(|sink| sink == name) => {
            match nearest(name, sinks.iter().map(String::as_str)) {
                Some(near) => {
                    format!(", nor is a sink `{name}` configured: did you mean `{near}`?")
                }
                None => {
                    let sinks = sinks.join(", ");
                    format!(", nor is a sink `{name}` configured: the sinks are {sinks}")
                }
            }
        }
        _ => String::new(),
    }
}
