//! Runs golden vectors, made by running client-go itself, through the library's public doors.
//!
//! The vectors of `tests/conformance/vectors/` and of every folder that `TIDINGS_CONFORMANCE_DIR`
//! names (separated by colons) are driven; `make conformance` is the command. `docs/conformance.md` says
//! what a vector is and where they come from. Where the library differs from client-go on purpose,
//! [`purpose`] says where and that page says why.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "the report is what it is for")]

mod backoff;
mod compare;
mod correlator;
mod fifo;
mod informer;
mod limiter;
mod mux;
mod purpose;
mod recorder;
mod reflector;
mod replies;
mod report;
#[path = "../library/informer/scripted.rs"]
#[allow(dead_code, reason = "the tests of the informers use all of it")]
mod scripted;
mod series;
mod sink;
#[path = "../library/informer/told.rs"]
#[allow(dead_code, reason = "the tests of the informers use all of it")]
mod told;
mod vector;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    process::ExitCode,
};

use report::{Report, Verdict};
use serde_json::Value;
use vector::Vector;

/// How one kind of vector is driven and judged.
struct Kind {
    name: &'static str,
    /// What the library did, in the shape of the vector's `expect`.
    drive: fn(&Vector) -> Result<Vec<Value>, String>,
    /// Whether that is what is expected.
    compare: fn(expected: &[Value], actual: &[Value]) -> Result<(), compare::Difference>,
}

const KINDS: &[Kind] = &[
    Kind { name: "backoff", drive: backoff::drive, compare: backoff::compare },
    Kind { name: "correlator", drive: correlator::drive, compare: correlator::compare },
    Kind { name: "fifo", drive: fifo::drive, compare: fifo::compare },
    Kind { name: "informer", drive: informer::drive, compare: compare::step_by_step },
    Kind { name: "limiter", drive: limiter::drive, compare: compare::step_by_step },
    Kind { name: "mux", drive: mux::drive, compare: mux::compare },
    Kind { name: "recorder", drive: recorder::drive, compare: recorder::compare },
    Kind { name: "reflector", drive: reflector::drive, compare: reflector::compare },
    Kind { name: "series", drive: series::drive, compare: series::compare },
    Kind { name: "sink", drive: sink::drive, compare: compare::step_by_step },
];

fn judge(vector: &Vector) -> Verdict {
    let Some(kind) = KINDS.iter().find(|kind| kind.name == vector.kind) else {
        return Verdict::NotDriven;
    };
    let actual = match catch_unwind(AssertUnwindSafe(|| (kind.drive)(vector))) {
        Ok(Ok(actual)) => actual,
        Ok(Err(error)) => return Verdict::Failed(error),
        Err(_) => return Verdict::Failed("panicked".into()),
    };
    let mut first = None;
    for expected in vector.alternatives() {
        match (kind.compare)(expected, &actual) {
            Ok(()) => return Verdict::Passed,
            Err(difference) => first = first.or(Some(difference)),
        }
    }
    let Some(difference) = first else {
        return Verdict::Failed("the vector expects nothing".into());
    };
    match purpose::of(vector, &difference) {
        Some(reason) => Verdict::OnPurpose(reason),
        None => Verdict::Failed(difference.to_string()),
    }
}

fn main() -> ExitCode {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/vectors");
    let more = std::env::var_os("TIDINGS_CONFORMANCE_DIR").unwrap_or_default();
    let folders = std::iter::once(own)
        .chain(std::env::split_paths(&more).filter(|folder| !folder.as_os_str().is_empty()));
    let mut report = Report::default();
    for folder in folders {
        let vectors = match vector::load(&folder) {
            Ok(vectors) => vectors,
            Err(error) => {
                println!("{error}");
                return ExitCode::FAILURE;
            }
        };
        for vector in vectors {
            let verdict = judge(&vector);
            report.add(&vector, &verdict);
        }
    }
    report.print();
    if report.good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
