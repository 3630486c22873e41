//! `tidings status`, and what the program says of its own commands.

use std::{net::SocketAddr, path::Path, process::Stdio, time::Duration};

use axum::Router;
use serde_json::Value;
use tidings_testkit::api_server::EventObject;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, BufReader, Lines},
    net::TcpSocket,
    process::{Child, Command},
    time::timeout,
};

use super::{
    commands::{self, Said, command},
    process::Process,
    stage::Stage,
    support::server,
};

/// Runs the command again and again, until the answer is as wanted.
async fn asked_until(config: &Path, arguments: &[&str], wanted: impl Fn(&Said) -> bool) -> Said {
    let asking = async {
        loop {
            let said = commands::tidings(config, arguments).await;
            if wanted(&said) {
                return said;
            }
        }
    };
    timeout(Duration::from_mins(2), asking).await.expect("an answer as wanted within two minutes")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_fails_is_named_first_until_its_receiver_is_there() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    // A port that is taken, and where nobody listens yet.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    std::fs::write(dir.path().join("kubeconfig"), server.kubeconfig()).unwrap();
    let config = dir.path().join("tidings.yaml");
    let text = format!(
        "cluster: {{name: test}}\nsource: {{kubeconfig: {0}/kubeconfig}}\njournal: {{path: {0}/journal}}\n\
         server: {{listen: \"127.0.0.1:0\"}}\nsinks:\n  archive: {{file: {{path: {0}/events.ndjson}}}}\n  \
         pager: {{webhook: {{url: \"http://{1}/\"}}, retry: {{initial: 10ms, max: 100ms}}}}\n",
        dir.path().display(),
        socket.local_addr().unwrap()
    );
    std::fs::write(&config, text).unwrap();
    let mut bridge = Process::spawn(dir.path(), &[]).await;

    let well = asked_until(&config, &["status"], |said| said.code == 0).await;
    assert!(well.stdout.starts_with("no problems\n"), "{well:?}");
    server.create(EventObject::about_pod("shop", "web-0", "BackOff", "")).unwrap();
    let ill = asked_until(&config, &["status"], |said| said.code == 1).await;
    let mut lines = ill.stdout.lines().skip(2).map(str::trim);
    assert_eq!(lines.next(), Some("sink pager"), "{ill:?}");
    let what = lines.next().unwrap();
    assert!(what.starts_with("attempts fail, 1 event pending, the oldest for "), "{ill:?}");
    assert!(lines.any(|line| line.starts_with("hint: check the receiver")), "{ill:?}");
    assert_eq!(ill.stderr, "");

    let json = ["status", "--output", "json"];
    let ill = asked_until(&config, &json, |said| said.stdout.contains("\"delivered\": 1")).await;
    let document: Value = serde_json::from_str(&ill.stdout).unwrap();
    let problems = document["problems"].as_array().unwrap();
    assert_eq!((ill.code, problems.len()), (1, 1), "{problems:?}");
    assert_eq!(problems[0]["part"], "sink pager");
    assert!(problems[0]["what"].as_str().unwrap().contains("connection refused"), "{problems:?}");
    assert_eq!(document["sinks"][1]["state"], "retrying");

    let receiver = axum::serve(socket.listen(16).unwrap(), Router::new().fallback(async || ""));
    tokio::spawn(receiver.into_future());
    let well = asked_until(&config, &json, |said| said.code == 0).await;
    let document: Value = serde_json::from_str(&well.stdout).unwrap();
    assert_eq!(document["problems"], serde_json::json!([]));
    let is_delivered = document["sinks"].as_array().unwrap().iter().all(|s| s["delivered"] == 1);
    assert!(is_delivered, "{document}");

    bridge.child.kill().await.unwrap();
    let gone = commands::tidings(&config, &["status"]).await;
    assert_eq!((gone.code, &*gone.stdout), (1, ""));
    insta::assert_snapshot!(commands::steady(&gone.stderr, dir.path()));
}

/// A command that goes on until it is told to end.
struct Watching {
    child: Child,
    stdout: Lines<BufReader<tokio::process::ChildStdout>>,
    stderr: Lines<BufReader<tokio::process::ChildStderr>>,
}

