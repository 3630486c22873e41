//! Processes of the parts: their logs, their lives and their temporary folders.

use std::env;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long a part may take until it is ready. Kafka takes 4 s on two idle cores.
const START_DEADLINE: Duration = Duration::from_secs(90);
/// How long a part may take to end by itself after SIGTERM: an API server waits for open watches for a minute, and writers
/// wait no longer for it than that.
const STOP_DEADLINE: Duration = Duration::from_secs(15);
/// How often a part that starts or stops is looked at.
const POLL: Duration = Duration::from_millis(25);
/// How much of a part's log an error shows.
const LOG_TAIL_LINES: usize = 40;

/// A part's life. All of it happens on the same ports and the same data.
pub(crate) trait Part {
    fn process(&mut self) -> &mut Process;

    /// Whether the part serves now.
    async fn is_ready(&self) -> bool;

    /// Starts a part that is not running and waits until it serves.
    async fn launch(&mut self) {
        self.process().spawn();
        let started = Instant::now();
        while !self.is_ready().await {
            self.process().assert_running();
            let waited = started.elapsed();
            if waited > START_DEADLINE {
                self.process().fail(&format!("was not ready after {waited:.0?}"));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Ends the part as an operator would: SIGTERM, and SIGKILL if that does not do.
    async fn stop(&mut self) {
        self.process().terminate();
        let started = Instant::now();
        while self.process().is_running() {
            if started.elapsed() > STOP_DEADLINE {
                self.process().kill();
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Ends the part at once, with no chance to tidy up.
    fn kill9(&mut self) {
        self.process().kill();
    }

    /// Stops the part if it runs, and starts it again.
    async fn restart(&mut self) {
        self.stop().await;
        self.launch().await;
    }
}

/// One program with its arguments, which can be started again and again. Dropping it kills it.
pub(crate) struct Process {
    name: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
    variables: Vec<(&'static str, String)>,
    log: PathBuf,
    child: Option<Child>,
}

impl Process {
    /// A process that writes both of its outputs to `<folder>/<name>.log`. Not started yet.
    pub(crate) fn new(
        name: &'static str,
        program: PathBuf,
        arguments: Vec<String>,
        folder: &Path,
    ) -> Self {
        let log = folder.join(format!("{name}.log"));
        Self { name, program, arguments, variables: Vec::new(), log, child: None }
    }

    /// Gives it a variable of the environment, from the next start on.
    pub(crate) fn set_variable(&mut self, name: &'static str, value: &str) {
        self.variables.push((name, value.to_owned()));
    }

    /// Has it started by another program, which takes its command line after these arguments.
    #[allow(dead_code, reason = "the drills ask for it")]
    pub(crate) fn start_by(&mut self, program: &str, arguments: &[String]) {
        let own = std::mem::replace(&mut self.program, program.into());
        let own = own.into_os_string().into_string().expect("a path in UTF-8");
        self.arguments.splice(..0, arguments.iter().cloned().chain([own]));
    }

    /// Its number, while it runs.
    #[allow(dead_code, reason = "the drills ask for it")]
    pub(crate) fn id(&self) -> u32 {
        self.child.as_ref().expect("it was started").id()
    }

    pub(crate) fn spawn(&mut self) {
        assert!(!self.is_running(), "{} runs already", self.name);
        let log = OpenOptions::new().create(true).append(true).open(&self.log).expect("a log file");
        let errors = log.try_clone().expect("a second handle of the log file");
        let mut command = Command::new(&self.program);
        for (name, _) in env::vars_os() {
            if !belongs_to_parts(&name.to_string_lossy()) {
                command.env_remove(name);
            }
        }
        let child = command
            .args(&self.arguments)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", self.program.display()));
        self.child = Some(child);
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.is_some() && self.ended().is_none()
    }

    /// How the process ended, if it was started and has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.as_mut()?.try_wait().expect("the state of a child process")
    }

    fn assert_running(&mut self) {
        if let Some(status) = self.ended() {
            self.fail(&format!("ended with {status}"));
        }
    }

    /// Sends SIGTERM, which the standard library cannot.
    pub(crate) fn terminate(&mut self) {
        if !self.is_running() {
            return;
        }
        if let Some(child) = &self.child {
            let status = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
            assert!(status.is_ok_and(|status| status.success()), "kill -TERM {}", self.name);
        }
    }

    fn kill(&mut self) {
        if let Some(child) = &mut self.child {
            // Already ended is as good.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Panics with `what` happened to the process and the end of its log.
    fn fail(&self, what: &str) -> ! {
        panic!("{} {what}; {}", self.name, self.log_tail());
    }

    /// All that the process has written, over all its lives.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The end of its log, for an error.
    pub(crate) fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n");
        format!("the end of {}:\n{tail}", self.log.display())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Whether a part is given this variable of the environment.
///
/// A proxy is not for loopback addresses, and `tidings` takes its own for configuration, of which
/// it knows nothing of those that the tests have.
fn belongs_to_parts(variable: &str) -> bool {
    let variable = variable.to_ascii_uppercase();
    !variable.ends_with("_PROXY") && !variable.starts_with("TIDINGS_") && variable != "KUBECONFIG"
}

/// Runs `command` to its end and returns what it printed; panics with that if it failed.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{command:?} ended with {}:\n{printed}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr),
    );
    printed.into_owned()
}

/// A part's temporary folder. It is removed, unless the test failed: then the logs are worth more.
pub(crate) struct Scratch(Option<TempDir>);

impl Scratch {
    pub(crate) fn new(part: &str) -> Self {
        let folder = tempfile::Builder::new().prefix(&format!("tidings-e2e-{part}-")).tempdir();
        Self(Some(folder.expect("a temporary folder")))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.as_ref().expect("taken only by drop").path()
    }

    /// `name` in this folder, as an argument of a command line.
    pub(crate) fn file(&self, name: &str) -> String {
        self.path().join(name).into_os_string().into_string().expect("a path in UTF-8")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(folder) = self.0.take().filter(|_| thread::panicking()) {
            eprintln!("kept for a look: {}", folder.keep().display());
        }
    }
}
