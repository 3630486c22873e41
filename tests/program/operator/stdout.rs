//! Lines on the standard output of the program, whatever that is.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader, PipeWriter},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tidings_testkit::api_server::{ApiServer, EventObject};
use tokio::process::{Child, Command};

use super::support::{create, server};

/// Supervisors, node and ssh hand such pipes on to whom they start.
#[tokio::test(flavor = "multi_thread")]
async fn a_pipe_that_does_not_block_gets_each_line_once_and_whole() {
    each_line_comes_once_and_whole(true, &["out"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sinks_that_share_a_pipe_leave_each_other_s_lines_whole() {
    each_line_comes_once_and_whole(false, &["one", "other"]).await;
}

/// A supervisor that keeps the pipe over restarts, with a reader who goes by lines.
#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_a_kill_cut_short_spoils_none_of_the_next_run() {
    const EVENTS: usize = 50;
    /// Less than a pipe holds, even where each line begins a page of it.
    const FULL: u64 = 48 << 10;
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    // A line is longer than what a pipe takes in one piece.
    let long = "long ".repeat(1500);
    for n in 0..EVENTS {
        server.create(EventObject::about_pod("shop", &format!("web-{n}"), "A", &long)).unwrap();
    }
    let config = configure(dir.path(), &server, &["out"], 1);
    let (reader, writer) = std::io::pipe().unwrap();
    let mut killed = run(&config, writer.try_clone().unwrap());
    // Nobody reads, so the pipe is full in the midst of a line.
    let full = async {
        while rustix::io::ioctl_fionread(&reader).unwrap() < FULL {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), full).await.expect("a full pipe within a minute");
    // And longer than it takes to save where the sink stands: before that line.
    tokio::time::sleep(Duration::from_secs(3)).await;
    killed.kill().await.unwrap();
    let mut child = run(&config, writer);
    let reading = tokio::task::spawn_blocking(move || {
        let (mut ids, mut rest) = (BTreeSet::new(), Vec::new());
        for line in BufReader::new(reader).lines() {
            let line = line.unwrap();
            match serde_json::from_str::<serde_json::Value>(&line) {
                Ok(envelope) => _ = ids.insert(envelope["id"].as_str().unwrap().to_owned()),
                Err(_) => rest.push(line),
            }
            if ids.len() == EVENTS {
                break;
            }
        }
        rest
    });
    let reading = tokio::time::timeout(Duration::from_mins(1), reading);
    let rest = reading.await.expect("a line for each event within a minute").unwrap();
    child.kill().await.unwrap();
    assert!(rest.len() == 1 && !rest[0].is_empty(), "besides the cut line: {rest:?}");
}

/// Reads what the sinks write, slower than they do.
async fn each_line_comes_once_and_whole(nonblocking: bool, sinks: &[&str]) {
    const EVENTS: usize = 3000;
    let lines = EVENTS * sinks.len();
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    for n in 0..EVENTS {
        create(&server, &format!("web-{n}"));
    }
    let config = configure(dir.path(), &server, sinks, 500);
    let (reader, writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, nonblocking).unwrap();
    let mut child = run(&config, writer);
    let reading = tokio::task::spawn_blocking(move || {
        let mut ids = Vec::new();
        for line in BufReader::with_capacity(512, reader).lines() {
            let line = line.unwrap();
            let envelope: serde_json::Value = serde_json::from_str(&line)
                .unwrap_or_else(|e| panic!("{e} in line {}: {line}", ids.len()));
            ids.push(envelope["id"].as_str().unwrap().to_owned());
            if ids.len() % 100 == 1 {
                // Slower than it is written, and than an attempt may take.
                std::thread::sleep(Duration::from_millis(50));
            }
            if ids.len() == lines {
                break;
            }
        }
        ids
    });
    let reading = tokio::time::timeout(Duration::from_mins(1), reading);
    let mut ids = reading.await.expect("all lines within a minute").unwrap();
    child.kill().await.unwrap();
    assert_eq!(ids.len(), lines);
    ids.sort();
    let mut each = ids.chunk_by(|one, next| one == next);
    assert!(each.all(|same| same.len() == sinks.len()), "some came once too often");
}

/// A configuration with these sinks, which take so many events at once, in a directory.
fn configure(dir: &Path, server: &ApiServer, sinks: &[&str], batch: usize) -> PathBuf {
    let config = dir.join("tidings.yaml");
    let configured: Vec<_> = sinks
        .iter()
        .map(|name| format!("{name}: {{stdout: {{}}, timeout: 500ms, batch: {{events: {batch}}}}}"))
        .collect();
    let configured = configured.join(", ");
    let text = format!(
        "source: {{kubeconfig: {0}/kubeconfig}}\njournal: {{path: {0}/journal}}\n\
         server: {{listen: \"127.0.0.1:0\"}}\nsinks: {{{configured}}}\n",
        dir.display()
    );
    std::fs::write(&config, text).unwrap();
    std::fs::write(dir.join("kubeconfig"), server.kubeconfig()).unwrap();
    config
}

/// The program, which is given the writing end.
fn run(config: &Path, writer: PipeWriter) -> Child {
    let mut run = Command::new(env!("CARGO_BIN_EXE_tidings"));
    run.args(["run", "--config"]).arg(config).stdin(Stdio::null()).stderr(Stdio::null());
    run.stdout(writer).kill_on_drop(true).spawn().unwrap()
}
