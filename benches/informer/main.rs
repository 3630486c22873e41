//! The cost of a cache of metadata, beside client-go's: `cargo bench --bench informer`.
//!
//! An API server in a process of its own holds Pods. One after another, each in a fresh process, the
//! two informers list them, open their watch and stand still. `docs/benchmarks.md` says what is
//! measured and how.
//!
//! ```text
//! informer serve ──list, watch──▶ informer follow     SharedInformer<Metadata>
//!                └──────────────▶ client-go/main.go   metadatainformer
//!                                      ▲ /proc/PID
//! ```

#![expect(clippy::print_stdout, reason = "the table and the helpers' answers are the output")]
#![expect(clippy::print_stderr, reason = "progress")]

mod follow;
#[path = "../bridge/helper.rs"]
mod helper;
#[path = "../bridge/machine.rs"]
mod machine;
mod report;
mod serve;
#[path = "../bridge/table.rs"]
mod table;
#[path = "../bridge/usage.rs"]
mod usage;

use std::{
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use clap::{Parser, Subcommand};

use crate::{helper::Helper, machine::Machine, report::FORM, table::Table, usage::Usage};

/// Measurements end with whatever went wrong first; nobody handles the errors one by one.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// How long a process stands still before its memory is read.
const SETTLE: Duration = Duration::from_secs(5);

/// Measures what the metadata of many Pods takes in memory.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    role: Option<Role>,
    /// How many Pods there are.
    #[arg(long, default_value_t = 100_000)]
    pods: usize,
    /// Puts the table between the markers of this file.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// The flag that cargo gives to every benchmark; without it this is a test run, which measures nothing.
    #[arg(long, hide = true)]
    bench: bool,
}

/// The work of this binary as a helper of itself.
#[derive(Subcommand)]
#[command(disable_help_subcommand = true)]
enum Role {
    #[command(hide = true)]
    Serve { pods: usize },
    #[command(hide = true)]
    Follow { url: String, resource: String },
}

/// A program that keeps the cache.
struct Side {
    what: &'static str,
    program: Program,
}

#[derive(Clone, Copy)]
enum Program {
    Tidings,
    /// With what is kept of an object: `whole` or `stripped`.
    ClientGo(&'static str),
}

const SIDES: [Side; 3] = [
    Side { what: "Tidings, `SharedInformer<Metadata>`", program: Program::Tidings },
    Side { what: "client-go 0.34.4, metadata informer", program: Program::ClientGo("whole") },
    Side {
        what: "the same, `managedFields` removed by a transform",
        program: Program::ClientGo("stripped"),
    },
];

/// The resources that one process needed for one resource of the API server.
struct Measured {
    objects: usize,
    seconds: f64,
    /// When it has stood still.
    usage: Usage,
    /// When it has also given back what it can.
    least_rss_mib: f64,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    match cli.role {
        Some(Role::Serve { pods }) => serve::run(pods),
        Some(Role::Follow { url, resource }) => follow::run(&url, &resource),
        None if !cli.bench => Ok(()),
        None => measure(&cli),
    }
}

fn measure(cli: &Cli) -> Result<()> {
    let command = format!("cargo bench --bench informer -- --pods {}", cli.pods);
    let machine = Machine::here(Path::new(env!("CARGO_BIN_EXE_tidings")))?;
    let mut report = Table::new(FORM, machine, command);
    let client_go = build_client_go();
    let mut server = Helper::start(["serve", &cli.pods.to_string()])?;
    let url = server.line()?;
    for side in &SIDES {
        eprintln!("{} …", side.what);
        let (program, go) = (side.program, client_go.as_deref());
        if matches!(program, Program::ClientGo(_)) && go.is_none() {
            report.add_missing(side, "not measured: there is no Go to build it with");
            continue;
        }
        // What the program takes without any object: no Services exist.
        let empty = run(program, go, &url, "services")?;
        let full = run(program, go, &url, "pods")?;
        let pods: usize = server.number("pods")?;
        if (empty.objects, full.objects) != (0, pods) {
            return Err(format!("it has {} of {pods} Pods", full.objects).into());
        }
        report.add(side, &empty, &full);
    }
    println!("{report}");
    if let Some(path) = &cli.write {
        report.write_into(path)?;
    }
    Ok(())
}

/// Has a process follow a resource until it has all objects, and some time more.
fn run(program: Program, go: Option<&Path>, url: &str, resource: &str) -> Result<Measured> {
    let start = Instant::now();
    let mut process = match program {
        Program::Tidings => Helper::start(["follow", url, resource])?,
        Program::ClientGo(keep) => {
            let binary = go.ok_or("it was not built")?;
            Helper::of(Command::new(binary).args([url, "", "v1", resource, keep]))?
        }
    };
    let synced = process.line()?;
    let seconds = start.elapsed().as_secs_f64();
    let objects = synced.strip_prefix("synced ").ok_or_else(|| synced.clone())?.parse()?;
    thread::sleep(SETTLE);
    let usage = Usage::of(process.id())?;
    process.ask("give back what you can")?;
    let least_rss_mib = Usage::of(process.id())?.rss_mib;
    Ok(Measured { objects, seconds, usage, least_rss_mib })
}

/// Builds the other side; says why if that is not possible.
fn build_client_go() -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/informer/client-go");
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join("client-go-informer");
    let built = Command::new("go").arg("build").arg("-o").arg(&binary).current_dir(source).status();
    match built {
        Ok(status) if status.success() => Some(binary),
        Ok(status) => {
            eprintln!("client-go: go build ended with {status}");
            None
        }
        Err(error) => {
            eprintln!("client-go: go: {error}");
            None
        }
    }
}
