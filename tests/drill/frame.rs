//! Drills, and how they are run.

use std::fmt::{self, Write as _};
use std::num::NonZeroUsize;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use tokio::runtime::Runtime;

use crate::journals;
use crate::machine::Machine;
use crate::table::{Form, Table};

const FORM: Form = Form {
    name: "drill",
    columns: &[
        "drill",
        "fault",
        "sink",
        "produced",
        "delivered",
        "lost",
        "repeated",
        "order breaks",
        "delta in / out",
        "caught up after s",
        "notes",
    ],
};

/// Which drills may run at the same time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Company {
    Any,
    /// Others would spoil the figures of its page. Those of a short form are read by nobody.
    InShort,
    /// Others would make late what it holds to be in time.
    Never,
}

/// One drill.
pub(crate) struct Drill {
    pub(crate) name: &'static str,
    /// The drill in a line: what it does and what is to hold.
    pub(crate) what: &'static str,
    /// The size of the whole drill, for the reader.
    pub(crate) full: &'static str,
    /// That of its short form, which `--short` runs; without one `--short` leaves it out.
    pub(crate) short: Option<&'static str>,
    pub(crate) company: Company,
    /// Whether it takes so long that others wait for it in the end.
    pub(crate) long: bool,
    pub(crate) run: fn(Run) -> LocalBoxFuture<'static, Page>,
}

/// How a drill is to be run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) short: bool,
    /// For all that is left to chance.
    pub(crate) seed: u64,
}

impl Run {
    /// The value that fits the size of the run.
    pub(crate) fn size<T>(self, full: T, short: T) -> T {
        if self.short { short } else { full }
    }
}

/// The result of a drill.
pub(crate) enum Page {
    Rows(Vec<Row>),
    /// The drill could not be run here, and why. Never silent: the exit code says so too.
    Skipped(String),
}

/// The row of one sink in one drill. Figures that were not counted are left out of the page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub(crate) fault: String,
    pub(crate) sink: String,
    /// Versions of Events that were produced.
    pub(crate) produced: Option<u64>,
    /// Versions that arrived, each counted once.
    pub(crate) delivered: Option<u64>,
    /// Versions that never arrived, and that no other stands for.
    pub(crate) lost: Option<u64>,
    /// Arrivals of an id that had come before.
    pub(crate) repeated: Option<u64>,
    /// First arrivals after a later version of the same object.
    pub(crate) order_breaks: Option<u64>,
    /// Increments that were produced, and increments that arrived.
    pub(crate) delta: Option<(u64, u64)>,
    /// From the end of the fault until everything had arrived.
    pub(crate) caught_up: Option<Duration>,
    pub(crate) notes: String,
}

impl Row {
    /// With one note more.
    pub(crate) fn note(mut self, note: &str) -> Self {
        if !self.notes.is_empty() {
            self.notes.push_str("; ");
        }
        self.notes.push_str(note);
        self
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |value: Option<u64>| value.map_or("–".to_owned(), |value| value.to_string());
        let delta = self
            .delta
            .map_or("–".to_owned(), |(produced, arrived)| format!("{produced} / {arrived}"));
        let caught_up =
            self.caught_up.map_or("–".to_owned(), |took| format!("{:.1}", took.as_secs_f64()));
        let cells = [
            self.fault.clone(),
            self.sink.clone(),
            number(self.produced),
            number(self.delivered),
            number(self.lost),
            number(self.repeated),
            number(self.order_breaks),
            delta,
            caught_up,
            self.notes.clone(),
        ];
        write!(f, "{}", cells.join(" | "))
    }
}

/// Does harm to a bridge under load, and looks what became of it.
#[derive(Parser)]
#[command(name = "drill")]
pub(crate) struct Cli {
    /// Only drills whose name contains one of these.
    names: Vec<String>,
    /// Names the drills.
    #[arg(long)]
    list: bool,
    /// The short form of each; drills without one are left out.
    #[arg(long)]
    short: bool,
    /// So many drills at once, but for those that measure, or hold what is in time; they run alone before.
    #[arg(long, value_name = "N", default_value = "1")]
    jobs: NonZeroUsize,
    /// For all that is left to chance; a run can be repeated with it.
    #[arg(long, default_value_t = 20_261_122)]
    seed: u64,
    /// Puts the page between the markers of this file; of named drills only their rows.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Runs no drill, but makes the journals of `tests/journals` in this directory.
    #[arg(long, value_name = "DIR")]
    journals: Option<PathBuf>,
    /// A drill that cannot be run on this machine is no failure.
    #[arg(long)]
    may_skip: bool,
}

impl Cli {
    pub(crate) fn of_arguments() -> Self {
        Self::parse()
    }

    fn wants(&self, drill: &Drill) -> bool {
        let named =
            self.names.is_empty() || self.names.iter().any(|part| drill.name.contains(part));
        named && (drill.short.is_some() || !self.short)
    }
}

