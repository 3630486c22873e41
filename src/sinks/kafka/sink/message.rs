//! The messages of a topic: what Kafka is sent of a record.

use bytes::Bytes;
use rdkafka::{
    message::{Header, OwnedHeaders},
    producer::BaseRecord,
    types::RDKafkaErrorCode,
};
use serde::Deserialize;

use super::{super::KafkaKey, classify, words};
use crate::{
    bridge::Failure,
    encode::{EncodeError, Format},
    event::{Cluster, Metadata, ObjectReference, Record, Text, bounded},
};

/// The members of an envelope that a message is made of.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Parts<'a> {
    #[serde(default)]
    cluster: Cluster,
    #[serde(borrow)]
    time: Text<'a>,
    #[serde(borrow, default)]
    observed_time: Text<'a>,
    #[serde(borrow)]
    event: PartsOfEvent<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PartsOfEvent<'a> {
    #[serde(borrow, default)]
    metadata: Option<Metadata<'a>>,
    #[serde(borrow, default)]
    involved_object: Option<ObjectReference<'a>>,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Messages {
    pub(super) topic: String,
    pub(super) key: KafkaKey,
    pub(super) format: Format,
}

/// The message of one record.
pub(super) struct Message<'a> {
    topic: &'a str,
    record: &'a Record,
    value: Bytes,
    content_type: &'static str,
    key: String,
    /// In milliseconds since the epoch; 0 is replaced by now.
    time_ms: i64,
}

impl Messages {
    pub(super) fn of<'a>(&'a self, record: &'a Record) -> Result<Message<'a>, EncodeError> {
        let parts: Parts<'_> = serde_json::from_slice(&record.envelope)
            .map_err(|source| EncodeError { seq: record.seq, source })?;
        let value = self.format.encode(record)?;
        let metadata = parts.event.metadata.unwrap_or_default();
        let object = parts.event.involved_object.unwrap_or_default();
        let key = match self.key {
            KafkaKey::Qualified => qualified_key(&parts.cluster, &metadata.namespace, &object),
            KafkaKey::Object => object_key(&object),
        };
        let time = bounded(&parts.time, &metadata.creation_timestamp, &parts.observed_time);
        let time_ms = time.map_or(0, |time| time.as_millisecond().max(0));
        let content_type = self.format.content_type();
        Ok(Message { topic: &self.topic, record, value, content_type, key, time_ms })
    }

    /// The failure that an error about one of them, or about all, is.
    pub(super) fn failure(&self, code: RDKafkaErrorCode) -> Failure {
        classify::failure(code, words::of_code(code, &self.topic))
    }
}

impl Message<'_> {
    /// As librdkafka takes it.
    pub(super) fn as_record(&self) -> BaseRecord<'_, String, [u8], Box<u64>> {
        let headers = OwnedHeaders::new_with_capacity(2)
            .insert(Header { key: "id", value: Some(self.record.id()) })
            .insert(Header { key: "content-type", value: Some(self.content_type) });
        BaseRecord::with_opaque_to(self.topic, Box::new(self.record.seq))
            .key(&self.key)
            .payload(self.value.as_ref())
            .headers(headers)
            .timestamp(self.time_ms)
    }
}

/// The key that keeps the events of one object together, behind where they are from. The name of the cluster
/// stands in for a uid that is not known.
fn qualified_key(cluster: &Cluster, namespace: &str, object: &ObjectReference<'_>) -> String {
    let cluster = cluster.uid.as_ref().or(cluster.name.as_ref()).map_or("", |text| text);
    if object.uid.is_empty() {
        format!("{cluster}/{namespace}/{}/{}", &*object.kind, &*object.name)
    } else {
        format!("{cluster}/{namespace}/{}", &*object.uid)
    }
}

/// The object as the Event has it.
fn object_key(object: &ObjectReference<'_>) -> String {
    if object.uid.is_empty() {
        format!("{}/{}/{}", &*object.kind, &*object.namespace, &*object.name)
    } else {
        object.uid.0.clone().into_owned()
    }
}
