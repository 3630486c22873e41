//! A sink as it is written: one kind, and the keys that all kinds share.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    bridge::{CorrelateMode, Overflow, SinkStart},
    document::{Size, Span, Text},
    sinks::{
        Compression, Format, KINDS,
        keys::{ConnectionModel, Keys},
    },
};

/// One receiver.
#[derive(Debug)]
pub(crate) struct SinkModel {
    /// The name of its kind.
    pub(crate) kind: &'static str,
    /// The keys of its kind.
    pub(crate) keys: Box<dyn Keys>,
    pub(crate) common: CommonModel,
}

impl JsonSchema for SinkModel {
    fn schema_name() -> Cow<'static, str> {
        "Sink".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let kinds: Map<_, _> = KINDS
            .iter()
            .map(|kind| (kind.name.to_owned(), (kind.schema)(generator).to_value()))
            .collect();
        let mut schema = CommonModel::json_schema(generator);
        let names: Vec<_> = KINDS.iter().map(|kind| format!("`{}`", kind.name)).collect();
        let description =
            format!("One receiver. Exactly one of {} says of which kind.", names.join(", "));
        schema.insert("description".to_owned(), description.into());
        if let Some(Value::Object(common)) = schema.get_mut("properties") {
            let mut all = kinds;
            all.append(common);
            *common = all;
        }
        let one: Vec<_> = KINDS.iter().map(|kind| json!({ "required": [kind.name] })).collect();
        schema.insert("oneOf".to_owned(), one.into());
        schema
    }
}

/// The keys that all kinds share.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct CommonModel {
    /// How events are put together into batches.
    pub(crate) batch: BatchModel,
    /// A CEL expression over `event`, `change`, `delta`, `cluster` and, with `enrich`, `object`; only
    /// events for which it is true are sent. Absent fields read as "", 0 or empty. Default: all events.
    #[serde(rename = "match")]
    #[schemars(extend("x-shown" = true))]
    pub(crate) filter: Option<Text>,
    /// The format of what is sent: `envelope`, `event` (the Kubernetes Event alone), `ecs` (Elastic Common
    /// Schema) or `cloudevents`. An `otlp` sink has one of its own. Default: `envelope`, for elasticsearch `ecs`.
    #[schemars(extend("default" = "envelope"))]
    pub(crate) format: Option<Format>,
    /// The facts about an event's object that `object` of the envelope has. Reading them needs
    /// permissions, which `tidings check` names. Default: none, and nothing is read.
    pub(crate) enrich: Option<EnrichModel>,
    /// The treatment of repeats, similar events and floods.
    pub(crate) correlate: CorrelateModel,
    /// How failed attempts are repeated.
    pub(crate) retry: RetryModel,
    /// The treatment of what the receiver refuses, besides keeping it. Default: none.
    pub(crate) dead_letters: Option<DeadLettersModel>,
    /// How long one attempt may take; with `splunk.acknowledge` one request of it. Default: `10s`.
    #[schemars(with = "Option<Span>", extend("default" = "10s"))]
    pub(crate) timeout: Option<Span>,
    /// How many attempts are under way at once, each with a batch of its own. Events of one object arrive
    /// in order all the same. Default: 8 for splunk, and for webhook with one
    /// event a batch, else 1; syslog, file and stdout take no other.
    #[schemars(with = "Option<u32>", range(min = 1, max = 128))]
    pub(crate) concurrency: Option<u64>,
    /// The most bytes of an event that is sent to this sink, from `4KiB` to `journal.maxEvent`: a larger
    /// one is cut, and says in `truncated` by how much. For syslog the most bytes of a message. Default: as in the journal,
    /// for syslog `8KB`.
    pub(crate) max_event: Option<Size>,
    /// How many values a day, of UTC, events may make of a destination: the path of a webhook's `url`, an index, a
    /// source type of Splunk, the tenant and labels of Loki. One namespace makes at most an eighth of them. An event for one
    /// more becomes a dead letter. Default: 200, for loki 2000.
    #[schemars(with = "Option<u32>", range(min = 1, max = 10_000), extend("default" = 200))]
    pub(crate) max_destinations: Option<u64>,
    /// The compression of what is sent; `zstd` not for elasticsearch, splunk and loki, none for syslog, file and stdout. Default: `none`.
    #[schemars(extend("default" = "none"))]
    pub(crate) compression: Option<Compression>,
    /// Whether credentials may travel in plain text: SASL without `tls`, headers or a query over
    /// `http://` to another host or through a proxy, user and password of a proxy on another host.
    #[schemars(extend("default" = false))]
    pub(crate) allow_plaintext: bool,
    /// The proxy that a sink over HTTP sends through: `env`, the proxies of the environment (`HTTPS_PROXY`,
    /// `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`), or the address of one: `http://`, `https://`, `socks5://` or
    /// `socks5h://`. Default: none, whatever the environment says.
    pub(crate) proxy: Option<Text>,
    /// How connections of sinks over HTTP, OTLP and syslog are used.
    pub(crate) connection: Option<ConnectionModel>,
    /// The policy when this sink lags by more than the journal holds: `dropOldest`, the oldest
    /// events go and count as lost for it, or `block`, intake stops for all sinks until this one has
    /// taken some of them.
    #[schemars(extend("default" = "dropOldest"))]
    pub(crate) overflow: Overflow,
    /// Where the sink starts if it is new to a journal with a past.
    #[schemars(extend("default" = "now"))]
    pub(crate) start: SinkStart,
}

