//! The state of a sink at one moment, for the status page and the metrics.

use serde::{Deserialize, Serialize};

use crate::{
    bridge::{Overflow, Reason},
    event::Missing,
    journal::{SinkState, Standing, Totals},
};

/// How a sink does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SinkCondition {
    /// Nothing has been sent yet.
    #[default]
    Idle,
    /// The last attempt was answered for every event.
    Healthy,
    /// The last attempt failed; the next one follows by itself.
    Retrying,
    /// Only a person can mend what the receiver complains of. It is tried again slowly.
    Misconfigured,
    /// The sink was stopped on a running bridge, which goes on without it.
    Stopped,
}

impl SinkCondition {
    /// Every condition.
    pub const ALL: [Self; 5] =
        [Self::Idle, Self::Healthy, Self::Retrying, Self::Misconfigured, Self::Stopped];

    /// The spelling in status and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Healthy => "healthy",
            Self::Retrying => "retrying",
            Self::Misconfigured => "misconfigured",
            Self::Stopped => "stopped",
        }
    }
}

/// Counts of what a sink was told of the objects of its events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enrichments {
    known: u64,
    /// In the order of [`Missing::ALL`].
    missing: [u64; Missing::ALL.len()],
}

impl Enrichments {
    /// Counts an event of which the object is known, or missing.
    pub(crate) fn count(&mut self, missing: Option<Missing>) {
        let reason = Missing::ALL.iter().position(|reason| Some(*reason) == missing);
        *reason.map_or(&mut self.known, |reason| &mut self.missing[reason]) += 1;
    }

    /// Each outcome, `known` or why it is missing, and of how many events.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let missing = Missing::ALL.map(Missing::as_str).into_iter().zip(self.missing);
        std::iter::once(("known", self.known)).chain(missing)
    }
}

impl std::ops::AddAssign for Enrichments {
    fn add_assign(&mut self, more: Self) {
        self.known += more.known;
        for (sum, more) in self.missing.iter_mut().zip(more.missing) {
            *sum += more;
        }
    }
}

/// The state of a sink, for the status page and the metrics.
#[derive(Clone, Debug, Default)]
pub struct SinkSnapshot {
    /// Its name in the configuration.
    pub name: String,
    /// Its transport.
    pub kind: &'static str,
    /// The policy when it has not had more than the journal is to hold.
    pub overflow: Overflow,
    /// Where it stands.
    pub standing: Standing,
    /// The fates.
    pub totals: Totals,
    /// How it does.
    pub condition: SinkCondition,
    /// The trouble that it has, unless it has failed with nothing but Events of a bridge in hand.
    pub trouble: Option<SinkCondition>,
    /// The last failure, until the next success.
    pub last_error: Option<Reason>,
    /// Attempts since the start of the process, and how many of them failed.
    pub attempts: u64,
    /// See `attempts`.
    pub failed_attempts: u64,
    /// Events that `match` could not be evaluated for, and that went through.
    pub match_errors: u64,
    /// Events delivered that the receiver knew to have had before, since the start of the process.
    pub duplicates: u64,
    /// Events that it has had cut to its `maxEvent`, since the start of the process.
    pub truncated: u64,
    /// Events that waited for so long that there was no room for what is added to them (`object`, `correlation`),
    /// since the start of the process.
    pub additions_dropped: u64,
    /// Counts of what it was told of objects since the start of the process; nothing if it does not ask.
    pub enrichments: Option<Enrichments>,
    /// The ingest time of the oldest record in hand, in milliseconds since the epoch.
    pub oldest_in_hand_ms: Option<u64>,
    /// Records behind the position that have their fates, or are set aside.
    pub passed: u64,
    /// Records that are set aside, with copies in the state: they have no fate.
    pub set_aside: u64,
    /// The namespaces that have most of them, ten at most.
    pub set_aside_of: Vec<NamespaceSetAside>,
    /// Records that wait behind one that fails, in a lane or beside the lanes, set aside ones included.
    pub held_up: u64,
    /// Those that most wait behind, ten at most.
    pub heads: Vec<HeldUp>,
    /// Beside the fates, since the start of the process.
    pub resends: ResendCounts,
}

impl SinkSnapshot {
    /// As it was saved, before anything is sent.
    pub(super) fn new(
        name: &str,
        kind: &'static str,
        overflow: Overflow,
        saved: &SinkState,
    ) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            overflow,
            standing: saved.standing,
            totals: saved.totals,
            passed: saved.passed.count(),
            set_aside: saved.set_aside,
            ..Self::default()
        }
    }
}

/// The events of one namespace that are set aside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceSetAside {
    /// The namespace.
    pub namespace: String,
    /// How many there are.
    pub events: u64,
}

/// Events that are held up while others go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldUp {
    /// The kind of line that they wait in.
    pub by: HeldBy,
    /// The namespace of the first of them.
    pub namespace: String,
    /// The kind and the name of the object that it is about.
    pub object: String,
    /// Its id; empty, as the two before, where the journal no longer has it.
    pub id: String,
    /// How many they are.
    pub events: u64,
    /// Why it was not taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The kind of line that holds events up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeldBy {
    /// A batch that has failed for long: the events of its objects wait.
    Lane,
    /// The queue of a namespace, or of an object, that fails while others are taken.
    Queue,
    /// A destination that takes nothing while others do.
    Destination,
    /// Set aside: tried now and then.
    SetAside,
}

impl HeldBy {
    /// The spelling in the status, in metrics and in the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lane => "lane",
            Self::Queue => "queue",
            Self::Destination => "destination",
            Self::SetAside => "set-aside",
        }
    }
}

/// Counts of what a sink was sent outside the journal's order, since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResendCounts {
    /// Dead letters of other sinks that it took.
    pub forwarded: u64,
    /// Dead letters of other sinks that it refused.
    pub forwards_refused: u64,
    /// Events that it was sent once more by a replay.
    pub replayed: u64,
}
