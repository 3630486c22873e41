//! OTLP logs: a batch of envelopes as an `ExportLogsServiceRequest`, in the shape that the
//! OpenTelemetry Collector's `k8s_events` receiver made the convention, and a little beyond it.
//!
//! | OTLP | from |
//! |---|---|
//! | resource, first | the sink's own attributes, `service.name` among them |
//! | resource `k8s.cluster.{name,uid}`, `k8s.cluster.label.<key>` | the envelope's cluster |
//! | resource `k8s.object.{kind,name,uid,fieldpath,api_version,resource_version}` | `involvedObject` |
//! | resource `k8s.<kind>.{name,uid}` | `involvedObject`, where its kind has such attributes |
//! | resource `k8s.container.name` | the container that `involvedObject.fieldPath` names |
//! | resource `k8s.node.name` | `object.node` of the envelope, else `source.host`, unless the object itself is a Node |
//! | resource `k8s.<kind>.{label,annotation}.<key>` | `object` of the envelope; `k8s.object.…` where the kind has no attributes of its own |
//! | resource `k8s.<kind>.{name,uid}` of the controllers above it | `object.owners` of the envelope |
//! | resource and record `k8s.namespace.name` | `involvedObject.namespace` |
//! | Timestamp | the envelope's `time`, not before `metadata.creationTimestamp` − 1 h and not after `observedTime` |
//! | ObservedTimestamp | the envelope's `observedTime` |
//! | severity | `type`: Normal 9, Warning 13, Error 17, Critical 21; the text as it is |
//! | body | `message`, which stands nowhere else |
//! | event name | `k8s.event` |
//! | `log.record.uid` | the envelope's id |
//! | `k8s.event.{reason,action,name,uid}` | the Event |
//! | `k8s.event.{label,annotation}.<key>` | the labels and annotations of the Event |
//! | `k8s.event.related.{kind,namespace,name,uid,fieldpath,api_version,resource_version}` | `related` |
//! | `k8s.event.start_time` | `metadata.creationTimestamp`, RFC 3339 (the receiver: Go's format) |
//! | `k8s.event.count`, `k8s.event.count_delta` | `occurrences` and `delta` |
//! | `k8s.event.reporting_{controller,instance}` | the reporter; `source.component` stands in |
//! | `k8s.event.replayed` | only when true |
//! | `tidings.truncated.<field>` | `truncated` of the envelope: how many bytes were cut of the field |
//! | `k8s.object.missing` | `object.missing` of the envelope |
//! | `k8s.object.node_claimed` | `object.nodeClaimed` of the envelope, only when true |
//! | `k8s.event.correlation.{action,count}` | what the sink's correlator says, if it has one |
//! | `k8s.event.correlation.aggregated` | only when true |
//! | `k8s.event.correlation.summarises` | only where the delta stands for versions held back |
//! | `k8s.event.correlation.{distinct_messages,messages,message_ids}` | only where there is more than one: how many, the first and last four of them, and the ids that belong to these |
//! | `tidings.dead_letter.{sink,class,reason,attempts,first_time,time}` | what became of it at the sink that forwards it |
//!
//! What is empty is left out. Records of equal resources share one `ResourceLogs`, in their order,
//! as far as the order of an object's events allows: those of a Pod and of one of its containers
//! have different resources, and where they alternate, so do their `ResourceLogs`.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hasher as _,
    ops::Range,
};

use jiff::Timestamp;
use rustc_hash::{FxBuildHasher, FxHasher};
use serde_json::{Value, value::RawValue};

use super::{
    EncodeError,
    kinds::{container_name, is_node, kind_keys, severity},
    parsed::Parsed,
    protobuf::{
        field_len, put_any_str, put_attr, put_attr_int, put_attr_strs, put_attr_true, put_bytes,
        put_fixed64, put_head, put_str, put_uint,
    },
};
use crate::event::{Batch, DeadLetterInfo, Metadata, ObjectInfo, ObjectReference, bounded};

/// The field of `LogRecord`.
const ATTRIBUTES: u32 = 6;
/// That of `Resource`.
const RESOURCE_ATTRIBUTES: u32 = 1;

/// What every record is called. It must not vary, so nothing of the Event is in it.
const EVENT_NAME: &str = "k8s.event";

/// One `ResourceLogs` to be.
struct Group {
    /// The encoded `Resource`, in the arena of resources.
    resource: Range<usize>,
    /// The bytes of all its records together.
    records_len: usize,
}

