//! A journal of a build before this one goes on: positions, totals, dead letters, the view `seen`,
//! and what its correlators held. The journals lie in `tests/journals`, a directory for each build.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;
use tidings::{
    admin::status,
    bridge::{CorrelateMode, Overflow},
    journal::{Letters, State},
};
use tidings_testkit::api_server::{ApiServer, EventObject, Options};

use crate::support::{MemorySink, Received, Setup, Tuning, dead_letters, sink_status, stop, until};

/// `holds.json`, which the maker of the journals has written beside each.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Holds {
    /// How the build before ended.
    ended: String,
    revision: u64,
    cluster_uid: String,
    namespaces: Vec<String>,
    /// What was written to the API server, and the ids of it.
    writes: Vec<Write>,
    ids: Vec<String>,
    /// Those of them that the build before has journalled.
    journalled: BTreeSet<String>,
    sinks: BTreeMap<String, Sink>,
}

/// An Event that is created, its message so much longer than it says, or one that occurs again.
#[derive(Deserialize)]
struct Write {
    create: Option<EventObject>,
    #[serde(default)]
    padding: usize,
    patch: Option<Patch>,
}

#[derive(Deserialize)]
struct Patch {
    namespace: String,
    name: String,
    count: i32,
    at: jiff::Timestamp,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sink {
    mode: String,
    overflow: String,
    #[serde(rename = "match")]
    filter: Option<String>,
    /// What its receiver had, each id once, and the sum of their deltas.
    received: Vec<String>,
    received_increments: u64,
    /// What the build before said of it last.
    stated: Stated,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stated {
    dead_lettered: u64,
    lost: u64,
    held: u64,
}

/// An Event of the history.
struct Event {
    namespace: String,
    name: String,
    uid: String,
    reason: String,
    count: i32,
}

/// A journal of the build before, in a directory of its own, and the API server that it knows.
struct Upgrade {
    holds: Holds,
    dir: tempfile::TempDir,
    server: ApiServer,
    sinks: BTreeMap<String, MemorySink>,
    events: Vec<Event>,
    /// Of each id of the history.
    deltas: BTreeMap<String, u64>,
}

impl Upgrade {
    fn of(name: &str) -> Self {
        let from =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/journals/5f7ba22").join(name);
        let text = fs::read_to_string(from.join("holds.json")).unwrap();
        let mut holds: Holds = serde_json::from_str(&text).unwrap();
        let dir = tempfile::tempdir().unwrap();
        copy(&from.join("journal"), dir.path());
        let options = Options {
            revision: holds.revision,
            cluster_uid: holds.cluster_uid.clone(),
            ..Options::default()
        };
        let server = ApiServer::start(options).unwrap();
        let (mut events, mut deltas) = (Vec::<Event>::new(), BTreeMap::new());
        for (write, id) in std::mem::take(&mut holds.writes).into_iter().zip(&holds.ids) {
            let written = match write {
                Write { create: Some(mut create), padding, .. } => {
                    create.message.push_str(&"x".repeat(padding));
                    events.push(Event {
                        namespace: create.metadata.namespace.clone(),
                        name: create.metadata.name.clone(),
                        uid: create.metadata.uid.clone(),
                        reason: create.reason.clone(),
                        count: 1,
                    });
                    deltas.insert(id.clone(), 1);
                    server.create(create).unwrap()
                }
                Write { patch, .. } => {
                    let Patch { namespace, name, count, at } = patch.unwrap();
                    let event = events.iter_mut().find(|event| event.name == name).unwrap();
                    deltas.insert(id.clone(), u64::try_from(count - event.count).unwrap());
                    event.count = count;
                    server.patch_count(&namespace, &name, count, at).unwrap()
                }
            };
            assert_eq!(written.id(), *id, "the history is the same as it was");
        }
        let sinks = holds.sinks.keys().map(|name| (name.clone(), MemorySink::default())).collect();
        Self { holds, dir, server, sinks, events, deltas }
    }

    fn setup(&self) -> Setup<'_> {
        let mut setup = Setup::new(&self.server, self.dir.path());
        setup.namespaces.clone_from(&self.holds.namespaces);
        // The journals grow old.
        setup.age = Duration::from_hours(1_000_000);
        for (name, sink) in &self.holds.sinks {
            let tuning = Tuning {
                filter: sink.filter.clone().map(|text| &*text.leak()),
                correlate: match &*sink.mode {
                    "annotate" => CorrelateMode::Annotate,
                    "suppress" => CorrelateMode::Suppress,
                    mode => panic!("{mode}"),
                },
                overflow: match &*sink.overflow {
                    "block" => Overflow::Block,
                    "dropOldest" => Overflow::DropOldest,
                    overflow => panic!("{overflow}"),
                },
                ..Tuning::default()
            };
            setup = setup.tuned(name.clone().leak(), &self.sinks[name], tuning);
        }
        setup
    }

    /// Each Event that the build before has followed occurs three times more. Answers the ids.
    fn occur_again(&self) -> BTreeSet<String> {
        let Holds { namespaces, .. } = &self.holds;
        let followed =
            |event: &&Event| namespaces.is_empty() || namespaces.contains(&event.namespace);
        let again = |event: &Event| {
            let (count, now) = (event.count + 3, jiff::Timestamp::now());
            self.server.patch_count(&event.namespace, &event.name, count, now).unwrap().id()
        };
        self.events.iter().filter(followed).map(again).collect()
    }

    /// Those of the ids that a sink's `match` wants.
    fn wanted(&self, sink: &str, ids: &BTreeSet<String>) -> BTreeSet<String> {
        let wants = |reason: &str| match self.holds.sinks[sink].filter.as_deref() {
            None => true,
            Some("event.reason != \"Dull\"") => reason != "Dull",
            Some("event.reason == \"BackOff\"") => reason == "BackOff",
            Some(filter) => panic!("{filter}"),
        };
        let reason =
            |uid: &str| &*self.events.iter().find(|event| event.uid == uid).unwrap().reason;
        ids.iter().filter(|id| wants(reason(id.rsplit_once('-').unwrap().0))).cloned().collect()
    }

    /// Starts the build of today on it, while each Event occurs again, and holds what becomes of it
    /// against what the build before has left.
    /// Answers the ids of what occurred again.
    async fn goes_on(&self) -> BTreeSet<String> {
        let Holds { ids, journalled, sinks, .. } = &self.holds;
        let again = self.occur_again();
        let all: BTreeSet<String> = journalled.union(&again).cloned().collect();
        let bridge = self.setup().start().await;
        let view = bridge.view();
        // What retention has taken, oldest first.
        let gone = usize::try_from(view.log.oldest().ordinal()).unwrap();
        let gone = ids.iter().filter(|id| journalled.contains(*id)).take(gone).cloned();
        let gone: BTreeSet<String> = gone.collect();
        for (name, before) in sinks {
            let said = || sink_status(&view, name);
            let seen = all.len() as u64;
            until("each version has its fate, or is held", || {
                let said = said();
                said.seen == seen && said.pending == said.held
            })
            .await;
            let received = self.sinks[name].received();
            let new: BTreeSet<String> = received.iter().map(|event| event.id.clone()).collect();
            let old: BTreeSet<String> = before.received.iter().cloned().collect();
            // All that this sink has had is saved.
            if self.holds.ended == "SIGTERM" {
                assert!(new.is_disjoint(&old), "{name}: what it had does not come again");
            }
            let had: BTreeSet<String> = old.union(&new).cloned().collect();
            let wanted = self.wanted(name, &all);
            let said = said();
            assert_eq!(said.delivered, had.len() as u64, "{name}: {said:?}");
            assert_eq!(said.filtered, (all.len() - wanted.len()) as u64, "{name}: {said:?}");
            assert_eq!(said.dead_lettered, before.stated.dead_lettered, "{name}: {said:?}");
            assert_eq!(said.lost, gone.difference(&old).count() as u64, "{name}: {said:?}");
            let missing = wanted.difference(&had).count() as u64;
            let with_a_fate = said.correlated_away + said.dead_lettered + said.lost + said.held;
            assert_eq!(with_a_fate, missing, "{name}: {said:?}");
            if before.mode == "annotate" {
                assert_eq!(said.correlated_away, 0, "{name}: {said:?}");
                let news = received.iter().filter(|event| again.contains(&event.id));
                let told: Vec<_> = news.map(|event| (event.delta, event.replayed)).collect();
                let resumed = vec![(3, false); self.wanted(name, &again).len()];
                assert_eq!(told, resumed, "{name}: `seen` goes on, and so do the sources");
            }
        }
        let now = status(&view);
        assert_eq!((now.ingest.gaps, now.ingest.epochs), (0, 0));
        stop(bridge).await;
        again
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_of_the_build_before_is_delivered_from_where_it_stood() {
    let upgrade = Upgrade::of("backlog");
    upgrade.goes_on().await;
    let before = &upgrade.holds.sinks["behind"].received;
    let rest = upgrade.sinks["behind"].ids();
    let in_order: Vec<String> = before.iter().chain(&rest).cloned().collect();
    assert_eq!(in_order[..upgrade.holds.ids.len()], upgrade.holds.ids, "each once, in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_of_the_build_before_are_kept_and_can_be_sent_again() {
    let upgrade = Upgrade::of("dead-letters");
    upgrade.goes_on().await;
    let letters = dead_letters(upgrade.dir.path());
    assert_eq!(letters.len(), 3);
    let bridge = upgrade.setup().start().await;
    let retried = bridge.control().retry(Letters::Of { sink: None, class: None }).await.unwrap();
    assert_eq!(retried, 3);
    let all = bridge.view().log.tail().ordinal();
    until("they have arrived", || sink_status(&bridge.view(), "audit").delivered == all).await;
    stop(bridge).await;
    let ids = upgrade.sinks["audit"].ids();
    assert!(letters.iter().all(|letter| ids.contains(&letter.id)), "{ids:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_build_before_lost_stays_counted() {
    let upgrade = Upgrade::of("lost");
    assert!(upgrade.holds.sinks["back"].stated.lost > 0);
    upgrade.goes_on().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sources_of_the_build_before_are_resumed() {
    let upgrade = Upgrade::of("sources");
    upgrade.goes_on().await;
    let received = upgrade.sinks["audit"].received();
    let increments: u64 = received.iter().map(|event| event.delta).sum();
    assert_eq!(increments, 3 * received.len() as u64);
}

#[tokio::test]
async fn a_journal_of_the_build_before_has_positions_ahead_of_its_correlators() {
    let upgrade = Upgrade::of("held-ahead");
    let (_, loaded) =
        State::open(&tidings::journal::open(upgrade.dir.path()).unwrap(), 1 << 30, 0).unwrap();
    assert!(!loaded.correlators.is_empty());
    for (sink, saved) in loaded.correlators {
        let position = loaded.sinks[&sink].standing.position;
        assert!(saved.position.next < position.next, "{sink}: {saved:?} {position:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_build_before_held_comes_out_first() {
    for name in ["held-killed", "held-ahead", "held-stopped", "held-stop-killed"] {
        let upgrade = Upgrade::of(name);
        let again = upgrade.goes_on().await;
        for (sink, before) in upgrade.holds.sinks.iter().filter(|(_, s)| s.mode == "suppress") {
            let journalled = upgrade.wanted(sink, &upgrade.holds.journalled);
            let increments: u64 = journalled.iter().map(|id| upgrade.deltas[id]).sum();
            let held = increments - before.received_increments;
            assert!(held > 0 && before.stated.held > 0, "{name}, {sink}: something is held");
            // What was delivered in the last second may come again.
            let mut received = upgrade.sinks[sink].received();
            received.retain(|event| !before.received.contains(&event.id));
            let is_old = |event: &&Received| upgrade.holds.journalled.contains(&event.id);
            let first: u64 = received.iter().take_while(is_old).map(|event| event.delta).sum();
            assert_eq!(first, held, "{name}, {sink}: {received:?}");
            let new = upgrade.wanted(sink, &again).len() as u64;
            let all: u64 = received.iter().map(|event| event.delta).sum();
            assert_eq!(all, held + 3 * new, "{name}, {sink}: what goes in comes out");
        }
    }
}
