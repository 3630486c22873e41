//! The documents of the control socket: what is asked, and what is answered.
//!
//! | request | body | answer |
//! |---|---|---|
//! | `GET /api/v1/dead-letters?sink=&class=&limit=&before=` | | [`LetterPage`], the newest first |
//! | `GET /api/v1/dead-letters/{number}` | | [`Letter`] with its envelope |
//! | `POST /api/v1/dead-letters/retry` | [`Selection`] | [`Affected`] |
//! | `POST /api/v1/dead-letters/drop` | [`Selection`] | [`Affected`] |
//! | `POST /api/v1/replay` | [`ReplayRequest`] | [`ReplayProgress`], a line of JSON each, until it is done |
//! | `POST /api/v1/reload` | | [`Reloaded`], when it is done; 400 where the file is rejected |
//! | `GET /api/v1/config` | | [`InForce`]; 404 where no file is read |
//!
//! [`ReplayProgress`]: crate::bridge::ReplayProgress
//!
//! Everything else is answered with a [`Refusal`]: 400 for a mistake in the request, 404 for a letter
//! that is not there, 409 for what cannot be done now.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use super::status::ConfigurationStatus;
use crate::{
    bridge::{Filter, Replay, ReplayFrom},
    event::{Envelope, timestamp},
    journal::{DeadLetter, LetterQuery, LetterState, Letters},
};

/// The longest body of a request, in bytes: some thousand numbers of letters.
pub const MAX_BODY: usize = 64 << 10;
/// The most letters in an answer, and how many they are without a `limit`.
pub const MAX_PAGE: usize = 1000;

/// Why something is not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What is wrong.
    pub error: String,
    /// How to mend it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Refusal {
    /// With a way to mend it.
    pub(super) fn new(error: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { error: error.into(), hint: Some(hint.into()) }
    }

    /// What an error says that has its hint in a line of its own.
    pub(super) fn from_message(message: &str) -> Self {
        match message.split_once("\nhint: ") {
            Some((error, hint)) => Self::new(error, hint),
            None => Self { error: message.to_owned(), hint: None },
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)?;
        self.hint.iter().try_for_each(|hint| write!(f, "\nhint: {hint}"))
    }
}

impl std::error::Error for Refusal {}

/// The configuration file was read again, and what is in it is in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// The file.
    pub file: String,
    /// Sinks that are new, as `sinks.NAME`.
    pub added: Vec<String>,
    /// Keys that have another value, and sinks as a whole.
    pub changed: Vec<String>,
    /// Sinks that are gone.
    pub removed: Vec<String>,
}

/// The configuration that is in force.
#[derive(Debug, Serialize, Deserialize)]
pub struct InForce {
    /// Its state, as it stands in the status.
    #[serde(flatten)]
    pub state: ConfigurationStatus,
    /// All of it as YAML, with the values of the environment, and `***` for secrets.
    pub yaml: String,
}

/// A dead letter.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Letter {
    /// What it is named by.
    pub number: u64,
    /// Which sink refused it.
    pub sink: String,
    /// `invalid`, `too-large` and the like.
    pub class: String,
    /// The receiver's words.
    pub reason: String,
    /// How often it was sent, not counting what was halved because a receiver refused it.
    pub attempts: u32,
    /// When it was first sent, RFC 3339.
    pub first_time: String,
    /// When it was given up, RFC 3339.
    pub time: String,
    /// Whether it waits to be sent again.
    pub state: LetterState,
    /// The sink that it is still to be forwarded to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward: Option<String>,
    /// The record's sequence in the journal.
    pub position: u64,
    /// The id of the change; empty if it is not known.
    pub id: String,
    /// The object that the event is about, where the event is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<InvolvedObject>,
    /// How many events of a batch were refused without being named; absent where it is one event.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unidentified: u64,
    /// What was refused. Only in the answer about one letter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envelope: Option<Box<RawValue>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the members are those of core/v1 ObjectReference")]
pub struct InvolvedObject {
    pub kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
}

impl fmt::Display for InvolvedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, namespace, name } = self;
        let slash = if namespace.is_empty() { "" } else { "/" };
        write!(f, "{kind} {namespace}{slash}{name}")
    }
}

impl Letter {
    /// As it stands in a list: without the envelope.
    pub fn listed(letter: &DeadLetter) -> Self {
        Self {
            number: letter.number,
            sink: letter.sink.clone(),
            class: letter.class.clone(),
            reason: letter.reason.clone(),
            attempts: letter.attempts,
            first_time: time(letter.first_ms),
            time: time(letter.time_ms),
            state: letter.state,
            forward: letter.forward.clone(),
            position: letter.seq,
            id: letter.id.clone(),
            object: involved_object(&letter.envelope),
            unidentified: letter.unidentified,
            envelope: None,
        }
    }

    /// All of it.
    pub fn whole(letter: &DeadLetter) -> Self {
        let envelope = serde_json::from_slice(&letter.envelope).ok();
        Self { envelope, ..Self::listed(letter) }
    }
}

