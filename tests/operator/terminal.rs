//! A configuration with mistakes, at a terminal and elsewhere.

use std::{
    fs::File,
    io::Read as _,
    process::{Command, Stdio},
};

use rustix::{
    fs::{Mode, OFlags, open},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};

const CONFIG: &str = "\
sinks:
  hook:
    webhook: {url: \"https://receiver/hunter2\", headers: {Authorization: hunter3}}
    retries: {max: 1s}
  audit:
    kafka:
      topic: a b
      brokers: [kafka]
      sasl: {mechanism: plain, username: hunter4, password: hunter5}
";

/// `tidings check` of a file in the directory where it runs.
fn check(dir: &tempfile::TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidings"));
    command.args(["check", "--config", "tidings.yaml"]).current_dir(dir).stdin(Stdio::null());
    command.env_clear().envs([("LC_ALL", "C.UTF-8"), ("NO_COLOR", "1"), ("TERM", "xterm")]);
    command
}

/// The exit code of a command, and the text that it writes on a pseudo-terminal.
fn at_a_terminal(mut command: Command) -> (Option<i32>, String) {
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let name = ptsname(&controller, Vec::new()).unwrap();
    let terminal = open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    let mut child = command.stdout(Stdio::null()).stderr(File::from(terminal)).spawn().unwrap();
    // The last end of the terminal beside the child's, which Linux answers the close of with an error.
    drop(command);
    let mut text = Vec::new();
    let _ = File::from(controller).read_to_end(&mut text);
    (child.wait().unwrap().code(), String::from_utf8(text).unwrap().replace("\r\n", "\n"))
}

#[test]
fn a_terminal_shows_the_lines_of_each_problem_with_secrets_masked() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("tidings.yaml"), CONFIG).unwrap();
    let (code, shown) = at_a_terminal(check(&dir));
    assert_eq!(code, Some(2), "{shown}");
    let lines: Vec<_> = shown.lines().map(str::trim_end).collect();
    insta::assert_snapshot!(lines.join("\n"));
    assert!(!shown.contains("hunter"), "{shown}");

    let output = check(&dir).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    insta::assert_snapshot!(String::from_utf8(output.stderr).unwrap());
}
