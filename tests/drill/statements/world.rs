//! An API server, sinks of every kind of promise, and a bridge between them that is killed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tidings_testkit::api_server::{ApiServer, Options};
use tokio::time::sleep;

use super::oracle::{Law, Oracle};
use super::written::{BULK, History, NAMESPACES, POISON, Version, Writer};
use crate::accounts::{SETTLES_WITHIN, is_settled, list_dead_letters, number, sink_of, sinks_of};
use crate::bridge::Bridge;
use crate::crash::{STARTS_WITHIN, kill_start};
use crate::judge::{self, Key, Verdict};
use crate::parts::Part as _;
use crate::receiver::{Mode, Receiver};
use crate::wait::{until, until_within};

/// The bridge saves its decisions once a second; a busy machine takes its time.
const SAVED_WITHIN: Duration = Duration::from_secs(3);

/// What happens before a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// It works.
    Work,
    /// A sink that drops the oldest is away past retention, and back just before the kill.
    Overrun,
    /// The same, killed while it is away.
    OverrunAway,
    /// A sink that blocks is away, and intake stands still.
    Block,
    /// Then matches are others.
    Match,
    /// Then the sources are others, and the API server may have forgotten what was between.
    Sources,
}

impl Act {
    pub(super) const ALL: [Self; 6] =
        [Self::Work, Self::Overrun, Self::Match, Self::Sources, Self::OverrunAway, Self::Block];
}

/// A sink: a webhook to a receiver of its own.
pub(super) struct Sink {
    pub(super) name: &'static str,
    pub(super) mode: &'static str,
    pub(super) blocks: bool,
    /// Its receiver refuses poison.
    pub(super) refuses: bool,
    /// The one after the other, from run to run.
    changes: &'static [Match],
    /// What `match` was in each life.
    pub(super) matches: Vec<Match>,
    pub(super) receiver: Receiver,
}

/// What a sink wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    All,
    Small,
    Warnings,
}

impl Match {
    fn text(self) -> Option<String> {
        match self {
            Self::All => None,
            Self::Small => Some(format!("event.reason != \"{BULK}\"")),
            Self::Warnings => Some("event.type == \"Warning\"".to_owned()),
        }
    }

    pub(super) fn wants(self, version: &Version) -> bool {
        match self {
            Self::All => true,
            Self::Small => version.reason != BULK,
            Self::Warnings => version.warning,
        }
    }
}

/// What the bridge follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sources {
    All,
    Two,
    OtherThree,
    WithoutPulled,
}

impl Sources {
    const ORDER: [Self; 6] =
        [Self::All, Self::Two, Self::OtherThree, Self::All, Self::WithoutPulled, Self::Two];

    pub(super) fn namespaces(self) -> &'static [&'static str] {
        match self {
            Self::All | Self::WithoutPulled => &NAMESPACES,
            Self::Two => &NAMESPACES[..2],
            Self::OtherThree => &NAMESPACES[1..],
        }
    }

    pub(super) fn cover(self, version: &Version) -> bool {
        let selected = self != Self::WithoutPulled || version.reason != "Pulled";
        selected && self.namespaces().contains(&version.namespace)
    }

    fn configure(self, config: &mut Value) {
        let named = self.namespaces().len() < NAMESPACES.len();
        config["source"]["namespaces"] = if named { json!(self.namespaces()) } else { json!([]) };
        let selector = if self == Self::WithoutPulled { "reason!=Pulled" } else { "" };
        config["source"]["fieldSelector"] = json!(selector);
    }
}

/// See the [module](self).
pub(super) struct World {
    bridge: Bridge,
    server: Arc<ApiServer>,
    sinks: Vec<Sink>,
    /// None while it is elsewhere.
    writer: Option<Writer>,
    history: History,
    random: fastrand::Rng,
    size: u64,
    sources: Vec<Sources>,
    /// Which is to be away next, of those that drop and of those that block.
    turns: [usize; 2],
    /// When it was killed.
    kills: Vec<Instant>,
    /// What it said last, before the kill.
    before: Value,
    oracle: Oracle,
    _kubeconfig: TempDir,
}

