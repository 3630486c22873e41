//! Makes the journals of `tests/journals`: small ones, by the program under test, which is that of
//! an earlier build. `tests/bridge/upgrade.rs` has the build of today go on with them.
//!
//! Beside each journal lies `holds.json`: what was written to the API server, so that the same
//! history can be made again; what each receiver had; and what the bridge said of itself last.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;
use tidings_testkit::api_server::{ApiServer, EventObject, Options, seconds};
use tokio::time::sleep;

use crate::accounts::{is_settled, list_dead_letters, number, sinks_of};
use crate::bridge::Bridge;
use crate::judge::Key;
use crate::parts::Part as _;
use crate::receiver::{Mode, Receiver};
use crate::wait::{until, until_within};

const PATIENCE: Duration = Duration::from_mins(2);
/// The state of a correlator is saved with what comes so long after it was saved last.
const CORRELATOR_SAVED_EVERY: Duration = Duration::from_secs(10);
/// Totals and positions are.
const SAVED_EVERY: Duration = Duration::from_secs(1);

/// Makes all of them.
pub(crate) async fn make(directory: &Path) {
    backlog(&directory.join("backlog")).await;
    dead_letters(&directory.join("dead-letters")).await;
    for end in [End::Kill, End::LateKill, End::Stop, End::KilledStop] {
        held(&directory.join(end.name()), end).await;
    }
    lost(&directory.join("lost")).await;
    sources(&directory.join("sources")).await;
}

/// Two sinks have had a part of what is there, one of them through `match`; a third one all.
async fn backlog(directory: &Path) {
    let sinks = json!({
        "done": {},
        "behind": {},
        "picky": {"match": "event.reason != \"Dull\""},
    });
    let mut stage = Stage::set(&sinks, |_| {}).await;
    stage.open().await;
    for pod in 0..20 {
        let reason = if pod % 4 == 0 { "Dull" } else { "Started" };
        stage.create("shop", &format!("web-{pod}"), reason, "Started container web");
    }
    stage.again(3, 2);
    stage.settle(&[]).await;
    for behind in ["behind", "picky"] {
        stage.receivers[behind].set(Mode::Down).await;
    }
    for pod in 20..50 {
        let reason = if pod % 4 == 0 { "Dull" } else { "Started" };
        stage.create("shop", &format!("web-{pod}"), reason, "Started container web");
    }
    stage.again(3, 7);
    stage.settle(&["behind", "picky"]).await;
    stage.bridge.stop().await;
    stage.keep(directory, "SIGTERM", "two of three sinks in mid-backlog");
}

/// A receiver has refused three events, which are kept.
async fn dead_letters(directory: &Path) {
    let mut stage = Stage::set(&json!({"audit": {}}), |_| {}).await;
    stage.open().await;
    stage.receivers["audit"].set(Mode::Refuse(400, "poison")).await;
    for pod in 0..12 {
        let message = if pod % 4 == 1 { "poison" } else { "Started container web" };
        stage.create("shop", &format!("web-{pod}"), "Started", message);
    }
    stage.settle(&[]).await;
    list_dead_letters(&stage.bridge, "audit", 3).await;
    sleep(2 * SAVED_EVERY).await;
    stage.bridge.kill9();
    stage.keep(directory, "SIGKILL", "three dead letters");
}

/// How the bridge of [`held`] ends.
#[derive(Clone, Copy)]
enum End {
    Kill,
    /// When positions were saved that are ahead of what is saved of the correlators.
    LateKill,
    /// In order, but that its receiver is away, so what is held has been decided on and not sent.
    Stop,
    /// The same, killed in the midst of it.
    KilledStop,
}

impl End {
    fn name(self) -> &'static str {
        match self {
            Self::Kill => "held-killed",
            Self::LateKill => "held-ahead",
            Self::Stop => "held-stopped",
            Self::KilledStop => "held-stop-killed",
        }
    }
}

