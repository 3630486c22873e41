//! A sink as it is written: one kind, and the keys that all kinds share.

use std::{borrow::Cow, collections::BTreeMap};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};

use crate::{
    bridge::CorrelateMode,
    document::values::{self, Size, Span, Text, Texts},
};

/// One receiver. Exactly one of `kafka`, `otlp`, `webhook` and `stdout` says of which kind.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Sink", transform = one_kind)]
pub struct SinkModel {
    /// Produces to a Kafka topic.
    pub kafka: Option<KafkaModel>,
    /// Exports as OTLP logs.
    pub otlp: Option<OtlpModel>,
    /// Posts JSON to a URL.
    pub webhook: Option<WebhookModel>,
    /// Writes lines of JSON to standard output.
    pub stdout: Option<StdoutModel>,
    /// How events are put together on their way.
    pub batch: BatchModel,
    /// A CEL expression over `event`, `change`, `delta`, `cluster` and, with `enrich`, `object`; only
    /// events for which it is true are sent. Absent fields read as "", 0 or empty. Default: all events.
    #[serde(rename = "match")]
    pub filter: Option<Text>,
    /// What is told of the object that an event is about, in `object` of the envelope. It needs
    /// permissions, which `tidings check` names. Default: nothing, and nothing is read.
    pub enrich: Option<EnrichModel>,
    /// What is done about repeats, similar events and floods.
    pub correlate: CorrelateModel,
    /// How failed attempts are repeated.
    pub retry: RetryModel,
    /// What is done with what the receiver refuses, beside keeping it. Default: nothing.
    pub dead_letters: Option<DeadLettersModel>,
    /// How long one attempt may take. Default: `10s`.
    #[schemars(with = "Option<Span>", extend("default" = "10s"))]
    pub timeout: Option<Span>,
    /// How many attempts are under way at once, each with a batch of its own. Events of one object arrive
    /// in order all the same; with 1 all do. Default: 8 for webhook with one event a batch, else 1;
    /// stdout takes no other.
    #[schemars(with = "Option<u32>", range(min = 1, max = 128))]
    pub concurrency: Option<u32>,
    /// How many bytes an event may take that is sent there, from `4KiB` to `journal.maxEvent`: what is
    /// larger is cut, and says in `truncated` by how much. Default: as in the journal.
    pub max_event: Option<Size>,
    /// How what is sent is compressed. Default: `none`.
    #[schemars(extend("default" = "none"))]
    pub compression: Option<CompressionModel>,
    /// Whether credentials may travel in plain text: SASL without `tls`, headers or a query over
    /// `http://` to another host or through a proxy, user and password of a proxy on another host.
    #[schemars(extend("default" = false))]
    pub allow_plaintext: bool,
    /// Through what a sink over HTTP sends: `env`, the proxies of the environment (`HTTPS_PROXY`,
    /// `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`), or the address of one: `http://`, `https://`, `socks5://` or
    /// `socks5h://`. Default: none, whatever the environment says.
    pub proxy: Option<Text>,
    /// How connections are used: of webhooks and OTLP.
    pub connection: Option<ConnectionModel>,
    /// What happens when this sink lags by more than the journal holds: `dropOldest`, the oldest
    /// events go and count as lost for it, or `block`, intake stops for all sinks until this one has
    /// had some of them.
    #[schemars(extend("default" = "dropOldest"))]
    pub overflow: OverflowModel,
    /// Where a sink starts that is new to a journal with a past.
    #[schemars(extend("default" = "now"))]
    pub start: SinkStartModel,
}

