//! Decoding one Event as the API server sent it.

use serde_json::value::RawValue;

use super::{EventFields, UidKey};

/// Why an object is not an Event that can be carried. The object is counted and named, and takes
/// no other with it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DecodeError {
    /// Not the JSON of an Event.
    #[error("not the JSON of a core/v1 Event: {0}")]
    Json(String),
    /// An object of another kind in a list or watch of Events.
    #[error("an object of kind {0:?} among the events")]
    Kind(String),
    /// Without a uid there is no identity.
    #[error("event {0} has no metadata.uid")]
    NoUid(String),
    /// A uid that JSON would have to escape, or longer than 253 bytes.
    #[error("event {0} has a metadata.uid of characters that no API server assigns")]
    BadUid(String),
    /// A resourceVersion that does not order.
    #[error("event {name} has the resourceVersion {value:?}, which is not a decimal number")]
    BadResourceVersion {
        /// `namespace/name`.
        name: String,
        /// The value that the member has.
        value: String,
    },
}

/// One Event of a list or a watch, decoded as far as ingest needs it.
#[derive(Debug)]
pub struct Incoming<'a> {
    /// The decoded members.
    pub fields: EventFields<'a>,
    /// `metadata.uid` as a table key.
    pub uid: UidKey,
    /// `metadata.resourceVersion` as a number.
    pub resource_version: u64,
    /// The JSON before `managedFields`, and the JSON after it; the second is empty without one.
    json: (&'a str, &'a str),
}

impl<'a> Incoming<'a> {
    /// Decodes the JSON of one Event.
    pub fn decode(json: &'a [u8]) -> Result<Self, DecodeError> {
        let text = std::str::from_utf8(json).map_err(|e| DecodeError::Json(e.to_string()))?.trim();
        let fields: EventFields<'a> =
            serde_json::from_str(text).map_err(|e| DecodeError::Json(e.to_string()))?;
        // Items of a list carry no kind.
        if !matches!(&*fields.kind, "" | "Event") {
            return Err(DecodeError::Kind(fields.kind.0.into_owned()));
        }
        let name = || format!("{}/{}", &*fields.metadata.namespace, &*fields.metadata.name);
        let uid = &*fields.metadata.uid;
        if uid.is_empty() {
            return Err(DecodeError::NoUid(name()));
        }
        let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
        if uid.len() > 253 || !uid.bytes().all(plain) {
            return Err(DecodeError::BadUid(name()));
        }
        let version = &*fields.metadata.resource_version;
        let resource_version = parse_resource_version(version).ok_or_else(|| {
            DecodeError::BadResourceVersion { name: name(), value: version.to_owned() }
        })?;
        let uid = UidKey::of(uid);
        Ok(Self {
            uid,
            resource_version,
            json: without(text, fields.metadata.managed_fields),
            fields,
        })
    }

    /// The Event's JSON as the API server sent it, but for `managedFields`, in two pieces to be
    /// written one after the other.
    pub fn json(&self) -> (&'a str, &'a str) {
        self.json
    }

    /// The id of this change: `<event uid>-<resourceVersion>`.
    pub fn id(&self) -> String {
        format!("{}-{}", &*self.fields.metadata.uid, self.resource_version)
    }
}

/// A resourceVersion as the number it is: digits without a leading zero.
///
/// Kubernetes made the order of resourceVersions a promise in 1.35 (KEP-5504); etcd's revisions
/// ordered before.
fn parse_resource_version(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    (digits && (text == "0" || !text.starts_with('0'))).then(|| text.parse().ok())?
}

/// Cuts the member `metadata.managedFields` out of an object's JSON. It is half of an Event's bytes
/// and says nothing to a reader of events.
fn without<'a>(text: &'a str, managed_fields: Option<&RawValue>) -> (&'a str, &'a str) {
    let Some(value) = managed_fields else { return (text, "") };
    // The value borrows from `text`, so its place in it follows from the addresses.
    let start = value.get().as_ptr() as usize - text.as_ptr() as usize;
    let end = start + value.get().len();
    let before_colon = text[..start].trim_end().strip_suffix(':').map(str::trim_end);
    let key = before_colon.and_then(|key| key.strip_suffix("\"managedFields\""));
    let Some(before) = key else {
        return (text, "");
    };
    let (before, after) = (before.trim_end(), text[end..].trim_start());
    match before.strip_suffix(',') {
        Some(before) => (before, after),
        None => (before, after.strip_prefix(',').unwrap_or(after)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(text: &str) -> String {
        let fields: EventFields<'_> = serde_json::from_str(text).unwrap();
        let (a, b) = without(text, fields.metadata.managed_fields);
        format!("{a}{b}")
    }

    #[test]
    fn managed_fields_are_cut_wherever_they_stand() {
        let cases = [
            (
                r#"{"metadata":{"a":1,"managedFields":[{"x":"]"}],"b":2}}"#,
                r#"{"metadata":{"a":1,"b":2}}"#,
            ),
            (r#"{"metadata":{"managedFields":[],"b":2}}"#, r#"{"metadata":{"b":2}}"#),
            (r#"{"metadata":{"a":1 , "managedFields" : [1] }}"#, r#"{"metadata":{"a":1 }}"#),
            (r#"{"metadata":{"managedFields":null}}"#, r#"{"metadata":{"managedFields":null}}"#),
            (
                r#"{"metadata":{},"message":"\"managedFields\":[1]"}"#,
                r#"{"metadata":{},"message":"\"managedFields\":[1]"}"#,
            ),
            (
                r#"{"metadata":{},"x":{"managedFields":[1]}}"#,
                r#"{"metadata":{},"x":{"managedFields":[1]}}"#,
            ),
        ];
        for (sent, kept) in cases {
            assert_eq!(joined(sent), kept);
        }
    }

    #[test]
    fn resource_versions_are_decimal_numbers() {
        assert_eq!(parse_resource_version("17"), Some(17));
        for bad in ["", "017", "-1", "+1", "1.0", "abc", "18446744073709551616"] {
            assert_eq!(parse_resource_version(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_version_that_cannot_be_identified_is_named() {
        let decode = |json: &str| {
            Incoming::decode(json.as_bytes()).map(|e| e.id()).map_err(|e| e.to_string())
        };
        assert_eq!(decode(r#"{"metadata":{"uid":"u","resourceVersion":"3"}}"#), Ok("u-3".into()));
        assert_eq!(
            decode(r#"{"metadata":{"namespace":"a","name":"b","resourceVersion":"3"}}"#),
            Err("event a/b has no metadata.uid".into())
        );
        assert!(decode(r#"{"metadata":{"uid":"u\"v","resourceVersion":"3"}}"#).is_err());
        assert!(decode(r#"{"metadata":{"uid":"u","resourceVersion":"x"}}"#).is_err());
        assert!(decode("<html>").is_err());
        assert!(
            decode(r#"{"metadata":{"uid":"u","resourceVersion":"3"},"count":"many"}"#).is_err()
        );
    }

    #[test]
    fn null_and_absent_members_read_alike() {
        let json = br#"{"metadata":{"uid":"u","resourceVersion":"3","creationTimestamp":"2026-01-01T00:00:00Z"},
            "involvedObject":null,"source":null,"series":null,"count":null,"eventTime":null,
            "firstTimestamp":null,"lastTimestamp":null,"message":null}"#;
        let event = Incoming::decode(json).unwrap();
        assert_eq!(event.fields.occurrences(), 1);
        assert_eq!(event.fields.time(), "2026-01-01T00:00:00Z");
        assert_eq!(&*event.fields.involved_object.kind, "");
    }
}
