//! How the program ends, with the program itself.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    io::{BufRead as _, BufReader, Lines},
    path::Path,
    process::{Child, ChildStderr, Command, Stdio},
};

use tidings::demo::api_server::{ApiServer, EventObject, Options};

/// More than a pipe holds that nobody reads.
const EVENTS: usize = 200;

struct Program {
    child: Child,
    log: Lines<BufReader<ChildStderr>>,
}

impl Program {
    fn start(dir: &Path, server: &ApiServer) -> Self {
        let kubeconfig = dir.join("kubeconfig");
        let cluster = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": server.url()}}],
            "users": [{"name": "u", "user": {}}],
        });
        std::fs::write(&kubeconfig, cluster.to_string()).unwrap();
        let config = dir.join("tidings.yaml");
        let settings = serde_json::json!({
            "source": {"kubeconfig": kubeconfig},
            "journal": {"path": dir.join("journal")},
            "sinks": {"out": {"stdout": {}}},
            "server": {"listen": "127.0.0.1:0"},
        });
        std::fs::write(&config, settings.to_string()).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_tidings"))
            .args(["run", "--config"])
            .arg(&config)
            // Not read: the sink takes no more than the pipe does.
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, log }
    }

    fn wait_for(&mut self, text: &str) {
        let mut lines = Vec::new();
        for line in &mut self.log {
            lines.push(line.unwrap());
            if lines.last().unwrap().contains(text) {
                return;
            }
        }
        panic!("it ended without saying {text:?}:\n{}", lines.join("\n"));
    }

    fn terminate(&self) {
        let sent = Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It fails for a process that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_at_once_and_says_so() {
    let (server, dir) =
        (ApiServer::start(Options::default()).unwrap(), tempfile::tempdir().unwrap());
    let long = "long ".repeat(200);
    for pod in 0..EVENTS {
        server.create(EventObject::about_pod("shop", &format!("web-{pod}"), "R", &long)).unwrap();
    }
    let mut program = Program::start(dir.path(), &server);
    program.wait_for("the first list is in the journal");
    program.terminate();
    // It would drain for 10 s now, and end with 0.
    program.wait_for("stopping");
    program.terminate();
    program.wait_for("a signal while stopping: ending at once");
    assert_eq!(program.child.wait().unwrap().code(), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_is_heard_while_the_disk_does_not_answer() {
    let (server, dir) =
        (ApiServer::start(Options::default()).unwrap(), tempfile::tempdir().unwrap());
    let journal = dir.path().join("journal");
    std::fs::create_dir(&journal).unwrap();
    // Whoever opens it to read waits until somebody opens it to write.
    let made = Command::new("mkfifo").arg(journal.join("positions.json")).status().unwrap();
    assert!(made.success());
    let mut program = Program::start(dir.path(), &server);
    program.wait_for("starting");
    program.terminate();
    assert_eq!(program.child.wait().unwrap().code(), Some(0));
}
