//! The configuration of a running bridge changes: by command, by signal, and by itself.

use std::{
    collections::{BTreeSet, HashSet},
    fmt::Write as _,
    os::unix::fs::symlink,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use tidings_testkit::{
    api_server::{ApiServer, EventObject},
    ledger::SharedLedger,
    receiver::{HttpReceiver, Received, Step},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    process::Command,
    time::sleep,
};

use super::{
    commands::{Said, tidings},
    process::{Process, port},
    support::{server, until},
};

/// A webhook's receiver. Clones are the same receiver.
#[derive(Clone, Default)]
struct Receiver {
    ledger: SharedLedger,
    refused: Arc<AtomicU64>,
    fails: Arc<AtomicBool>,
    /// The values of `authorization` that it takes; every one where there is none.
    tokens: Arc<Mutex<BTreeSet<String>>>,
}

impl Receiver {
    fn start() -> (Self, HttpReceiver) {
        let receiver = Self::default();
        let this = receiver.clone();
        let http = HttpReceiver::start(move |_, request| vec![this.take(request)]).unwrap();
        (receiver, http)
    }

    fn take(&self, request: &Received) -> Step {
        let tokens = self.tokens.lock().unwrap();
        let shown = request.header("authorization");
        let status = if self.fails.load(Ordering::Relaxed) {
            "503 Service Unavailable"
        } else if !tokens.is_empty() && !shown.is_some_and(|shown| tokens.contains(shown)) {
            "401 Unauthorized"
        } else {
            self.ledger.take_envelopes(&request.body);
            return Step::answer("200 OK", "", "");
        };
        self.refused.fetch_add(1, Ordering::Relaxed);
        Step::answer(status, "", "")
    }

    fn ids(&self) -> HashSet<String> {
        self.ledger.lock().ids.clone()
    }

    async fn has(&self, count: usize) {
        until(&format!("{count} events are there"), || self.ledger.distinct() >= count).await;
        assert_eq!(self.ledger.lock().complaints, [""; 0]);
    }
}

/// A bridge with a configuration of these sinks.
struct Stage {
    server: ApiServer,
    dir: tempfile::TempDir,
    bridge: Process,
}

impl Stage {
    async fn set(sinks: &str) -> Self {
        let (server, dir) = (server(), tempfile::tempdir().unwrap());
        std::fs::write(dir.path().join("kubeconfig"), server.kubeconfig()).unwrap();
        write(dir.path(), sinks);
        let bridge = Process::spawn(dir.path(), &[]).await;
        Self { server, dir, bridge }
    }

    fn configure(&self, sinks: &str) {
        write(self.dir.path(), sinks);
    }

    async fn run(&self, arguments: &[&str]) -> Said {
        tidings(&self.dir.path().join("tidings.yaml"), arguments).await
    }

    async fn reload(&self) -> Said {
        self.run(&["reload"]).await
    }

    /// Without the directory in it.
    fn plain(&self, text: &str) -> String {
        text.replace(self.dir.path().to_str().unwrap(), "DIR")
    }

    async fn status(&self) -> Value {
        let said = self.run(&["status", "--output", "json"]).await;
        serde_json::from_str(&said.stdout).unwrap()
    }

    async fn sinks(&self) -> Vec<String> {
        let status = self.status().await;
        let sinks = status["sinks"].as_array().unwrap().iter();
        sinks.map(|sink| sink["name"].as_str().unwrap().to_owned()).collect()
    }

    fn create(&self, pod: &str) {
        self.server.create(EventObject::about_pod("shop", pod, "BackOff", "restarting")).unwrap();
    }

    /// A sink was never stopped, so its connections are its own to close.
    fn assert_untouched(&self, sink: &str) {
        let log = self.bridge.log();
        let stopped = log.lines().filter(|line| line.contains("the sink is stopped"));
        let stopped: Vec<_> =
            stopped.filter(|line| line.contains(&format!("sink=\"{sink}\""))).collect();
        assert!(stopped.is_empty(), "{stopped:?}");
    }

    async fn logged(&self, words: &str, times: usize) {
        until(words, || self.bridge.log().matches(words).count() >= times).await;
    }
}

/// As a ConfigMap is written: all at once.
fn write(dir: &Path, sinks: &str) {
    let config = format!(
        "source: {{kubeconfig: {0}/kubeconfig}}\njournal: {{path: {0}/journal}}\n\
         server: {{listen: \"127.0.0.1:0\"}}\n{sinks}",
        dir.display()
    );
    std::fs::write(dir.join("new.yaml"), config).unwrap();
    std::fs::rename(dir.join("new.yaml"), dir.join("tidings.yaml")).unwrap();
}

fn webhook(at: &HttpReceiver, more: &str) -> String {
    let address = at.address;
    format!(
        "webhook: {{url: \"http://{address}/\"{more}}}, batch: {{events: 50}}, start: oldest, \
         retry: {{initial: 10ms, max: 50ms}}, allowPlaintext: true"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_adds_changes_and_removes_sinks_and_leaves_the_others_alone() {
    let [(kept, at_kept), (before, at_before), (after, at_after), (added, at_added)] =
        [Receiver::start(), Receiver::start(), Receiver::start(), Receiver::start()];
    let (kept_sink, gone) = (webhook(&at_kept, ""), webhook(&at_before, ""));
    let changed = |at: &HttpReceiver| webhook(at, "");
    let stage = Stage::set(&format!(
        "sinks:\n  kept: {{{kept_sink}}}\n  moved: {{{}}}\n  gone: {{{gone}}}\n",
        changed(&at_before)
    ))
    .await;
    stage.create("web-0");
    kept.has(1).await;
    before.has(1).await;
    stage.configure(&format!(
        "log: {{level: debug}}\nsinks:\n  new: {{{}}}\n  moved: {{{}}}\n  kept: {{{kept_sink}}}\n",
        webhook(&at_added, ""),
        changed(&at_after)
    ));
    // A look may have been faster.
    stage.reload().await.ok();
    let said = r#"added="sinks.new" changed="sinks.moved, log.level" removed="sinks.gone" "#;
    assert!(stage.bridge.log().contains(said.trim_end()), "{}", stage.bridge.log());
    assert_eq!(stage.sinks().await, ["new", "moved", "kept"]);
    stage.create("web-1");
    kept.has(2).await;
    after.has(1).await;
    // The new sink begins with the oldest.
    added.has(2).await;
    assert_eq!(before.ids().len(), 1);
    assert!(kept.ids().is_superset(&after.ids()) && after.ids().is_disjoint(&before.ids()));
    stage.assert_untouched("kept");
    let again = stage.reload().await.ok();
    assert_eq!(stage.plain(&again), "DIR/tidings.yaml is in force: nothing has changed\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_waits_to_retry_reaches_its_new_address_at_once() {
    let [(failing, at_failing), (well, at_well)] = [Receiver::start(), Receiver::start()];
    failing.fails.store(true, Ordering::Relaxed);
    let slow = |at: &HttpReceiver| {
        webhook(at, "").replace("initial: 10ms, max: 50ms", "initial: 1h, max: 1h")
    };
    let stage = Stage::set(&format!("sinks:\n  out: {{{}}}\n", slow(&at_failing))).await;
    stage.create("web-0");
    until("it fails", || failing.refused.load(Ordering::Relaxed) > 0).await;
    stage.configure(&format!("sinks:\n  out: {{{}}}\n", slow(&at_well)));
    stage.reload().await.ok();
    well.has(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_file_changes_nothing_and_is_told_until_it_is_mended() {
    let (receiver, http) = Receiver::start();
    let sink = format!("  out: {{{}}}\n", webhook(&http, ""));
    let stage = Stage::set(&format!("sinks:\n{sink}")).await;
    for (bad, says) in [
        (
            "sinks:\n  out: {webhok: {}}\n".to_owned(),
            "sink `out`: expected a known kind, found `webhok`",
        ),
        (
            format!("cluster: {{name: other}}\nsinks:\n{sink}"),
            "cluster.name: expected no change while Tidings runs, found one",
        ),
        (
            format!("objects: {{qps: 1}}\nlog: {{format: json}}\nsinks:\n{sink}"),
            "objects, log.format: expected no change while Tidings runs, found one",
        ),
        (
            format!(
                "sinks:\n{sink}  more: {{file: {{path: /tmp/x}}, enrich: {{labels: [\"*\"]}}}}\n"
            ),
            "sinks.more.enrich: expected no change while Tidings runs, found one",
        ),
    ] {
        stage.configure(&bad);
        let said = stage.reload().await;
        assert_eq!((said.code, &*said.stdout), (2, ""), "{said:?}");
        assert!(said.stderr.contains(says) && said.stderr.contains("hint: "), "{said:?}");
        let status = stage.status().await;
        let rejected = status["configuration"]["rejected"]["error"].as_str().unwrap();
        assert!(rejected.contains(says), "{rejected}");
        let problem = &status["problems"][0];
        assert_eq!(problem["part"], "configuration", "{status}");
        assert!(problem["what"].as_str().unwrap().contains(says), "{status}");
    }
    stage.create("web-0");
    receiver.has(1).await;
    let metrics = |wanted: &'static str| {
        let port = port(&stage.bridge.log());
        async move {
            let mut scrape = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let asked = b"GET /metrics HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n";
            scrape.write_all(asked).await.unwrap();
            let mut answer = String::new();
            scrape.read_to_string(&mut answer).await.unwrap();
            assert!(answer.contains(wanted), "{answer}");
        }
    };
    metrics("tidings_config_rejected 1\n").await;
    stage.configure(&format!("sinks:\n{sink}"));
    stage.reload().await.ok();
    metrics("tidings_config_rejected 0\n").await;
    let status = stage.status().await;
    assert_eq!(status["configuration"]["rejected"], Value::Null);
    assert_eq!(status["problems"].as_array().unwrap().len(), 0, "{status}");
    stage.assert_untouched("out");
}

#[tokio::test(flavor = "multi_thread")]
async fn config_show_prints_the_configuration_in_force_without_secrets() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    std::fs::write(dir.path().join("kubeconfig"), server.kubeconfig()).unwrap();
    std::fs::write(dir.path().join("token"), "S3CRET").unwrap();
    let token = format!("{{file: {}}}", dir.path().join("token").display());
    let sinks = format!(
        "# S3CRET\nlog: {{level: info}}\nsinks:\n  out:\n    webhook:\n      url: https://x.invalid/S3CRET\n      \
         headers: {{x-key: S3CRET, x-other: {token}}}\n    batch: {{events: 50}}\n    \
         match: 'event.type != \"Normal\"'\n"
    );
    write(dir.path(), &sinks);
    let bridge = Process::spawn(dir.path(), &[("TIDINGS_LOG__LEVEL", "debug")]).await;
    let stage = Stage { server, dir, bridge };
    let shown = stage.run(&["config", "show"]).await.ok();
    let (head, yaml) = shown.split_once('\n').unwrap();
    let head = stage.plain(head);
    assert!(
        head.starts_with("# DIR/tidings.yaml is in force since 2") && head.ends_with("Z."),
        "{head}"
    );
    insta::assert_snapshot!(stage.plain(yaml), @r#"
    # log.level is set by TIDINGS_LOG__LEVEL.
    source:
      kubeconfig: DIR/kubeconfig
    journal:
      path: DIR/journal
    server:
      listen: 127.0.0.1:0
    log:
      level: debug
    sinks:
      out:
        webhook:
          url: "***"
          headers:
            x-key: "***"
            x-other:
              file: DIR/token
        batch:
          events: 50
        match: event.type != "Normal"
    "#);

    write(stage.dir.path(), &sinks.replace("sinks:", "sink:"));
    assert_eq!(stage.reload().await.code, 2);
    let shown = stage.run(&["config", "show"]).await.ok();
    assert!(shown.contains("\n# It has changed, and is rejected since 2"), "{shown}");
    assert!(shown.contains("expected a known key, found `sink`"), "{shown}");
    assert!(!shown.contains("S3CRET") && shown.contains("\nsinks:\n"), "{shown}");
    let json = stage.run(&["config", "show", "--output", "json"]).await.ok();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert!(yaml.ends_with(json["yaml"].as_str().unwrap()), "{json}");
    assert_eq!(json["file"], stage.dir.path().join("tidings.yaml").to_str().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_is_replaced_by_a_pipe_is_told_and_holds_up_no_stop() {
    let (receiver, http) = Receiver::start();
    let secret = tempfile::tempdir().unwrap();
    let path = secret.path().join("token");
    std::fs::write(&path, "one").unwrap();
    let token = format!(", headers: {{authorization: {{file: {}}}}}", path.display());
    let stage = Stage::set(&format!("sinks:\n  out: {{{}}}\n", webhook(&http, &token))).await;
    std::fs::remove_file(&path).unwrap();
    assert!(Command::new("mkfifo").arg(&path).status().await.unwrap().success());
    let said = stage.reload().await;
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.stderr.contains("found one that does not answer"), "{said:?}");
    stage.create("web-0");
    receiver.has(1).await;
    // The read that waits for the pipe has it, and the next look reads the file.
    std::fs::rename(&path, secret.path().join("pipe")).unwrap();
    std::fs::write(&path, "two").unwrap();
    std::fs::write(secret.path().join("pipe"), "late").unwrap();
    stage.logged("the configuration is in force", 1).await;
    receiver.tokens.lock().unwrap().insert("two".to_owned());
    stage.create("web-1");
    receiver.has(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_came_through_a_pipe_stays_in_force() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    std::fs::write(dir.path().join("kubeconfig"), server.kubeconfig()).unwrap();
    write(dir.path(), "sinks: {out: {file: {path: /dev/null}}}\n");
    let script = "exec \"$1\" run --config <(cat \"$2\")";
    let log = std::fs::File::create(dir.path().join("log")).unwrap();
    let mut bash = Command::new("bash");
    bash.args(["-c", script, "bash", env!("CARGO_BIN_EXE_tidings")]);
    bash.arg(dir.path().join("tidings.yaml")).kill_on_drop(true).stderr(log);
    let _bridge = bash.spawn().unwrap();
    let config = dir.path().join("tidings.yaml");
    while tidings(&config, &["status"]).await.stdout.is_empty() {}
    let said = tidings(&config, &["reload"]).await;
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.stderr.contains("found a pipe"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_journal_path_is_told_in_the_log_and_by_the_old_socket() {
    let (_, http) = Receiver::start();
    let sinks = format!("sinks:\n  out: {{{}}}\n", webhook(&http, ""));
    let stage = Stage::set(&sinks).await;
    let config = std::fs::read_to_string(stage.dir.path().join("tidings.yaml")).unwrap();
    let moved = config.replace("/journal}", "/elsewhere}");
    std::fs::write(stage.dir.path().join("tidings.yaml"), &moved).unwrap();
    let said = stage.reload().await;
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.stderr.contains("A changed journal.path needs a restart"), "{said:?}");
    // The look finds it.
    stage.logged("journal.path: expected no change while Tidings runs, found one", 1).await;
    std::fs::write(stage.dir.path().join("old.yaml"), config).unwrap();
    let status = tidings(&stage.dir.path().join("old.yaml"), &["status"]).await;
    assert!(status.stdout.contains("journal.path: expected no change"), "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_finds_a_secret_that_was_swapped_and_a_signal_does_so_at_once() {
    let (receiver, http) = Receiver::start();
    receiver.tokens.lock().unwrap().extend(["one".to_owned(), "two".to_owned()]);
    let secrets = tempfile::tempdir().unwrap();
    // As the kubelet has it: a link to a directory, which is replaced at once.
    let swap = |version: &str| {
        let path = |name: &str| secrets.path().join(name);
        std::fs::create_dir(path(version)).unwrap();
        std::fs::write(path(version).join("token"), version).unwrap();
        symlink(version, path("..data_tmp")).unwrap();
        std::fs::rename(path("..data_tmp"), path("..data")).unwrap();
    };
    swap("one");
    symlink("..data/token", secrets.path().join("token")).unwrap();
    let token =
        format!(", headers: {{authorization: {{file: {}/token}}}}", secrets.path().display());
    let stage = Stage::set(&format!("sinks:\n  out: {{{}}}\n", webhook(&http, &token))).await;
    stage.create("web-0");
    receiver.has(1).await;
    swap("two");
    stage.logged("the configuration is in force", 1).await;
    *receiver.tokens.lock().unwrap() = BTreeSet::from(["two".to_owned(), "three".to_owned()]);
    stage.create("web-1");
    receiver.has(2).await;
    swap("three");
    let pid = stage.bridge.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().await.unwrap().success());
    stage.logged("SIGHUP: the configuration is read again", 1).await;
    stage.logged("the configuration is in force", 2).await;
    *receiver.tokens.lock().unwrap() = BTreeSet::from(["three".to_owned()]);
    stage.create("web-2");
    receiver.has(3).await;
    assert_eq!(receiver.refused.load(Ordering::Relaxed), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_the_admin_server_is_replaced() {
    let (_, http) = Receiver::start();
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&secret, "the-first-of-the-tokens").unwrap();
    let stage = Stage::set(&format!("sinks:\n  out: {{{}}}\n", webhook(&http, ""))).await;
    let config = std::fs::read_to_string(stage.dir.path().join("tidings.yaml")).unwrap();
    let token = format!("\"127.0.0.1:0\", token: {{file: {}}}", secret.path().display());
    let config = config.replace("\"127.0.0.1:0\"", &token);
    std::fs::write(stage.dir.path().join("tidings.yaml"), config).unwrap();
    stage.reload().await.ok();
    let status = |token: &str| {
        let port = port(&stage.bridge.log());
        // A proxy asks for somebody who is elsewhere.
        let request = format!(
            "GET /api/v1/status HTTP/1.1\r\nhost: t\r\nx-forwarded-for: 10.0.0.1\r\n\
             authorization: Bearer {token}\r\nconnection: close\r\n\r\n"
        );
        async move {
            let mut asking = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            asking.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            asking.read_to_string(&mut answer).await.unwrap();
            answer["HTTP/1.1 ".len()..][..3].parse::<u16>().unwrap()
        }
    };
    assert_eq!(status("the-first-of-the-tokens").await, 200);
    std::fs::write(&secret, "the-second-of-the-tokens").unwrap();
    stage.reload().await.ok();
    assert_eq!(stage.bridge.log().matches(r#"changed="server.token""#).count(), 2);
    assert_eq!(status("the-first-of-the-tokens").await, 401);
    assert_eq!(status("the-second-of-the-tokens").await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_reloads_under_load_lose_nothing_and_stop_no_unchanged_sink() {
    const ROUNDS: u64 = 20;
    let [(kept, at_kept), (changing, at_changing), (coming, at_coming), (failing, at_failing)] =
        [Receiver::start(), Receiver::start(), Receiver::start(), Receiver::start()];
    failing.fails.store(true, Ordering::Relaxed);
    let of_round = |round: u64| {
        let mut sinks = format!("sinks:\n  kept: {{{}}}\n", webhook(&at_kept, ""));
        let header = format!(", headers: {{x-round: \"{round}\"}}");
        writeln!(sinks, "  changing: {{{}}}", webhook(&at_changing, &header)).unwrap();
        writeln!(sinks, "  failing: {{{}}}", webhook(&at_failing, &header)).unwrap();
        if round.is_multiple_of(2) {
            writeln!(sinks, "  coming: {{{}}}", webhook(&at_coming, "")).unwrap();
        }
        if round % 3 == 1 {
            sinks.push_str("  bad: {webhook: {url: 7}}\n");
        }
        sinks
    };
    let stage = Stage::set(&of_round(0)).await;
    let goes_on = AtomicBool::new(true);
    let load = async {
        let mut created = 0;
        while goes_on.load(Ordering::Relaxed) {
            stage.create(&format!("web-{}", created % 7));
            created += 1;
            sleep(Duration::from_millis(3)).await;
        }
        created
    };
    let reloading = async {
        for round in 1..=ROUNDS {
            stage.configure(&of_round(round));
            let said = stage.reload().await;
            assert_eq!(said.code, if round % 3 == 1 { 2 } else { 0 }, "{said:?}");
        }
        goes_on.store(false, Ordering::Relaxed);
    };
    let (created, ()) = tokio::join!(load, reloading);
    failing.fails.store(false, Ordering::Relaxed);
    // The last round has all of the sinks.
    for (name, receiver) in
        [("kept", &kept), ("changing", &changing), ("coming", &coming), ("failing", &failing)]
    {
        receiver.has(created).await;
        assert_eq!(receiver.ids().len(), created, "{name}");
        assert_eq!(receiver.ledger.lock().tally().repeated, 0, "{name}");
    }
    stage.assert_untouched("kept");
    // One that is idle for long may be closed by the client, but no reload closes any.
    let connections = at_kept.connections() as u64;
    assert!(connections < ROUNDS, "{connections}");
    let status = stage.status().await;
    for sink in status["sinks"].as_array().unwrap() {
        assert_eq!((&sink["lost"], &sink["deadLettered"]), (&0.into(), &0.into()), "{sink}");
    }
}
