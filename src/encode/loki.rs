//! Events for Loki, an entry each: `[time, line, structured metadata]`.
//!
//! | part | value |
//! |---|---|
//! | time | the envelope's `time`, if that is at most an hour before `metadata.creationTimestamp`, and not ahead of our clock by more than [`AHEAD`], else that, else our clock's; nanoseconds since 1970, as a text |
//! | line | the event in the sink's format; an envelope is without `observedTime`, `replayed` and `correlation`, so that it is the same whenever it is sent |
//! | `event_id` | the envelope's id |
//! | `name`, `uid` | of the object that the Event is about |
//! | `reason` | the Event's |
//! | `truncated` | only where the Event was cut: `field=bytes`, separated by commas |
//!
//! Empty metadata is left out, and long values are cut: the line has all of them.

use std::borrow::Cow;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::{EncodeError, Format, parsed::Parsed, stable::Stable};
use crate::event::{BEFORE_CREATION, Record};

/// How far ahead of our clock the time of an entry may be: Loki refuses 10 minutes, and a stream takes nothing that is an
/// hour behind its newest entry.
const AHEAD: SignedDuration = SignedDuration::from_mins(5);
/// The longest value of a label or of metadata, in bytes, that Loki takes for a label by default.
const MOST_BYTES: usize = 2048;

/// The labels of a sink that has none of its own, beside `service_name`.
pub(crate) const LABELS: [&str; 4] = ["cluster", "namespace", "kind", "type"];

/// An event that entries are made of.
pub(crate) struct Event<'a> {
    pub(crate) record: &'a Record,
    parsed: Parsed<'a>,
}

/// `[time, line, structured metadata]`.
#[derive(Serialize)]
pub(crate) struct Entry<'a>(String, String, Metadata<'a>);

#[derive(Serialize)]
struct Metadata<'a> {
    event_id: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: Cow<'a, str>,
    #[serde(skip_serializing_if = "String::is_empty")]
    truncated: String,
}

impl<'a> Event<'a> {
    pub(crate) fn of(record: &'a Record) -> Result<Self, EncodeError> {
        let parsed = Parsed::of(&record.envelope);
        let parsed = parsed.map_err(|source| EncodeError { seq: record.seq, source })?;
        Ok(Self { record, parsed })
    }

    /// The values of [`LABELS`].
    pub(crate) fn labels(&self) -> [&str; 4] {
        let event = &self.parsed.event;
        let (namespace, kind) = (&event.metadata.namespace, &event.involved_object.kind);
        [self.parsed.cluster(), namespace, kind, &event.type_]
    }

    /// The time of its entry.
    pub(crate) fn time(&self, now: Timestamp) -> Timestamp {
        let created = &self.parsed.event.metadata.creation_timestamp;
        let read = |text: &str| text.parse::<Timestamp>().ok();
        let is_fit =
            |time: &Timestamp| *time >= Timestamp::UNIX_EPOCH && time.duration_since(now) <= AHEAD;
        let created = read(created);
        let is_near = |time: &Timestamp| {
            created.is_none_or(|created| time.duration_since(created) >= -BEFORE_CREATION)
        };
        read(&self.parsed.time)
            .filter(is_fit)
            .filter(is_near)
            .or(created.filter(is_fit))
            .unwrap_or(now)
    }

    /// Its entry at that time.
    pub(crate) fn entry(&self, format: Format, time: Timestamp) -> Result<Entry<'_>, EncodeError> {
        let Self { record, parsed } = self;
        let line = match format {
            Format::Envelope => Stable::of(&record.envelope)
                .and_then(|envelope| serde_json::to_string(&envelope))
                .map_err(|source| EncodeError { seq: record.seq, source })?,
            _ => String::from_utf8_lossy(&format.encode(record)?).into_owned(),
        };
        let object = &parsed.event.involved_object;
        let metadata = Metadata {
            event_id: &parsed.id,
            name: value(&object.name),
            uid: value(&object.uid),
            reason: value(&parsed.event.reason),
            truncated: parsed.cut(),
        };
        Ok(Entry(time.as_nanosecond().to_string(), line, metadata))
    }
}

/// A value of a label or of metadata as Loki takes it: as much of it as a label may have, and without U+FFFD, for which
/// Loki refuses a whole push.
pub(crate) fn value(text: &str) -> Cow<'_, str> {
    let text = &text[..text.floor_char_boundary(MOST_BYTES)];
    if text.contains('\u{fffd}') { text.replace('\u{fffd}', "?").into() } else { text.into() }
}
