//! What the end of the log tells of a source beyond what was saved of it: lists that a crash cut
//! short, gaps whose statement it may have taken, the newest witness.

use std::{collections::BTreeMap, sync::Arc};

use serde::Deserialize;
use tidings_log::{Frame, Position, Resume};

use crate::{
    bridge::{gap::Gap, past::own_resume},
    journal::{SavedWitness, SourceState, Unfinished},
};

/// Follows the frames from where the view `seen` is saved on, and brings what is saved of each
/// source up to them.
#[derive(Debug, Default)]
pub(super) struct Track {
    sources: BTreeMap<Arc<str>, Own>,
    /// The sequence from which on frames are read, until the first was.
    from: Option<u64>,
    /// The end of the frame before.
    end: Position,
    /// Records were missing between two frames, of whatever source.
    lost: bool,
    gaps: Vec<Gap>,
}

/// What is known of one source.
#[derive(Debug, Default)]
struct Own {
    resume: Option<Resume>,
    /// By its frames, nothing of it is missing before this time.
    heard_ms: Option<u64>,
    /// Some of its records may be missing, up to where its resume point moves next.
    lost: bool,
}

/// What a record says of a list.
#[derive(Deserialize)]
struct Replayed {
    delta: u64,
    replayed: bool,
}

impl Track {
    /// Of frames from a sequence on.
    pub(super) fn new(from: u64) -> Self {
        Self { from: Some(from), ..Self::default() }
    }

    /// A frame of a source, of which this is known so far.
    pub(super) fn frame(&mut self, frame: &Frame, known: &mut SourceState) {
        let is_lost = match self.from.take() {
            Some(from) => frame.first > from,
            None => frame.start().ordinal() != self.end.ordinal(),
        };
        if is_lost {
            self.lose();
        }
        self.end = frame.end();
        let saved = (known.as_of > 0).then_some(known.resume);
        let lost = self.lost || saved.is_none();
        let own = self.sources.entry(Arc::clone(&frame.source));
        let own = own.or_insert_with(|| Own { lost, ..Own::default() });
        let before = own.resume.replace(frame.resume).or(saved);
        // The frames of a list leave the resume point where it was, but for the last.
        let moved_from = before.filter(|before| *before != frame.resume);
        // Those of a list that is not whole say nothing of what was before it; but a first list begins
        // with an empty one.
        let is_empty = frame.count() == 0 && frame.forgotten.is_empty();
        if moved_from.is_some() || is_empty || own.heard_ms.is_none() {
            own.heard_ms = Some(frame.time_ms);
        }
        if moved_from.is_some() && std::mem::take(&mut own.lost) {
            is_whole_from(known, frame.resume);
        }
        if frame.first < known.as_of {
            return;
        }
        let mut facts = known.unfinished.unwrap_or_default();
        let mut newest = None;
        for (_, envelope) in frame.records() {
            let Ok(Replayed { delta, replayed }) = serde_json::from_slice(&envelope) else {
                continue;
            };
            if replayed {
                facts.count(delta);
            }
            newest = Some(envelope);
        }
        // A first list has begun that is not whole.
        let begun =
            known.unfinished.is_some() || (frame.resume.resource_version == 0 && frame.count() > 0);
        known.unfinished = Some(facts).filter(|facts| begun || *facts != Unfinished::default());
        let Some(before) = moved_from else { return };
        let epoch = frame.resume.epoch > before.epoch;
        if epoch {
            (known.whole_from, known.witness) = (Some(0), None);
        }
        let facts = known.unfinished.take().filter(|facts| *facts != Unfinished::default());
        if let Some(facts) = facts.filter(|_| saved.is_some()) {
            let (source, from_ms) = (Arc::clone(&frame.source), known.last_heard_ms);
            self.gaps.push(Gap::new(source, from_ms, frame.time_ms, facts, epoch));
        }
        if let Some(envelope) = newest
            && let Some(witness) = witness_of(&envelope, frame.resume.epoch)
        {
            known.witness = Some(witness);
        }
    }

    /// Records are missing here, of whatever source.
    pub(super) fn lose(&mut self) {
        self.lost = true;
        self.sources.values_mut().for_each(|own| own.lost = true);
    }

    /// The log has been read to its end, where its sources stand at `resume`. It has records before
    /// `survived`, and the next one is at the tail. Answers the gaps that were closed so late that
    /// they may not have been stated.
    pub(super) fn end(
        mut self,
        survived: Position,
        tail: Position,
        resume: &BTreeMap<Arc<str>, Resume>,
        newest_ms: Option<u64>,
        sources: &mut BTreeMap<String, SourceState>,
    ) -> Vec<Gap> {
        let ends_before = match self.from {
            Some(from) => from < survived.next,
            None => self.end.ordinal() < survived.ordinal(),
        };
        if ends_before {
            self.lose();
        }
        for (key, state) in sources {
            let now = own_resume(key, resume);
            let own = self.sources.get(&**key);
            if own.map_or(self.lost, |own| own.lost) {
                is_whole_from(state, now);
            }
            let heard_ms = match (state.last_heard_ms, newest_ms) {
                // A power cut took the end of the log, and what was heard then has to be heard again.
                (Some(heard_ms), Some(newest_ms)) if now < state.resume => heard_ms.min(newest_ms),
                (Some(heard_ms), _) => heard_ms,
                // Its own frames, or the last of the log where it is the only source.
                (None, newest_ms) => own
                    .and_then(|own| own.heard_ms)
                    .or(newest_ms.filter(|_| resume.len() == 1))
                    .unwrap_or(state.first_start_ms),
            };
            state.last_heard_ms = Some(heard_ms);
            state.witness.take_if(|witness| witness.epoch != now.epoch);
            (state.as_of, state.resume) = (tail.next, now);
        }
        self.gaps
    }
}

/// What was before this resume point may be missing in the view `seen`.
fn is_whole_from(known: &mut SourceState, resume: Resume) {
    known.whole_from = Some(known.whole_from.unwrap_or(0).max(resume.resource_version));
}

/// The Event of an envelope as a witness of its history.
fn witness_of(envelope: &[u8], epoch: u32) -> Option<SavedWitness> {
    #[derive(Deserialize)]
    struct Envelope {
        event: Event,
    }
    #[derive(Deserialize)]
    struct Event {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        namespace: String,
        name: String,
        uid: String,
        resource_version: String,
    }
    let Metadata { namespace, name, uid, resource_version } =
        serde_json::from_slice::<Envelope>(envelope).ok()?.event.metadata;
    let resource_version = resource_version.parse().ok()?;
    Some(SavedWitness { epoch, namespace, name, uid, resource_version })
}
