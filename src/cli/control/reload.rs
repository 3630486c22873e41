//! `tidings reload`.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;

use super::{client::Client, output, with_journal};
use crate::{admin::api::Reloaded, config::JournalOnly, plain::visible};

/// See the command's own help.
#[derive(Debug, Args)]
pub(in crate::cli) struct ReloadArguments {
    /// The configuration file of the bridge, of which only `journal` is read by the command
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

/// Runs the command.
pub(in crate::cli) fn reload(arguments: ReloadArguments) -> ExitCode {
    let ReloadArguments { config } = arguments;
    with_journal(&config, async |JournalOnly { journal, .. }| {
        let hint = "run this where the bridge runs, with its configuration. A changed journal.path needs a \
                    restart: the bridge listens in the directory that it was started with, and its log says so";
        let client = Client::running(&journal.path, hint).await?;
        let reloaded: Reloaded = client.patient().post("/api/v1/reload", &()).await?;
        output::print(&visible(&said(&reloaded)))
    })
}

fn said(reloaded: &Reloaded) -> String {
    let Reloaded { file, added, changed, removed } = reloaded;
    let kinds = [("added", added), ("changed", changed), ("removed", removed)];
    let some = kinds.into_iter().filter(|(_, keys)| !keys.is_empty());
    let some: Vec<_> = some.map(|(what, keys)| format!("{what} {}", keys.join(", "))).collect();
    let what = if some.is_empty() { "nothing has changed".to_owned() } else { some.join("; ") };
    format!("{file} is in force: {what}\n")
}
