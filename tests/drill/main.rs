//! Fault drills: harm is done to a bridge under load, and an oracle holds what each sink received
//! against what the API server was told. `make drill`; its page is `docs/reliability.md`.
//!
//! ```text
//!  load ──▶ API server ──▶ tidings (a process: it can be killed) ──▶ receivers
//!    │                                                                  │ arrivals
//!    └── what was produced ──────────▶ judge ◀──────────────────────────┘
//! ```
//!
//! A drill is a function: it sets a [stage](scripted), starts a [load], does harm, and has the
//! [judge](judge) look at each sink. It panics where a promise is broken. Where none is, it answers
//! the rows of the page. Times and rates are printed for the reader; none is asserted.
//!
//! There are two stages. The *scripted* one has the in-process API server and receivers that do as
//! they are told: high rates, exact faults. The one of *real parts* is that of `tests/e2e`. The
//! bridge under test is the real binary on both.

// Where a machine or a part fails, so does the drill, and there is nobody to hand an error to.
#![allow(clippy::panic)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the page and its progress")]

#[path = "../e2e/bridge.rs"]
#[allow(dead_code, reason = "shared with the scenarios, which ask for more")]
mod bridge;
mod collector;
mod frame;
mod judge;
mod kafka;
#[path = "../e2e/ledger.rs"]
mod ledger;
mod load;
#[path = "../../benches/bridge/machine.rs"]
mod machine;
mod nasty;
#[path = "../e2e/parts/mod.rs"]
#[allow(dead_code, unused_imports, reason = "shared with the scenarios, which ask for more")]
mod parts;
mod receiver;
#[path = "../e2e/receivers/mod.rs"]
#[allow(dead_code, unused_imports, reason = "shared with the scenarios, which ask for more")]
mod receivers;
mod scripted;
mod sinks;
mod stop;
#[path = "../../benches/bridge/table.rs"]
mod table;
#[path = "../../benches/bridge/usage.rs"]
#[allow(dead_code, reason = "shared with the benches, which ask for more")]
mod usage;
#[path = "../e2e/wait.rs"]
mod wait;
mod webhook;

use std::process::ExitCode;

use crate::frame::{Cli, Drill};

/// What the modules shared with the benches answer with.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// All drills, in the order of the page.
const DRILLS: &[&[Drill]] = &[&stop::DRILLS, &webhook::DRILLS, &kafka::DRILLS, &collector::DRILLS];

fn main() -> ExitCode {
    frame::run(&Cli::of_arguments(), DRILLS)
}
