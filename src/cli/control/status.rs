//! `tidings status`.

mod screen;

use std::{
    io::IsTerminal as _,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Args;
use serde::Deserialize as _;
use serde_json::Value;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::sleep,
};

use super::{
    Failure,
    client::{Client, unreadable},
    output::{self, Format, note},
    with_journal,
};
use crate::{
    admin::Status,
    bridge::JournalOptions,
    config::JournalOnly,
    plain::{escaped, visible},
};

/// Two samples so far apart give the first rates.
const SAMPLE: Duration = Duration::from_secs(1);
/// With --watch the bridge is asked so often.
const EVERY: Duration = Duration::from_secs(2);
/// Empties a terminal.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// See the command's own help.
#[derive(Debug, Args)]
pub(in crate::cli) struct StatusArguments {
    /// The configuration file of the bridge, of which only `journal` is read
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// How to print it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    output: Format,
    /// Print it every 2 s until Ctrl-C; as JSON, one document a line
    #[arg(long)]
    watch: bool,
}

/// Runs the command.
pub(in crate::cli) fn status(arguments: StatusArguments) -> ExitCode {
    let StatusArguments { config, output, watch } = arguments;
    with_journal(&config, async move |JournalOnly { journal, .. }| {
        let mut asker = Asker { journal: &journal, format: output, watch, before: None };
        if watch {
            return asker.watch().await;
        }
        let (text, is_well) = asker.next().await?;
        output::print(&text)?;
        Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

/// The lines of the terminal.
fn rows() -> usize {
    rustix::termios::tcgetwinsize(std::io::stdout()).map_or(24, |size| size.ws_row.into())
}

struct Asker<'a> {
    journal: &'a JournalOptions,
    format: Format,
    watch: bool,
    /// The sample before, for the rates.
    before: Option<Sample>,
}

struct Sample {
    at: Instant,
    status: Status,
}

impl Asker<'_> {
    /// Prints one after another until a signal comes, or nobody reads any more.
    async fn watch(mut self) -> Result<ExitCode, Failure> {
        let signal = |kind| signal(kind).map_err(|error| Failure::from(&error));
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            ended = self.print_all() => ended,
            _ = interrupt.recv() => Ok(ExitCode::SUCCESS),
            _ = terminate.recv() => Ok(ExitCode::SUCCESS),
        }
    }

    async fn print_all(&mut self) -> Result<ExitCode, Failure> {
        let is_text = self.format == Format::Text;
        let clear = if is_text && std::io::stdout().is_terminal() { CLEAR } else { "" };
        let (mut between, mut away) = (clear, None);
        // A bridge that is not there at first is a mistake; later it may be restarted.
        let mut answer = Ok(self.next().await?);
        loop {
            match answer {
                Ok((text, _)) => {
                    away = None;
                    let text = if clear.is_empty() { text } else { screen::fitting(&text, rows()) };
                    if !output::is_read(&format!("{between}{text}"))? {
                        return Ok(ExitCode::SUCCESS);
                    }
                    between = if is_text && clear.is_empty() { "\n" } else { clear };
                }
                Err(Failure { message, .. }) if away.as_ref() != Some(&message) => {
                    self.before = None;
                    output::print(clear)?;
                    note(&format!("{}\nthe bridge is asked again every 2 s", visible(&message)));
                    away = Some(message);
                }
                Err(_) => {}
            }
            sleep(EVERY).await;
            answer = self.next().await;
        }
    }

    /// The next text to print, and whether there are no problems.
    async fn next(&mut self) -> Result<(String, bool), Failure> {
        if self.format == Format::Text && self.before.is_none() {
            self.before = Some(self.ask().await?.1);
            sleep(SAMPLE).await;
        }
        let (document, now) = self.ask().await?;
        let is_well = now.status.problems.is_empty();
        let text = match self.format {
            Format::Text => {
                let before = self.before.as_ref().unwrap_or(&now);
                screen::screen(&now.status, &before.status, now.at - before.at, self.journal)
            }
            Format::Json if self.watch => escaped(&document.to_string()) + "\n",
            Format::Json => output::json(&document)?,
        };
        self.before = Some(now);
        Ok((text, is_well))
    }

    /// The document as it came, with what another version has beyond this one's, and what is known of it.
    async fn ask(&self) -> Result<(Value, Sample), Failure> {
        let hint = "run this where the bridge runs, with its configuration; of a stopped bridge, \
                    `tidings journal inspect` shows the journal";
        let client = Client::running(&self.journal.path, hint).await?;
        let document = client.get("/api/v1/status").await?;
        let status = Status::deserialize(&document).map_err(|error| unreadable(&error))?;
        Ok((document, Sample { at: Instant::now(), status }))
    }
}
