//! The patch that tells the API server of a repeat.

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Event, apimachinery::pkg::apis::meta::v1::Time};
use serde::Serialize;

/// A strategic merge patch, as client-go makes it: what an Event has beyond the same Event with
/// no count, no message and the Unix epoch as its last timestamp.
///
/// So it has `count`, `lastTimestamp` and `message`; a message that is empty and a time that is the
/// epoch are left out, a time that is not there is null. Nothing else of the Event is ever in it,
/// annotations included; but client-go's library for patches takes finalizers that are not sorted
/// for a change of their order, and says so in `metadata`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Patch {
    #[serde(skip_serializing_if = "is_zero")]
    count: i32,
    #[serde(skip_serializing_if = "LastTimestamp::is_epoch")]
    last_timestamp: LastTimestamp,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Metadata>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Metadata {
    #[serde(rename = "$setElementOrder/finalizers")]
    finalizers: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum LastTimestamp {
    /// Nothing to say.
    Epoch,
    /// It is null.
    Unset,
    At(Time),
}

/// serde hands over a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(count: &i32) -> bool {
    *count == 0
}

impl Patch {
    pub(super) fn of(event: &Event) -> Self {
        let unsorted =
            event.metadata.finalizers.as_ref().filter(|finalizers| !finalizers.is_sorted());
        Self {
            count: event.count.unwrap_or(0),
            last_timestamp: LastTimestamp::of(event.last_timestamp.as_ref()),
            message: event.message.clone().unwrap_or_default(),
            metadata: unsorted.map(|finalizers| Metadata { finalizers: finalizers.clone() }),
        }
    }

    /// The bytes that client-go would send: Go's JSON writes `<`, `>` and `&`, and the line
    /// separators U+2028 and U+2029, as escapes.
    ///
    /// # Errors
    ///
    /// None is known; [`serde_json`] might have one.
    pub fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        let text = serde_json::to_string(self)?;
        let mut escaped = Vec::with_capacity(text.len());
        // None of them can stand outside of a text.
        for (at, character) in text.char_indices() {
            match character {
                '<' => escaped.extend_from_slice(b"\\u003c"),
                '>' => escaped.extend_from_slice(b"\\u003e"),
                '&' => escaped.extend_from_slice(b"\\u0026"),
                '\u{2028}' => escaped.extend_from_slice(b"\\u2028"),
                '\u{2029}' => escaped.extend_from_slice(b"\\u2029"),
                _ => {
                    let end = at + character.len_utf8();
                    escaped.extend_from_slice(&text.as_bytes()[at..end]);
                }
            }
        }
        Ok(escaped)
    }
}

impl LastTimestamp {
    /// Times are compared as they are written, in whole seconds.
    fn of(time: Option<&Time>) -> Self {
        match time.filter(|time| !is_zero_time(time.0)) {
            None => Self::Unset,
            Some(time) if time.0.as_nanosecond().div_euclid(1_000_000_000) == 0 => Self::Epoch,
            Some(time) => Self::At(time.clone()),
        }
    }

    fn is_epoch(&self) -> bool {
        matches!(self, Self::Epoch)
    }
}

/// Go's zero time, the beginning of the year 1, stands for none.
fn is_zero_time(time: Timestamp) -> bool {
    const ZERO_SECOND: i64 = -62_135_596_800;
    time.as_second() == ZERO_SECOND && time.subsec_nanosecond() == 0
}
