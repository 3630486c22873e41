//! The commands, run as a user runs them.

use std::{path::Path, process::Stdio, time::Duration};

use serde_json::Value;
use tokio::{process::Command, time::timeout};

/// The output of a command.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Said {
    /// The text that it printed, if it succeeded.
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.stdout
    }

    pub(crate) fn json(self) -> Value {
        serde_json::from_str(&self.ok()).unwrap()
    }
}

/// The command, ready to be run: its arguments, and at the end the configuration.
pub(crate) fn command(config: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidings"));
    command.args(arguments).arg("--config").arg(config).kill_on_drop(true).stdin(Stdio::null());
    command
}

/// Runs it.
pub(crate) async fn tidings(config: &Path, arguments: &[&str]) -> Said {
    let output = timeout(Duration::from_mins(1), command(config, arguments).output());
    let output = output.await.unwrap_or_else(|_| panic!("{arguments:?} does not end")).unwrap();
    Said {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Without what differs from run to run: times, ids, paths.
pub(crate) fn steady(text: &str, dir: &Path) -> String {
    let text = text.replace(dir.to_str().unwrap(), "DIR");
    let time = regex::Regex::new(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z").unwrap();
    let text = time.replace_all(&text, "2026-11-21T14:57:27Z");
    let name = regex::Regex::new(r"\.[0-9a-f]{16}\b").unwrap();
    let text = name.replace_all(&text, ".NAME");
    let uid = regex::Regex::new(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}");
    uid.unwrap().replace_all(&text, "UID").into_owned()
}
