//! Documents of the [Elastic Common Schema], with the Event where Metricbeat's `event` metricset has it.
//!
//! | field | from |
//! |---|---|
//! | `@timestamp` | the envelope's `time`, not before `metadata.creationTimestamp` − 1 h and not after `observedTime` |
//! | `message` | `message` |
//! | `labels` | the labels of the cluster |
//! | `log.level` | `type`, in small letters |
//! | `event.id` | the envelope's id |
//! | `event.{kind,module,dataset}` | `event`, `kubernetes`, `kubernetes.event` |
//! | `event.type` | `info`; `error` where `type` is not Normal |
//! | `event.action`, `event.code` | `action`, else `reason`; `reason` |
//! | `event.provider` | the reporter |
//! | `event.severity` | 9, 13, 17, 21: as in OTLP |
//! | `event.created` | `observedTime` |
//! | `event.start` | the first time that the Event names |
//! | `orchestrator.*` | cluster, and the involved object |
//! | `kubernetes.{namespace,<kind>.name,<kind>.uid,container.name,node.name}` | the involved object |
//! | `kubernetes.{labels,annotations}` | `object` of the envelope |
//! | `kubernetes.event.*` | the Event |
//! | `tidings.{change,occurrences,delta}` | the envelope |
//! | `tidings.{replayed,truncated,owners,missing,correlation,dead_letter}` | the envelope, only where they apply |
//!
//! Empty fields are left out. Labels and annotations are mappings with keys as they are: a mapping of the index
//! has to be `flattened` for them.
//!
//! [Elastic Common Schema]: https://www.elastic.co/guide/en/ecs/current/index.html

use std::collections::BTreeMap;

use serde::{Serialize, Serializer, ser::SerializeMap as _};
use serde_json::value::RawValue;

use super::{
    kinds::{container_name, kind_word, severity},
    parsed::Parsed,
};
use crate::event::{Correlation, DeadLetterInfo, Missing, ObjectInfo, Owner, bounded};

/// The version of the schema that the fields are of.
const VERSION: &str = "8.17.0";

#[derive(Serialize)]
struct Document<'a> {
    #[serde(rename = "@timestamp")]
    timestamp: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
    ecs: Ecs,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<Log>,
    event: About<'a>,
    orchestrator: Orchestrator<'a>,
    kubernetes: Kubernetes<'a>,
    tidings: Tidings<'a>,
}

/// An object of texts, without the empty ones.
struct Texts<'a, const N: usize>([(&'static str, &'a str); N]);

impl<const N: usize> Serialize for Texts<'_, N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied().filter(|(_, text)| !text.is_empty()))
    }
}

#[derive(Serialize)]
struct Ecs {
    version: &'static str,
}

#[derive(Serialize)]
struct Log {
    level: String,
}

#[derive(Serialize)]
struct About<'a> {
    id: &'a str,
    kind: &'static str,
    module: &'static str,
    dataset: &'static str,
    r#type: [&'static str; 1],
    #[serde(skip_serializing_if = "str::is_empty")]
    action: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    code: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    provider: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    severity: Option<u64>,
    created: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    start: &'a str,
}

#[derive(Serialize)]
struct Orchestrator<'a> {
    r#type: &'static str,
    cluster: Texts<'a, 2>,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    api_version: &'a str,
    resource: Texts<'a, 3>,
}

/// Members of `kubernetes`, some of which are called by the kind of the object.
struct Kubernetes<'a>(&'a Parsed<'a>);

impl Serialize for Kubernetes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Parsed { event, object: info, .. } = self.0;
        let object = &event.involved_object;
        let mut map = serializer.serialize_map(None)?;
        if !object.namespace.is_empty() {
            map.serialize_entry("namespace", &*object.namespace)?;
        }
        let word = kind_word(&object.kind, &object.api_version);
        if let Some(word) = word.filter(|word| *word != "namespace") {
            map.serialize_entry(word, &Texts([("name", &object.name), ("uid", &object.uid)]))?;
        }
        let container = container_name(&object.field_path);
        if !container.is_empty() {
            map.serialize_entry("container", &Texts([("name", container)]))?;
        }
        let node = info.as_ref().and_then(|info| info.node.as_deref());
        let node = node.unwrap_or(&event.source.host);
        // Of another group's kind of that name, too, no member may stand twice.
        if word != Some("node") && !node.is_empty() {
            map.serialize_entry("node", &Texts([("name", node)]))?;
        }
        for (key, texts) in info.iter().flat_map(texts) {
            map.serialize_entry(key, texts)?;
        }
        map.serialize_entry("event", &KubernetesEvent::of(self.0))?;
        map.end()
    }
}

/// The labels and annotations of an object, as far as they are known.
fn texts(info: &ObjectInfo) -> impl Iterator<Item = (&'static str, &BTreeMap<String, String>)> {
    [("labels", &info.labels), ("annotations", &info.annotations)]
        .into_iter()
        .filter(|(_, texts)| !texts.is_empty())
}

