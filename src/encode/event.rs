//! The Kubernetes Event alone, as the API server sent it without `managedFields`, with annotations:
//!
//! | annotation | from the envelope |
//! |---|---|
//! | `tidings.dev/id` | `id` |
//! | `tidings.dev/cluster` | the cluster's name, else its uid |
//! | `tidings.dev/delta` | `delta` |
//! | `tidings.dev/truncated` | `truncated`, as JSON; only where the Event was cut |
//!
//! They stand in place of annotations of the Event that are called so.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::value::RawValue;

use crate::event::Envelope;

const ID: &str = "tidings.dev/id";
const CLUSTER: &str = "tidings.dev/cluster";
const DELTA: &str = "tidings.dev/delta";
const TRUNCATED: &str = "tidings.dev/truncated";

#[derive(Deserialize)]
struct Members<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    annotations: Option<&'a RawValue>,
}

/// A member that is there, `null` too.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

pub(super) fn encode(envelope: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
    let envelope = Envelope::parse(envelope)?;
    let json = envelope.event_json.get();
    let metadata = serde_json::from_str::<Members<'_>>(json)?.metadata.get();
    if !metadata.starts_with('{') {
        return Err(serde_json::Error::custom("expected a mapping as `metadata` of the Event"));
    }
    let own = serde_json::from_str::<Metadata<'_>>(metadata)?.annotations;
    let annotations = serde_json::to_string(&annotations(&envelope, own)?)?;
    let metadata_at = offset(json, metadata);
    let (before, between, behind) = match own {
        Some(own) => {
            let at = offset(json, own.get());
            (&json[..at], "", &json[at + own.get().len()..])
        }
        None => {
            let (before, behind) = json.split_at(metadata_at + 1);
            (before, "\"annotations\":", behind)
        }
    };
    let is_last = own.is_some() || behind.trim_start().starts_with('}');
    let comma = if is_last { "" } else { "," };
    Ok([before, between, &annotations, comma, behind].concat().into())
}

/// Where a piece of a text begins in it.
fn offset(text: &str, piece: &str) -> usize {
    piece.as_ptr() as usize - text.as_ptr() as usize
}

fn annotations(
    envelope: &Envelope<'_>,
    own: Option<&RawValue>,
) -> Result<BTreeMap<String, Box<RawValue>>, serde_json::Error> {
    // Annotations that are no mapping are ignored.
    let mut all: BTreeMap<String, Box<RawValue>> =
        own.and_then(|own| serde_json::from_str(own.get()).ok()).unwrap_or_default();
    let mut set = |name: &str, value: Option<&str>| {
        match value {
            Some(value) => all.insert(name.to_owned(), serde_json::value::to_raw_value(value)?),
            None => all.remove(name),
        };
        Ok::<_, serde_json::Error>(())
    };
    let cluster = envelope.cluster.name.as_deref().or(envelope.cluster.uid.as_deref());
    let truncated = serde_json::to_string(&envelope.truncated)?;
    set(ID, Some(&envelope.id))?;
    set(CLUSTER, cluster)?;
    set(DELTA, Some(&envelope.delta.to_string()))?;
    set(TRUNCATED, Some(&*truncated).filter(|_| !envelope.truncated.is_empty()))?;
    Ok(all)
}
