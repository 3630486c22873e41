//! What the state is made of.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use super::{LetterFate, LetterState, ObjectsCommit, ObjectsView};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidings_log::{Position, Resume};

use crate::{
    event::{SeenEntry, UidKey},
    journal::{Inputs, Standing},
};

/// How many records met which fate, for one sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Totals {
    /// The receiver has them.
    pub delivered: u64,
    /// `match` did not want them.
    pub filtered: u64,
    /// The correlator held them back for good.
    pub correlated_away: u64,
    /// The receiver refused them.
    pub dead_lettered: u64,
    /// They were gone from the log before they had a fate.
    pub lost: u64,
    /// Delivered once more after a crash; these are counted in no other total.
    pub redelivered: u64,
    /// Dead letters that the receiver took in the end. These are counted as delivered, and as
    /// dead-lettered no more.
    pub retried: u64,
}

impl std::ops::AddAssign for Totals {
    fn add_assign(&mut self, more: Self) {
        self.delivered += more.delivered;
        self.filtered += more.filtered;
        self.correlated_away += more.correlated_away;
        self.dead_lettered += more.dead_lettered;
        self.lost += more.lost;
        self.redelivered += more.redelivered;
        self.retried += more.retried;
    }
}

/// What is stored of a sink.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkState {
    /// Where it stands.
    #[serde(flatten)]
    pub standing: Standing,
    /// The fates.
    pub totals: Totals,
    /// For each source, up to where everything has a fate and is not held.
    pub positions: BTreeMap<String, Resume>,
    /// Those that its templates have made today.
    #[serde(default, skip_serializing_if = "Destinations::is_empty")]
    pub destinations: Destinations,
}

/// The destinations that the templates of a sink have made in a day.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Destinations {
    /// The day, from the epoch on.
    pub day: u64,
    /// The hash of each, and that of the namespace whose event made it; sorted by the first.
    pub made: Vec<(u64, u64)>,
}

impl Destinations {
    fn is_empty(&self) -> bool {
        self.made.is_empty()
    }
}

/// What is stored of a sink's correlator: a view of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedCorrelator {
    /// It knows everything before it. Never beyond the sink's own position.
    pub position: Position,
    /// The state, in the correlator's own form; empty when there was none up to here.
    pub bytes: Bytes,
}

/// What a sink's correlator has decided by since it was saved, up to the sink's own position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CorrelatorInputs {
    /// They are all that there are before this sequence.
    pub next: u64,
    /// What all records before it took in the log, as the correlator counts them.
    pub read_bytes: u64,
    /// See [`Inputs`].
    pub inputs: Inputs,
}

impl CorrelatorInputs {
    /// Takes in what came after.
    pub fn add(&mut self, next: u64, read_bytes: u64, inputs: &Inputs) {
        (self.next, self.read_bytes) = (next, read_bytes);
        self.inputs.merge(inputs, 0..inputs.len());
    }
}

/// What is stored of a source. States of earlier versions have the first two members only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceState {
    /// Its number: [`SeenEntry::source`].
    pub id: u16,
    /// When the journal was first started, milliseconds since the epoch; in states of earlier
    /// versions the source.
    pub first_start_ms: u64,
    /// What follows knows the log up to before this sequence; 0: there is nothing of it.
    #[serde(default)]
    pub as_of: u64,
    /// Where the source stood there.
    #[serde(default)]
    pub resume: Resume,
    /// When it was last known that everything is in the log, milliseconds since the epoch.
    #[serde(default)]
    pub last_heard_ms: Option<u64>,
    /// Every version after this resourceVersion, up to the resume point, is in the view `seen` if it
    /// is the newest of its Event.
    #[serde(default)]
    pub whole_from: Option<u64>,
    /// An Event as it was read, by which the history it was read from is known again.
    #[serde(default)]
    pub witness: Option<SavedWitness>,
    /// What a list has brought so far that has to be stated when it is whole.
    #[serde(default)]
    pub unfinished: Option<Unfinished>,
}

/// An Event that was read of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SavedWitness {
    /// Its history.
    pub epoch: u32,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: u64,
}

/// What a list that closes a gap has brought so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Unfinished {
    /// Events that were journalled.
    pub replayed: u64,
    /// Increments that came as part of a larger one.
    pub skipped: u64,
}

impl Unfinished {
    /// Counts one more Event, which came with this delta.
    pub fn count(&mut self, delta: u64) {
        self.replayed += 1;
        self.skipped += delta.saturating_sub(1);
    }
}

