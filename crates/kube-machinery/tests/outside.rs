//! A program outside the workspace takes the crate, kube, and the version of Kubernetes that it likes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// More crates than these nobody who wants a recorder should have to build.
const MOST_CRATES: usize = 130;

fn cargo(arguments: &[&str], dir: &Path) -> String {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(dir)
        // One for all of them, beside that of the workspace, whose lock is held by this very test.
        .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("outside"))
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (printed, said) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "cargo {arguments:?}:\n{printed}\n{said}");
    printed
}

/// A program with these versions, of the same crates that the workspace is locked to.
fn program(version: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("program-{version}"));
    fs::create_dir_all(dir.join("src")).unwrap();
    let manifest = format!(
        r#"[package]
name = "outside-{version}"
version = "0.0.0"
edition = "2024"

[workspace]

[dependencies]
kube-machinery = {{ path = "{here}" }}
kube-testkit = {{ path = "{here}/../kube-testkit" }}
kube = {{ version = "5", default-features = false, features = ["client"] }}
k8s-openapi = {{ version = "0.29", features = ["{version}"] }}
serde_json = "1"
tokio = {{ version = "1", features = ["macros", "rt", "time"] }}

[profile.dev]
debug = false
"#,
        here = here.display()
    );
    fs::write(dir.join("Cargo.toml"), manifest).unwrap();
    fs::copy(here.join("../../Cargo.lock"), dir.join("Cargo.lock")).unwrap();
    fs::copy(here.join("tests/outside/src/main.rs"), dir.join("src/main.rs")).unwrap();
    dir
}

#[test]
fn a_program_with_the_latest_kubernetes_and_one_with_the_earliest_run_and_are_small() {
    for version in ["latest", "earliest"] {
        let printed = cargo(&["run", "--quiet", "--offline"], &program(version));
        assert_eq!(printed, "reconciled 1, events 1\n", "with {version}");
        brings_few_crates(&program(version));
    }
}

fn brings_few_crates(program: &Path) {
    let tree = [
        "tree",
        "--offline",
        "--package",
        "kube-machinery",
        "--edges",
        "normal,build",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ];
    let printed = cargo(&tree, program);
    let crates: BTreeSet<&str> =
        printed.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    assert!(crates.len() <= MOST_CRATES, "{} crates:\n{printed}", crates.len());
    for heavy in ["redb", "axum", "clap", "cel", "rdkafka"] {
        let is_there = crates.iter().any(|line| line.starts_with(&format!("{heavy} ")));
        assert!(!is_there, "{heavy}:\n{printed}");
    }
}