/// How events are put together into batches. A batch is sent when it reaches one of the bounds.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Batch")]
pub(crate) struct BatchModel {
    /// The most events in a batch. Default: 500, for webhook 1.
    #[schemars(with = "Option<u32>", range(min = 1, max = 100_000))]
    pub(crate) events: Option<u64>,
    /// The most bytes in a batch. Default: `1MiB`.
    #[schemars(with = "Option<Size>", extend("default" = "1MiB"))]
    pub(crate) size: Option<Size>,
    /// How long a batch waits for more after its first event. Default: `20ms`.
    #[schemars(with = "Option<Span>", extend("default" = "20ms"))]
    pub(crate) linger: Option<Span>,
}

/// The facts about an event's object that `object` of the envelope has.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Enrich")]
pub(crate) struct EnrichModel {
    /// The labels with these keys; a `*` at the end stands for every end: `app.kubernetes.io/*`.
    /// Default: none.
    #[schemars(extend("x-shown" = true))]
    pub(crate) labels: Vec<Text>,
    /// The annotations with these keys, as for labels. Default: none.
    #[schemars(extend("x-shown" = true))]
    pub(crate) annotations: Vec<Text>,
    /// The controllers above it: of a Pod its ReplicaSet and the Deployment of that.
    pub(crate) owners: bool,
    /// The node on which it is. The Pod is fetched whole where the event does not say it.
    pub(crate) node: bool,
}

/// The treatment of repeats, similar events and floods.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Correlate")]
pub(crate) struct CorrelateModel {
    /// `annotate`: every event is sent, and its `correlation` says what the recorder of client-go
    /// would have done with it. `suppress`: what such a recorder would not have written is held
    /// back, and its increments come with a later event, at the latest after 10 minutes. `none`:
    /// neither.
    #[schemars(extend("default" = "annotate"))]
    pub(crate) mode: CorrelateMode,
}

/// How failed attempts are repeated: exponentially, with full jitter, without an end unless
/// `maxAttempts` sets one.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Retry")]
pub(crate) struct RetryModel {
    /// The longest first wait. Default: `100ms`.
    #[schemars(with = "Option<Span>", extend("default" = "100ms"))]
    pub(crate) initial: Option<Span>,
    /// The longest wait. Default: `30s`.
    #[schemars(with = "Option<Span>", extend("default" = "30s"))]
    pub(crate) max: Option<Span>,
    /// After how many failed attempts a batch goes to the dead letters; those of a misconfigured sink do
    /// not count. Default: never.
    #[schemars(with = "Option<u32>", range(min = 1))]
    pub(crate) max_attempts: Option<u32>,
}

/// The treatment of dead letters, besides keeping them.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "DeadLetters")]
pub(crate) struct DeadLettersModel {
    /// The name of another sink that each of them is sent to as well, with `deadLetter` in its
    /// envelope and whatever the `match` of that sink says. Chains may not form a circle.
    #[schemars(extend("x-shown" = true))]
    pub(crate) sink: Text,
}
