//! An example in a process of its own, and what it prints.
//!
//! `cargo test` builds the examples. Where one test is asked for by name, `cargo build --examples` has to
//! come first.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::{process::Command, time::timeout};

/// None takes longer than a second or two; this is so that none hangs.
const LONG_ENOUGH: Duration = Duration::from_mins(1);

fn binary(name: &str) -> PathBuf {
    // target/debug/deps/this, target/debug/examples/name
    let this = std::env::current_exe().unwrap();
    let path = this.ancestors().nth(2).unwrap().join("examples").join(name);
    let path = path.with_extension(std::env::consts::EXE_EXTENSION);
    assert!(path.exists(), "{} is not built: cargo build --examples", path.display());
    path
}

/// What an example prints, and what it logs. It sees no cluster but that of `kubeconfig`.
pub(crate) async fn run(name: &str, arguments: &[&str], kubeconfig: &Path) -> (String, String) {
    let mut command = Command::new(binary(name));
    command
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        .env("NO_COLOR", "1")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = timeout(LONG_ENOUGH, command.output()).await.expect("it does not end").unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (printed, logged) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{name}: {}\n{printed}\n{logged}", output.status);
    (printed, logged)
}

pub(crate) async fn run_alone(name: &str, arguments: &[&str]) -> (String, String) {
    run(name, arguments, Path::new("/nonexistent/kubeconfig")).await
}

/// The lines with runs of spaces made one, so that columns can be wider or narrower.
pub(crate) fn lines(text: &str) -> Vec<String> {
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[track_caller]
pub(crate) fn assert_has(text: &str, wanted: &[&str]) {
    let lines = lines(text);
    for wanted in wanted {
        assert!(lines.iter().any(|line| line == wanted), "no line {wanted:?} in:\n{text}");
    }
}

pub(crate) fn count(text: &str, part: &str) -> usize {
    text.lines().filter(|line| line.contains(part)).count()
}