/// Milliseconds since the epoch as RFC 3339, to the second.
fn time(ms: u64) -> String {
    timestamp(ms / 1000 * 1000).to_string()
}

fn involved_object(envelope: &[u8]) -> Option<InvolvedObject> {
    let envelope = Envelope::parse(envelope).ok()?;
    let object = envelope.event().ok()?.involved_object;
    Some(InvolvedObject {
        kind: object.kind.to_string(),
        namespace: object.namespace.to_string(),
        name: object.name.to_string(),
    })
}

/// Some dead letters, the newest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LetterPage {
    /// The letters.
    pub dead_letters: Vec<Letter>,
    /// `before` of the next page, if there may be one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
}

/// How many letters something was done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Affected {
    /// The number of them.
    pub dead_letters: u64,
}

/// Which letters are meant: those with these numbers, or all, of one sink or class or of any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Selection {
    /// Their numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numbers: Option<Vec<u64>>,
    /// All. To name neither numbers nor this is a mistake, so that nothing is dropped by one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// All of this sink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sink: Option<String>,
    /// All of this class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
}

impl Selection {
    /// The letters, if it says which.
    pub(crate) fn letters(self) -> Result<Letters, Refusal> {
        match self {
            Self { numbers: Some(numbers), all: false, sink: None, class: None } => {
                Ok(Letters::Numbers(numbers))
            }
            Self { numbers: None, all: true, sink, class } => Ok(Letters::Of { sink, class }),
            _ => Err(Refusal::new(
                "it is not said which letters are meant",
                "either {\"numbers\": [1, 2]} or {\"all\": true}, with \"sink\" and \"class\" if only \
                 theirs are meant",
            )),
        }
    }
}

/// What is to be sent again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplayRequest {
    /// To which sink.
    pub sink: String,
    /// What was journalled since then, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// From this sequence of the journal on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// Only events for which this CEL expression is true, as in the configuration.
    #[serde(default, rename = "match", skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
}

impl ReplayRequest {
    fn replay(self) -> Result<Replay, Refusal> {
        let from = match (self.since, self.from) {
            (Some(since), None) => {
                let time: Timestamp = since.parse().map_err(|error| {
                    let what = format!("`since`: `{since}` is no time: {error}");
                    Refusal::new(what, "write it as in RFC 3339: 2026-11-21T14:57:00Z")
                })?;
                ReplayFrom::Time(u64::try_from(time.as_millisecond()).unwrap_or(0))
            }
            (None, Some(from)) => ReplayFrom::Position(from),
            _ => {
                let what = "it is not said from where on";
                return Err(Refusal::new(what, "either \"since\" or \"from\""));
            }
        };
        let filter = self.filter.as_deref().map(Filter::compile).transpose();
        let filter = filter.map_err(|error| Refusal {
            error: format!("`match`: {error} (at byte {})", error.offset),
            hint: error.hint,
        })?;
        Ok(Replay { sink: self.sink, from, filter })
    }
}

/// What a body of `dead-letters/retry` and `dead-letters/drop` asks for.
pub fn parse_selection(body: &[u8]) -> Result<Letters, Refusal> {
    parse::<Selection>(body, "{\"numbers\": [1, 2]}")?.letters()
}

/// What a body of `replay` asks for.
pub fn parse_replay(body: &[u8]) -> Result<Replay, Refusal> {
    parse::<ReplayRequest>(body, "{\"sink\": \"pager\", \"since\": \"2026-11-21T14:57:00Z\"}")?
        .replay()
}

fn parse<T: DeserializeOwned>(body: &[u8], example: &str) -> Result<T, Refusal> {
    let wrong = |error: &dyn fmt::Display| {
        let what = format!("the body is not what is expected: {error}");
        Refusal::new(what, format!("for example {example}"))
    };
    // serde would take a list for the members in their order, too, and `[null, true]` for all letters.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(wrong(&"no object of JSON"));
    }
    serde_json::from_slice(body).map_err(|error| wrong(&error))
}

/// What the query of `GET /api/v1/dead-letters` asks for.
pub fn parse_query(query: &str) -> Result<LetterQuery, Refusal> {
    let mut asked = LetterQuery { sink: None, class: None, limit: MAX_PAGE, before: None };
    for (key, value) in form_urlencoded::parse(query.as_bytes()) {
        let number = || {
            let wrong = |_| Refusal::new(format!("`{key}={value}`: not a number"), "digits only");
            value.parse::<u64>().map_err(wrong)
        };
        match &*key {
            "sink" => asked.sink = Some(value.into_owned()),
            "class" => asked.class = Some(value.into_owned()),
            "limit" => {
                asked.limit = usize::try_from(number()?).unwrap_or(MAX_PAGE).min(MAX_PAGE);
            }
            "before" => asked.before = Some(number()?),
            _ => {
                let what = format!("there is no parameter `{key}`");
                return Err(Refusal::new(what, "they are sink, class, limit and before"));
            }
        }
    }
    Ok(asked)
}