/// A sink with `suppress` holds increments, of which the correlator's state knows some and the log
/// the others.
async fn held(directory: &Path, end: End) {
    let sinks = json!({
        "audit": {},
        "pager": {"correlate": {"mode": "suppress"}},
        "other": {
            "correlate": {"mode": "suppress"},
            "match": "event.reason == \"BackOff\"",
            "overflow": "block",
        },
    });
    let mut stage = Stage::set(&sinks, |_| {}).await;
    stage.open().await;
    let first = stage.create("shop", "web-0", "BackOff", "Back-off restarting failed container");
    let second = stage.create("shop", "web-0", "Unhealthy", "Readiness probe failed");
    // One object has 25 tokens.
    for count in 2..=30 {
        stage.again(first, count);
        stage.again(second, 2 * count);
    }
    stage.settle(&[]).await;
    sleep(CORRELATOR_SAVED_EVERY + SAVED_EVERY).await;
    stage.again(first, 31);
    stage.settle(&[]).await;
    sleep(2 * SAVED_EVERY).await;
    // These only the log knows of.
    stage.again(first, 40);
    stage.again(second, 61);
    stage.create("shop", "web-1", "Started", "Started container web");
    stage.settle(&[]).await;
    let ended = match end {
        End::Kill => {
            stage.bridge.kill9();
            "SIGKILL"
        }
        End::LateKill => {
            // With something every second the last save of a correlator is seconds ago.
            for count in 41..66 {
                sleep(SAVED_EVERY).await;
                stage.again(first, count);
                stage.again(second, 2 * count);
            }
            stage.settle(&[]).await;
            sleep(2 * SAVED_EVERY).await;
            stage.bridge.kill9();
            "SIGKILL"
        }
        End::Stop => {
            stage.take_pagers_away().await;
            stage.bridge.stop().await;
            "SIGTERM, its receivers away"
        }
        End::KilledStop => {
            stage.take_pagers_away().await;
            stage.bridge.process().terminate();
            sleep(2 * SAVED_EVERY).await;
            stage.bridge.kill9();
            "SIGTERM, its receivers away, and SIGKILL meanwhile"
        }
    };
    stage.keep(directory, ended, "increments that two sinks with suppress hold back");
}

/// The journal has dropped what two sinks had not had. One has come back since, one has not.
async fn lost(directory: &Path) {
    let sinks = json!({"audit": {}, "back": {}, "away": {}});
    let mut stage = Stage::set(&sinks, |config| {
        config["journal"]["retention"] = json!({"size": "1MiB"});
    })
    .await;
    stage.open().await;
    let mut pods = 0..;
    let mut some = |stage: &mut Stage, padding: usize| {
        for pod in pods.by_ref().take(10) {
            stage.padding = padding;
            stage.create("shop", &format!("web-{pod}"), "Started", "Started container web");
        }
    };
    some(&mut stage, 0);
    stage.settle(&[]).await;
    for away in ["back", "away"] {
        stage.receivers[away].set(Mode::Down).await;
    }
    // What a sink has in memory is not lost.
    while stage.dropped().await < 60 {
        some(&mut stage, 200 << 10);
        stage.settle(&["back", "away"]).await;
    }
    stage.receivers["back"].set(Mode::Take).await;
    stage.settle(&["away"]).await;
    // What there still is of the padding goes by its age, and with it more that one has not had.
    stage.bridge.stop().await;
    stage.bridge.reconfigure(|config| {
        config["journal"]["retention"] = json!({"size": "1MiB", "age": "1s"});
    });
    stage.open().await;
    let all = stage.ids.len() as u64;
    until_within(PATIENCE, "the padding is gone", async || stage.dropped().await + 10 >= all).await;
    some(&mut stage, 0);
    stage.settle(&["away"]).await;
    sleep(2 * SAVED_EVERY).await;
    stage.bridge.kill9();
    stage.keep(directory, "SIGKILL", "records that retention took, stated for one sink");
}

/// Two namespaces are followed, and a list has replayed what was written while the bridge was down.
async fn sources(directory: &Path) {
    let mut stage = Stage::set(&json!({"audit": {}}), |config| {
        config["source"]["namespaces"] = json!(["shop", "bank"]);
    })
    .await;
    stage.open().await;
    for pod in 0..6 {
        for namespace in ["shop", "bank", "elsewhere"] {
            stage.create(namespace, &format!("web-{pod}"), "Started", "Started container web");
        }
    }
    stage.settle(&[]).await;
    stage.bridge.stop().await;
    // Of these only the last is seen.
    for count in 2..=5 {
        stage.again(0, count);
    }
    stage.again(1, 2);
    stage.create("bank", "web-late", "Started", "Started container web");
    stage.server.compact(stage.server.revision());
    stage.unseen = [18, 19, 20].into();
    stage.open().await;
    stage.settle(&[]).await;
    let skipped = number(&stage.bridge.status().await["ingest"], "skippedIncrements");
    assert_eq!(skipped, 3, "what the gap hid is stated");
    stage.bridge.stop().await;
    stage.keep(directory, "SIGTERM", "two sources, one of which had a gap and a replayed list");
}

