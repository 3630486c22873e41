//! The bridge as a user runs it: this program, in a process of its own.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use tokio::{
    process::{Child, Command},
    time::timeout,
};

use super::DemoError;

/// How long the bridge may take to end when it is asked to.
const END_WITHIN: Duration = Duration::from_secs(15);

/// What the demo reads of `/api/v1/status`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct SinkStatus {
    pub(super) name: String,
    pub(super) state: String,
}

#[derive(Deserialize)]
struct Status {
    sinks: Vec<SinkStatus>,
}

/// The process.
pub(super) struct BridgeProcess {
    config: PathBuf,
    log: PathBuf,
    status: String,
    client: reqwest::Client,
    child: Option<Child>,
}

impl BridgeProcess {
    /// Starts the bridge on a configuration; `status` is the address of its admin server.
    pub(super) fn start(dir: &Path, status: &str) -> Result<Self, DemoError> {
        let client = reqwest::Client::builder()
            .timeout(Duration::from_millis(500))
            .no_proxy()
            .build()
            .map_err(DemoError::start("the status client"))?;
        let mut bridge = Self {
            config: dir.join("tidings.yaml"),
            log: dir.join("bridge.log"),
            status: format!("http://{status}/api/v1/status"),
            client,
            child: None,
        };
        bridge.restart()?;
        Ok(bridge)
    }

    /// Starts it again.
    pub(super) fn restart(&mut self) -> Result<(), DemoError> {
        let failed = DemoError::start("the bridge");
        let spawn = || {
            let log = File::options().create(true).append(true).open(&self.log)?;
            Command::new(std::env::current_exe()?)
                .arg("run")
                .arg("--config")
                .arg(&self.config)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log)
                // Ctrl-C is for the demo, which ends the bridge in its own way.
                .process_group(0)
                .kill_on_drop(true)
                .spawn()
        };
        self.child = Some(spawn().map_err(failed)?);
        Ok(())
    }

    pub(super) fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// `kill -9`.
    pub(super) async fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It fails only for a process that has ended by itself.
            let _ = child.kill().await;
        }
    }

    /// SIGTERM, and waits for the end; answers whether it ended in time and well.
    pub(super) async fn end(&mut self) -> bool {
        let Some(mut child) = self.child.take() else { return true };
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let asked = pid.is_some_and(|pid| kill_process(pid, Signal::TERM).is_ok());
        asked
            && matches!(timeout(END_WITHIN, child.wait()).await, Ok(Ok(status)) if status.success())
    }

    /// How its sinks do; nothing while it is down.
    pub(super) async fn sinks(&self) -> Vec<SinkStatus> {
        let ask = async {
            let answer = self.client.get(&self.status).send().await.ok()?;
            serde_json::from_slice::<Status>(&answer.bytes().await.ok()?).ok()
        };
        if !self.is_running() {
            return Vec::new();
        }
        ask.await.map(|status| status.sinks).unwrap_or_default()
    }

    /// The last lines of its log, for when something is wrong.
    pub(super) fn log_tail(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }
}
