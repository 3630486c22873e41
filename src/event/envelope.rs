//! The envelope: what a record of the journal holds and what sinks send. One line of JSON:
//! `{"id","cluster":{"name","uid"},"change","time","observedTime","occurrences","delta",
//! "replayed","event":{…}}`, with `"truncated":{…}` before the event where it was [cut](super::cut),
//! and on its way to a sink `"object":{…}`, `"correlation":{…}` and, where another sink refused it,
//! `"deadLetter":{…}` there.

use std::{collections::BTreeMap, fmt::Write as _, io::Write as _};

use bytes::{BufMut as _, Bytes, BytesMut};
use memchr::memmem::Finder;
use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::value::RawValue;

use super::{Correlation, EventFields, ObjectInfo, Text};

/// Which cluster the events are of. A member that is not known is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// The name from the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The uid of the namespace kube-system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Texts of the configuration.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// The member `deadLetter` of an envelope: what became of it at the sink that forwards it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetterInfo {
    /// The sink that could not deliver it.
    pub sink: String,
    /// `invalid`, `too-large` or `max-attempts`.
    pub class: String,
    /// The receiver's words.
    pub reason: String,
    /// How often it was sent there, not counting what was halved because it was refused.
    pub attempts: u32,
    /// When it was first sent there, RFC 3339.
    pub first_time: String,
    /// When it was given up there, RFC 3339.
    pub time: String,
}

/// An envelope in pieces, found without decoding it: only what
/// [`EnvelopeHead::write`](super::EnvelopeHead::write) made.
#[derive(Clone, Copy, Debug)]
pub struct EnvelopeParts<'a> {
    before_delta: &'a [u8],
    /// By how much the occurrences rose.
    pub delta: u64,
    pub(super) after_delta: &'a [u8],
    /// The Event's JSON.
    pub event: &'a [u8],
}

/// Calls with the namespace of an envelope's Event; with `""` where it is no envelope.
pub(crate) fn with_namespace<T>(envelope: &[u8], with: impl FnOnce(&str) -> T) -> T {
    let fields = EnvelopeParts::of(envelope).and_then(|parts| parts.fields());
    with(fields.as_ref().map_or("", |fields| &*fields.metadata.namespace))
}

impl<'a> EnvelopeParts<'a> {
    /// The pieces; nothing if the envelope does not have them where they belong. What stands in it
    /// of an object or of a correlation goes with `after_delta`.
    pub fn of(envelope: &'a [u8]) -> Option<Self> {
        // No name can stand in a string before the event: its quotes would be escaped there. Only
        // among the labels of the cluster or of an object it can be one of the names.
        let head = FIND_CHANGE.find(envelope).unwrap_or_default();
        let from = head + FIND_DELTA.find(&envelope[head..])? + DELTA.len();
        let length = envelope[from..].iter().take_while(|b| b.is_ascii_digit()).count();
        let digits = std::str::from_utf8(&envelope[from..from + length]).ok()?;
        let after = &envelope[from + length..];
        let before_event = behind_object(after);
        let event = before_event + FIND_EVENT.find(&after[before_event..])?;
        Some(Self {
            before_delta: &envelope[..from],
            delta: digits.parse().ok()?,
            after_delta: &after[..event],
            event: after[event + EVENT.len()..].strip_suffix(b"}")?,
        })
    }

