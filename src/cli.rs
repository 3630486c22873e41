//! The command line: `run`, `check`, `journal`, `schema`, `demo`, and beside a bridge `dead-letters`,
//! `replay`.
//!
//! Data goes to stdout, everything else to stderr. The exit code is 0 for success, 2 for a mistake
//! in the configuration or the usage, 1 for anything else.

mod control;
mod journal;
mod kube_client;
mod logging;
mod own_events;
mod run;

use std::{
    io::{IsTerminal as _, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Parser, Subcommand};

use crate::config::{self, CheckSecrets};

/// The exit code of a mistake in the configuration; clap's own for a mistake in the usage.
const EXIT_CONFIGURATION: u8 = 2;

/// A Kubernetes event bridge that loses nothing: from the API server to Kafka, OTLP and webhooks,
/// through a durable journal.
#[derive(Debug, Parser)]
#[command(name = "tidings", version, about, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Follow events and deliver them; without a configuration, from the current kube context to
    /// stdout, keeping nothing
    Run {
        /// The configuration file
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Check a configuration file and summarise it
    Check {
        /// The configuration file
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Accept that the secrets and the kubeconfig that it names are not on this machine
        #[arg(long)]
        without_secrets: bool,
    },
    /// Inspect or verify the journal of a running or stopped bridge, without changing it
    Journal(journal::JournalArguments),
    /// List, show, retry or drop the events that receivers refused, of a running or stopped bridge
    DeadLetters(control::DeadLettersArguments),
    /// Have the running bridge send events of the journal to one sink again
    Replay(control::ReplayArguments),
    /// Print the JSON Schema of the configuration file
    Schema,
    /// Show the whole bridge at work without a cluster: stories, an outage, a crash, a summary
    #[cfg(feature = "demo")]
    Demo(crate::demo::DemoArguments),
}

/// Runs the program on the arguments of the process.
pub fn main() -> ExitCode {
    // All that is made is for this user alone, and this user may use it, whoever has started the program.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    #[cfg(feature = "tls")]
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        return failed("another TLS provider was installed before; this is a bug", 1);
    }
    match Arguments::parse().command {
        Command::Run { config } => run::run(config.as_deref()),
        Command::Check { config, without_secrets } => {
            let secrets =
                if without_secrets { CheckSecrets::Optional } else { CheckSecrets::Required };
            match config::check(&config, std::env::vars_os(), secrets) {
                Ok(summary) => print(&format!("{summary}\n")),
                Err(error) => refused(&error),
            }
        }
        Command::Journal(arguments) => journal::journal(arguments),
        Command::DeadLetters(arguments) => control::dead_letters(arguments),
        Command::Replay(arguments) => control::replay(arguments),
        Command::Schema => print(&config::schema()),
        #[cfg(feature = "demo")]
        Command::Demo(arguments) => match crate::demo::run(&arguments) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&error, 1),
        },
    }
}

/// Says on stderr why the program ends.
fn failed(error: &(impl std::fmt::Display + ?Sized), code: u8) -> ExitCode {
    // Nobody is left to tell when stderr is closed.
    let _ = writeln!(std::io::stderr(), "error: {error}");
    ExitCode::from(code)
}

/// Says on stderr what is wrong with a configuration: on a terminal each problem with the lines that it is in.
fn refused(error: &config::Error) -> ExitCode {
    let mut stderr = std::io::stderr();
    if !stderr.is_terminal() {
        return failed(error, EXIT_CONFIGURATION);
    }
    for problem in error.problems() {
        // As above.
        let _ = writeln!(stderr, "{:?}", problem.report());
    }
    ExitCode::from(EXIT_CONFIGURATION)
}

fn print(text: &str) -> ExitCode {
    written(text).map_or_else(|error| failed(&error, 1), |()| ExitCode::SUCCESS)
}

/// Writes to stdout. That nobody reads it to its end, as in `tidings schema | head`, is no failure.
fn written(text: &str) -> std::io::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}
