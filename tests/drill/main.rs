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
//! the rows of the page. Times are printed for the reader; none is asserted.
//!
//! There are two stages. The *scripted* one has the in-process API server and receivers that do as
//! they are told: high rates, exact faults. The one of *real parts* is that of `tests/e2e`. The
//! bridge under test is the real binary on both.

// Where a machine or a part fails, so does the drill, and there is nobody to hand an error to.
#![allow(clippy::panic)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the page and its progress")]

mod accounts;
#[path = "../e2e/bridge.rs"]
#[allow(dead_code, reason = "shared with the scenarios, which ask for more")]
mod bridge;
mod crash;
mod disk;
mod faulty_disk;
mod frame;
mod journals;
mod judge;
mod kafka;
mod load;
#[path = "../../benches/bridge/machine.rs"]
mod machine;
mod mixed;
mod nasty;
#[path = "../e2e/oracle.rs"]
#[allow(dead_code, reason = "the stage of real parts is judged by it in the scenarios")]
mod oracle;
mod outage;
#[path = "../e2e/parts/mod.rs"]
#[allow(dead_code, unused_imports, reason = "shared with the scenarios, which ask for more")]
mod parts;
mod preload;
mod receiver;
#[path = "../e2e/receivers/mod.rs"]
#[allow(dead_code, unused_imports, reason = "shared with the scenarios, which ask for more")]
mod receivers;
#[path = "../../benches/bridge/request.rs"]
#[allow(dead_code, reason = "shared with the bench, which reads syslog, too")]
mod request;
mod sampler;
mod scripted;
mod sinks;
mod small_disk;
#[path = "../e2e/stage.rs"]
#[allow(dead_code, reason = "shared with the scenarios, which ask for more")]
mod stage;
mod statements;
#[path = "../../benches/bridge/table.rs"]
mod table;
#[path = "../e2e/truth.rs"]
#[allow(dead_code, reason = "shared with the scenarios, which ask for more")]
mod truth;
#[path = "../../benches/bridge/usage.rs"]
#[allow(dead_code, reason = "shared with the benches, which ask for more")]
mod usage;
#[path = "../e2e/wait.rs"]
mod wait;
#[path = "../e2e/writers.rs"]
#[allow(dead_code, reason = "shared with the scenarios, which ask for more")]
mod writers;

use std::process::ExitCode;

use crate::frame::{Cli, Drill};

/// What the modules shared with the benches answer with.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// All drills, in the order of the page.
const DRILLS: &[&[Drill]] = &[
    &crash::DRILLS,
    &outage::DRILLS,
    &statements::DRILLS,
    &disk::DRILLS,
    &kafka::DRILLS,
    &mixed::DRILLS,
];

fn main() -> ExitCode {
    frame::run(&Cli::of_arguments(), DRILLS)
}