/// An API server, receivers, and the bridge between them.
struct Stage {
    bridge: Bridge,
    server: ApiServer,
    receivers: BTreeMap<String, Receiver>,
    config: Value,
    events: Vec<(String, String)>,
    /// So much longer are the messages of new Events.
    padding: usize,
    /// What is done to the API server, in a form in which it can be done again.
    writes: Vec<Value>,
    ids: Vec<String>,
    deltas: Vec<u64>,
    counts: HashMap<usize, u64>,
    /// The writes that the bridge was not shown.
    unseen: HashSet<usize>,
    said: Value,
    _kubeconfig: TempDir,
}

impl Stage {
    async fn set(sinks: &Value, change: impl FnOnce(&mut Value)) -> Self {
        let server = ApiServer::start(Options::default()).expect("a port");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let kubeconfig = folder.path().join("kubeconfig");
        fs::write(&kubeconfig, server.kubeconfig()).expect("the kubeconfig");
        let (mut receivers, mut all) = (BTreeMap::new(), sinks.clone());
        for (name, sink) in all.as_object_mut().expect("sinks by their names") {
            let receiver = Receiver::start().await;
            sink["webhook"] = json!({"url": receiver.url()});
            sink["batch"] = json!({"events": 5});
            sink["retry"] = json!({"max": "1s"});
            receivers.insert(name.clone(), receiver);
        }
        let mut config = Value::Null;
        let bridge = Bridge::configured(&kubeconfig, &all, |all| {
            all["journal"]["retention"] = json!({"size": "4MiB"});
            change(all);
            config = all.clone();
        });
        Self {
            bridge,
            server,
            receivers,
            config,
            events: Vec::new(),
            padding: 0,
            writes: Vec::new(),
            ids: Vec::new(),
            deltas: Vec::new(),
            counts: HashMap::new(),
            unseen: HashSet::new(),
            said: Value::Null,
            _kubeconfig: folder,
        }
    }

    async fn open(&mut self) {
        self.bridge.launch().await;
        until("a stream is open", async || self.bridge.readiness().await.0).await;
    }

    async fn take_pagers_away(&self) {
        for name in ["pager", "other"] {
            self.receivers[name].set(Mode::Down).await;
        }
    }

    /// Answers which Event it is.
    fn create(&mut self, namespace: &str, pod: &str, reason: &str, message: &str) -> usize {
        let number = self.events.len();
        let mut event = EventObject::about_pod(namespace, pod, reason, message);
        event.metadata.name = format!("{pod}.{number:x}");
        event.metadata.uid = format!("00000000-0000-4000-8000-{number:012}");
        event.metadata.creation_timestamp = Some(seconds(Timestamp::now()));
        self.writes.push(json!({"create": event, "padding": self.padding}));
        event.message.push_str(&"x".repeat(self.padding));
        let created = self.server.create(event).expect("a new Event");
        self.events.push((namespace.to_owned(), created.name.clone()));
        self.wrote(created.id(), number, 1);
        number
    }

    fn again(&mut self, event: usize, count: i32) {
        let at = Timestamp::now();
        let (namespace, name) = &self.events[event];
        let patch = json!({"namespace": namespace, "name": name, "count": count, "at": at});
        let patched = self.server.patch_count(namespace, name, count, at).expect("it is there");
        self.writes.push(json!({"patch": patch}));
        self.wrote(patched.id(), event, u64::from(count.unsigned_abs()));
    }

    fn wrote(&mut self, id: String, event: usize, count: u64) {
        let before = self.counts.insert(event, count).unwrap_or(0);
        self.ids.push(id);
        self.deltas.push(count - before);
    }

