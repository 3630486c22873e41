//! The commit that was measured, and the machine: a figure without them says nothing.

use std::{fmt, fs, path::Path, process::Command, thread};

use crate::{Result, usage::kib};

/// Where and what.
pub(crate) struct Machine {
    processor: String,
    cores: usize,
    memory_gib: f64,
    kernel: String,
    version: String,
    commit: String,
}

impl Machine {
    pub(crate) fn here(tidings: &Path) -> Result<Self> {
        let processors = fs::read_to_string("/proc/cpuinfo")?;
        let model =
            processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        Ok(Self {
            processor: model.map_or("unknown processor", |(_, name)| name.trim()).to_owned(),
            cores: thread::available_parallelism()?.get(),
            memory_gib: kib(&fs::read_to_string("/proc/meminfo")?, "MemTotal:")? / 1024.0 / 1024.0,
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            version: said(Command::new(tidings).arg("--version")),
            commit: said(Command::new("git").args([
                "-C",
                env!("CARGO_MANIFEST_DIR"),
                "describe",
                "--always",
                "--dirty",
                "--exclude=*",
            ])),
        })
    }
}

/// The answer of a program, in one line.
fn said(command: &mut Command) -> String {
    let output = command.output().ok().filter(|output| output.status.success());
    let line = output.and_then(|output| String::from_utf8(output.stdout).ok());
    line.map_or_else(|| "unknown".to_owned(), |line| line.trim().to_owned())
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { processor, cores, memory_gib, kernel, version, commit } = self;
        write!(
            f,
            "{version} (commit {commit}) · {cores} cores of {processor}, {memory_gib:.0} GiB, \
             Linux {kernel}"
        )
    }
}