/// Something a receiver refused for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    /// What it is named by; the store gives it, from 0 on and none twice.
    #[serde(skip)]
    pub number: u64,
    /// Where it is.
    #[serde(default)]
    pub state: LetterState,
    /// The sink that it is still to be forwarded to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward: Option<String>,
    /// Which sink.
    pub sink: String,
    /// The record's sequence.
    pub seq: u64,
    /// The id of the change.
    pub id: String,
    /// `invalid`, `too-large` and the like.
    pub class: String,
    /// The receiver's words.
    pub reason: String,
    /// How often it was sent, not counting what was halved because a receiver refused it.
    pub attempts: u32,
    /// When it was first sent, milliseconds since the epoch.
    pub first_ms: u64,
    /// When it was given up, milliseconds since the epoch.
    pub time_ms: u64,
    /// How many events of a batch were refused without being named; 0: it is the event itself.
    pub unidentified: u64,
    /// What was refused; empty if that is not known.
    #[serde(skip)]
    pub envelope: Bytes,
}

impl DeadLetter {
    /// The class of letters that are parked: they are sent again by themselves, and go for no want of room.
    pub const BLOCKED: &str = "blocked";

    /// The [places](Self::place) of letters that a sink was sent are from here on.
    pub const TRIED: u64 = 1 << 63;

    /// Whether it is parked.
    pub fn is_parked(&self) -> bool {
        self.class == Self::BLOCKED
    }

    /// Its place among the letters that a sink is to be sent: those that it was never sent come first.
    pub fn place(&self, sink: &str) -> u64 {
        let is_tried = self.sink == sink && self.attempts > 0;
        if is_tried { Self::TRIED + self.number } else { self.number }
    }

    /// Notes that it was sent once more, in vain.
    pub(super) fn failed(&mut self, reason: &str, time_ms: u64) {
        reason.clone_into(&mut self.reason);
        self.attempts = self.attempts.saturating_add(1);
        self.time_ms = time_ms;
    }

    /// How many events it stands for.
    pub fn events(&self) -> u64 {
        self.unidentified.max(1)
    }

    /// The sinks that are to be sent it.
    pub(super) fn due_at(&self) -> impl Iterator<Item = &str> {
        let again = (self.state == LetterState::RetryRequested).then_some(&*self.sink);
        again.into_iter().chain(self.forward.as_deref())
    }
}

/// What changed since the last commit, all of which is stored or none.
#[derive(Clone, Debug, Default)]
pub struct StateCommit {
    /// Sinks, each whole; those not named stay as they are.
    pub sinks: BTreeMap<String, SinkState>,
    /// Correlators by sink, each whole; those not named stay as they are.
    pub correlators: BTreeMap<String, SavedCorrelator>,
    /// What correlators have decided by since the last commit, or since they were saved if that is later.
    pub inputs: BTreeMap<String, CorrelatorInputs>,
    /// Changes of the view `seen`, in the order of the uids, which is several times cheaper to
    /// write than any other; nothing instead of an entry: the uid is forgotten.
    pub seen: Arc<Vec<(UidKey, Option<SeenEntry>)>>,
    /// Sources, each whole; those not named stay as they are.
    pub sources: BTreeMap<String, SourceState>,
    /// The view `seen` now holds everything before this sequence.
    pub applied: u64,
    /// New dead letters; they get their numbers here.
    pub dead_letters: Vec<DeadLetter>,
    /// What became of older ones, by the sink that they were sent to.
    pub letter_fates: BTreeMap<String, Vec<LetterFate>>,
    /// What is new in the view `objects`.
    pub objects: ObjectsCommit,
    /// The cluster's uid, when it is news.
    pub cluster_uid: Option<String>,
    /// The uids of the bridge's own heartbeats, when there is another.
    pub heartbeats: Option<Vec<String>>,
}

/// What the last commit left.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Every sink that was ever committed.
    pub sinks: BTreeMap<String, SinkState>,
    /// Their correlators.
    pub correlators: BTreeMap<String, SavedCorrelator>,
    /// What each of these has decided by since it was saved.
    pub inputs: BTreeMap<String, CorrelatorInputs>,
    /// Every source that was ever committed.
    pub sources: BTreeMap<String, SourceState>,
    /// `seen` holds everything before this sequence; 1 in a state that is new.
    pub applied: u64,
    /// Up to where the view `objects` is kept; nothing if it never was.
    pub objects: Option<ObjectsView>,
    /// The cluster's uid, if it was ever known.
    pub cluster_uid: Option<String>,
    /// The uids of the bridge's own heartbeats, the oldest first.
    pub heartbeats: Vec<String>,
    /// A state that could not be used: where it is now, and what is wrong with it.
    pub set_aside: Option<(PathBuf, String)>,
    /// A state that could not be used, or was missing.
    pub lost: bool,
}

impl Loaded {
    /// The highest sequence that any view knows: the floor for
    /// [`Log::open`](tidings_log::Log::open).
    pub fn highest_sequence(&self) -> u64 {
        let next = self.sinks.values().map(|sink| sink.standing.position.next).max();
        let objects = self.objects.map_or(0, |view| view.next);
        next.unwrap_or(0).max(self.applied).max(objects).saturating_sub(1)
    }
}
