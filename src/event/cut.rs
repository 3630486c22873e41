//! An Event that is too large for its envelope, cut to fit.
//!
//! In this order, each at a character: the message, down to an eighth of the bound; of the annotations
//! and then of the labels those that stand last; `involvedObject.fieldPath`. All else stays byte for
//! byte. It is done in steps, so that the versions of an Event, whose numbers and times may be longer by
//! a digit, are cut alike: what is left of their texts is what a correlator knows them by. If that is not
//! enough the Event is reduced to its identity, the two object references, reason, type, counts and times;
//! and where these are too long, the longest of them are cut. Namespaces and the identity are not, as long
//! as an API server could have taken them: by these an Event is told from others, and whose it is.

use std::{fmt, ops::Range};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{EventFields, ObjectReference};

/// No bound of an envelope is smaller: with less room an Event is not to be told from another.
pub const LEAST_ENVELOPE: usize = 2 << 10;

/// A bound has so many steps.
const STEPS: usize = 16;
/// The member `truncated` is no longer, with all that it can name.
const NOTE: usize = 176;
/// Nor is a reduced Event, without its texts.
const REDUCED: usize = 640;
/// No API server takes a longer namespace,
const NAMESPACE: usize = 63;
/// or a longer name, in bytes.
const NAME: usize = 253;

/// The rest of an Event that was cut.
pub(super) struct Cut {
    pub(super) json: String,
    /// How many bytes were cut, by field: of texts as they read, `event` as JSON.
    pub(super) bytes: Vec<(&'static str, usize)>,
}

/// Where those members stand that are cut first.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, bound(deserialize = "'de: 'a"))]
struct Members<'a> {
    message: Option<&'a RawValue>,
    metadata: Option<MetadataMembers<'a>>,
    involved_object: Option<ObjectMembers<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct MetadataMembers<'a> {
    annotations: Option<&'a RawValue>,
    labels: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, bound(deserialize = "'de: 'a"))]
struct ObjectMembers<'a> {
    field_path: Option<&'a RawValue>,
}

/// The Event's JSON with the first four fields cut, so that it fits into `room` with the note of it, of
/// an envelope of `most` bytes; nothing if they are not enough.
pub(super) fn shortened(json: &str, room: usize, most: usize) -> Option<Cut> {
    let room = room.checked_sub(NOTE)?;
    let step = most / STEPS;
    let members: Members<'_> = serde_json::from_str(json).ok()?;
    let metadata = members.metadata.unwrap_or_default();
    let field_path = members.involved_object.and_then(|object| object.field_path);
    let mut excess = json.len().saturating_sub(room);
    let mut pieces: Vec<(Range<usize>, String)> = Vec::new();
    let mut bytes = Vec::new();
    for (field, value, cut, least) in [
        ("message", members.message, cut_text as fn(&str, usize) -> (String, usize), 2 * step),
        ("annotations", metadata.annotations, cut_map, 0),
        ("labels", metadata.labels, cut_map, 0),
        ("fieldPath", field_path, cut_text, 0),
    ] {
        let Some(value) = value.map(RawValue::get).filter(|value| *value != "null") else {
            continue;
        };
        let most = (value.len().saturating_sub(excess) / step * step).max(least);
        if excess == 0 || value.len() <= most {
            continue;
        }
        let (left, lost) = cut(value, most);
        excess = excess.saturating_sub(value.len().saturating_sub(left.len()));
        // The value borrows from `json`, so its place in it follows from the addresses.
        let start = value.as_ptr() as usize - json.as_ptr() as usize;
        pieces.push((start..start + value.len(), left));
        bytes.push((field, lost));
    }
    if excess > 0 {
        return None;
    }
    pieces.sort_unstable_by_key(|(place, _)| place.start);
    let (mut out, mut at) = (String::with_capacity(room), 0);
    for (place, piece) in pieces {
        out.push_str(&json[at..place.start]);
        out.push_str(&piece);
        at = place.end;
    }
    out.push_str(&json[at..]);
    bytes.retain(|(_, lost)| *lost > 0);
    Some(Cut { json: out, bytes })
}

/// The front of a string of JSON, of `most` bytes if that is more than its quotes, and how many bytes
/// of its text are left out. Another value becomes an empty string.
fn cut_text(value: &str, most: usize) -> (String, usize) {
    let Some(content) = string_content(value) else { return ("\"\"".to_owned(), value.len()) };
    let kept = front(content, most.saturating_sub(2));
    (format!("\"{kept}\""), text_length(&content[kept.len()..]))
}

