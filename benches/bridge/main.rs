//! What it costs to run the bridge: `cargo bench --bench bridge`.
//!
//! A replaying API server and a counting sink run in processes of their own, and between them the
//! `tidings` binary as a user runs it: a configuration file, a kubeconfig, a journal on disk. Only
//! that process is measured. `docs/benchmarks.md` says what is measured and how.
//!
//! ```text
//! bridge serve ──watch──▶ tidings run --config … ──HTTP──▶ bridge count
//!      ▲                        ▲ /proc/PID                     ▲
//!      └── one line a request ── bridge ── one line a request ──┘
//! ```

#![expect(clippy::print_stdout, reason = "the table and the helpers' answers are the output")]
#![expect(clippy::print_stderr, reason = "progress")]

mod count;
mod drain;
mod helper;
mod kubelets;
mod machine;
mod process;
mod report;
mod request;
mod scenes;
mod serve;
mod table;
mod tally;
mod usage;

use std::{net::SocketAddr, path::PathBuf};

use clap::{Parser, Subcommand};

use crate::{machine::Machine, report::FORM, scenes::SCENES, table::Table, tally::Wire};

/// Measurements end with whatever went wrong first; nobody handles the errors one by one.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Measures `tidings` between a replaying API server and a counting sink.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    role: Option<Role>,
    /// Only scenes whose name contains this; may be given several times.
    #[arg(long, value_name = "NAME")]
    scene: Vec<String>,
    /// A smaller run, to see that everything works.
    #[arg(long)]
    quick: bool,
    /// Puts the table between the markers of this file.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scene", "quick"])]
    write: Option<PathBuf>,
    /// The binary to measure, to compare two builds.
    #[arg(long, value_name = "FILE", default_value = env!("CARGO_BIN_EXE_tidings"))]
    tidings: PathBuf,
    /// Names the scenes.
    #[arg(long)]
    list: bool,
    /// What cargo says to every benchmark; without it this is a test run, which measures nothing.
    #[arg(long, hide = true)]
    bench: bool,
}

/// What this binary does as a helper of itself.
#[derive(Subcommand)]
#[command(disable_help_subcommand = true)]
enum Role {
    #[command(hide = true)]
    Serve { kubeconfig: PathBuf },
    #[command(hide = true)]
    Count { wire: Wire, file: PathBuf },
    #[command(hide = true)]
    Drain { address: SocketAddr, version: u64 },
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    match cli.role {
        Some(Role::Serve { ref kubeconfig }) => serve::run(kubeconfig),
        Some(Role::Count { wire, ref file }) => count::run(wire, file),
        Some(Role::Drain { address, version }) => drain::run(address, version),
        None if cli.list => {
            for scene in &SCENES {
                println!("{:24} {}", scene.name, scene.what);
            }
            Ok(())
        }
        None if cli.bench => measure(&cli),
        None => {
            println!("nothing is measured without --bench, which `cargo bench` gives");
            Ok(())
        }
    }
}

fn measure(cli: &Cli) -> Result<()> {
    let wanted = |name: &str| {
        cli.scene.is_empty() || cli.scene.iter().any(|part| name.contains(part.as_str()))
    };
    let mut report = Table::new(FORM, Machine::here(&cli.tidings)?, command_line());
    for scene in SCENES.iter().filter(|scene| wanted(scene.name)) {
        eprintln!("{} …", scene.name);
        report.add(scene, &scenes::run(scene, cli.quick, &cli.tidings)?);
    }
    println!("{report}");
    if let Some(path) = &cli.write {
        report.write_into(path)?;
    }
    Ok(())
}

/// The command as it is typed, for the reader of the table to repeat.
fn command_line() -> String {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let separator = if arguments.is_empty() { "" } else { " -- " };
    format!("cargo bench --bench bridge{separator}{}", arguments.join(" "))
}
