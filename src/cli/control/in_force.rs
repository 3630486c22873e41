//! `tidings config show`.

use std::{fmt::Write as _, path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};

use super::{client::Client, output, with_journal};
use crate::{admin::api::InForce, config::JournalOnly, plain::visible};

/// See the command's own help.
#[derive(Debug, Args)]
pub(in crate::cli) struct ConfigArguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the configuration that the running bridge follows, without secrets
    Show {
        /// The configuration file of the bridge, of which only `journal` is read by the command
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// YAML with comments for people, or JSON
        #[arg(long, value_enum, default_value = "text")]
        output: output::Format,
    },
}

/// Runs the command.
pub(in crate::cli) fn config(arguments: ConfigArguments) -> ExitCode {
    let Command::Show { config, output } = arguments.command;
    with_journal(&config, async |JournalOnly { journal, .. }| {
        let hint = "run this where the bridge runs, with its configuration";
        let client = Client::running(&journal.path, hint).await?;
        let in_force: InForce = client.get("/api/v1/config").await?;
        match output {
            output::Format::Text => output::print(&visible(&text(&in_force))),
            output::Format::Json => output::print(&output::json(&in_force)?),
        }
    })
}

/// YAML, below comments.
fn text(in_force: &InForce) -> String {
    let state = &in_force.state;
    let mut text = format!("# {} is in force since {}.\n", state.file, state.since);
    if let Some(rejected) = &state.rejected {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# It has changed, and is rejected since {}:", rejected.since);
        rejected.error.lines().for_each(|line| {
            let _ = writeln!(text, "#   {line}");
        });
    }
    text + &in_force.yaml
}
