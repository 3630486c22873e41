//! The messages of a topic: what Kafka is sent of a record.

use rdkafka::{
    message::{Header, OwnedHeaders},
    producer::BaseRecord,
    types::RDKafkaErrorCode,
};

use super::{super::KafkaKey, classify, partitions::murmur2, words};
use crate::{
    bridge::Failure,
    event::{Cluster, ObjectReference, Origin, Record, bounded},
};

/// The maker of messages for one topic. See the [module](self).
#[derive(Debug)]
pub(super) struct Messages {
    pub(super) topic: String,
    pub(super) key: KafkaKey,
}

/// The message of one record.
pub(super) struct Message<'a> {
    topic: &'a str,
    pub(super) record: &'a Record,
    key: String,
    hash: u32,
    /// In milliseconds since the epoch; 0 is replaced by now.
    time_ms: i64,
}

impl Messages {
    /// The message of a record; nothing for bytes that are no envelope.
    pub(super) fn of<'a>(&'a self, record: &'a Record) -> Option<Message<'a>> {
        let origin = Origin::of(&record.envelope)?;
        let key = self.key_of(&origin);
        let Origin { parts, metadata, .. } = &origin;
        let observed = parts.observed_time().parse().ok();
        let time = bounded(parts.time(), &metadata.creation_timestamp, observed);
        let time_ms = time.map_or(0, |time| time.as_millisecond().max(0));
        let hash = murmur2(key.as_bytes());
        Some(Message { topic: &self.topic, record, key, hash, time_ms })
    }

    /// The key of the messages of records of this origin.
    pub(super) fn key_of(&self, origin: &Origin<'_>) -> String {
        let Origin { parts, metadata, involved_object } = origin;
        match self.key {
            KafkaKey::Qualified => {
                let cluster = serde_json::from_str(parts.cluster()).unwrap_or_default();
                qualified_key(&cluster, &metadata.namespace, involved_object)
            }
            KafkaKey::Object => object_key(involved_object),
        }
    }

    /// The failure that an error about one of them, or about all, is.
    pub(super) fn failure(&self, code: RDKafkaErrorCode) -> Failure {
        classify::failure(code, words::of_code(code, &self.topic))
    }
}

impl Message<'_> {
    /// By which the partition is chosen.
    pub(super) fn hash(&self) -> u32 {
        self.hash
    }

    /// The size that it takes in the queue.
    pub(super) fn bytes(&self) -> usize {
        self.key.len() + self.record.envelope.len()
    }

    /// As librdkafka takes it.
    pub(super) fn as_record(&self) -> BaseRecord<'_, String, [u8], Box<u64>> {
        let headers = OwnedHeaders::new_with_capacity(2)
            .insert(Header { key: "id", value: Some(self.record.id()) })
            .insert(Header { key: "content-type", value: Some("application/json") });
        BaseRecord::with_opaque_to(self.topic, Box::new(self.record.seq))
            .key(&self.key)
            .payload(self.record.envelope.as_ref())
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