/// Encodes batches, and keeps its buffers from one to the next.
#[derive(Default)]
pub(crate) struct LogsEncoder {
    /// The attributes that every resource begins with, encoded.
    own: Vec<u8>,
    scratch: Vec<u8>,
    resources: Vec<u8>,
    records: Vec<u8>,
    groups: Vec<Group>,
    /// The newest group of each resource, by its hash.
    by_resource: HashMap<u64, usize, FxBuildHasher>,
    /// The newest group of each involved object, by its hash.
    by_object: HashMap<u64, usize, FxBuildHasher>,
    /// Each record's group and its bytes in the arena of records.
    placed: Vec<(usize, Range<usize>)>,
}

impl std::fmt::Debug for LogsEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogsEncoder").finish_non_exhaustive()
    }
}

impl LogsEncoder {
    /// One whose resources have these attributes of their own.
    pub(crate) fn new<'a>(own: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut encoder = Self::default();
        for (key, value) in own {
            put_attr(&mut encoder.own, RESOURCE_ATTRIBUTES, key, value);
        }
        encoder
    }

    /// The bytes of an `ExportLogsServiceRequest` that holds `batch`.
    pub(crate) fn encode(&mut self, batch: &Batch) -> Result<Vec<u8>, EncodeError> {
        self.resources.clear();
        self.records.clear();
        self.groups.clear();
        self.by_resource.clear();
        self.by_object.clear();
        self.placed.clear();
        for record in &batch.records {
            let envelope = Parsed::of(&record.envelope)
                .map_err(|source| EncodeError { seq: record.seq, source })?;
            let group = self.group_of(&envelope);
            self.scratch.clear();
            put_log_record(&mut self.scratch, &envelope);
            let start = self.records.len();
            // ScopeLogs.log_records
            put_bytes(&mut self.records, 2, &self.scratch);
            let placed = start..self.records.len();
            self.groups[group].records_len += placed.len();
            self.placed.push((group, placed));
        }
        Ok(self.assemble())
    }

    /// Finds the group whose resource is that of `envelope`, or opens one.
    ///
    /// Two hashes that are equal by accident at worst open a group that need not be.
    fn group_of(&mut self, envelope: &Parsed<'_>) -> usize {
        let start = self.resources.len();
        self.resources.extend_from_slice(&self.own);
        put_resource(&mut self.resources, envelope);
        let resource = start..self.resources.len();
        let hash = hash_of([&self.resources[resource.clone()]]);
        let opened = self.groups.len();
        let newest_of_object =
            self.by_object.entry(object_hash(&envelope.event.involved_object)).or_default();
        let newest = self.by_resource.entry(hash).or_insert(opened);
        if let Some(known) = self.groups.get(*newest)
            && self.resources[known.resource.clone()] == self.resources[resource.clone()]
            // In an older group it would stand before an event of the same object that it follows.
            && *newest >= *newest_of_object
        {
            *newest_of_object = *newest;
            self.resources.truncate(start);
            return *newest;
        }
        (*newest, *newest_of_object) = (opened, opened);
        self.groups.push(Group { resource, records_len: 0 });
        opened
    }

    fn assemble(&mut self) -> Vec<u8> {
        let mut scope = Vec::with_capacity(32);
        put_str(&mut scope, 1, "tidings");
        put_str(&mut scope, 2, env!("CARGO_PKG_VERSION"));
        // Stable: within a group the order of the journal stays.
        self.placed.sort_by_key(|(group, _)| *group);
        let overhead = self.groups.len() * (scope.len() + 24);
        let mut out = Vec::with_capacity(self.resources.len() + self.records.len() + overhead);
        let mut placed = self.placed.iter().peekable();
        for (index, group) in self.groups.iter().enumerate() {
            let scope_logs = field_len(scope.len()) + group.records_len;
            // ExportLogsServiceRequest.resource_logs, ResourceLogs.resource, .scope_logs
            put_head(&mut out, 1, field_len(group.resource.len()) + field_len(scope_logs));
            put_bytes(&mut out, 1, &self.resources[group.resource.clone()]);
            put_head(&mut out, 2, scope_logs);
            put_bytes(&mut out, 1, &scope);
            while let Some((_, record)) = placed.next_if(|(group, _)| *group == index) {
                out.extend_from_slice(&self.records[record.clone()]);
            }
        }
        out
    }
}