async fn sinks() -> Vec<Sink> {
    use Match::{All, Small, Warnings};
    let mut sinks = Vec::new();
    let changing: &[Match] = &[Small, Warnings, Small, All];
    let of: [(&str, &str, bool, &[Match]); 7] = [
        // Has everything that is journalled, always.
        ("all", "none", true, &[All]),
        ("refuse", "none", true, &[Small]),
        ("none-drop", "none", false, &[All]),
        ("annotate-drop", "annotate", false, &[All]),
        ("annotate-block", "annotate", true, changing),
        ("suppress-drop", "suppress", false, &[All]),
        ("suppress-block", "suppress", true, changing),
    ];
    for (name, mode, blocks, changes) in of {
        let (receiver, refuses) = (Receiver::start().await, name == "refuse");
        let sink = Sink { name, mode, blocks, refuses, changes, matches: Vec::new(), receiver };
        sink.receiver.set(sink.takes()).await;
        sinks.push(sink);
    }
    sinks
}

impl Sink {
    /// What its receiver does when nothing is wrong with it.
    fn takes(&self) -> Mode {
        if self.refuses { Mode::Refuse(400, POISON) } else { Mode::Take }
    }

    fn config(&self) -> Value {
        json!({
            "webhook": {"url": self.receiver.url()},
            "batch": {"events": 200},
            "retry": {"max": "300ms"},
            // A busy machine is no reason to send again.
            "timeout": "60s",
            "correlate": {"mode": self.mode},
            "overflow": if self.blocks { "block" } else { "dropOldest" },
        })
    }
}