/// The front of an object of JSON, of `most` bytes if that is more than its braces, and how many bytes
/// are left out of its keys and texts. Another value becomes an empty object.
fn cut_map(value: &str, most: usize) -> (String, usize) {
    let mut kept = Kept { json: String::from("{"), most, full: false, lost: 0 };
    match serde_json::Deserializer::from_str(value).deserialize_map(&mut kept) {
        Ok(()) => {
            kept.json.push('}');
            (kept.json, kept.lost)
        }
        Err(_) => ("{}".to_owned(), value.len()),
    }
}

/// The entries of an object as far as there is room.
struct Kept {
    json: String,
    most: usize,
    /// Nothing is kept from here on.
    full: bool,
    lost: usize,
}

impl Kept {
    fn entry(&mut self, key: &str, value: &str) {
        let comma = if self.json.len() > 1 { "," } else { "" };
        let left = self.most.saturating_sub(self.json.len() + comma.len() + key.len() + 2);
        if !self.full && value.len() <= left {
            self.push(&[comma, key, ":", value]);
            return;
        }
        // The first that there is no room for is cut, if it is a text; the others are left out.
        let text = string_content(value).filter(|_| !self.full);
        let part = text.map_or("", |text| front(text, left.saturating_sub(2)));
        self.full = true;
        self.lost += string_content(value).map_or(value.len(), text_length) - text_length(part);
        if part.is_empty() {
            self.lost += string_content(key).map_or(0, text_length);
        } else {
            self.push(&[comma, key, ":\"", part, "\""]);
        }
    }

    fn push(&mut self, pieces: &[&str]) {
        self.json.extend(pieces.iter().copied());
    }
}

impl<'de> Visitor<'de> for &mut Kept {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some((key, value)) = map.next_entry::<&RawValue, &RawValue>()? {
            self.entry(key.get(), value.get());
        }
        Ok(())
    }
}

/// The text between the quotes of a string of JSON.
fn string_content(value: &str) -> Option<&str> {
    value.strip_prefix('"')?.strip_suffix('"')
}

/// As much of a string's content as fits into `most` bytes, up to the end of a character.
fn front(content: &str, most: usize) -> &str {
    let mut end = 0;
    for (json, _) in characters(content) {
        if end + json > most {
            break;
        }
        end += json;
    }
    &content[..end]
}

/// How long a string's content is as text.
fn text_length(content: &str) -> usize {
    characters(content).map(|(_, text)| text).sum()
}

/// For each character of a string's content how many bytes it has there and as text. The two escapes
/// of a surrogate pair are one.
fn characters(content: &str) -> impl Iterator<Item = (usize, usize)> {
    let mut rest = content;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let lengths = match rest.as_bytes() {
            [b'\\', b'u', ..] => match (unit(rest), rest.get(6..).and_then(unit)) {
                (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => (12, 4),
                (Some(..=0x7F), _) => (6, 1),
                (Some(..=0x7FF), _) => (6, 2),
                (Some(_) | None, _) => (6, 3),
            },
            [b'\\', ..] => (2, 1),
            _ => (first.len_utf8(), first.len_utf8()),
        };
        rest = rest.get(lengths.0..).unwrap_or_default();
        Some(lengths)
    })
}

/// The code unit of the escape that a text begins with.
fn unit(text: &str) -> Option<u16> {
    u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok()
}

/// An Event that is reduced to what says which it is, about what, and how often.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Reduced<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    kind: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    api_version: &'a str,
    metadata: ReducedMetadata<'a>,
    involved_object: ReducedObject<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    related: Option<ReducedObject<'a>>,
    reason: &'a str,
    #[serde(rename = "type")]
    type_: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    series: Option<ReducedSeries<'a>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    first_timestamp: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    last_timestamp: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    event_time: &'a str,
    /// Of the envelope.
    #[serde(skip)]
    time: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReducedMetadata<'a> {
    name: &'a str,
    namespace: &'a str,
    uid: &'a str,
    resource_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    creation_timestamp: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReducedObject<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    kind: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    api_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    resource_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    field_path: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReducedSeries<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<i64>,
    #[serde(skip_serializing_if = "str::is_empty")]
    last_observed_time: &'a str,
}

/// The member that is not decoded otherwise.
#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Related<'a> {
    related: Option<ObjectReference<'a>>,
}

