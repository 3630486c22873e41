//! What the store asks of an object, and an object of any resource but Events.

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use super::{
    object::{ObjectMeta, seconds},
    status::ApiStatus,
};

/// An object as the store keeps it: `metadata` is its first member.
pub(super) trait Stored: Clone + PartialEq + Serialize + DeserializeOwned {
    fn metadata(&self) -> &ObjectMeta;

    fn metadata_mut(&mut self) -> &mut ObjectMeta;

    /// Notes, as server-side apply's bookkeeping does, who created it.
    fn note_manager(&mut self, now: Timestamp);

    /// Counts changes of what is wanted, where the kind has such a count.
    fn count_generation(&mut self, _before: Option<&Self>) {}

    /// The JSON of the object as an item of a list: without `kind` and `apiVersion`.
    fn to_item(&self) -> Bytes {
        // Serialising a struct of strings, numbers and maps by strings does not fail.
        let json = serde_json::to_vec(self).unwrap_or_default();
        go_escaped(json).into()
    }

    fn of_item(item: &[u8]) -> Result<Self, ApiStatus> {
        serde_json::from_slice(item).map_err(|error| ApiStatus::new(500, "", error.to_string()))
    }
}

/// An object of which the server knows only the metadata.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct AnyObject {
    #[serde(default)]
    pub(super) metadata: ObjectMeta,
    #[serde(flatten)]
    pub(super) rest: Map<String, Value>,
}

impl AnyObject {
    /// Reads an object; `null` counts as absent. Kind and version follow from where it is kept.
    pub(super) fn from_json(mut value: Value) -> Result<Self, ApiStatus> {
        drop_nulls(&mut value);
        let mut object: Self = serde_json::from_value(value)
            .map_err(|error| ApiStatus::bad_request(format!("cannot be handled: {error}")))?;
        object.rest.retain(|member, _| member != "kind" && member != "apiVersion");
        Ok(object)
    }
}

impl Stored for AnyObject {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }

    fn note_manager(&mut self, now: Timestamp) {
        let mut fields = Map::new();
        let metadata =
            json!({"labels": self.metadata.labels, "annotations": self.metadata.annotations});
        fields.insert("f:metadata".to_owned(), fields_of(&metadata));
        for (key, value) in self.rest.iter().filter(|(key, _)| *key != "status") {
            fields.insert(format!("f:{key}"), fields_of(value));
        }
        self.metadata.managed_fields = vec![json!({
            "manager": "unknown", "operation": "Update", "apiVersion": "v1",
            "time": seconds(now), "fieldsType": "FieldsV1", "fieldsV1": fields
        })];
    }

    fn count_generation(&mut self, before: Option<&Self>) {
        let Some(spec) = self.rest.get("spec") else { return };
        let last = before.map_or(0, |before| before.metadata.generation.unwrap_or_default());
        let changed = before.is_none_or(|before| before.rest.get("spec") != Some(spec));
        self.metadata.generation = Some(if changed { last + 1 } else { last });
    }
}

/// The fields that a value has, as managedFields lists them. Lists count as one field.
fn fields_of(value: &Value) -> Value {
    let members = value.as_object().into_iter().flatten();
    members
        .map(|(key, member)| (format!("f:{key}"), fields_of(member)))
        .collect::<Map<_, _>>()
        .into()
}

pub(super) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Go's encoder writes `<`, `>` and `&` as `\u003c` and so on; outside strings none occurs.
pub(super) fn go_escaped(json: Vec<u8>) -> Vec<u8> {
    if memchr::memchr3(b'<', b'>', b'&', &json).is_none() {
        return json;
    }
    let mut out = Vec::with_capacity(json.len() + 32);
    for byte in json {
        match byte {
            b'<' => out.extend_from_slice(b"\\u003c"),
            b'>' => out.extend_from_slice(b"\\u003e"),
            b'&' => out.extend_from_slice(b"\\u0026"),
            other => out.push(other),
        }
    }
    out
}
