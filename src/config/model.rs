//! The configuration file as it is written: every key, its type and its default.
//!
//! The doc comments are the descriptions of the JSON Schema, so they speak to whoever writes the
//! file.

mod sink;

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use tidings_log::Sync;

pub(crate) use self::sink::{CommonModel, DeadLettersModel, EnrichModel, SinkModel};
use crate::{
    bridge::SourceStart,
    document::{
        Size, Span, Text,
        values::{self, DURATION_PATTERN},
    },
    sinks::OtlpModel,
};

/// The configuration of `tidings`.
///
/// A text may be a reference instead: `{env: NAME}` takes the value of a variable of the
/// environment, `{file: PATH}` what a file holds. Scalars of `cluster`, `source`, `journal`,
/// `server` and `log` can also be set by the environment: `TIDINGS_JOURNAL__RETENTION__SIZE`,
/// `TIDINGS_SOURCE__FIELD_SELECTOR`.
#[derive(Debug, Default, JsonSchema)]
#[schemars(rename = "Tidings", rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Model {
    /// Which cluster the events are of.
    #[schemars(default)]
    pub(crate) cluster: ClusterModel,
    /// Where the events come from.
    #[schemars(default)]
    pub(crate) source: SourceModel,
    /// The durable buffer between the API server and the sinks.
    #[schemars(default)]
    pub(crate) journal: JournalModel,
    /// Where the events go: a name of your choice for each sink, and below it one kind, such as
    /// `stdout`, and the keys that all kinds share. At least one sink.
    #[schemars(with = "BTreeMap<String, SinkModel>", transform = sink_names)]
    pub(crate) sinks: Vec<(String, SinkModel)>,
    /// Counters that are made of Events, for alerts: `tidings_events_total{metric="<name>"}` of `/metrics`.
    #[schemars(default)]
    pub(crate) metrics: Vec<MetricModel>,
    /// How the objects that events are about are read, for sinks with `enrich`.
    #[schemars(default)]
    pub(crate) objects: ObjectsModel,
    /// The admin server: `/livez` and `/readyz` for everybody, `/metrics` and `/api/v1/status` for those
    /// whom `detail` and `token` let in.
    #[schemars(default)]
    pub(crate) server: ServerModel,
    /// The log of the bridge itself, on standard error.
    #[schemars(default)]
    pub(crate) log: LogSettings,
    /// The metrics of the bridge, sent to where they are not scraped.
    #[schemars(default)]
    pub(crate) telemetry: TelemetryModel,
    /// Several replicas of which one works. Not available in this version.
    #[schemars(default)]
    pub(crate) leader_election: LeaderElectionModel,
}

fn sink_names(schema: &mut Schema) {
    schema.insert("minProperties".to_owned(), 1.into());
    let pattern = serde_json::json!({ "pattern": "^[a-z0-9][a-z0-9._-]{0,62}$" });
    schema.insert("propertyNames".to_owned(), pattern);
}

/// Which cluster the events are of; all of it travels in every envelope.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Cluster")]
pub(crate) struct ClusterModel {
    /// A name of your choice, such as `prod-eu-1`. Default: none.
    #[schemars(extend("x-shown" = true))]
    pub(crate) name: Option<Text>,
    /// Tells this cluster from every other. Default: the uid of the namespace kube-system.
    #[schemars(extend("x-shown" = true))]
    pub(crate) uid: Option<Text>,
    /// Texts of your choice, such as `env: prod`. Default: none.
    pub(crate) labels: BTreeMap<String, Text>,
}

/// A counter of occurrences, from 0 at each start.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Metric")]
pub(crate) struct MetricModel {
    /// The value of the label `metric`: letters, digits and `_`.
    pub(crate) name: Text,
    /// A CEL expression, as `match` of a sink; only events for which it is true are counted. Default: all
    /// events.
    #[serde(rename = "match", default)]
    pub(crate) filter: Option<Text>,
    /// Further labels, and templates of their values, such as `namespace: "{{ event.metadata.namespace }}"`.
    /// Default: none.
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, Text>,
    /// The most series that the labels may make. What comes beyond them is counted in one series, whose
    /// labels are all `other`. Default: 1000.
    #[serde(default)]
    #[schemars(extend("default" = 1000))]
    pub(crate) max: Option<u64>,
}