/// Runs what is asked for. A drill that fails does not keep the others from being run.
pub(crate) fn run(cli: &Cli, drills: &[&[Drill]]) -> ExitCode {
    if let Some(directory) = &cli.journals {
        Runtime::new().expect("a runtime").block_on(journals::make(directory));
        return ExitCode::SUCCESS;
    }
    let wanted: Vec<&Drill> =
        drills.iter().copied().flatten().filter(|drill| cli.wants(drill)).collect();
    if cli.list {
        for Drill { name, what, full, short, .. } in wanted {
            println!("{name:20} {what}\n{:20} {full}; short: {}", "", short.unwrap_or("left out"));
        }
        return ExitCode::SUCCESS;
    }
    let tidings = Path::new(env!("CARGO_BIN_EXE_tidings"));
    let machine = Machine::here(tidings).expect("/proc says what machine this is");
    let pages = run_all(&wanted, Run { short: cli.short, seed: cli.seed }, cli.jobs.get());
    let mut table = Table::new(FORM, machine, command_line());
    let (mut failed, mut skipped) = (Vec::new(), Vec::new());
    for (drill, page) in wanted.iter().zip(pages) {
        let rows = match page {
            Some(Page::Rows(rows)) => rows,
            Some(Page::Skipped(why)) => {
                skipped.push(drill.name);
                vec![Row { notes: format!("SKIPPED: {why}"), ..Row::default() }]
            }
            None => {
                failed.push(drill.name);
                vec![Row { notes: "FAILED".to_owned(), ..Row::default() }]
            }
        };
        for row in rows {
            table.push(format!("| {} | {row} |", drill.name));
        }
    }
    println!("{table}");
    if let Some(path) = &cli.write {
        let names: Vec<&str> = wanted.iter().map(|drill| drill.name).collect();
        let all = cli.names.is_empty();
        let written = if all { table.write_into(path) } else { table.amend(path, &names) };
        written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    let mut sum = format!("{} drills, {} failed", wanted.len(), failed.len());
    for (what, names) in [("failed", &failed), ("SKIPPED", &skipped)] {
        if !names.is_empty() {
            write!(sum, "; {what}: {}", names.join(", ")).expect("writing to a string");
        }
    }
    println!("{sum}");
    let bad = !failed.is_empty() || (!skipped.is_empty() && !cli.may_skip);
    if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Runs those that have to be alone one after the other, and then so many of the others at once.
/// The longest come first, as they are what the end waits for; the pages are in the order given.
fn run_all(drills: &[&Drill], run: Run, jobs: usize) -> Vec<Option<Page>> {
    let is_alone = |at: &usize| match drills[*at].company {
        Company::Any => jobs == 1,
        Company::InShort => jobs == 1 || !run.short,
        Company::Never => true,
    };
    let (alone, mut others): (Vec<usize>, Vec<usize>) = (0..drills.len()).partition(is_alone);
    others.sort_by_key(|at| !drills[*at].long);
    let pages = Mutex::new(drills.iter().map(|_| None).collect::<Vec<_>>());
    let run_next = |at: usize| {
        let page = run_one(drills[at], run);
        pages.lock().expect("a drill's panic is caught")[at] = page;
    };
    alone.into_iter().for_each(run_next);
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..jobs.min(others.len()) {
            scope.spawn(|| {
                while let Some(at) = others.get(next.fetch_add(1, Ordering::Relaxed)) {
                    run_next(*at);
                }
            });
        }
    });
    pages.into_inner().expect("a drill's panic is caught")
}

/// A drill on a runtime of its own, which takes down with it whatever the drill leaves behind. None
/// when it panicked; the message is on standard error already.
fn run_one(drill: &Drill, run: Run) -> Option<Page> {
    let Drill { name, what, .. } = drill;
    eprintln!("{name}: {what}");
    let started = Instant::now();
    let runtime = Runtime::new().expect("a runtime");
    let page = runtime.block_on(AssertUnwindSafe((drill.run)(run)).catch_unwind()).ok();
    runtime.shutdown_timeout(Duration::from_secs(5));
    let seconds = started.elapsed().as_secs_f64();
    match &page {
        Some(Page::Rows(rows)) => {
            let mut said = String::new();
            for row in rows {
                writeln!(said, "  {row}").expect("writing to a string");
            }
            // At once, as others speak too.
            eprintln!("{said}  {name}: {seconds:.0} s");
        }
        Some(Page::Skipped(why)) => eprintln!("  {name}: SKIPPED: {why}"),
        None => eprintln!("  {name}: FAILED after {seconds:.0} s; --seed {}", run.seed),
    }
    page
}

/// The command as it is typed, for the reader of the page to repeat.
fn command_line() -> String {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let release = if cfg!(debug_assertions) { "" } else { " --release" };
    let separator = if arguments.is_empty() { "" } else { " -- " };
    format!("cargo test{release} --test drill{separator}{}", arguments.join(" "))
}
