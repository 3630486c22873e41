//! The scenes, and how one is played.

use std::{
    collections::HashSet,
    fs,
    net::SocketAddr,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use tidings::journal::State;

use crate::{
    Result,
    helper::Helper,
    process::{SinkConfig, Tidings},
    tally::{Tally, now_us},
    usage::Usage,
};

/// What happens at the API server.
#[derive(Clone, Copy)]
pub(crate) enum Load {
    /// So many Events, all at once, when the watch is open.
    Burst(usize),
    /// So many a second, for so many seconds.
    Steady(usize, usize),
    /// So many Events that exist when the bridge starts.
    Live(usize),
    /// The same, and an earlier run has journalled them.
    Known(usize),
}

impl Load {
    /// A tenth or less of it.
    fn quick(self) -> Self {
        match self {
            Self::Burst(count) => Self::Burst(count / 10),
            Self::Steady(rate, _) => Self::Steady(rate, 2),
            Self::Live(count) => Self::Live(count / 10),
            Self::Known(count) => Self::Known(count / 10),
        }
    }
}

/// What is measured.
#[derive(Clone, Copy)]
pub(crate) enum Subject {
    /// `tidings` with a sink of this configuration, and how the sink is spoken to.
    Bridge(SinkConfig, &'static str),
    /// `tidings` with a sink that wants nothing: what is left is the source and the journal.
    Source,
    /// A client that only reads.
    Drain,
}

pub(crate) struct Scene {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    load: Load,
    subject: Subject,
}

const ONE_BY_ONE: SinkConfig = r#"webhook: {url: "http://{address}/"}, batch: {events: 1}"#;
const BATCHED: SinkConfig = r#"webhook: {url: "http://{address}/"}, batch: {events: 500}"#;
const UNCORRELATED: SinkConfig =
    r#"webhook: {url: "http://{address}/"}, batch: {events: 500}, correlate: {mode: none}"#;
const NOTHING: SinkConfig =
    r#"webhook: {url: "http://{address}/"}, batch: {events: 500}, match: "false""#;
const ECS: SinkConfig = r#"webhook: {url: "http://{address}/"}, batch: {events: 500}, format: ecs"#;
/// As for a chat, with every part of a request that a template can make.
const TEMPLATE: SinkConfig = r#"webhook: {url: "http://{address}/{{ event.type }}?ns={{ event.metadata.namespace }}", headers: {X-Kind: "{{ event.involvedObject.kind }}"}, body: '{"id":{{ id }},"title":{{ event.reason ~ " · " ~ event.involvedObject.name }},"text":{{ event.message if event.message | length <= 2000 else event.message[:2000] ~ "…" }},"cluster":{{ cluster.name }},"count":{{ occurrences }}}'}, allowPlaintext: true"#;
const ELASTICSEARCH: SinkConfig =
    r#"elasticsearch: {urls: ["http://{address}"], index: "k8s-events-{{ day }}"}"#;
const SPLUNK: SinkConfig = r#"splunk: {url: "http://{address}", token: t, index: k8s}"#;
const LOKI: SinkConfig = r#"loki: {url: "http://{address}"}"#;
const SYSLOG: SinkConfig = r#"syslog: {address: "{address}"}"#;
/// One file, as the helper reads no others.
const FILE: SinkConfig = r#"file: {path: "{address}", rotate: {size: 1TiB, age: 36500d}}"#;
const OTLP: SinkConfig = r#"otlp: {endpoint: "http://{address}", protocol: http}"#;

/// Six labels, two owners.
const ENRICHED: SinkConfig = r#"webhook: {url: "http://{address}/"}, batch: {events: 500}, enrich: {labels: ["*"], owners: true, node: true}"#;

pub(crate) const SCENES: [Scene; 23] = [
    Scene {
        name: "burst-drain",
        what: "burst of 200 000, read and thrown away",
        load: Load::Burst(200_000),
        subject: Subject::Drain,
    },
    Scene {
        name: "burst-webhook-single",
        what: "burst of 200 000, webhook one by one",
        load: Load::Burst(200_000),
        subject: Subject::Bridge(ONE_BY_ONE, "json"),
    },
    Scene {
        name: "burst-webhook-single-template",
        what: "the same, body, address and a header made by templates",
        load: Load::Burst(200_000),
        subject: Subject::Bridge(TEMPLATE, "json"),
    },
    Scene {
        name: "burst-webhook-batch",
        what: "burst of 200 000, webhook in batches of 500",
        load: Load::Burst(200_000),
        subject: Subject::Bridge(BATCHED, "json"),
    },
    Scene {
        name: "burst-webhook-batch-uncorrelated",
        what: "the same without a correlator",
        load: Load::Burst(200_000),
        subject: Subject::Bridge(UNCORRELATED, "json"),
    },
    Scene {
        name: "burst-webhook-batch-enriched",
        what: "burst of 200 000 in batches of 500, enriched with labels, owners and node of 3 000 Pods",
        load: Load::Burst(200_000),
        subject: Subject::Bridge(ENRICHED, "json"),
    },
    Scene {
        name: "burst-webhook-batch-ecs",
        what: "burst of 200 000, webhook in batches of 500, in the Elastic Common Schema",
        load: Load::Burst(200_000),
        subject: Subject::Bridge(ECS, "ecs"),
    },
    Scene {
        name: "burst-elasticsearch",
        what: "burst of 200 000, Elasticsearch in batches of 500, an index for each day",
        load: Load::Burst(200_000),
        subject: Subject::Bridge(ELASTICSEARCH, "bulk"),
    },
    Scene {
        name: "burst-splunk",
        what: "burst of 200 000, Splunk in batches of 500, without acknowledgement",
        load: Load::Burst(200_000),
        subject: Subject::Bridge(SPLUNK, "hec"),
    },
    Scene {
        name: "burst-loki",
        what: "burst of 200 000, Loki in batches of 500, with the default labels",
        load: Load::Burst(200_000),
        subject: Subject::Bridge(LOKI, "hec"),
    },
    Scene {
        name: "burst-syslog",
        what: "burst of 200 000, syslog over TCP",
        load: Load::Burst(200_000),
        subject: Subject::Bridge(SYSLOG, "syslog"),
    },
    Scene {
        name: "burst-file",
        what: "burst of 200 000, lines of a file, synced every 500",
        load: Load::Burst(200_000),
        subject: Subject::Bridge(FILE, "lines"),
    },
    Scene {
        name: "burst-otlp",
        what: "burst of 200 000, OTLP/HTTP in batches of 500",
        load: Load::Burst(200_000),
        subject: Subject::Bridge(OTLP, "otlp"),
    },
    Scene {
        name: "steady-webhook-single",
        what: "1 000/s for 20 s, webhook one by one",
        load: Load::Steady(1000, 20),
        subject: Subject::Bridge(ONE_BY_ONE, "stamped-json"),
    },
    Scene {
        name: "steady-webhook-batch",
        what: "1 000/s for 20 s, webhook in batches (20 ms)",
        load: Load::Steady(1000, 20),
        subject: Subject::Bridge(BATCHED, "stamped-json"),
    },
    Scene {
        name: "start-webhook-batch-1k",
        what: "start with 1 000 live Events, webhook in batches of 500",
        load: Load::Live(1_000),
        subject: Subject::Bridge(BATCHED, "json"),
    },
    Scene {
        name: "start-nothing-wanted-1k",
        what: "start with 1 000 live Events, a sink that wants none",
        load: Load::Live(1_000),
        subject: Subject::Source,
    },
    Scene {
        name: "start-webhook-batch-100k",
        what: "start with 100 000 live Events, webhook in batches of 500",
        load: Load::Live(100_000),
        subject: Subject::Bridge(BATCHED, "json"),
    },
    Scene {
        name: "start-nothing-wanted-100k",
        what: "start with 100 000 live Events, a sink that wants none",
        load: Load::Live(100_000),
        subject: Subject::Source,
    },
    Scene {
        name: "start-webhook-batch-200k",
        what: "start with 200 000 live Events, webhook in batches of 500",
        load: Load::Live(200_000),
        subject: Subject::Bridge(BATCHED, "json"),
    },
    Scene {
        name: "start-nothing-wanted-200k",
        what: "start with 200 000 live Events, a sink that wants none",
        load: Load::Live(200_000),
        subject: Subject::Source,
    },
    Scene {
        name: "start-again-1k",
        what: "start again with 1 000 live Events journalled before",
        load: Load::Known(1_000),
        subject: Subject::Source,
    },
    Scene {
        name: "start-again-200k",
        what: "start again with 200 000 live Events journalled before",
        load: Load::Known(200_000),
        subject: Subject::Source,
    },
];

/// What was found.
pub(crate) struct Measured {
    /// How many the API server wrote.
    pub(crate) events: usize,
    /// From the write of the first, or the start of the process where they existed before, to the
    /// arrival of the last; where none is wanted, to the watch that follows the list.
    pub(crate) seconds: f64,
    /// Between the first and the last arrival.
    pub(crate) events_a_second: f64,
    pub(crate) requests: u64,
    pub(crate) cpu_us_an_event: f64,
    pub(crate) peak_rss_mib: f64,
    /// When it has been idle for [`SETTLE`] and [`AFTER`].
    pub(crate) rss_after_mib: f64,
    /// p50 and p99 in milliseconds.
    pub(crate) latency_ms: Option<(f64, f64)>,
    /// Lost and repeated; none where ids are not looked at.
    pub(crate) faults: Option<(usize, usize)>,
}

/// What is measured while it runs, and who counts for it.
enum Running {
    Bridge(Tidings, Helper),
    Drain(Helper),
}

impl Running {
    fn start(
        scene: &Scene,
        tidings: &Path,
        directory: &Path,
        server: (SocketAddr, u64),
    ) -> Result<Self> {
        match scene.subject {
            Subject::Drain => {
                let (address, version) = (server.0.to_string(), server.1.to_string());
                Ok(Self::Drain(Helper::start(["drain", &address, &version])?))
            }
            Subject::Bridge(..) | Subject::Source => {
                let (config, wire) = match scene.subject {
                    Subject::Bridge(config, wire) => (config, wire),
                    Subject::Source | Subject::Drain => (NOTHING, "json"),
                };
                let file = directory.join("events.ndjson");
                let mut sink = Helper::start(["count".as_ref(), wire.as_ref(), file.as_os_str()])?;
                let address = sink.line()?;
                Ok(Self::Bridge(Tidings::start(tidings, directory, config, &address)?, sink))
            }
        }
    }

    fn id(&self) -> u32 {
        match self {
            Self::Bridge(tidings, _) => tidings.id(),
            Self::Drain(helper) => helper.id(),
        }
    }

    fn counter(&mut self) -> &mut Helper {
        match self {
            Self::Bridge(_, helper) | Self::Drain(helper) => helper,
        }
    }

    fn check(&mut self) -> Result<()> {
        match self {
            Self::Bridge(tidings, _) => tidings.check(),
            Self::Drain(_) => Ok(()),
        }
    }

    fn stop(&mut self) -> Result<()> {
        match self {
            Self::Bridge(tidings, _) => tidings.stop(),
            Self::Drain(_) => Ok(()),
        }
    }
}

/// Until something that should happen within seconds has failed to.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often is looked: seldom enough to cost nothing.
const LOOK: Duration = Duration::from_millis(50);
/// The bridge saves its state once a second; that belongs to what an event costs.
const SETTLE: Duration = Duration::from_secs(2);
/// When memory is looked at again, counted from then: five seconds after the last arrival.
const AFTER: Duration = Duration::from_secs(3);

/// Plays a scene and measures.
pub(crate) fn run(scene: &Scene, quick: bool, tidings: &Path) -> Result<Measured> {
    let load = if quick { scene.load.quick() } else { scene.load };
    let directory = tempfile::tempdir()?;
    // Fresh: how much of a file is mapped, and so resident, follows from how it came into the page cache.
    let copy = directory.path().join("tidings");
    fs::copy(tidings, &copy)?;
    let kubeconfig = directory.path().join("kubeconfig");
    let mut server = Helper::start(["serve".as_ref(), kubeconfig.as_os_str()])?;
    let hello = server.line()?;
    let (address, revision) = hello.split_once(' ').ok_or("the server does not say where it is")?;
    let server_at = (address.parse()?, revision.parse()?);

    if matches!(scene.subject, Subject::Bridge(ENRICHED, _)) {
        // Before the Events are prepared, which have their revisions from then on.
        server.ask("objects")?;
    }
    match load {
        Load::Burst(count) => drop(server.ask(&format!("prepare {count}"))?),
        Load::Live(count) | Load::Known(count) => {
            server.ask(&format!("prepare-new {count}"))?;
            server.ask("release")?;
        }
        Load::Steady(..) => {}
    }
    if matches!(load, Load::Known(_)) {
        let mut earlier = Running::start(scene, &copy, directory.path(), server_at)?;
        wait_for_watches(1, &mut server, &mut earlier)?;
        earlier.stop()?;
        wait_for_watches(0, &mut server, &mut earlier)?;
    }
    let mut started_us = now_us();
    let mut running = Running::start(scene, &copy, directory.path(), server_at)?;
    if matches!(load, Load::Burst(_) | Load::Steady(..)) {
        wait_for_watches(1, &mut server, &mut running)?;
        started_us = now_us();
    }
    match load {
        Load::Burst(_) => drop(server.ask("release")?),
        Load::Steady(rate, seconds) => drop(server.ask(&format!("drive {rate} {seconds}"))?),
        Load::Live(_) | Load::Known(_) => {}
    }
    let written: Vec<u64> = serde_json::from_str(&server.ask("ids")?)?;
    let events = written.len();
    let wanted = if matches!(scene.subject, Subject::Source) { Vec::new() } else { written };
    if wanted.is_empty() {
        // It is opened when the whole list is in the journal.
        wait_for_watches(1, &mut server, &mut running)?;
    }
    let read_us = now_us();
    wait_for_all(wanted.len(), &mut running)?;
    thread::sleep(SETTLE);
    let usage = Usage::of(running.id())?;
    thread::sleep(AFTER);
    let after = Usage::of(running.id())?;
    running.stop()?;
    let mut tally: Tally = serde_json::from_str(&running.counter().ask("report")?)?;
    let faults = matches!(running, Running::Bridge(..)).then(|| faults(&wanted, &tally.ids));
    if faults.is_some() {
        hold(&directory.path().join("journal"), events, &tally.ids)?;
    }
    if wanted.is_empty() {
        (tally.first_us, tally.last_us) = (started_us, read_us);
    }
    Ok(Measured {
        events,
        seconds: (tally.last_us - started_us) as f64 / 1e6,
        events_a_second: events as f64 / ((tally.last_us - tally.first_us) as f64 / 1e6),
        requests: tally.requests,
        cpu_us_an_event: usage.cpu_s * 1e6 / events as f64,
        peak_rss_mib: after.peak_rss_mib,
        rss_after_mib: after.rss_mib,
        latency_ms: percentiles(tally.latencies_us),
        faults,
    })
}

fn wait_for_watches(open: usize, server: &mut Helper, running: &mut Running) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    while server.number::<usize>("watches")? != open {
        if open > 0 {
            running.check()?;
        }
        if Instant::now() > until {
            return Err(format!("there are not {open} watches").into());
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Returns when everything has come, or nothing has for long: what is missing then is lost.
fn wait_for_all(expected: usize, running: &mut Running) -> Result<()> {
    let (mut before, mut until) = (0, Instant::now() + PATIENCE);
    loop {
        let total: usize = running.counter().number("total")?;
        running.check()?;
        if total >= expected || Instant::now() > until {
            return Ok(());
        }
        if total > before {
            (before, until) = (total, Instant::now() + PATIENCE);
        }
        thread::sleep(LOOK);
    }
}

/// Holds a stopped bridge to what it says of its sink: it has seen what the API server wrote, and
/// delivered what arrived.
fn hold(journal: &Path, written: usize, arrived: &[u64]) -> Result<()> {
    let (_, loaded) = State::open(&tidings::journal::open(journal)?, 1 << 30, 0)?;
    let sink = loaded.sinks.get("bench").ok_or("the bridge has saved nothing of its sink")?;
    let found = (sink.standing.position.ordinal(), sink.totals.delivered);
    let arrived = arrived.iter().collect::<HashSet<_>>().len();
    if found == (written as u64, arrived as u64) {
        return Ok(());
    }
    let (seen, delivered) = found;
    Err(format!(
        "expected {written} seen and {arrived} delivered, found {seen} and {delivered}: the bridge's accounts are wrong"
    )
    .into())
}

/// How many never came, and how many came more than once or should not have come.
fn faults(expected: &[u64], arrived: &[u64]) -> (usize, usize) {
    let mut missing: HashSet<u64> = expected.iter().copied().collect();
    let again = arrived.iter().filter(|id| !missing.remove(*id)).count();
    (missing.len(), again)
}

/// The nearest-rank 50th and 99th percentiles of microseconds, in milliseconds.
fn percentiles(mut latencies_us: Vec<i64>) -> Option<(f64, f64)> {
    latencies_us.sort_unstable();
    let last = latencies_us.len().checked_sub(1)?;
    let at = |percent: usize| latencies_us[last * percent / 100] as f64 / 1000.0;
    Some((at(50), at(99)))
}