/// Where the events come from.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Source")]
pub(crate) struct SourceModel {
    /// A kubeconfig file. Default: `$KUBECONFIG`, else the pod's service account, else
    /// `~/.kube/config`.
    #[schemars(extend("x-shown" = true))]
    pub(crate) kubeconfig: Option<Text>,
    /// The proxy between the bridge and the API server: `env` for `HTTPS_PROXY`, `ALL_PROXY` and
    /// `NO_PROXY` of the environment, or the address of one (`http://`, `https://`, `socks5://`).
    /// Default: the `proxy-url` of the kubeconfig's cluster, else none.
    pub(crate) proxy: Option<Text>,
    /// Whether user and password of that proxy may travel in plain text to another host.
    #[schemars(extend("default" = false))]
    pub(crate) allow_plaintext: bool,
    /// The namespaces to watch, each by a watch of its own. Default: all, by one watch.
    #[schemars(extend("x-shown" = true))]
    pub(crate) namespaces: Vec<Text>,
    /// Only Events that this field selector chooses, such as `type=Warning`. The API server
    /// applies it. Default: all.
    #[schemars(extend("x-shown" = true))]
    pub(crate) field_selector: Option<Text>,
    /// The Events to take at the first start: `all` that exist, none before `now`, or those
    /// that last occurred within a duration such as `10m`.
    #[schemars(extend("default" = "all"))]
    pub(crate) start: SourceStart,
    /// How often an Event of the bridge's own is written, which every watch that covers its
    /// namespace has to bring: so a dead connection is noticed within 30 s. Only in a Pod that may
    /// write Events; it is not exported. `0s` for none.
    #[schemars(extend("default" = "60s"))]
    pub(crate) heartbeat: Span,
}

impl Default for SourceModel {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            proxy: None,
            allow_plaintext: false,
            namespaces: Vec::new(),
            field_selector: None,
            start: SourceStart::default(),
            heartbeat: Span(std::time::Duration::from_secs(60)),
        }
    }
}

impl<'de> Deserialize<'de> for SourceStart {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "`all`, `now` or a duration such as `10m`";
        values::by_text(deserializer, EXPECTED, |text| match text {
            "all" => Ok(Self::All),
            "now" => Ok(Self::Now),
            _ => values::parse_duration(text)
                .map(Self::Since)
                .map_err(|_| format!("expected {EXPECTED}, found `{text}`\nwrite one of these")),
        })
    }
}

/// A word of a few, or a duration.
fn words_or_duration(words: &[&str], description: &str) -> Schema {
    json_schema!({
        "description": description,
        "anyOf": [
            { "enum": words },
            { "type": "string", "pattern": DURATION_PATTERN, "minLength": 2 },
        ],
    })
}

impl JsonSchema for SourceStart {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SourceStart".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        words_or_duration(&["all", "now"], "`all`, `now`, or a duration such as `10m`.")
    }
}

/// The durable buffer between the API server and the sinks.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Journal")]
pub(crate) struct JournalModel {
    /// The directory that it lives in. It belongs to one process at a time.
    #[schemars(extend("default" = "/var/lib/tidings", "x-shown" = true))]
    pub(crate) path: Text,
    /// How much of the past it keeps for sinks that lag.
    pub(crate) retention: RetentionModel,
    /// When it is forced to disk: `always`, each interval such as `1s`, or `never`. A crash of the
    /// process loses nothing in any case; a crash of the machine loses what the API server no longer has.
    #[schemars(extend("default" = "1s"))]
    pub(crate) sync: SyncModel,
    /// How many bytes the dead letters of all sinks may take: half of `retention.size` at most, and a
    /// quarter of it where that is less than the default. When they take more, the oldest go, and are
    /// counted.
    #[schemars(extend("default" = "64MiB"))]
    pub(crate) dead_letters: Size,
    /// The most bytes of an event in the journal, from `4KiB` to `32MiB`. A larger one is cut, and says
    /// in `truncated` by how much.
    #[schemars(extend("default" = "256KiB"))]
    pub(crate) max_event: Size,
}

impl Default for JournalModel {
    fn default() -> Self {
        Self {
            path: Text::from("/var/lib/tidings"),
            retention: RetentionModel::default(),
            sync: SyncModel(Sync::Interval(std::time::Duration::from_secs(1))),
            dead_letters: Size(64 << 20),
            max_event: Size(256 << 10),
        }
    }
}

/// How much of the past the journal keeps. Older events are removed, delivered or not.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Retention")]
pub(crate) struct RetentionModel {
    /// How many bytes it may take on disk, all told. At least `1MiB`.
    #[schemars(extend("default" = "1GiB"))]
    pub(crate) size: Size,
    /// How old an event may get in it.
    #[schemars(extend("default" = "24h"))]
    pub(crate) age: Span,
}

impl Default for RetentionModel {
    fn default() -> Self {
        let day = std::time::Duration::from_hours(24);
        Self { size: Size(1 << 30), age: Span(day) }
    }
}

/// When the journal is synced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SyncModel(pub(crate) Sync);

