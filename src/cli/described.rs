//! `tidings completions` and `tidings man`: what the commands and options are, for shells and readers.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::{Arguments, failed, print};

#[derive(Debug, Args)]
pub(super) struct CompletionsArguments {
    /// The shell
    shell: Shell,
}

#[derive(Debug, Args)]
pub(super) struct ManArguments {
    /// Write tidings.1, and a page for each command, into this directory
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

pub(super) fn completions(CompletionsArguments { shell }: CompletionsArguments) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "tidings", &mut script);
    print(&script)
}

pub(super) fn man(ManArguments { directory }: ManArguments) -> ExitCode {
    let Some(directory) = directory else {
        let mut page = Vec::new();
        return match clap_mangen::Man::new(Arguments::command()).render(&mut page) {
            Ok(()) => print(&page),
            Err(error) => failed(&error, 1),
        };
    };
    let written = std::fs::create_dir_all(&directory)
        .and_then(|()| clap_mangen::generate_to(Arguments::command(), &directory));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let directory = directory.display();
            let hint = "choose a directory that you may write to";
            failed(&format!("cannot write to {directory}: {error}\nhint: {hint}"), 1)
        }
    }
}
