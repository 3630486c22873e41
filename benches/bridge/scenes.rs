//! The scenes.

use crate::process::SinkConfig;

/// The load at the API server.
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
    pub(crate) fn quick(self) -> Self {
        match self {
            Self::Burst(count) => Self::Burst(count / 10),
            Self::Steady(rate, _) => Self::Steady(rate, 2),
            Self::Live(count) => Self::Live(count / 10),
            Self::Known(count) => Self::Known(count / 10),
        }
    }
}

/// The program that is measured.
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
    pub(crate) load: Load,
    pub(crate) subject: Subject,
}

const ONE_BY_ONE: SinkConfig = r#"webhook: {url: "http://{address}/"}, batch: {events: 1}"#;
const BATCHED: SinkConfig = r#"webhook: {url: "http://{address}/"}, batch: {events: 500}"#;
const ONE_LANE: SinkConfig =
    r#"webhook: {url: "http://{address}/"}, batch: {events: 1}, concurrency: 1"#;
const EIGHT_LANES: SinkConfig =
    r#"webhook: {url: "http://{address}/"}, batch: {events: 1}, concurrency: 8"#;
const MANY_LANES: SinkConfig =
    r#"webhook: {url: "http://{address}/"}, batch: {events: 1}, concurrency: 32"#;
const UNCORRELATED: SinkConfig =
    r#"webhook: {url: "http://{address}/"}, batch: {events: 500}, correlate: {mode: none}"#;
pub(crate) const NOTHING: SinkConfig =
    r#"webhook: {url: "http://{address}/"}, batch: {events: 500}, match: "false""#;
const OTLP: SinkConfig = r#"otlp: {endpoint: "http://{address}", protocol: http}"#;

/// Six labels, two owners.
pub(crate) const ENRICHED: SinkConfig = r#"webhook: {url: "http://{address}/"}, batch: {events: 500}, enrich: {labels: ["*"], owners: true, node: true}"#;

pub(crate) const SCENES: [Scene; 19] = [
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
        name: "slow-webhook-lanes-1",
        what: "burst of 400, webhook one by one, answers after 50 ms, `concurrency: 1`",
        load: Load::Burst(400),
        subject: Subject::Bridge(ONE_LANE, "slow-json"),
    },
    Scene {
        name: "slow-webhook-lanes-8",
        what: "burst of 3 200, the same with `concurrency: 8`",
        load: Load::Burst(3_200),
        subject: Subject::Bridge(EIGHT_LANES, "slow-json"),
    },
    Scene {
        name: "slow-webhook-lanes-32",
        what: "burst of 12 800, the same with `concurrency: 32`",
        load: Load::Burst(12_800),
        subject: Subject::Bridge(MANY_LANES, "slow-json"),
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
