//! One source as ingest knows it, and what is saved of it beside the log.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use tidings_kube::reflector::{ReplaceReason, Witness, Witnesses};
use tidings_log::Resume;

use super::{
    lists::{Pass, Replacing},
    store::NotKept,
};
use crate::{
    bridge::{gap::ON_ITS_WAY_MS, marks::SourceMarks, shared::now_ms},
    event::{Incoming, timestamp},
    journal::{SavedWitness, SourceState, Unfinished},
};

/// The witness is shown to the reflector and the keeper so often, at most.
const SHOW_WITNESS_EVERY: Duration = Duration::from_secs(1);

/// One source as earlier runs left it.
#[derive(Clone, Debug)]
pub(in crate::bridge) struct IngestSource {
    /// `*` or the namespace, and `?fieldSelector` where there is one.
    pub(in crate::bridge) key: Arc<str>,
    /// Its number in the view `seen`.
    pub(in crate::bridge) id: u16,
    /// When the journal was first started, in milliseconds since the epoch.
    pub(in crate::bridge) first_start_ms: u64,
    /// Up to where the journal holds it; a resourceVersion of 0 means not at all.
    pub(in crate::bridge) resume: Resume,
    /// Another source held it up to there: it has no frame of its own yet.
    pub(in crate::bridge) inherits: bool,
    /// Other sources have read a part of it: its first list closes a gap.
    pub(in crate::bridge) part: bool,
    /// When it was last known that nothing of it is missing, in milliseconds since the epoch.
    pub(in crate::bridge) last_heard_ms: Option<u64>,
    /// See [`SourceState::whole_from`].
    pub(in crate::bridge) whole_from: Option<u64>,
    /// An Event of its history.
    pub(in crate::bridge) witness: Option<SavedWitness>,
    /// What a list has brought that was not whole when the program ended.
    pub(in crate::bridge) unfinished: Option<Unfinished>,
    /// See [`past`](crate::bridge::past).
    pub(in crate::bridge) deleted_known_until_ms: u64,
    /// Of its first list, only what occurred at most so long ago is exported.
    pub(in crate::bridge) first_since: Option<Duration>,
    /// For the keeper.
    pub(in crate::bridge) marks: Arc<SourceMarks>,
    /// For its reflector.
    pub(in crate::bridge) witnesses: Witnesses,
    /// For its reflector, too.
    pub(in crate::bridge) not_kept: NotKept,
}

impl IngestSource {
    /// The witness as a reflector asks for it.
    fn tell_witness(&self) -> Option<Witness> {
        let SavedWitness { namespace, name, uid, resource_version, .. } = self.witness.clone()?;
        Some(Witness { namespace, name, uid, resource_version })
    }
}

/// See the [module](self).
pub(super) struct Source {
    pub(super) spec: IngestSource,
    /// When `spec.last_heard_ms` was set, if this process did.
    heard: Option<Instant>,
    pub(super) unfinished: Option<Unfinished>,
    pub(super) replacing: Option<Replacing>,
    /// What a list has brought so far that there was not room for as a whole.
    pub(super) pass: Option<Pass>,
    /// The sequence after its last frame.
    next: u64,
    /// Something was changed that is to be saved soon with the next frame.
    pub(super) urgent: bool,
    /// A witness was noted that neither the reflector nor the keeper has been shown.
    new_witness: bool,
    /// When they were last shown one.
    shown: Option<Instant>,
}

impl Source {
    /// A source in a log that ends before `next`.
    pub(super) fn new(mut spec: IngestSource, next: u64) -> Self {
        let unfinished = spec.unfinished.take();
        spec.witnesses.begin_anew(spec.tell_witness());
        Self {
            spec,
            heard: None,
            unfinished,
            replacing: None,
            pass: None,
            next,
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
        self.spec.part || self.pass.is_some() || self.unfinished.is_some()
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
        self.spec.resume = resume;
        self.next = next;
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
        self.spec.last_heard_ms = Some(at_ms);
        self.heard = Some(Instant::now());
    }

    /// When it was last known that nothing is missing, as the clock goes now: one that was set back
    /// since does not make it later.
    pub(super) fn last_heard_ms(&self) -> Option<u64> {
        let since = |heard: Instant| u64::try_from(heard.elapsed().as_millis()).unwrap_or(u64::MAX);
        let ago = self.heard.map(|heard| now_ms().saturating_sub(since(heard)));
        self.spec.last_heard_ms.map(|ms| ms.min(ago.unwrap_or(ms)))
    }

    /// Notes that an Event was read as it is. It belongs to a frame that is appended next, and is
    /// shown after that.
    pub(super) fn note_witness(&mut self, event: &Incoming<'_>, epoch: u32) {
        self.new_witness = true;
        let metadata = &event.fields.metadata;
        let witness = self.spec.witness.get_or_insert_default();
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
        if let Some(witness) = self.spec.tell_witness() {
            self.spec.witnesses.read(witness);
        }
        self.save(false);
    }

    /// Gives the keeper what is to be saved.
    pub(super) fn save(&self, urgent: bool) {
        let IngestSource { id, first_start_ms, resume, last_heard_ms, whole_from, .. } = self.spec;
        let (witness, unfinished) = (self.spec.witness.clone(), self.unfinished);
        let state = SourceState {
            id,
            first_start_ms,
            as_of: self.next,
            resume,
            last_heard_ms,
            whole_from,
            witness,
            unfinished,
        };
        self.spec.marks.set(state, urgent);
    }

    /// A list of this resourceVersion is whole; what it changes is saved with its last frame.
    pub(super) fn has_list(&mut self, reason: ReplaceReason, version: u64, asked_ms: u64) {
        match reason {
            // What was left out of it is not known.
            ReplaceReason::First if self.spec.first_since.is_some() => {
                self.spec.whole_from = Some(version);
            }
            ReplaceReason::First => self.spec.whole_from = Some(0),
            ReplaceReason::NewEpoch => (self.spec.whole_from, self.spec.witness) = (Some(0), None),
            ReplaceReason::Gap { .. } => {}
        }
        self.hear(asked_ms);
        (self.spec.part, self.pass) = (false, None);
        (self.unfinished, self.urgent) = (None, true);
    }

    /// The last frame of a list is in the log.
    pub(super) fn tell_reflector(&self, reason: ReplaceReason) {
        let witness = self.spec.tell_witness();
        match (reason, witness) {
            (ReplaceReason::Gap { .. }, Some(witness)) => self.spec.witnesses.read(witness),
            (ReplaceReason::Gap { .. }, None) => {}
            (_, witness) => self.spec.witnesses.begin_anew(witness),
        }
    }
}
