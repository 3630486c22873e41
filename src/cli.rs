//! The command line: `run`, `check`, `import`, `journal`, `schema`, `demo`, beside a bridge `status`,
//! `dead-letters`, `replay`, `reload` and `config show`, and about the command line itself `completions` and `man`.
//!
//! Data goes to stdout, everything else to stderr. The exit code is 0 for success, 2 for a mistake
//! in the configuration or the usage, 1 for anything else.

mod control;
mod described;
mod import;
mod journal;
mod kube_client;
mod logging;
mod own_events;
mod reload;
mod run;

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

use crate::{
    config::{self, CheckSecrets},
    sinks::elasticsearch::{Product, index_template},
};

/// The exit code of a mistake in the configuration; clap's own for a mistake in the usage.
const EXIT_CONFIGURATION: u8 = 2;

/// Below the help of the program and of `run`.
const AFTER_HELP: &str = "\
Environment:
  TIDINGS_SECTION__KEY  Sets a key of cluster, source, journal, server or log

Exit codes:
  0  Done, or stopped by a signal
  1  Anything else
  2  A mistake in the configuration, the kubeconfig or the usage";

/// A Kubernetes event bridge that loses nothing: from the API server to Kafka, OTLP and webhooks,
/// through a durable journal.
#[derive(Debug, Parser)]
#[command(name = "tidings", version, about, after_help = AFTER_HELP, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Follow events and deliver them; without a configuration, from the current kube context to
    /// stdout, keeping nothing
    #[command(after_help = AFTER_HELP)]
    Run {
        /// The configuration file
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Check a configuration file and say what it comes to
    Check {
        /// The configuration file
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Do not ask whether the secrets that it refers to exist here
        #[arg(long)]
        without_secrets: bool,
    },
    /// Make a configuration of that of a kubernetes-event-exporter, and say what is not carried over
    Import(import::ImportArguments),
    /// Look at a journal, of a running or a stopped bridge, without changing it
    Journal(journal::JournalArguments),
    /// Show what the running bridge does, problems first; the exit code is 1 if there are any
    Status(control::StatusArguments),
    /// List, show, send again or drop what receivers refused; of a running or a stopped bridge
    DeadLetters(control::DeadLettersArguments),
    /// Have the running bridge send to one sink again what the journal still has
    Replay(control::ReplayArguments),
    /// Have the running bridge read its configuration again; the exit code is 2 if it is rejected
    Reload(control::ReloadArguments),
    /// Look at the configuration that the running bridge follows
    Config(control::ConfigArguments),
    /// Print the JSON Schema of the configuration file, or an index template
    Schema {
        #[command(subcommand)]
        of: Option<SchemaOf>,
    },
    /// Show the whole bridge at work without a cluster: stories, an outage, a crash, a summary
    #[cfg(feature = "demo")]
    Demo(crate::demo::DemoArguments),
    /// Print a completion script for a shell
    Completions(described::CompletionsArguments),
    /// Print the manual page, or write all of them
    Man(described::ManArguments),
}

#[derive(Debug, Subcommand)]
enum SchemaOf {
    /// Print an index template for ECS documents, the body of `PUT _index_template/kubernetes-events`
    Elasticsearch {
        /// For OpenSearch instead of Elasticsearch
        #[arg(long)]
        opensearch: bool,
        /// Create data streams, not indices
        #[arg(long)]
        data_stream: bool,
        /// The index pattern [default: k8s-events-*, with --data-stream logs-kubernetes.events-*]
        #[arg(long)]
        pattern: Option<String>,
    },
}

/// Runs the program on the arguments of the process.
pub fn main() -> ExitCode {
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
                Err(error) => failed(&error, EXIT_CONFIGURATION),
            }
        }
        Command::Import(arguments) => import::import(arguments),
        Command::Journal(arguments) => journal::journal(arguments),
        Command::Status(arguments) => control::status(arguments),
        Command::DeadLetters(arguments) => control::dead_letters(arguments),
        Command::Replay(arguments) => control::replay(arguments),
        Command::Reload(arguments) => control::reload(arguments),
        Command::Config(arguments) => control::config(arguments),
        Command::Schema { of: None } => print(&config::schema()),
        Command::Schema {
            of: Some(SchemaOf::Elasticsearch { opensearch, data_stream, pattern }),
        } => {
            let product = if opensearch { Product::OpenSearch } else { Product::Elasticsearch };
            let default = if data_stream { "logs-kubernetes.events-*" } else { "k8s-events-*" };
            let pattern = pattern.as_deref().unwrap_or(default);
            print(&format!("{:#}\n", index_template(pattern, product, data_stream)))
        }
        #[cfg(feature = "demo")]
        Command::Demo(arguments) => match crate::demo::run(&arguments) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&error, 1),
        },
        Command::Completions(arguments) => described::completions(arguments),
        Command::Man(arguments) => described::man(arguments),
    }
}

/// Says on stderr why the program ends.
fn failed(error: &(impl std::fmt::Display + ?Sized), code: u8) -> ExitCode {
    // Nobody is left to tell when stderr is closed.
    let _ = writeln!(std::io::stderr(), "error: {error}");
    ExitCode::from(code)
}

fn print(text: &(impl AsRef<[u8]> + ?Sized)) -> ExitCode {
    match std::io::stdout().write_all(text.as_ref()) {
        Ok(()) => ExitCode::SUCCESS,
        // `tidings schema | head` is no failure.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => failed(&error, 1),
    }
}