/// The hash of an object's uid or, where a reporter leaves that out, of what it is called.
fn object_hash(object: &ObjectReference<'_>) -> u64 {
    if object.uid.is_empty() {
        hash_of([object.kind.as_bytes(), object.namespace.as_bytes(), object.name.as_bytes()])
    } else {
        hash_of([object.uid.as_bytes()])
    }
}

fn hash_of<const N: usize>(pieces: [&[u8]; N]) -> u64 {
    let mut hasher = FxHasher::default();
    for piece in pieces {
        hasher.write(piece);
    }
    hasher.finish()
}

/// The attributes of `Resource` that an envelope states.
fn put_resource(out: &mut Vec<u8>, envelope: &Parsed<'_>) {
    let object = &envelope.event.involved_object;
    let mut put = |key: &str, value: &str| put_attr(out, RESOURCE_ATTRIBUTES, key, value);
    put("k8s.cluster.name", &envelope.cluster.name);
    put("k8s.cluster.uid", &envelope.cluster.uid);
    for (key, value) in &envelope.cluster.labels {
        put(&format!("k8s.cluster.label.{key}"), value);
    }
    put("k8s.namespace.name", &object.namespace);
    put("k8s.object.kind", &object.kind);
    put("k8s.object.name", &object.name);
    put("k8s.object.uid", &object.uid);
    put("k8s.object.fieldpath", &object.field_path);
    put("k8s.object.api_version", &object.api_version);
    put("k8s.object.resource_version", &object.resource_version);
    let keys = kind_keys(&object.kind, &object.api_version);
    if let Some((name_key, uid_key)) = keys {
        put(name_key, &object.name);
        put(uid_key, &object.uid);
    }
    put("k8s.container.name", container_name(&object.field_path));
    let node = envelope.object.as_ref().and_then(|info| info.node.as_deref());
    if !is_node(object) {
        put("k8s.node.name", node.unwrap_or(&envelope.event.source.host));
    }
    if let Some(info) = &envelope.object {
        let kind = keys.and_then(|(name, _)| name.strip_suffix(".name")).unwrap_or("k8s.object");
        put_info(out, info, kind);
    }
}

/// What is known of the object, by the attributes that its kind begins with.
fn put_info(out: &mut Vec<u8>, info: &ObjectInfo, kind: &str) {
    const ATTRIBUTES: u32 = RESOURCE_ATTRIBUTES;
    for (name, texts) in [("label", &info.labels), ("annotation", &info.annotations)] {
        for (key, value) in texts {
            put_attr(out, ATTRIBUTES, &format!("{kind}.{name}.{key}"), value);
        }
    }
    // The Node that owns a Pod is where it is.
    for owner in info.owners.iter().filter(|owner| owner.kind != "Node") {
        if let Some((name_key, uid_key)) = kind_keys(&owner.kind, &owner.api_version) {
            put_attr(out, ATTRIBUTES, name_key, &owner.name);
            put_attr(out, ATTRIBUTES, uid_key, &owner.uid);
        }
    }
}

