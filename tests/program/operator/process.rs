//! The bridge as the program itself, ended in every way.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use tidings_testkit::api_server::{ApiServer, EventObject};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    process::{Child, Command},
};

use super::{commands, support::server};

pub(crate) struct Process {
    pub(crate) child: Child,
    dir: PathBuf,
}

/// Writes the configuration of a bridge whose journal is in the same directory.
pub(crate) fn configured(server: &ApiServer, dir: &Path) {
    std::fs::write(dir.join("kubeconfig"), server.kubeconfig()).unwrap();
    let config = format!(
        "source: {{kubeconfig: {0}/kubeconfig}}\njournal: {{path: {0}/journal}}\n\
         server: {{listen: \"127.0.0.1:0\"}}\nsinks: {{out: {{stdout: {{}}}}}}\n",
        dir.display()
    );
    std::fs::write(dir.join("tidings.yaml"), config).unwrap();
}

impl Process {
    /// Starts `tidings run`, and waits until it listens.
    async fn start(server: &ApiServer, dir: &Path) -> Self {
        Self::start_with(server, dir, &[]).await
    }

    /// The same, with these variables.
    async fn start_with(server: &ApiServer, dir: &Path, variables: &[(&str, &str)]) -> Self {
        configured(server, dir);
        Self::spawn(dir, variables).await
    }

    /// The same, with the configuration that is there.
    pub(crate) async fn spawn(dir: &Path, variables: &[(&str, &str)]) -> Self {
        let log = std::fs::File::create(dir.join("log")).unwrap();
        let mut run = Command::new(env!("CARGO_BIN_EXE_tidings"));
        run.args(["run", "--config"]).arg(dir.join("tidings.yaml"));
        run.envs(variables.iter().copied());
        run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true);
        let mut process = Self { child: run.spawn().unwrap(), dir: dir.to_owned() };
        while tokio::net::UnixStream::connect(dir.join("journal/admin.sock")).await.is_err() {
            let ended = process.child.try_wait().unwrap();
            assert!(ended.is_none(), "{}", process.log());
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        process
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id().unwrap()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_socket_of_a_killed_run_is_nobodys_and_is_replaced() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let config = dir.path().join("tidings.yaml");
    let list = ["dead-letters", "list", "--output", "json"];
    let mut first = Process::start(&server, dir.path()).await;
    first.child.kill().await.unwrap();
    assert!(dir.path().join("journal/admin.sock").exists());
    // The journal is read then.
    assert_eq!(commands::tidings(&config, &list).await.ok(), "[]\n");
    let mut second = Process::start(&server, dir.path()).await;
    assert_eq!(commands::tidings(&config, &list).await.ok(), "[]\n");
    server.create(EventObject::about_pod("shop", "web-0", "Started", "")).unwrap();

    let pid = second.child.id().unwrap().to_string();
    let asked = Command::new("kill").args(["-TERM", &pid]).status().await.unwrap();
    assert!(asked.success());
    assert!(second.child.wait().await.unwrap().success(), "{}", second.log());
    assert!(!dir.path().join("journal/admin.sock").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_too_long_for_a_socket_is_no_hindrance() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let deep = dir.path().join("d".repeat(120));
    std::fs::create_dir(&deep).unwrap();
    configured(&server, &deep);
    let config = deep.join("tidings.yaml");
    let mut bridge = commands::command(&config, &["run"]);
    let _bridge = bridge.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while !deep.join("journal/admin.sock").exists() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let list = commands::tidings(&config, &["dead-letters", "list", "--output", "json"]).await;
    assert_eq!(list.ok(), "[]\n");
    // Only over the socket, since the bridge holds the journal.
    let replay = commands::tidings(&config, &["replay", "--sink", "ouf", "--since", "1h"]).await;
    assert_eq!(replay.stderr, "error: there is no sink `ouf`\nhint: did you mean `out`?\n");
    assert_eq!(replay.code, 2);
}

/// Where a log says that the admin server listens.
pub(crate) fn port(log: &str) -> u16 {
    let (_, rest) = log.split_once("the admin server listens address=").unwrap();
    let address = rest.split_whitespace().next().unwrap();
    address.rsplit_once(':').unwrap().1.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_in_a_pod_that_listens_on_loopback_alone_warns() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let in_a_pod = ("KUBERNETES_SERVICE_HOST", "10.0.0.1");
    let warning = "TIDINGS_SERVER__LISTEN=[::]:8080";
    for (variables, warned) in [
        (vec![], false),
        (vec![in_a_pod], true),
        // As the template of the Pod has it: the file says something else.
        (vec![in_a_pod, ("TIDINGS_SERVER__LISTEN", "[::]:0")], false),
    ] {
        let own = tempfile::tempdir_in(dir.path()).unwrap();
        let bridge = Process::start_with(&server, own.path(), &variables).await;
        let log = bridge.log();
        assert_eq!(log.contains(warning), warned, "{variables:?}: {log}");
        let mut probe = TcpStream::connect(("127.0.0.1", port(&log))).await.unwrap();
        probe.write_all(b"GET /livez HTTP/1.1\r\nhost: t\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        probe.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{variables:?}: {answer}");
    }
}