impl World {
    /// With a bridge that runs.
    pub(super) async fn set(size: u64, seed: u64) -> Self {
        let server = Arc::new(ApiServer::start(Options::default()).expect("a port"));
        let folder = tempfile::tempdir().expect("a temporary folder");
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, server.kubeconfig()).expect("the kubeconfig");
        let sinks = sinks().await;
        let config = sinks.iter().map(|sink| (sink.name.to_owned(), sink.config())).collect();
        let bridge = Bridge::configured(&kubeconfig, &Value::Object(config), |config| {
            config["journal"]["retention"] = json!({"size": size});
        });
        let padding = usize::try_from(size / 2_048).expect("a size").min(2 << 10);
        let writer = Writer::new(&server, padding, seed);
        let mut world = Self {
            bridge,
            server,
            sinks,
            history: writer.history(),
            writer: Some(writer),
            random: fastrand::Rng::with_seed(seed),
            size,
            sources: Vec::new(),
            turns: [0, 0],
            kills: Vec::new(),
            before: Value::Null,
            oracle: Oracle::default(),
            _kubeconfig: folder,
        };
        world.configure(false, false);
        world.open().await;
        world.quiet().await;
        world
    }

    /// Does this, kills the bridge, starts it again, waits until all is quiet, and holds what it
    /// says against what is so.
    pub(super) async fn round(&mut self, act: Act) {
        if act == Act::Match {
            sleep(SAVED_WITHIN).await;
        }
        let away = match act {
            Act::Overrun | Act::OverrunAway => Some(self.next_away(0)),
            Act::Block => Some(self.next_away(1)),
            Act::Work | Act::Match | Act::Sources => None,
        };
        if let Some(away) = away {
            self.overrun(away).await;
        }
        if act == Act::Overrun {
            self.back(away).await;
        }
        let rate = f64::from(self.random.u32(100..1_500));
        let length = Duration::from_millis(self.random.u64(0..1_200));
        let after = Duration::from_millis(self.random.u64(0..300));
        let writer = self.writer.take().expect("nobody else has it");
        let writing = tokio::spawn(writer.write_for(rate, length + after));
        sleep(length).await;
        self.before = self.bridge.status().await;
        self.bridge.kill9();
        self.killed().await;
        self.configure(act == Act::Match, act == Act::Sources);
        if self.random.u8(..3) == 0 {
            let soon = STARTS_WITHIN.mul_f64(self.random.f64());
            kill_start(&mut self.bridge, soon).await;
            self.killed().await;
        }
        let mut writer = writing.await.expect("a writer that does not panic");
        writer.life = self.sources.len() - 1;
        self.writer = Some(writer);
        if act == Act::Sources && self.random.bool() {
            self.server.compact(self.server.revision());
        }
        self.open().await;
        self.back(away).await;
        self.quiet().await;
        self.check(act).await;
    }

    /// Notes a kill, as soon as its receivers have read what the bridge had sent until then.
    async fn killed(&mut self) {
        for sink in &self.sinks {
            sink.receiver.unconnected().await;
        }
        self.kills.push(Instant::now());
    }

    /// Ends in order, so that nothing is held, starts again, and judges.
    pub(super) async fn finish(mut self) -> (Vec<(&'static str, Verdict, String)>, Vec<String>) {
        self.before = self.bridge.status().await;
        self.bridge.stop_in_order().await;
        self.configure(false, false);
        self.open().await;
        self.quiet().await;
        self.check(Act::Work).await;
        let status = self.bridge.status().await;
        let mut found = Vec::new();
        let versions = self.versions();
        let produced: Vec<_> = versions.iter().map(|version| version.produced).collect();
        for sink in &self.sinks {
            let said = sink_of(&status, sink.name);
            let mut verdict = judge::judge(&produced, &sink.receiver.arrivals());
            verdict.repeated_at.clear();
            let fates = ["delivered", "filtered", "correlatedAway", "deadLettered", "lost"];
            let fates = fates.map(|fate| format!("{fate} {}", number(said, fate))).join(", ");
            let note = format!("stated: {fates}, redelivered {}", number(said, "redelivered"));
            found.push((sink.name, verdict, note));
            if sink.refuses {
                let kept = self.kept_dead_letters(sink.name, number(said, "deadLettered")).await;
                let letters = list_dead_letters(&self.bridge, sink.name, kept).await;
                let ids = letters.iter().filter_map(|letter| letter["id"].as_str()).map(Key::of);
                self.oracle.letters(sink, &versions, &ids.collect());
            }
        }
        self.bridge.stop_in_order().await;
        let findings = self.oracle.findings();
        if !findings.is_empty() {
            let errors = self.bridge.log().into_iter().filter(|line| line["level"] == "ERROR");
            errors.for_each(|line| eprintln!("  {line}"));
        }
        (found, findings)
    }

    /// How many dead letters are kept of so many, once all of it is saved: a small journal has room for
    /// the newest.
    async fn kept_dead_letters(&self, sink: &str, letters: u64) -> u64 {
        let mut kept = 0;
        until_within(SETTLES_WITHIN, "the dead letters are saved", async || {
            let counts = &self.bridge.status().await["deadLetters"][sink];
            let number = |name| counts[name].as_u64().unwrap_or_default();
            kept = number("events");
            kept + number("overflowed") + number("dropped") == letters
        })
        .await;
        kept
    }

    /// Which sink is to be away, of those that drop, or block, the oldest.
    fn next_away(&mut self, blocks: usize) -> usize {
        let turn = self.turns[blocks];
        self.turns[blocks] += 1;
        let may = |sink: &&Sink| sink.blocks == (blocks == 1) && sink.name != "all";
        let all: Vec<&str> = self.sinks.iter().filter(may).map(|sink| sink.name).collect();
        let name = all[turn % all.len()];
        self.sinks.iter().position(|sink| sink.name == name).expect("one of them")
    }

    /// Has a receiver go away, and writes until the journal has dropped what its sink is to have, or
    /// stands still for it.
    async fn overrun(&mut self, away: usize) {
        // What a sink has in memory is not lost: so many records of half the size of a large one.
        const IN_MEMORY: u64 = 256;
        self.sinks[away].receiver.set(Mode::Down).await;
        let (name, blocks) = (self.sinks[away].name, self.sinks[away].blocks);
        let namespaces = self.sources.last().expect("it was configured").namespaces();
        let bytes = usize::try_from(self.size).expect("a size").max(4 << 20);
        let (started, mut written) = (Instant::now(), 0);
        loop {
            let writer = self.writer.take().expect("nobody else has it");
            self.writer = Some(writer.bulk(bytes / 2, namespaces).await);
            written += bytes / 2;
            let waited = started.elapsed();
            assert!(waited < SETTLES_WITHIN, "{name}: not past retention after {written} bytes");
            if blocks && written > bytes {
                let stands = async || !self.bridge.status().await["journal"]["blockedBy"].is_null();
                return until_within(SETTLES_WITHIN, "intake stands still", stands).await;
            } else if !blocks {
                self.arrived().await;
                let status = self.bridge.status().await;
                let (journal, sink) = (&status["journal"], sink_of(&status, name));
                let dropped = number(journal, "nextSequence") - 1 - number(journal, "records");
                let had = number(sink, "seen") - number(sink, "pending");
                if dropped > had + IN_MEMORY {
                    return;
                }
            }
        }
    }

    async fn back(&mut self, away: Option<usize>) {
        if let Some(away) = away {
            self.sinks[away].receiver.set(self.sinks[away].takes()).await;
        }
    }

    /// Sets what the next run is configured with.
    fn configure(&mut self, new_matches: bool, new_sources: bool) {
        let changed = self.oracle.changed(new_sources);
        let sources = Sources::ORDER[changed % Sources::ORDER.len()];
        self.sources.push(sources);
        for sink in &mut self.sinks {
            let now = sink.matches.last().copied();
            let at =
                now.and_then(|now| sink.changes.iter().position(|one| *one == now)).unwrap_or(0);
            let step = usize::from(new_matches);
            sink.matches.push(sink.changes[(at + step) % sink.changes.len()]);
        }
        let matches: Vec<_> = self
            .sinks
            .iter()
            .map(|sink| (sink.name, sink.matches.last().and_then(|last| last.text())))
            .collect();
        self.bridge.reconfigure(|config| {
            sources.configure(config);
            for (name, text) in matches {
                let sink = config["sinks"][name].as_object_mut().expect("a sink");
                sink.remove("match");
                sink.extend(text.map(|text| ("match".to_owned(), json!(text))));
            }
        });
    }

    /// Starts the bridge, and waits until it follows each of its sources.
    async fn open(&mut self) {
        self.bridge.launch().await;
        until("a stream is open", async || {
            let status = self.bridge.status().await;
            let sources = status["sources"].as_array().map_or(&[][..], Vec::as_slice);
            !sources.is_empty() && sources.iter().all(|source| source["streamOpen"] == true)
        })
        .await;
    }

    /// Waits until everything that the sources cover has arrived where everything does.
    async fn arrived(&mut self) {
        let sources = *self.sources.last().expect("it was configured");
        let writer = self.writer.as_mut().expect("nobody else has it");
        let probes = writer.probe(sources.namespaces());
        until_within(SETTLES_WITHIN, "what was written last has arrived", async || {
            let arrivals = self.sinks[0].receiver.arrivals();
            let newest = arrivals.iter().rev().take(5_000);
            let newest: std::collections::HashSet<Key> = newest.map(|one| one.id).collect();
            probes.iter().all(|probe| newest.contains(probe))
        })
        .await;
    }

    /// Waits until everything is journalled, and has a fate or is held.
    async fn quiet(&mut self) {
        self.arrived().await;
        until_within(SETTLES_WITHIN, "every event has a fate", async || {
            let status = self.bridge.status().await;
            sinks_of(&status).iter().all(|sink| is_settled(&status, sink))
        })
        .await;
    }

    fn versions(&self) -> Vec<Version> {
        self.history.lock().clone()
    }

    /// Holds what is said against what is so.
    async fn check(&mut self, act: Act) {
        let status = self.bridge.status().await;
        let metrics = self.bridge.metrics().await;
        let log = self.bridge.log();
        let versions = self.versions();
        let when = format!("{act:?}, kill {}", self.kills.len());
        let mut law = Law::new(&mut self.oracle, when, &versions, &self.sources, &self.kills);
        law.journal(&self.sinks[0], &log);
        for sink in &self.sinks {
            let said = sink_of(&status, sink.name);
            law.sink(sink, said, sink_of(&self.before, sink.name));
            law.metrics(sink.name, said, &metrics);
        }
    }
}