/// The members of `LogRecord`.
fn put_log_record(out: &mut Vec<u8>, envelope: &Parsed<'_>) {
    let event = &envelope.event;
    let created = &event.metadata.creation_timestamp;
    put_fixed64(out, 1, unix_nanos(bounded(&envelope.time, created, &envelope.observed_time)));
    put_uint(out, 2, severity(&event.type_));
    put_str(out, 3, &event.type_);
    if !event.message.is_empty() {
        put_any_str(out, 5, &event.message);
    }
    let mut put = |key: &str, value: &str| put_attr(out, ATTRIBUTES, key, value);
    put("log.record.uid", &envelope.id);
    put("k8s.namespace.name", &event.involved_object.namespace);
    put("k8s.event.reason", &event.reason);
    put("k8s.event.action", &event.action);
    put("k8s.event.start_time", &event.metadata.creation_timestamp);
    put("k8s.event.name", &event.metadata.name);
    put("k8s.event.uid", &event.metadata.uid);
    let controller = [&event.reporting_component, &event.source.component];
    let controller = controller.into_iter().find(|text| !text.is_empty());
    put("k8s.event.reporting_controller", controller.map_or("", |text| text));
    put("k8s.event.reporting_instance", &event.reporting_instance);
    put_own_texts(out, &event.metadata);
    if let Some(related) = event.related {
        put_related(out, related);
    }
    put_attr_int(out, ATTRIBUTES, "k8s.event.count", envelope.occurrences);
    put_attr_int(out, ATTRIBUTES, "k8s.event.count_delta", envelope.delta);
    if envelope.replayed {
        put_attr_true(out, ATTRIBUTES, "k8s.event.replayed");
    }
    for (field, bytes) in &envelope.truncated {
        put_attr_int(out, ATTRIBUTES, &format!("tidings.truncated.{field}"), *bytes);
    }
    if let Some(missing) = envelope.object.as_ref().and_then(|info| info.missing) {
        put_attr(out, ATTRIBUTES, "k8s.object.missing", missing.as_str());
    }
    if envelope.object.as_ref().is_some_and(|info| info.node_claimed) {
        put_attr_true(out, ATTRIBUTES, "k8s.object.node_claimed");
    }
    if let Some(correlation) = &envelope.correlation {
        let action = correlation.action.as_str();
        put_attr(out, ATTRIBUTES, "k8s.event.correlation.action", action);
        put_attr_int(out, ATTRIBUTES, "k8s.event.correlation.count", correlation.count);
        if correlation.aggregated {
            put_attr_true(out, ATTRIBUTES, "k8s.event.correlation.aggregated");
        }
        if let Some(versions) = correlation.summarises {
            put_attr_int(out, ATTRIBUTES, "k8s.event.correlation.summarises", versions);
        }
        if let Some(messages) = correlation.distinct_messages {
            put_attr_int(out, ATTRIBUTES, "k8s.event.correlation.distinct_messages", messages);
        }
        let ids = correlation.messages.iter().map(|told| &*told.id);
        put_attr_strs(out, ATTRIBUTES, "k8s.event.correlation.message_ids", ids);
        let messages = correlation.messages.iter().map(|told| &*told.message);
        put_attr_strs(out, ATTRIBUTES, "k8s.event.correlation.messages", messages);
    }
    if let Some(letter) = &envelope.dead_letter {
        put_dead_letter(out, letter);
    }
    put_fixed64(out, 11, unix_nanos(envelope.observed_time.parse().ok()));
    put_str(out, 12, EVENT_NAME);
}

/// The attributes of `LogRecord` for the Event's own labels and annotations. What is no text says nothing.
fn put_own_texts(out: &mut Vec<u8>, metadata: &Metadata<'_>) {
    for (name, texts) in [("label", metadata.labels), ("annotation", metadata.annotations)] {
        let Some(texts) = texts else { continue };
        let texts: BTreeMap<String, Value> = serde_json::from_str(texts.get()).unwrap_or_default();
        for (key, value) in &texts {
            let value = value.as_str().unwrap_or_default();
            put_attr(out, ATTRIBUTES, &format!("k8s.event.{name}.{key}"), value);
        }
    }
}

/// The attributes of `LogRecord` for the other object that an Event is about.
fn put_related(out: &mut Vec<u8>, related: &RawValue) {
    let related: ObjectReference<'_> = serde_json::from_str(related.get()).unwrap_or_default();
    for (name, value) in [
        ("k8s.event.related.kind", &related.kind),
        ("k8s.event.related.namespace", &related.namespace),
        ("k8s.event.related.name", &related.name),
        ("k8s.event.related.uid", &related.uid),
        ("k8s.event.related.fieldpath", &related.field_path),
        ("k8s.event.related.api_version", &related.api_version),
        ("k8s.event.related.resource_version", &related.resource_version),
    ] {
        put_attr(out, ATTRIBUTES, name, value);
    }
}

/// The attributes of `LogRecord` for what became of an event at another sink.
fn put_dead_letter(out: &mut Vec<u8>, letter: &DeadLetterInfo) {
    let mut put = |name: &str, value: &str| put_attr(out, ATTRIBUTES, name, value);
    put("tidings.dead_letter.sink", &letter.sink);
    put("tidings.dead_letter.class", &letter.class);
    put("tidings.dead_letter.reason", &letter.reason);
    put("tidings.dead_letter.first_time", &letter.first_time);
    put("tidings.dead_letter.time", &letter.time);
    put_attr_int(out, ATTRIBUTES, "tidings.dead_letter.attempts", letter.attempts.into());
}

/// Nanoseconds since 1970; 0, which OTLP reads as unknown, for what is no time.
fn unix_nanos(time: Option<Timestamp>) -> u64 {
    time.and_then(|time| u64::try_from(time.as_nanosecond()).ok()).unwrap_or(0)
}

#[cfg(test)]
#[path = "otlp_tests.rs"]
mod tests;