    /// The cluster's JSON, as ingest wrote it.
    pub(crate) fn cluster(&self) -> &'a str {
        let behind = |at: usize| &self.before_delta[at + CLUSTER.len()..];
        let json = FIND_CLUSTER.find(self.before_delta).map_or(&b""[..], behind);
        let end = FIND_CHANGE.find(json).map_or(json.len(), |end| end + 1);
        std::str::from_utf8(&json[..end]).unwrap_or_default()
    }

    /// The Event's members that the bridge knows; nothing if it is none.
    pub fn fields(&self) -> Option<EventFields<'a>> {
        // From text: one look at the whole is cheaper than one at each string.
        serde_json::from_str(std::str::from_utf8(self.event).ok()?).ok()
    }

    /// The envelope with a correlation in it, and with `delta` as its delta. It is taken off the end
    /// of `space`, which grows by 64 KiB where there is no room: many envelopes lie in one
    /// allocation, which goes with the last of them.
    pub fn correlated(&self, delta: u64, correlation: &Correlation, space: &mut BytesMut) -> Bytes {
        self.with(delta, None, Some(correlation), space)
    }

    /// The envelope with `delta` as its delta, with [`ObjectInfo`] as JSON before the event, and a
    /// correlation behind that. As with [`correlated`](Self::correlated), it is taken off `space`.
    pub fn with(
        &self,
        delta: u64,
        object: Option<&[u8]>,
        correlation: Option<&Correlation>,
        space: &mut BytesMut,
    ) -> Bytes {
        let Self { before_delta, after_delta, event, .. } = self;
        let object_length = object.map_or(0, <[u8]>::len);
        let length = before_delta.len() + after_delta.len() + event.len() + object_length + ADDED;
        if space.capacity() < length {
            *space = BytesMut::with_capacity(length.max(CHUNK));
        }
        let out = space;
        out.extend_from_slice(before_delta);
        // Writing to memory cannot fail.
        let _ = write!(out, "{delta}");
        out.extend_from_slice(after_delta);
        if let Some(object) = object {
            out.extend_from_slice(OBJECT);
            out.extend_from_slice(object);
        }
        if let Some(correlation) = correlation {
            out.extend_from_slice(CORRELATION);
            let _ = serde_json::to_writer((&mut *out).writer(), correlation);
        }
        out.extend_from_slice(EVENT);
        out.extend_from_slice(event);
        out.extend_from_slice(b"}");
        out.split().freeze()
    }

    /// The envelope as a replay sends it: `replayed` is true.
    pub fn replayed(&self) -> Bytes {
        let rest = &self.after_delta[replayed_length(self.after_delta)..];
        self.around(&[REPLAYED[1], rest])
    }

    /// The envelope with what became of it at another sink.
    pub fn dead_lettered(&self, letter: &DeadLetterInfo) -> Bytes {
        // A struct of texts and a number always serialises.
        let letter = serde_json::to_vec(letter).unwrap_or_default();
        self.around(&[self.after_delta, b",\"deadLetter\":", &letter])
    }

    /// The envelope with this between its delta and its event.
    fn around(&self, between: &[&[u8]]) -> Bytes {
        let mut out = Vec::with_capacity(self.before_delta.len() + self.event.len() + ADDED);
        out.extend_from_slice(self.before_delta);
        // Writing to memory cannot fail.
        let _ = write!(out, "{}", self.delta);
        for piece in between.iter().chain(&[EVENT, self.event, b"}"]) {
            out.extend_from_slice(piece);
        }
        out.into()
    }
}

/// How long that is of what follows the delta which ends with an object, if there is one.
fn behind_object(after_delta: &[u8]) -> usize {
    let replayed = replayed_length(after_delta);
    let head = replayed + truncated_length(&after_delta[replayed..]);
    let Some(object) = after_delta[head..].strip_prefix(OBJECT) else { return 0 };
    let mut value = serde_json::Deserializer::from_slice(object).into_iter::<IgnoredAny>();
    match value.next() {
        Some(Ok(_)) => head + OBJECT.len() + value.byte_offset(),
        Some(Err(_)) | None => 0,
    }
}

/// How long the member `replayed` is that follows the delta.
pub(super) fn replayed_length(after_delta: &[u8]) -> usize {
    let known = REPLAYED.into_iter().find(|replayed| after_delta.starts_with(replayed));
    known.map_or(0, <[u8]>::len)
}

/// How long the member `truncated` is that follows. It holds names of the bridge's own, and numbers.
pub(super) fn truncated_length(after_replayed: &[u8]) -> usize {
    let cut = after_replayed.starts_with(TRUNCATED);
    let end = cut.then(|| memchr::memchr(b'}', after_replayed)).flatten();
    end.map_or(0, |end| end + 1)
}

/// What [`EnvelopeParts::with`] allocates at once, in bytes.
const CHUNK: usize = 64 << 10;
/// More than it adds, but for messages: names, an action and four numbers.
const ADDED: usize = 192;

