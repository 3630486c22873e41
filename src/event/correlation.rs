//! The member `correlation` of an envelope.

use serde::{Deserialize, Serialize};

use super::{EnvelopeParts, Record};

/// The action that the recorder of client-go would have taken on a version of an Event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CorrelationAction {
    /// Written a new Event: nothing like it is known.
    #[default]
    Create,
    /// Raised the count of the Event that it wrote before.
    Patch,
    /// Nothing: the object has used up its share of events (25, and one more every 300 s).
    Skip,
    /// Not an action of client-go's: held-back versions are announced together.
    Summary,
}

impl CorrelationAction {
    /// The spelling in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Patch => "patch",
            Self::Skip => "skip",
            Self::Summary => "summary",
        }
    }
}

/// The member `correlation` of an envelope.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Correlation {
    /// The decision.
    pub action: CorrelationAction,
    /// Whether the Event is one of many similar ones (same object, reason and reporter, other
    /// messages), which are counted as one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub aggregated: bool,
    /// How often it, or its like, occurred since the sink has known of it.
    pub count: u64,
    /// How many versions `delta` stands for, this one included, where it is more than this one
    /// or the version was held back before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summarises: Option<u64>,
    /// How many different messages those versions have, where it is more than one. Up to 31 it is
    /// exact; 32 is said of more, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distinct_messages: Option<u64>,
    /// The first four of them and the last four, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<SummarisedMessage>,
}

/// A message of versions that are delivered as one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummarisedMessage {
    /// The id of a version that bore it: of the first one where it is among the first messages, else of
    /// the last one.
    pub id: String,
    /// The message, cut at 512 bytes.
    pub message: String,
}

impl SummarisedMessage {
    /// So many bytes of a message are told, or a few less to end at a character.
    const MOST: usize = 512;

    /// Of a record; nothing for bytes that ingest did not write.
    pub(crate) fn of(record: &Record) -> Option<Self> {
        let message = EnvelopeParts::of(&record.envelope)?.fields()?.message;
        let end = message.floor_char_boundary(Self::MOST);
        Some(Self { id: record.id().to_owned(), message: message[..end].to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_cut_at_a_character() {
        for (message, expected) in [
            ("x".repeat(512), "x".repeat(512)),
            ("x".repeat(513), "x".repeat(512)),
            (format!("x{}", "é".repeat(300)), format!("x{}", "é".repeat(255))),
            ("\n".repeat(300), "\n".repeat(300)),
        ] {
            let json = serde_json::to_string(&message).unwrap();
            let envelope = format!(r#"{{"id":"u-1","delta":1,"event":{{"message":{json}}}}}"#);
            let told = SummarisedMessage::of(&Record { seq: 1, envelope: envelope.into() });
            assert_eq!(told.unwrap(), SummarisedMessage { id: "u-1".into(), message: expected });
        }
    }
}