/// The Event reduced so that it fits into `room` with the envelope's time and the note of it, and that
/// time.
pub(super) fn reduced(
    fields: &EventFields<'_>,
    json: &str,
    room: usize,
    most: usize,
) -> (String, Cut) {
    let related = serde_json::from_str(json).ok().and_then(|Related { related }| related);
    let mut event = Reduced::of(fields, related.as_ref());
    let (uid, step) = (event.metadata.uid, most / STEPS);
    event.fit(room.saturating_sub(NOTE + REDUCED + uid.len()) / step * step);
    // Texts and numbers always serialise.
    let left = serde_json::to_string(&event).unwrap_or_default();
    let bytes = vec![("event", json.len().saturating_sub(left.len()))];
    (event.time.to_owned(), Cut { json: left, bytes })
}

impl<'a> Reduced<'a> {
    fn of(fields: &'a EventFields<'_>, related: Option<&'a ObjectReference<'_>>) -> Self {
        let EventFields { metadata, series, .. } = fields;
        let has_series = series.count.is_some() || !series.last_observed_time.is_empty();
        Self {
            kind: &fields.kind,
            // Items of a list carry neither.
            api_version: if fields.kind.is_empty() { "" } else { "v1" },
            metadata: ReducedMetadata {
                name: &metadata.name,
                namespace: &metadata.namespace,
                uid: &metadata.uid,
                resource_version: &metadata.resource_version,
                creation_timestamp: &metadata.creation_timestamp,
            },
            involved_object: ReducedObject::of(&fields.involved_object),
            related: related.map(ReducedObject::of),
            reason: &fields.reason,
            type_: &fields.type_,
            count: fields.count,
            series: has_series.then_some(ReducedSeries {
                count: series.count,
                last_observed_time: &series.last_observed_time,
            }),
            first_timestamp: &fields.first_timestamp,
            last_timestamp: &fields.last_timestamp,
            event_time: &fields.event_time,
            time: fields.time(),
        }
    }

    /// Cuts the longest texts, so that all take `room` bytes at most. The uid and the resourceVersion
    /// are bounded, and stay; namespaces and the name stay where they are no longer than they may be.
    fn fit(&mut self, mut room: usize) {
        let mut objects: Vec<_> = [Some(&mut self.involved_object), self.related.as_mut()]
            .into_iter()
            .flatten()
            .collect();
        let ReducedMetadata { name, namespace, creation_timestamp, .. } = &mut self.metadata;
        let namespaces = objects.iter_mut().map(|object| &mut object.namespace).chain([namespace]);
        for (text, most) in namespaces.map(|text| (text, NAMESPACE)).chain([(name, NAME)]) {
            let (end, length) = encoded(text, most);
            *text = &text[..end];
            room = room.saturating_sub(length);
        }
        let mut texts = vec![creation_timestamp];
        texts.extend([&mut self.reason, &mut self.type_, &mut self.time]);
        texts.extend([&mut self.first_timestamp, &mut self.last_timestamp, &mut self.event_time]);
        texts.extend(self.series.as_mut().map(|series| &mut series.last_observed_time));
        for object in objects {
            let ReducedObject { kind, name, uid, .. } = object;
            texts.extend([kind, name, uid]);
            let ReducedObject { api_version, resource_version, field_path, .. } = object;
            texts.extend([api_version, resource_version, field_path]);
        }
        texts.sort_by_cached_key(|text| encoded(text, usize::MAX).1);
        // The shortest first: what one does not need of its share is there for the others.
        let mut left = texts.len();
        for text in texts {
            let (end, length) = encoded(text, room / left);
            *text = &text[..end];
            (room, left) = (room - length, left - 1);
        }
    }
}

impl<'a> ReducedObject<'a> {
    fn of(object: &'a ObjectReference<'_>) -> Self {
        Self {
            kind: &object.kind,
            namespace: &object.namespace,
            name: &object.name,
            uid: &object.uid,
            api_version: &object.api_version,
            resource_version: &object.resource_version,
            field_path: &object.field_path,
        }
    }
}

/// How much of a text fits into `most` bytes of JSON without quotes, and how many of those that takes.
fn encoded(text: &str, most: usize) -> (usize, usize) {
    let mut length = 0;
    for (at, character) in text.char_indices() {
        let json = match character {
            '"' | '\\' | '\u{8}' | '\u{c}' | '\n' | '\r' | '\t' => 2,
            '\0'..='\u{1f}' => 6,
            _ => character.len_utf8(),
        };
        if length + json > most {
            return (at, length);
        }
        length += json;
    }
    (text.len(), length)
}

#[cfg(test)]
#[path = "cut_tests.rs"]
mod tests;