impl Watching {
    fn start(stage: &Stage, arguments: &[&str]) -> Self {
        let mut command = command(&stage.config(), arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        let stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, stdout, stderr }
    }

    async fn interrupted(mut self) {
        let pid = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().await.unwrap().success());
        assert_eq!(self.child.wait().await.unwrap().code(), Some(0));
    }
}

/// Reads on to a line that has this.
async fn read_to(lines: &mut Lines<BufReader<impl AsyncRead + Unpin>>, part: &str) -> String {
    let reading = async {
        loop {
            let line = lines.next_line().await.unwrap().expect("more lines");
            if line.contains(part) {
                return line;
            }
        }
    };
    timeout(Duration::from_mins(1), reading).await.expect("such a line within a minute")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_status_is_shown_again_and_again_over_a_restart_until_ctrl_c() {
    let mut stage = Stage::set().await;
    let mut watching = Watching::start(&stage, &["status", "--watch"]);
    for _ in 0..2 {
        read_to(&mut watching.stdout, "no problems").await;
        read_to(&mut watching.stdout, ", 0 records, writable").await;
        read_to(&mut watching.stdout, "pager").await;
    }
    stage.stop().await;
    read_to(&mut watching.stderr, "no bridge runs on the journal").await;
    stage.start().await;
    stage.events(["one"]).await;
    read_to(&mut watching.stdout, ", 1 record, writable").await;
    watching.interrupted().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_status_as_json_is_a_document_a_line() {
    let stage = Stage::set().await;
    let mut watching = Watching::start(&stage, &["status", "--watch", "--output", "json"]);
    for _ in 0..2 {
        let line = read_to(&mut watching.stdout, "{").await;
        let document: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(document["problems"], serde_json::json!([]));
    }
    watching.interrupted().await;
}

#[tokio::test]
async fn a_document_that_lacks_a_member_is_said_to_be_of_another_version() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("tidings.yaml");
    std::fs::write(&config, format!("journal: {{path: {}}}\n", dir.path().display())).unwrap();
    let listener = tokio::net::UnixListener::bind(dir.path().join("admin.sock")).unwrap();
    let router = Router::new().fallback(async || "{\"version\": \"9.0.0\"}");
    tokio::spawn(axum::serve(listener, router).into_future());
    let said = commands::tidings(&config, &["status", "--output", "json"]).await;
    assert_eq!((said.code, &*said.stdout), (1, ""));
    insta::assert_snapshot!(said.stderr);
}

async fn described(arguments: &[&str]) -> Said {
    let output = Command::new(env!("CARGO_BIN_EXE_tidings")).args(arguments).output();
    let output = output.await.unwrap();
    Said {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

#[tokio::test]
async fn completions_know_the_commands_in_each_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = described(&["completions", shell]).await.ok();
        assert!(script.contains("dead-letters") && script.contains("watch"), "{shell}: {script}");
    }
    assert_eq!(described(&["completions", "tcsh"]).await.code, 2);
}

#[tokio::test]
async fn a_manual_has_a_page_for_each_command() {
    let page = described(&["man"]).await.ok();
    assert!(page.contains(".TH tidings 1") && page.contains("TIDINGS_SECTION__KEY"), "{page}");
    let dir = tempfile::tempdir().unwrap();
    let (below, taken) = (dir.path().join("share/man1"), dir.path().join("taken"));
    described(&["man", "--directory", below.to_str().unwrap()]).await.ok();
    for page in ["tidings.1", "tidings-status.1", "tidings-dead-letters-retry.1"] {
        let text = std::fs::read_to_string(below.join(page)).unwrap();
        assert!(text.contains(".SH NAME"), "{page}: {text}");
    }
    std::fs::write(&taken, "").unwrap();
    let refused = described(&["man", "--directory", taken.to_str().unwrap()]).await;
    assert_eq!((refused.code, &*refused.stdout), (1, ""));
    assert!(refused.stderr.contains("\nhint: "), "{refused:?}");
}