impl SinkModel {
    /// The kinds of sinks, and the cargo feature that each needs.
    pub const KINDS: [(&'static str, bool); 4] = [
        ("kafka", cfg!(feature = "kafka")),
        ("otlp", cfg!(feature = "otlp")),
        ("webhook", cfg!(feature = "webhook")),
        ("stdout", true),
    ];
}

fn one_kind(schema: &mut Schema) {
    let required = SinkModel::KINDS.map(|(kind, _)| serde_json::json!({ "required": [kind] }));
    schema.insert("oneOf".to_owned(), required.to_vec().into());
}

/// Produces to a Kafka topic.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Kafka")]
pub struct KafkaModel {
    /// Brokers to start from, `host:port` each.
    #[schemars(length(min = 1))]
    pub brokers: Vec<Text>,
    /// The topic to produce to.
    pub topic: Text,
    /// What the key of a message is: `qualified`, `<cluster uid>/<namespace>/<uid of the object that the
    /// Event is about, else kind/name>`, or `object`, that uid alone, else `kind/namespace/name`.
    #[serde(default)]
    #[schemars(extend("default" = "qualified"))]
    pub key: KafkaKeyModel,
    /// TLS towards the brokers; `{}` for TLS with the system's authorities. Default: none.
    pub tls: Option<TlsModel>,
    /// SASL towards the brokers. Default: none.
    pub sasl: Option<SaslModel>,
}

/// What the key of a Kafka message is made of.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
#[schemars(rename = "KafkaKey")]
pub enum KafkaKeyModel {
    #[default]
    Qualified,
    Object,
}

/// SASL towards Kafka.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Sasl")]
pub struct SaslModel {
    /// The mechanism.
    pub mechanism: SaslMechanismModel,
    /// The user.
    pub username: Text,
    /// The password, best as a reference.
    pub password: Text,
}

/// A SASL mechanism.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the names say it")]
#[schemars(rename = "SaslMechanism")]
pub enum SaslMechanismModel {
    #[serde(rename = "plain")]
    Plain,
    #[serde(rename = "scram-sha-256")]
    ScramSha256,
    #[serde(rename = "scram-sha-512")]
    ScramSha512,
}

/// Exports as OTLP logs.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Otlp")]
pub struct OtlpModel {
    /// `http://` or `https://`, host and port. For `protocol: http`, `/v1/logs` is appended unless
    /// it is there.
    pub endpoint: Text,
    /// `grpc`, or `http` with protobuf bodies.
    #[serde(default)]
    #[schemars(extend("default" = "grpc"))]
    pub protocol: ProtocolModel,
    /// Sent with each request.
    #[serde(default)]
    pub headers: BTreeMap<String, Text>,
    /// TLS, for `https://`. Default: the system's authorities.
    pub tls: Option<TlsModel>,
}

/// An OTLP transport.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
#[schemars(rename = "OtlpProtocol")]
pub enum ProtocolModel {
    #[default]
    Grpc,
    Http,
}

/// Posts JSON to a URL: one event a request, or an array if `batch.events` is more than 1.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Webhook")]
pub struct WebhookModel {
    /// Where to post.
    pub url: Text,
    /// Sent with each request.
    #[serde(default)]
    pub headers: BTreeMap<String, Text>,
    /// TLS, for `https://`. Default: the system's authorities.
    pub tls: Option<TlsModel>,
    /// Signs each request by the Standard Webhooks scheme. Default: unsigned.
    pub signing: Option<SigningModel>,
}

/// Standard Webhooks.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Signing")]
pub struct SigningModel {
    /// `whsec_` and base64 of at least 24 bytes, for HMAC-SHA256, or `whsk_` and base64 of a private key
    /// of ed25519; best as a reference. Of a list, each signs, so that a secret can be exchanged.
    pub secret: Texts,
}

/// Writes lines of JSON to standard output. It has no keys of its own.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StdoutModel {}

impl JsonSchema for StdoutModel {
    fn schema_name() -> Cow<'static, str> {
        "Stdout".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Writes lines of JSON to standard output. It has no keys of its own.",
            "type": ["object", "null"],
            "additionalProperties": false,
        })
    }
}

/// TLS towards a receiver. A plain text of `ca`, `cert` and `key` is the path of a PEM file; with
/// `{env: NAME}` or `{file: PATH}` the variable or file holds the PEM text itself.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Tls")]
pub struct TlsModel {
    /// Certificates of the authorities to trust. Default: the system's.
    pub ca: Option<Text>,
    /// The client's certificate chain; together with `key`.
    pub cert: Option<Text>,
    /// The client's private key; together with `cert`.
    pub key: Option<Text>,
    /// The name that the receiver's certificate carries, if it is not the host's.
    pub server_name: Option<Text>,
}

/// How events are put together on their way. A batch goes when one of the bounds is reached.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Batch")]
pub struct BatchModel {
    /// So many events. Default: 500, for webhook 1.
    #[schemars(with = "Option<u32>", range(min = 1, max = 100_000))]
    pub events: Option<u32>,
    /// So many bytes. Default: `1MiB`.
    #[schemars(with = "Option<Size>", extend("default" = "1MiB"))]
    pub size: Option<Size>,
    /// So long after the first event. Default: `20ms`.
    #[schemars(with = "Option<Span>", extend("default" = "20ms"))]
    pub linger: Option<Span>,
}

