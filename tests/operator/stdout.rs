//! Lines on the standard output of the program, whatever that is.

use std::{
    io::{BufRead as _, BufReader},
    process::Stdio,
};

use tokio::process::Command;

use crate::support::{create, server};

/// Supervisors, node and ssh hand such pipes on to whom they start.
#[tokio::test(flavor = "multi_thread")]
async fn a_pipe_that_does_not_block_gets_each_line_once_and_whole() {
    each_line_comes_once_and_whole(true, &["out"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sinks_that_share_a_pipe_leave_each_other_s_lines_whole() {
    each_line_comes_once_and_whole(false, &["one", "other"]).await;
}

/// Reads what the sinks write, slower than they do.
async fn each_line_comes_once_and_whole(nonblocking: bool, sinks: &[&str]) {
    const EVENTS: usize = 3000;
    let lines = EVENTS * sinks.len();
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    for n in 0..EVENTS {
        create(&server, &format!("web-{n}"));
    }
    let config = dir.path().join("tidings.yaml");
    let configured: Vec<_> =
        sinks.iter().map(|name| format!("{name}: {{stdout: {{}}, timeout: 500ms}}")).collect();
    let configured = configured.join(", ");
    let text = format!(
        "source: {{kubeconfig: {0}/kubeconfig}}\njournal: {{path: {0}/journal}}\n\
         server: {{listen: \"127.0.0.1:0\"}}\nsinks: {{{configured}}}\n",
        dir.path().display()
    );
    std::fs::write(&config, text).unwrap();
    std::fs::write(dir.path().join("kubeconfig"), server.kubeconfig()).unwrap();

    let (reader, writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, nonblocking).unwrap();
    let mut run = Command::new(env!("CARGO_BIN_EXE_tidings"));
    run.args(["run", "--config"]).arg(&config).stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = run.stdout(writer).kill_on_drop(true).spawn().unwrap();
    // The other writing end is the command's.
    drop(run);
    let reading = tokio::task::spawn_blocking(move || {
        let mut ids = Vec::new();
        for line in BufReader::with_capacity(512, reader).lines() {
            let line = line.unwrap();
            let envelope: serde_json::Value = serde_json::from_str(&line)
                .unwrap_or_else(|e| panic!("{e} in line {}: {line}", ids.len()));
            ids.push(envelope["id"].as_str().unwrap().to_owned());
            if ids.len() % 100 == 1 {
                // Slower than it is written, and than an attempt may take.
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
            if ids.len() == lines {
                break;
            }
        }
        ids
    });
    let reading = tokio::time::timeout(std::time::Duration::from_mins(1), reading);
    let mut ids = reading.await.expect("all lines within a minute").unwrap();
    child.kill().await.unwrap();
    assert_eq!(ids.len(), lines);
    ids.sort();
    let mut each = ids.chunk_by(|one, next| one == next);
    assert!(each.all(|same| same.len() == sinks.len()), "some came once too often");
}
