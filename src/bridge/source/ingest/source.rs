//! One source as ingest knows it, and what is saved of it beside the log.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;

use super::{
    lists::{Pass, Replacing},
    store::NotKept,
};
use crate::{
    bridge::{gap::ON_ITS_WAY_MS, shared::now_ms, source::marks::SourceMarks},
    cache::{ReplaceReason, Witness, Witnesses},
    event::{Incoming, timestamp},
    journal::{Resume, SavedWitness, SourceState},
};

/// The witness is shown to the reflector and the checkpointer so often, at most.
const SHOW_WITNESS_EVERY: Duration = Duration::from_secs(1);

/// One source as earlier runs left it.
#[derive(Clone, Debug)]
pub(crate) struct IngestSource {
    /// `*` or the namespace, and `?fieldSelector` where there is one.
    pub(crate) key: Arc<str>,
    /// Up to where the journal holds it, where a resourceVersion of 0 means not at all, and what else is
    /// saved of it.
    pub(crate) state: SourceState,
    /// Another source held it up to there: it has no frame of its own yet.
    pub(crate) inherits: bool,
    /// Other sources have read a part of it: its first list closes a gap.
    pub(crate) part: bool,
    /// See [`past`](crate::bridge::source::past).
    pub(crate) deleted_known_until_ms: u64,
    /// Of its first list, only what occurred at most so long ago is exported.
    pub(crate) first_since: Option<Duration>,
    /// For the checkpointer.
    pub(crate) marks: Arc<SourceMarks>,
    /// For its reflector.
    pub(crate) witnesses: Witnesses,
    /// For its reflector, too.
    pub(crate) not_kept: NotKept,
}

impl IngestSource {
    /// A source as it was saved, which the journal holds up to a resume point.
    pub(crate) fn new(key: Arc<str>, saved: &SourceState, resume: Resume) -> Self {
        Self {
            marks: Arc::new(SourceMarks::new(Arc::clone(&key), saved.clone())),
            key,
            state: SourceState { resume, ..saved.clone() },
            inherits: false,
            part: false,
            deleted_known_until_ms: 0,
            first_since: None,
            witnesses: Witnesses::default(),
            not_kept: NotKept::default(),
        }
    }
}

/// As a reflector asks for it.
impl From<SavedWitness> for Witness {
    fn from(saved: SavedWitness) -> Self {
        let SavedWitness { namespace, name, uid, resource_version, .. } = saved;
        Self { namespace, name, uid, resource_version }
    }
}

/// One source of ingest. See the [module](self).
pub(super) struct Source {
    pub(super) spec: IngestSource,
    /// Up to the end of its last frame.
    pub(super) state: SourceState,
    /// When `state.last_heard_ms` was set, if this process did.
    heard: Option<Instant>,
    pub(super) replacing: Option<Replacing>,
    /// The part so far of a list that there was not room for as a whole.
    pub(super) pass: Option<Pass>,
    /// Something was changed that is to be saved soon with the next frame.
    pub(super) urgent: bool,
    /// A witness was noted that neither the reflector nor the checkpointer has been shown.
    new_witness: bool,
    /// When they were last shown one.
    shown: Option<Instant>,
}

impl Source {
    /// A source in a log that ends before `next`.
    pub(super) fn new(mut spec: IngestSource, next: u64) -> Self {
        let state = SourceState { as_of: next, ..std::mem::take(&mut spec.state) };
        spec.witnesses.begin_anew(state.witness.clone().map(Witness::from));
        Self {
            spec,
            state,
            heard: None,
            replacing: None,
            pass: None,
            urgent: false,
            new_witness: false,
            shown: None,
        }
    }

    /// Whether what was read of an Event need not be known any longer when it is deleted.
    pub(super) fn forgets(&self) -> bool {
        now_ms() >= self.spec.deleted_known_until_ms
    }

    /// A part of it has been read, be it by other sources; its first list is to bring the rest.
    pub(super) fn is_read_in_part(&self) -> bool {
        self.spec.part || self.pass.is_some() || self.state.unfinished.is_some()
    }