/// What is told of the object that an event is about.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Enrich")]
pub struct EnrichModel {
    /// The labels with these keys; a `*` at the end stands for every end: `app.kubernetes.io/*`.
    /// Default: none.
    pub labels: Vec<Text>,
    /// The annotations with these keys, as for labels. Default: none.
    pub annotations: Vec<Text>,
    /// The controllers above it: of a Pod its ReplicaSet and the Deployment of that.
    pub owners: bool,
    /// The node on which it is. The Pod is fetched whole where the event does not say it.
    pub node: bool,
}

/// What is done about repeats, similar events and floods.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Correlate")]
pub struct CorrelateModel {
    /// `annotate`: every event is sent, and its `correlation` says what the recorder of client-go
    /// would have done with it. `suppress`: what such a recorder would not have written is held
    /// back, and its increments come with a later event, at the latest after 10 minutes. `none`:
    /// neither.
    #[schemars(extend("default" = "annotate"))]
    pub mode: CorrelateModeModel,
}

/// What correlation does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CorrelateModeModel(pub CorrelateMode);

impl<'de> Deserialize<'de> for CorrelateModeModel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expecting = "`annotate`, `suppress` or `none`";
        values::by_text(deserializer, expecting, |text| match text {
            "annotate" => Ok(CorrelateMode::Annotate),
            "suppress" => Ok(CorrelateMode::Suppress),
            "none" => Ok(CorrelateMode::None),
            "off" | "false" | "no" => {
                Err(format!("`{text}` is no mode (YAML 1.1 reads `off` as false)\nwrite `none`"))
            }
            _ => Err(format!("`{text}` is no mode\nwrite `annotate`, `suppress` or `none`")),
        })
        .map(Self)
    }
}

impl JsonSchema for CorrelateModeModel {
    fn schema_name() -> Cow<'static, str> {
        "CorrelateMode".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "enum": ["annotate", "suppress", "none"] })
    }
}

impl JsonSchema for CorrelateMode {
    fn schema_name() -> Cow<'static, str> {
        "CorrelateMode".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "enum": ["none"] })
    }
}

/// How failed attempts are repeated: exponentially, with full jitter, without an end unless
/// `maxAttempts` sets one.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Retry")]
pub struct RetryModel {
    /// The longest first wait. Default: `100ms`.
    #[schemars(with = "Option<Span>", extend("default" = "100ms"))]
    pub initial: Option<Span>,
    /// The longest wait. Default: `30s`.
    #[schemars(with = "Option<Span>", extend("default" = "30s"))]
    pub max: Option<Span>,
    /// After how many attempts a batch goes to the dead letters, those of a misconfigured sink not
    /// counted. Default: never.
    #[schemars(with = "Option<u32>", range(min = 1))]
    pub max_attempts: Option<u32>,
}

/// How connections are used.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Connection")]
pub struct ConnectionModel {
    /// For how long a connection is used. The next one goes to what the name stands for by then, so
    /// that new endpoints behind it are seen. Default: `10m`.
    #[schemars(with = "Option<Span>", extend("default" = "10m"))]
    pub max_age: Option<Span>,
}

/// What is done with dead letters.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "DeadLetters")]
pub struct DeadLettersModel {
    /// The name of another sink that each of them is sent to as well, with `deadLetter` in its
    /// envelope and whatever the `match` of that sink says. Chains may not form a circle.
    pub sink: Text,
}

/// How what is sent is compressed.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
#[schemars(rename = "Compression")]
pub enum CompressionModel {
    #[default]
    None,
    Gzip,
    Zstd,
}

/// What happens when a sink lags by more than the journal holds.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Overflow")]
pub enum OverflowModel {
    /// The oldest events go, and count as lost for it.
    #[default]
    DropOldest,
    /// Intake stops for all sinks until it has had some of them.
    Block,
}

/// Where a sink starts that is new to a journal with a past.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "SinkStart")]
pub enum SinkStartModel {
    /// With the next event.
    #[default]
    Now,
    /// With the oldest event that the journal holds.
    Oldest,
}
