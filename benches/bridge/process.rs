//! `tidings` as a user runs it.

use std::{
    fs::{self, File},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::Result;

/// Variables that would lead requests to the helpers elsewhere.
const PROXIES: [&str; 6] =
    ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];

/// A sink's part of the configuration, `{address}` for where it listens, or for the file that it reads.
pub(crate) type SinkConfig = &'static str;

/// A running `tidings`.
pub(crate) struct Tidings {
    child: Child,
    log: std::path::PathBuf,
}

impl Tidings {
    /// Starts the binary in a directory that holds a `kubeconfig` already; configuration, journal
    /// and log go there too.
    pub(crate) fn start(
        binary: &Path,
        directory: &Path,
        sink: SinkConfig,
        address: &str,
    ) -> Result<Self> {
        let config = directory.join("tidings.yaml");
        let sink = sink.replace("{address}", address);
        let text = format!(
            "source: {{kubeconfig: {0}/kubeconfig}}\n\
             journal: {{path: {0}/journal}}\n\
             sinks:\n  bench: {{{sink}}}\n\
             server: {{listen: \"127.0.0.1:0\"}}\n",
            directory.display()
        );
        fs::write(&config, text)?;
        let log = directory.join("log");
        let mut command = Command::new(binary);
        for name in PROXIES {
            command.env_remove(name);
        }
        let child = command
            .arg("run")
            .arg("--config")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()
            .map_err(|error| format!("{}: {error}", binary.display()))?;
        Ok(Self { child, log })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Fails when it has ended by itself.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(format!("tidings has ended ({status}):\n{}", self.said()).into()),
        }
    }

    /// Its log.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Stops it by SIGTERM, which it answers with exit code 0.
    pub(crate) fn stop(&mut self) -> Result<()> {
        Command::new("kill").arg(self.id().to_string()).status()?;
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait()? {
                if status.success() {
                    return Ok(());
                }
                return Err(format!("tidings ended with {status}:\n{}", self.said()).into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Err(format!("tidings does not stop:\n{}", self.said()).into())
    }
}

impl Drop for Tidings {
    fn drop(&mut self) {
        // It has ended already, unless a measurement has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