    /// Of its first list, what is older and not known is left out; but for what may have been missed.
    pub(super) fn cutoff(&self) -> Option<Timestamp> {
        let IngestSource { first_since, part, .. } = self.spec;
        let (since, now) = (first_since?, timestamp(now_ms()));
        // When the list was asked for, be it in parts, or the last that others have read.
        let heard = self.last_heard_ms().map_or(now, timestamp);
        let on_its_way = Duration::from_millis(ON_ITS_WAY_MS);
        Some(if part { (now - since).min(heard - on_its_way) } else { heard - since })
    }

    /// A frame of it is in the log.
    pub(super) fn appended(&mut self, resume: Resume, next: u64) {
        (self.state.resume, self.state.as_of) = (resume, next);
        if std::mem::take(&mut self.urgent) {
            self.save(true);
        } else {
            self.spec.marks.come_to(resume, next);
        }
    }

    /// All that had happened by then is in the log.
    pub(super) fn caught_up(&mut self, at_ms: u64) {
        self.hear(at_ms);
        self.save(false);
    }

    /// The same, to be saved with what comes next.
    pub(super) fn hear(&mut self, at_ms: u64) {
        self.state.last_heard_ms = Some(at_ms);
        self.heard = Some(Instant::now());
    }

    /// When it was last known that nothing is missing, as the clock goes now: one that was set back
    /// since does not make it later.
    pub(super) fn last_heard_ms(&self) -> Option<u64> {
        let since = |heard: Instant| u64::try_from(heard.elapsed().as_millis()).unwrap_or(u64::MAX);
        let ago = self.heard.map(|heard| now_ms().saturating_sub(since(heard)));
        self.state.last_heard_ms.map(|ms| ms.min(ago.unwrap_or(ms)))
    }

    /// Notes that an Event was read as it is. It belongs to a frame that is appended next, and is
    /// shown after that.
    pub(super) fn note_witness(&mut self, event: &Incoming<'_>, epoch: u32) {
        self.new_witness = true;
        let metadata = &event.fields.metadata;
        let witness = self.state.witness.get_or_insert_default();
        (witness.epoch, witness.resource_version) = (epoch, event.resource_version);
        // In place: this is done for each read of a watch.
        for (place, text) in [
            (&mut witness.namespace, &metadata.namespace),
            (&mut witness.name, &metadata.name),
            (&mut witness.uid, &metadata.uid),
        ] {
            place.clear();
            place.push_str(text);
        }
    }

    /// All that was noted is in the log: shows the witness, if the last was shown some time ago.
    /// Whether all that has happened was read does not matter to it.
    pub(super) fn show_witness(&mut self) {
        let recently = self.shown.is_some_and(|shown| shown.elapsed() < SHOW_WITNESS_EVERY);
        if !self.new_witness || recently {
            return;
        }
        (self.new_witness, self.shown) = (false, Some(Instant::now()));
        if let Some(witness) = self.state.witness.clone() {
            self.spec.witnesses.read(witness.into());
        }
        self.save(false);
    }

    /// Gives the checkpointer what is to be saved.
    pub(super) fn save(&self, urgent: bool) {
        self.spec.marks.set(self.state.clone(), urgent);
    }

    /// A list of this resourceVersion is whole; what it changes is saved with its last frame.
    pub(super) fn has_list(&mut self, reason: ReplaceReason, version: u64, asked_ms: u64) {
        match reason {
            // What was left out of it is not known.
            ReplaceReason::First if self.spec.first_since.is_some() => {
                self.state.whole_from = Some(version);
            }
            ReplaceReason::First => self.state.whole_from = Some(0),
            ReplaceReason::NewEpoch => {
                (self.state.whole_from, self.state.witness) = (Some(0), None);
            }
            ReplaceReason::Gap { .. } => {}
        }
        self.hear(asked_ms);
        (self.spec.part, self.pass) = (false, None);
        (self.state.unfinished, self.urgent) = (None, true);
    }

    /// The last frame of a list is in the log.
    pub(super) fn tell_reflector(&self, reason: ReplaceReason) {
        let witness = self.state.witness.clone().map(Witness::from);
        match (reason, witness) {
            (ReplaceReason::Gap { .. }, Some(witness)) => self.spec.witnesses.read(witness),
            (ReplaceReason::Gap { .. }, None) => {}
            (_, witness) => self.spec.witnesses.begin_anew(witness),
        }
    }
}
