//! etcd, one member.

use std::path::Path;
use std::process::Command;

use super::process::{Part, Process, Scratch, run};
use super::{free_port, http_client, installed};

/// An etcd, and what an operator does to it with etcdctl and etcdutl.
pub(crate) struct Etcd {
    process: Process,
    http: reqwest::Client,
    client_url: String,
    peer_url: String,
    restores: usize,
    // Last, so that it goes after the process that writes to it.
    scratch: Scratch,
}

/// The name of the one member.
const MEMBER: &str = "default";

impl Etcd {
    pub(crate) async fn start() -> Self {
        let scratch = Scratch::new("etcd");
        let client_url = format!("http://127.0.0.1:{}", free_port());
        let peer_url = format!("http://127.0.0.1:{}", free_port());
        let process = server(&client_url, &peer_url, &scratch.file("data-0"), &scratch);
        let http = http_client();
        let mut etcd = Self { process, http, client_url, peer_url, restores: 0, scratch };
        etcd.launch().await;
        etcd
    }

    /// Where clients connect.
    pub(crate) fn url(&self) -> &str {
        &self.client_url
    }

    /// The revision of the newest change, which the API server calls a resourceVersion.
    pub(crate) fn current_revision(&self) -> i64 {
        let status = run(self.etcdctl().args(["endpoint", "status", "--write-out=json"]));
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON of etcdctl");
        status[0]["Status"]["header"]["revision"].as_i64().expect("a revision in the status")
    }

    /// Forgets all history before `revision`.
    pub(crate) fn compact(&self, revision: i64) {
        run(self.etcdctl().args(["compaction", &revision.to_string()]));
    }

    /// Saves a snapshot of the whole store to `path`, which must not exist.
    pub(crate) fn snapshot_save(&self, path: &Path) {
        run(self.etcdctl().args(["snapshot", "save"]).arg(path));
    }

    /// Replaces the store by the snapshot at `path`, as a recovery from a backup does: the server
    /// ends, and starts on a new data folder. Revisions go on from the snapshot's.
    pub(crate) async fn restore_from(&mut self, path: &Path) {
        // What it holds is given up anyway, and with a client connected a stop takes 7 s.
        self.kill9();
        self.restores += 1;
        let data = self.scratch.file(&format!("data-{}", self.restores));
        run(Command::new(installed("etcd", "bin/etcdutl"))
            .args(["snapshot", "restore"])
            .arg(path)
            .args(["--data-dir", &data, "--name", MEMBER])
            .args(["--initial-advertise-peer-urls", &self.peer_url])
            .args(["--initial-cluster", &format!("{MEMBER}={}", self.peer_url)]));
        self.process = server(&self.client_url, &self.peer_url, &data, &self.scratch);
        self.launch().await;
    }

    fn etcdctl(&self) -> Command {
        let mut command = Command::new(installed("etcd", "bin/etcdctl"));
        command.args(["--endpoints", &self.client_url]);
        command
    }
}

fn server(client_url: &str, peer_url: &str, data: &str, scratch: &Scratch) -> Process {
    let arguments = vec![
        format!("--name={MEMBER}"),
        format!("--data-dir={data}"),
        format!("--listen-client-urls={client_url}"),
        format!("--advertise-client-urls={client_url}"),
        format!("--listen-peer-urls={peer_url}"),
        format!("--initial-advertise-peer-urls={peer_url}"),
        format!("--initial-cluster={MEMBER}={peer_url}"),
        // The tests kill the process, not the machine, so what was written is there again.
        "--unsafe-no-fsync".to_owned(),
    ];
    Process::new("etcd", installed("etcd", "bin/etcd"), arguments, scratch.path())
}

impl Part for Etcd {
    fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    async fn is_ready(&self) -> bool {
        let health = self.http.get(format!("{}/health", self.client_url)).send().await;
        health.is_ok_and(|response| response.status().is_success())
    }
}
