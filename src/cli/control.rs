//! The commands beside a bridge: `status`, `dead-letters`, `replay`, `reload` and `config show`.
//!
//! They find the bridge by the configuration that it runs with: of that, only the section `journal`
//! is read. A running bridge is asked over the socket in its journal's directory; of one that is
//! stopped, the journal is opened.

mod client;
mod dead_letters;
mod in_force;
mod letters;
mod output;
mod reload;
mod replay;
mod status;
mod stopped;

use std::{fmt, path::Path, process::ExitCode};

use super::{EXIT_CONFIGURATION, failed};
use crate::{
    config::{self, JournalOnly},
    plain::visible,
};

pub(super) use dead_letters::{DeadLettersArguments, dead_letters};
pub(super) use in_force::{ConfigArguments, config};
pub(super) use reload::{ReloadArguments, reload};
pub(super) use replay::{ReplayArguments, replay};
pub(super) use status::{StatusArguments, status};

/// Why a command does not do what was asked.
#[derive(Debug)]
struct Failure {
    /// With its hint.
    message: String,
    code: u8,
}

impl Failure {
    fn new(what: impl fmt::Display, hint: impl fmt::Display) -> Self {
        Self { message: format!("{what}\nhint: {hint}"), code: 1 }
    }

    /// One that says how to mend it by itself.
    fn from(error: &impl fmt::Display) -> Self {
        Self { message: error.to_string(), code: 1 }
    }
}

/// Runs a command with where the journal is.
fn with_journal<F>(config: &Path, command: impl FnOnce(JournalOnly) -> F) -> ExitCode
where
    F: Future<Output = Result<ExitCode, Failure>>,
{
    let journal = match config::load_journal(config, std::env::vars_os()) {
        Ok(journal) => journal,
        Err(error) => return failed(&error, EXIT_CONFIGURATION),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("cannot start the runtime: {error}"), 1),
    };
    match runtime.block_on(command(journal)) {
        Ok(code) => code,
        // The message may quote an answer of the socket.
        Err(Failure { message, code }) => failed(&visible(&message), code),
    }
}