impl<'de> Deserialize<'de> for SyncModel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "`always`, `never` or an interval such as `1s`";
        values::by_text(deserializer, EXPECTED, |text| match text {
            "always" => Ok(Self(Sync::Always)),
            "never" => Ok(Self(Sync::Never)),
            _ => match values::parse_duration(text) {
                Ok(interval) if interval.is_zero() => {
                    Err(format!("expected an interval above zero, found `{text}`\nwrite `always`"))
                }
                Ok(interval) => Ok(Self(Sync::Interval(interval))),
                Err(_) => Err(format!("expected {EXPECTED}, found `{text}`\nwrite one of these")),
            },
        })
    }
}

impl JsonSchema for SyncModel {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Sync".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        words_or_duration(&["always", "never"], "`always`, `never`, or an interval such as `1s`.")
    }
}

/// How the objects that events are about are read. Without a sink that has `enrich`, none is.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Objects")]
pub(crate) struct ObjectsModel {
    /// The resources that are watched, metadata only, as `plural` or `plural.group`: one watch each.
    /// Other objects that events are about are fetched one by one. Default: `pods`, `replicasets.apps`
    /// and `deployments.apps`.
    #[schemars(extend("default" = ["pods", "replicasets.apps", "deployments.apps"], "x-shown" = true))]
    pub(crate) watch: Option<Vec<Text>>,
    /// At most this many requests a second for objects that are fetched. Default: 10.
    #[schemars(with = "Option<u32>", range(min = 1, max = 1000), extend("default" = 10))]
    pub(crate) qps: Option<u64>,
    /// At most this many of them at once after a pause. Default: 20.
    #[schemars(with = "Option<u32>", range(min = 1, max = 1000), extend("default" = 20))]
    pub(crate) burst: Option<u64>,
    /// How long an event waits at most for its object, from when it was journalled. Then it is sent
    /// without, and says so. Default: `250ms`.
    #[schemars(with = "Option<Span>", extend("default" = "250ms"))]
    pub(crate) budget: Option<Span>,
    /// The number of objects whose facts are kept in memory. Default: 4096.
    #[schemars(with = "Option<u32>", range(min = 1, max = 1_000_000), extend("default" = 4096))]
    pub(crate) cache: Option<u64>,
}

/// The admin server.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Server")]
pub(crate) struct ServerModel {
    /// The IP address and port to listen on. `[::]` is every address, of IPv4 too. Port 0 takes any
    /// free one; the log says which.
    #[schemars(extend("default" = "127.0.0.1:8080", "x-shown" = true))]
    pub(crate) listen: Text,
    /// The parts that are shown to requests that do not come from loopback, beside the codes of the
    /// probes: nothing (`loopback`), `metrics`, or `all`.
    #[schemars(extend("default" = "loopback"))]
    pub(crate) detail: ServerDetail,
    /// Everything is shown to a request with `Authorization: Bearer` and this token, `{file: PATH}` or
    /// `{env: NAME}`, of at least 16 characters. Default: none.
    pub(crate) token: Option<Text>,
}

/// The parts that the admin server shows to requests that do not come from loopback; each includes those
/// before it.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub enum ServerDetail {
    /// The codes of the probes, with one word.
    #[default]
    Loopback,
    /// Metrics, which have no receiver's words.
    Metrics,
    /// The status, and what is wrong when a probe fails.
    All,
}

impl Default for ServerModel {
    fn default() -> Self {
        Self { listen: Text::from("127.0.0.1:8080"), detail: ServerDetail::default(), token: None }
    }
}

/// The log of the bridge itself.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Log")]
pub struct LogSettings {
    /// How much is logged.
    #[schemars(extend("default" = "info"))]
    pub level: LogLevel,
    /// `text` for people, `json` for machines.
    #[schemars(extend("default" = "text"))]
    pub format: LogFormat,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

/// How a line of the log is written.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// The metrics of the bridge, sent to where they are not scraped.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Telemetry")]
pub(crate) struct TelemetryModel {
    /// The OTLP receiver that gets them every minute. Default: none.
    pub(crate) otlp: Option<OtlpModel>,
    /// Whether credentials may travel to it in plain text.
    #[schemars(extend("default" = false))]
    pub(crate) allow_plaintext: bool,
}

/// Several replicas of which one works. Not available in this version.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "LeaderElection")]
pub(crate) struct LeaderElectionModel {
    /// Only `false` in this version.
    #[schemars(extend("const" = false))]
    pub(crate) enabled: bool,
    /// The name of the Lease.
    #[schemars(extend("default" = "tidings", "x-shown" = true))]
    pub(crate) lease: Text,
}

impl Default for LeaderElectionModel {
    fn default() -> Self {
        Self { enabled: false, lease: Text::from("tidings") }
    }
}