#[derive(Serialize)]
struct KubernetesEvent<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    action: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    r#type: &'a str,
    count: u64,
    #[serde(skip_serializing_if = "str::is_empty")]
    reporting_controller: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reporting_instance: &'a str,
    source: Texts<'a, 2>,
    involved_object: Texts<'a, 7>,
    metadata: EventMetadata<'a>,
    timestamp: Texts<'a, 2>,
    #[serde(skip_serializing_if = "Option::is_none")]
    related: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct EventMetadata<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    resource_version: &'a str,
    timestamp: Texts<'a, 1>,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<&'a RawValue>,
}

impl<'a> KubernetesEvent<'a> {
    fn of(envelope: &'a Parsed<'a>) -> Self {
        let event = &envelope.event;
        let (object, metadata) = (&event.involved_object, &event.metadata);
        Self {
            reason: &event.reason,
            action: &event.action,
            r#type: &event.type_,
            count: envelope.occurrences,
            reporting_controller: &event.reporting_component,
            reporting_instance: &event.reporting_instance,
            source: Texts([("component", &event.source.component), ("host", &event.source.host)]),
            involved_object: Texts([
                ("api_version", &object.api_version),
                ("kind", &object.kind),
                ("namespace", &object.namespace),
                ("name", &object.name),
                ("uid", &object.uid),
                ("resource_version", &object.resource_version),
                ("field_path", &object.field_path),
            ]),
            metadata: EventMetadata {
                name: &metadata.name,
                namespace: &metadata.namespace,
                uid: &metadata.uid,
                resource_version: &metadata.resource_version,
                timestamp: Texts([("created", &metadata.creation_timestamp)]),
                labels: metadata.labels,
                annotations: metadata.annotations,
            },
            timestamp: Texts([
                ("first_occurrence", first_time(envelope)),
                ("last_occurrence", &envelope.time),
            ]),
            related: event.related,
        }
    }
}

#[derive(Serialize)]
struct Tidings<'a> {
    change: &'a str,
    occurrences: u64,
    delta: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    replayed: bool,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    truncated: &'a BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "<[Owner]>::is_empty")]
    owners: &'a [Owner],
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    node_claimed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<Missing>,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation: Option<&'a Correlation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letter: Option<&'a DeadLetterInfo>,
}

/// The first time that an Event names.
fn first_time<'a>(envelope: &'a Parsed<'_>) -> &'a str {
    let event = &envelope.event;
    let times = [&event.first_timestamp, &event.event_time, &event.metadata.creation_timestamp];
    times.into_iter().find(|time| !time.is_empty()).map_or("", |time| time)
}

fn first<'a>(one: &'a str, other: &'a str) -> &'a str {
    if one.is_empty() { other } else { one }
}

pub(super) fn encode(envelope: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
    let envelope = Parsed::of(envelope)?;
    let event = &envelope.event;
    let object = &event.involved_object;
    let created = &event.metadata.creation_timestamp;
    let time = bounded(&envelope.time, created, &envelope.observed_time);
    let info = envelope.object.as_ref();
    let mut out = Vec::with_capacity(2048);
    let document = Document {
        timestamp: time.map_or_else(|| envelope.observed_time.to_string(), |time| time.to_string()),
        message: &event.message,
        ecs: Ecs { version: VERSION },
        labels: &envelope.cluster.labels,
        log: (!event.type_.is_empty()).then(|| Log { level: event.type_.to_lowercase() }),
        event: About {
            id: &envelope.id,
            kind: "event",
            module: "kubernetes",
            dataset: "kubernetes.event",
            r#type: [if matches!(&*event.type_, "" | "Normal") { "info" } else { "error" }],
            action: first(&event.action, &event.reason),
            code: &event.reason,
            provider: first(&event.reporting_component, &event.source.component),
            severity: Some(severity(&event.type_)).filter(|number| *number > 0),
            created: &envelope.observed_time,
            start: first_time(&envelope),
        },
        orchestrator: Orchestrator {
            r#type: "kubernetes",
            cluster: Texts([("id", &envelope.cluster.uid), ("name", &envelope.cluster.name)]),
            namespace: &object.namespace,
            api_version: &object.api_version,
            resource: Texts([("type", &object.kind), ("name", &object.name), ("id", &object.uid)]),
        },
        kubernetes: Kubernetes(&envelope),
        tidings: Tidings {
            change: &envelope.change,
            occurrences: envelope.occurrences,
            delta: envelope.delta,
            replayed: envelope.replayed,
            truncated: &envelope.truncated,
            owners: info.map_or(&[], |info| &info.owners),
            node_claimed: info.is_some_and(|info| info.node_claimed),
            missing: info.and_then(|info| info.missing),
            correlation: envelope.correlation.as_ref(),
            dead_letter: envelope.dead_letter.as_ref(),
        },
    };
    serde_json::to_writer(&mut out, &document)?;
    Ok(out)
}