/// The member in front of `cluster`'s value, and its end with the one behind it.
const CLUSTER: &[u8] = b",\"cluster\":";
const CHANGE: &[u8] = b"},\"change\":";
const DELTA: &[u8] = b"\"delta\":";
const OBJECT: &[u8] = b",\"object\":";
const CORRELATION: &[u8] = b",\"correlation\":";
pub(super) const TRUNCATED: &[u8] = b",\"truncated\":";
pub(super) const EVENT: &[u8] = b",\"event\":";
/// The member `replayed`, when it is false and when it is true.
const REPLAYED: [&[u8]; 2] = [b",\"replayed\":false", b",\"replayed\":true"];

/// For a member's name. To make one takes longer than to search an envelope.
type Search = std::sync::LazyLock<Finder<'static>>;
static FIND_CLUSTER: Search = Search::new(|| Finder::new(CLUSTER));
static FIND_CHANGE: Search = Search::new(|| Finder::new(CHANGE));
static FIND_DELTA: Search = Search::new(|| Finder::new(DELTA));
static FIND_EVENT: Search = Search::new(|| Finder::new(EVENT));

/// An envelope as a sink reads it, borrowed from a record's bytes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope<'a> {
    /// `<event uid>-<resourceVersion>`.
    #[serde(borrow)]
    pub id: Text<'a>,
    /// Where the Event is from.
    pub cluster: Cluster,
    /// `created` or `updated`.
    #[serde(borrow)]
    pub change: Text<'a>,
    /// When the Event last occurred, RFC 3339.
    #[serde(borrow)]
    pub time: Text<'a>,
    /// When the bridge received it, RFC 3339.
    #[serde(borrow)]
    pub observed_time: Text<'a>,
    /// How often it occurred so far.
    pub occurrences: u64,
    /// By how much that rose with this change.
    pub delta: u64,
    /// Whether it comes from a list that closed a gap.
    pub replayed: bool,
    /// How many bytes were cut of the Event, by field; `event` where it was reduced. Empty where it
    /// is whole.
    #[serde(default)]
    pub truncated: BTreeMap<String, u64>,
    /// What is known of the object that it is about, where the sink asks for that.
    #[serde(default)]
    pub object: Option<ObjectInfo>,
    /// What the sink's correlator says of it.
    #[serde(default)]
    pub correlation: Option<Correlation>,
    /// What became of it at the sink that forwards it, where one does.
    #[serde(default)]
    pub dead_letter: Option<DeadLetterInfo>,
    /// The Event as the API server sent it, without `managedFields`.
    #[serde(borrow, rename = "event")]
    pub event_json: &'a RawValue,
}

impl<'a> Envelope<'a> {
    /// Reads an envelope.
    pub fn parse(envelope: &'a [u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(envelope)
    }

