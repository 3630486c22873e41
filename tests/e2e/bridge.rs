//! The bridge as a user runs it: `tidings run` with a configuration file.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::parts::{Part, Process, Scratch, http_client};
use crate::wait::until;

/// A `tidings` process with its configuration and its journal. Over restarts both stay, and the
/// admin server listens on another port.
pub(crate) struct Bridge {
    process: Process,
    /// The program and the arguments that start it and its commands, where something does.
    started_by: Vec<String>,
    http: reqwest::Client,
    // Last, so that it goes after the process that writes to it.
    scratch: Scratch,
}

impl Bridge {
    /// A bridge from the API server of `kubeconfig` to `sinks`. Not started yet.
    pub(crate) fn new(kubeconfig: &Path, sinks: &Value) -> Self {
        Self::configured(kubeconfig, sinks, |_| {})
    }

    /// The same, with a configuration that `change` has the last word on.
    pub(crate) fn configured(
        kubeconfig: &Path,
        sinks: &Value,
        change: impl FnOnce(&mut Value),
    ) -> Self {
        let scratch = Scratch::new("tidings");
        let mut config = json!({
            "cluster": {"name": "e2e"},
            "source": {"kubeconfig": kubeconfig},
            "journal": {"path": scratch.file("journal")},
            "sinks": sinks,
            "server": {"listen": "127.0.0.1:0"},
            "log": {"format": "json"},
        });
        change(&mut config);
        let file = scratch.path().join("tidings.yaml");
        write(&file, &config);
        let arguments = vec!["run".to_owned(), "--config".to_owned(), file.display().to_string()];
        let process = Process::new("tidings", program().into(), arguments, scratch.path());
        Self { process, started_by: Vec::new(), http: http_client(), scratch }
    }

    /// Has its configuration changed, for the next start.
    #[allow(dead_code, reason = "the drills ask for it")]
    pub(crate) fn reconfigure(&mut self, change: impl FnOnce(&mut Value)) {
        let file = self.scratch.path().join("tidings.yaml");
        let config = fs::read(&file).expect("the configuration");
        let mut config = serde_json::from_slice(&config).expect("JSON, as it was written");
        change(&mut config);
        write(&file, &config);
    }

    /// Tells it which Pod it is, as `deploy/install.yaml` does.
    pub(crate) fn be_the_pod(&mut self, namespace: &str, name: &str) {
        self.process.set_variable("POD_NAMESPACE", namespace);
        self.process.set_variable("POD_NAME", name);
    }

    /// Has it and its commands started by another program, which takes a command line after these
    /// arguments; that may be one that is to start it already.
    #[allow(dead_code, reason = "the drills ask for it")]
    pub(crate) fn start_by(&mut self, program: &str, arguments: &[String]) {
        let starter = [program.to_owned()].into_iter().chain(arguments.to_vec());
        self.started_by.splice(..0, starter);
        self.process.start_by(program, arguments);
    }

    /// The number of its process.
    #[allow(dead_code, reason = "the drills ask for it")]
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// The directory of its journal, unless it was configured otherwise.
    pub(crate) fn journal(&self) -> PathBuf {
        self.scratch.path().join("journal")
    }

    /// Ends it as Kubernetes does, by SIGTERM, which is to be the end it chooses itself.
    pub(crate) async fn stop_in_order(&mut self) {
        self.stop().await;
        let ended = self.process.ended();
        assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
    }

    /// Starts one that cannot run, and waits until it says so.
    pub(crate) async fn run_to_its_end(&mut self) -> (ExitStatus, String) {
        self.process.spawn();
        until("tidings ends by itself", async || !self.process.is_running()).await;
        (self.process.ended().expect("it has ended"), self.process.log())
    }

    /// Runs a command of the program against the same configuration. What it says on its way must
    /// be success; the answer is its standard output.
    #[allow(dead_code, reason = "the drills ask for it")]
    pub(crate) async fn command(&self, arguments: &[&str]) -> String {
        let config = self.scratch.path().join("tidings.yaml");
        let mut words = self.started_by.iter().map(String::as_str);
        let own = program();
        let mut command = tokio::process::Command::new(words.next().unwrap_or(&own));
        command.args(words).args((!self.started_by.is_empty()).then_some(&own));
        let ran = command.args(arguments).arg("--config").arg(config).output().await;
        let ran = ran.expect("the program runs");
        let complaint = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{arguments:?}: {}: {complaint}", ran.status);
        String::from_utf8(ran.stdout).expect("text")
    }

    /// `/api/v1/status`.
    pub(crate) async fn status(&self) -> Value {
        let status = self.get("/api/v1/status").await.bytes().await.expect("a status");
        serde_json::from_slice(&status).expect("JSON")
    }

    /// The status of one sink.
    pub(crate) async fn sink(&self, name: &str) -> Value {
        let status = self.status().await;
        let mut sinks = status["sinks"].as_array().into_iter().flatten();
        sinks.find(|sink| sink["name"] == name).expect("a sink of this name").clone()
    }

    /// The value of a metric that has one.
    pub(crate) async fn metric(&self, name: &str) -> String {
        let text = self.metrics().await;
        metric(&text, name).unwrap_or_else(|| panic!("no {name} among the metrics:\n{text}")).into()
    }

    /// `/metrics`.
    pub(crate) async fn metrics(&self) -> String {
        self.get("/metrics").await.text().await.expect("the metrics")
    }

    /// Whether `/readyz` says yes, and what it says.
    pub(crate) async fn readiness(&self) -> (bool, String) {
        let answer = self.get("/readyz").await;
        (answer.status().is_success(), answer.text().await.expect("the answer of /readyz"))
    }

    async fn get(&self, path: &str) -> reqwest::Response {
        let address = self.address().expect("the bridge has said where it listens");
        let request = self.http.get(format!("http://{address}{path}"));
        // On a busy machine an answer can take seconds, and nothing is asked a second time.
        request.timeout(Duration::from_secs(30)).send().await.expect("an answer")
    }

    /// What it has logged since it was first started.
    pub(crate) fn log(&self) -> Vec<Value> {
        // Not JSON is only what it says on its way out.
        self.process.log().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The last line that it has logged with these words in its message.
    pub(crate) fn logged(&self, words: &str) -> Option<Value> {
        let has_words = |line: &Value| line["message"].as_str().is_some_and(|m| m.contains(words));
        self.log().into_iter().rfind(has_words)
    }

    /// Where the admin server listens.
    pub(crate) fn address(&self) -> Option<String> {
        Some(self.logged("the admin server listens")?["address"].as_str()?.to_owned())
    }
}

/// The value of a metric in a text of them.
pub(crate) fn metric<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
}

/// The program under test: the one that was built with this, unless another build is named.
fn program() -> String {
    let own = || env!("CARGO_BIN_EXE_tidings").to_owned();
    env::var("TESTED_PROGRAM").unwrap_or_else(|_| own())
}

fn write(file: &Path, config: &Value) {
    // JSON is YAML.
    fs::write(file, format!("{config:#}\n")).expect("the configuration");
}

impl Part for Bridge {
    fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Serves. Until a bridge that was restarted does, the address is that of its last life, where
    /// nobody answers.
    async fn is_ready(&self) -> bool {
        let Some(address) = self.address() else { return false };
        let request = self.http.get(format!("http://{address}/livez"));
        request.timeout(Duration::from_secs(1)).send().await.is_ok_and(|r| r.status().is_success())
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("tidings: {}", self.process.log_tail());
        }
    }
}