    /// The writes that a source covers and that were seen.
    fn journalled(&self) -> impl Iterator<Item = usize> {
        let covered = &self.config["source"]["namespaces"];
        (0..self.ids.len()).filter(move |at| {
            let write = &self.writes[*at];
            let namespace =
                [&write["patch"], &write["create"]["metadata"]].map(|of| &of["namespace"]);
            let namespace = namespace.into_iter().find(|namespace| namespace.is_string());
            let is_covered = |all: &Vec<Value>| all.iter().any(|one| Some(one) == namespace);
            !self.unseen.contains(at) && covered.as_array().is_none_or(is_covered)
        })
    }

    /// Waits until all is journalled, and has a fate or is held but at these sinks. Notes what the
    /// bridge says then.
    async fn settle(&mut self, away: &[&str]) {
        let all = self.journalled().count() as u64;
        let bridge = &self.bridge;
        let mut said = Value::Null;
        until_within(PATIENCE, "all is settled", async || {
            said = bridge.status().await;
            sinks_of(&said).iter().all(|sink| {
                let is_away = away.iter().any(|away| sink["name"] == *away);
                number(sink, "seen") >= all && (is_settled(&said, sink) || is_away)
            })
        })
        .await;
        self.said = said;
    }

    async fn dropped(&self) -> u64 {
        let status = self.bridge.status().await;
        let journal = &status["journal"];
        (number(journal, "nextSequence") - 1).saturating_sub(number(journal, "records"))
    }

    /// Keeps the journal, and says what it holds.
    fn keep(self, directory: &Path, ended: &str, what: &str) {
        let journal = directory.join("journal");
        copy(&self.bridge.journal(), &journal);
        let names: HashMap<Key, usize> =
            self.ids.iter().enumerate().map(|(at, id)| (Key::of(id), at)).collect();
        let mut sinks = BTreeMap::new();
        for (name, receiver) in &self.receivers {
            let arrivals = receiver.arrivals();
            let (mut had, mut increments) = (Vec::new(), 0);
            for arrival in arrivals.iter() {
                let id = &self.ids[names[&arrival.id]];
                if !had.contains(id) {
                    had.push(id.clone());
                    increments += arrival.delta;
                }
            }
            let said = sinks_of(&self.said).iter().find(|sink| sink["name"] == **name);
            let fates = ["delivered", "filtered", "correlatedAway", "deadLettered", "lost", "held"];
            let said = said.expect("the bridge speaks of each sink");
            let said: BTreeMap<_, _> = fates.iter().map(|fate| (fate, &said[fate])).collect();
            let config = &self.config["sinks"][name];
            sinks.insert(
                name,
                json!({
                    "match": config["match"],
                    "mode": config["correlate"]["mode"].as_str().unwrap_or("annotate"),
                    "overflow": config["overflow"].as_str().unwrap_or("dropOldest"),
                    "received": had,
                    "receivedIncrements": increments,
                    "stated": said,
                }),
            );
        }
        let journalled = self.journalled().map(|at| &self.ids[at]).collect::<Vec<_>>();
        let increments: u64 = self.journalled().map(|at| self.deltas[at]).sum();
        // What a gap hid is part of what came after it.
        let hidden: u64 = self.unseen.iter().map(|at| self.deltas[*at]).sum();
        let holds = json!({
            "what": what,
            "ended": ended,
            "revision": Options::default().revision,
            "clusterUid": Options::default().cluster_uid,
            "namespaces": self.config["source"]["namespaces"].as_array().cloned().unwrap_or_default(),
            "retention": self.config["journal"]["retention"]["size"],
            "writes": self.writes,
            "ids": self.ids,
            "journalled": journalled,
            "increments": increments + hidden,
            "sinks": sinks,
        });
        fs::write(directory.join("holds.json"), format!("{holds:#}\n")).expect("what it holds");
    }
}

/// Copies a directory, but what belongs to the process that had it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("the directory") {
        let entry = entry.expect("an entry");
        let (kind, path) = (entry.file_type().expect("its kind"), to.join(entry.file_name()));
        if kind.is_dir() {
            copy(&entry.path(), &path);
        } else if kind.is_file() && entry.file_name() != "lock" {
            fs::copy(entry.path(), path).expect("a copy");
        }
    }
}