    /// The Event's members that the bridge knows.
    pub fn event(&self) -> Result<EventFields<'a>, serde_json::Error> {
        serde_json::from_str(self.event_json.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{
        Change, CorrelationAction, EnvelopeHead, Incoming, Record, SummarisedMessage,
    };

    #[test]
    fn an_envelope_is_one_line_and_reads_back() {
        let json = "{\n \"metadata\": {\"uid\":\"0b8e\",\"resourceVersion\":\"12\",\"managedFields\":[]},\r\n\
            \"message\":\"two\\nlines\",\"count\":3,\"lastTimestamp\":\"2026-11-21T10:00:00Z\"}";
        let event = Incoming::decode(json.as_bytes()).unwrap();
        let head = EnvelopeHead {
            cluster_json: r#"{"name":"prod"}"#,
            change: Change::Updated,
            observed_time: "2026-11-21T10:00:01.5Z",
            delta: 2,
            replayed: true,
        };
        let mut out = Vec::new();
        head.write(&event, usize::MAX, &mut out);
        assert!(!out.contains(&b'\n'));
        let record = Record { seq: 1, envelope: out.into() };
        assert_eq!(record.id(), "0b8e-12");
        let envelope = Envelope::parse(&record.envelope).unwrap();
        assert_eq!(&*envelope.id, "0b8e-12");
        assert_eq!(envelope.cluster, Cluster { name: Some("prod".into()), ..Cluster::default() });
        assert_eq!((&*envelope.change, &*envelope.time), ("updated", "2026-11-21T10:00:00Z"));
        assert_eq!((envelope.occurrences, envelope.delta, envelope.replayed), (3, 2, true));
        assert_eq!(&*envelope.event().unwrap().message, "two\nlines");
        assert!(!envelope.event_json.get().contains("managedFields"));
        assert_eq!(envelope.correlation, None);
    }

    #[test]
    fn a_correlation_is_put_into_an_envelope() {
        // The texts that are looked for, where a cluster's name or a message could bring them.
        let json = r#"{"metadata":{"uid":"0b8e","resourceVersion":"12"},"message":"x,\"event\":1,\"delta\":7"}"#;
        let event = Incoming::decode(json.as_bytes()).unwrap();
        let name = r#"x","event":"#;
        let labels = ["change", "delta", "event"].map(|key| (key.to_owned(), "7".to_owned()));
        let cluster = Cluster { name: Some(name.into()), uid: None, labels: labels.into() };
        let cluster_json = serde_json::to_string(&cluster).unwrap();
        let mut out = Vec::new();
        let head = EnvelopeHead {
            cluster_json: &cluster_json,
            change: Change::Created,
            observed_time: "2026-11-21T10:00:01.5Z",
            delta: 2,
            replayed: false,
        };
        head.write(&event, usize::MAX, &mut out);
        let before: Bytes = out.into();
        let mut space = BytesMut::new();
        for (action, aggregated, summarises) in [
            (CorrelationAction::Create, false, None),
            (CorrelationAction::Skip, true, Some(3)),
            (CorrelationAction::Summary, false, Some(1)),
            (CorrelationAction::Patch, true, None),
        ] {
            let messages = summarises.map_or(vec![], |_| {
                vec![SummarisedMessage { id: "0b8e-11".into(), message: "x,\"event\":".into() }; 2]
            });
            let distinct_messages = summarises;
            let correlation = Correlation {
                action,
                aggregated,
                count: 25,
                summarises,
                distinct_messages,
                messages,
            };
            let parts = EnvelopeParts::of(&before).unwrap();
            assert_eq!((parts.delta, parts.event), (2, json.as_bytes()));
            assert_eq!(parts.cluster(), cluster_json);
            let after = parts.correlated(19, &correlation, &mut space);
            let (old, new) = (Envelope::parse(&before).unwrap(), Envelope::parse(&after).unwrap());
            assert_eq!((new.delta, new.correlation.as_ref()), (19, Some(&correlation)));
            assert_eq!(new.cluster.name.as_deref(), Some(name));
            assert_eq!((new.event_json.get(), &new.id), (old.event_json.get(), &old.id));
            let object =
                br#"{"labels":{"delta":"1","event":"x\",\"event\":"},"missing":"timeout"}"#;
            let both = parts.with(19, Some(object), Some(&correlation), &mut space);
            let again = EnvelopeParts::of(&both).unwrap();
            assert_eq!((again.delta, again.event), (19, json.as_bytes()));
            let known = Envelope::parse(&both).unwrap().object.unwrap();
            assert_eq!(known, serde_json::from_slice::<ObjectInfo>(object).unwrap());
            let whole: serde_json::Value = serde_json::from_slice(&after).unwrap();
            assert_eq!(whole["correlation"], serde_json::to_value(&correlation).unwrap());
            let letter = DeadLetterInfo {
                sink: "a".into(),
                reason: "\",\"event\":\"".into(),
                attempts: 2,
                ..DeadLetterInfo::default()
            };
            let replayed = again.replayed();
            let forwarded = EnvelopeParts::of(&replayed).unwrap().dead_lettered(&letter);
            let known = Envelope::parse(&forwarded).unwrap();
            assert_eq!((known.replayed, known.dead_letter), (true, Some(letter)));
            assert_eq!((known.delta, known.correlation), (19, Some(correlation)));
            assert_eq!((known.event_json.get(), &known.id), (json, &old.id));
            assert_eq!(EnvelopeParts::of(&forwarded).unwrap().replayed(), forwarded);
        }
        for foreign in ["", "{}", "{\"delta\":x,\"event\":{}}", "{\"delta\":1}", ",\"event\":"] {
            assert!(EnvelopeParts::of(foreign.as_bytes()).is_none(), "{foreign}");
        }
    }

    #[test]
    fn an_id_is_read_only_from_an_envelope() {
        for bytes in ["", "{}", "{\"id\":\"", "{\"id\":12}"] {
            assert_eq!(Record { seq: 1, envelope: bytes.into() }.id(), "");
        }
    }
}
