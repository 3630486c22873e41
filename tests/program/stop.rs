//! How the program ends, with the program itself.

use std::{
    io::{BufRead as _, BufReader, Lines},
    path::Path,
    process::{Child, ChildStderr, Command, Stdio},
};

use tidings_testkit::api_server::{ApiServer, EventObject, Options};

/// More than a pipe holds that nobody reads.
const EVENTS: usize = 200;

struct Program {
    child: Child,
    log: Lines<BufReader<ChildStderr>>,
}

impl Program {
    fn start(dir: &Path, server: &ApiServer) -> Self {
        let kubeconfig = dir.join("kubeconfig");
        std::fs::write(&kubeconfig, server.kubeconfig()).unwrap();
        let config = dir.join("tidings.yaml");
        let settings = serde_json::json!({
            "source": {"kubeconfig": kubeconfig},
            "journal": {"path": dir.join("journal")},
            "sinks": {"out": {"stdout": {}}},
            "server": {"listen": "127.0.0.1:0"},
        });
        std::fs::write(&config, settings.to_string()).unwrap();
        let mut run = Command::new(env!("CARGO_BIN_EXE_tidings"));
        // Not read: the sink takes no more than the pipe does.
        run.args(["run", "--config"]).arg(&config).stdout(Stdio::piped());
        Self::spawn(&mut run)
    }

    /// Without a configuration: what it keeps for a while is in `dir/tmp`.
    fn start_bare(dir: &Path, server: &ApiServer, mut command: Command, stdout: Stdio) -> Self {
        let (kubeconfig, temporary) = (dir.join("kubeconfig"), dir.join("tmp"));
        std::fs::write(&kubeconfig, server.kubeconfig()).unwrap();
        std::fs::create_dir(&temporary).unwrap();
        command.arg("run").env("KUBECONFIG", kubeconfig).env("TMPDIR", temporary).stdout(stdout);
        Self::spawn(&mut command)
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
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
        self.send("TERM");
    }

    fn send(&self, signal: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &id]).status().unwrap();
        assert!(sent.success());
    }

    fn exit_code(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
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

/// The journals that are left in the temporary directory.
fn left_behind(dir: &Path) -> Vec<std::ffi::OsString> {
    let left = std::fs::read_dir(dir.join("tmp")).unwrap();
    left.map(|entry| entry.unwrap().file_name()).collect()
}

/// The program, which heeds SIGHUP even if whoever runs the tests ignores it.
fn tidings() -> Command {
    let mut heeding = Command::new("env");
    heeding.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_tidings")]);
    heeding
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_that_does_not_stop_is_a_line_in_the_log_and_quit_drains() {
    let (server, dir) =
        (ApiServer::start(Options::default()).unwrap(), tempfile::tempdir().unwrap());
    let mut program = Program::start(dir.path(), &server);
    program.wait_for("the first list is in the journal");
    for (signal, said) in [
        ("HUP", "SIGHUP: the configuration is read again"),
        ("USR1", "SIGUSR1 means nothing to this program and is ignored"),
        ("USR2", "SIGUSR2 means nothing to this program and is ignored"),
    ] {
        program.send(signal);
        program.wait_for(said);
    }
    program.send("QUIT");
    program.wait_for("stopping: reading ends, what has been read is delivered");
    program.wait_for("stopped");
    assert_eq!(program.exit_code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_configuration_each_end_is_in_order_and_leaves_no_journal() {
    for signal in ["HUP", "QUIT", "INT", "TERM"] {
        let (server, dir) =
            (ApiServer::start(Options::default()).unwrap(), tempfile::tempdir().unwrap());
        let mut program = Program::start_bare(dir.path(), &server, tidings(), Stdio::null());
        program.wait_for("the first list is in the journal");
        assert_eq!(left_behind(dir.path()).len(), 1);
        program.send(signal);
        program.wait_for("stopping: reading ends, what has been read is delivered");
        assert_eq!(program.exit_code(), Some(0), "{signal}");
        assert_eq!(left_behind(dir.path()), [] as [&str; 0], "{signal}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_leaves_no_journal_either() {
    let (server, dir) =
        (ApiServer::start(Options::default()).unwrap(), tempfile::tempdir().unwrap());
    let long = "long ".repeat(200);
    for pod in 0..EVENTS {
        server.create(EventObject::about_pod("shop", &format!("web-{pod}"), "R", &long)).unwrap();
    }
    let mut program = Program::start_bare(dir.path(), &server, tidings(), Stdio::piped());
    program.wait_for("the first list is in the journal");
    program.send("INT");
    program.wait_for("stopping");
    program.send("INT");
    program.wait_for("a signal while stopping: ending at once");
    assert_eq!(program.exit_code(), Some(1));
    assert_eq!(left_behind(dir.path()), [] as [&str; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nohup_has_started_outlives_its_terminal() {
    let (server, dir) =
        (ApiServer::start(Options::default()).unwrap(), tempfile::tempdir().unwrap());
    let mut nohup = Command::new("nohup");
    nohup.arg(env!("CARGO_BIN_EXE_tidings"));
    let mut program = Program::start_bare(dir.path(), &server, nohup, Stdio::null());
    program.wait_for("the first list is in the journal");
    program.send("HUP");
    program.wait_for("SIGHUP");
    program.terminate();
    program.wait_for("stopping: reading ends");
    assert_eq!(program.exit_code(), Some(0));
}
