//! Bringing back what is ahead of a log that has lost its end.
//!
//! The resume points went back with the log, so the API server is asked again for what is missing.
//! It must not be taken for a repeat then: what `seen` knows of it has to go, and what it knew
//! before has to come back, for the deltas to be the same as the first time.

use std::{collections::BTreeMap, io, sync::Arc};

use tidings_log::Resume;

use super::{Restored, for_each_frame, seen_entry};
use crate::{
    event::{SeenChanges, UidKey},
    journal::{Positions, SinkState, Version},
};

/// So many Events of the view are looked at, and changed, at a time.
const PAGE: usize = 1000;

impl Restored {
    /// Takes from the view `seen` each version that the resume points do not cover, and puts in its
    /// place the one that the log still has, if any. Memory grows with the number of such Events: it
    /// is what was lost of the log, at most.
    ///
    /// All of it is saved before the log goes on. Behind the next frames it could not be told any more
    /// that the view is ahead of them: after a crash what is still missing then would be a repeat.
    pub(super) fn roll_back_seen(&mut self) -> io::Result<()> {
        let covered: BTreeMap<u16, Resume> = self
            .sources
            .iter()
            .map(|(key, state)| (state.id, self.resume.get(&**key).copied().unwrap_or_default()))
            .collect();
        let mut changes = SeenChanges::default();
        let table = self.state.seen();
        let mut from = Some(UidKey(0));
        while let Some(first) = from {
            let page = table.page(first, PAGE).map_err(io::Error::other)?;
            from = page.last().and_then(|(uid, _)| uid.0.checked_add(1)).map(UidKey);
            let ahead = page.into_iter().filter(|(_, entry)| {
                let up_to = covered.get(&entry.source()).map_or(0, |at| at.resource_version);
                entry.resource_version > up_to
            });
            changes.extend(ahead.map(|(uid, _)| (uid, None)));
        }
        if changes.is_empty() {
            return Ok(());
        }
        // Where that fails the versions go all the same: a delta that is too large is not as bad as an
        // Event that is taken for a repeat.
        let read = for_each_frame(&self.log.handle(), 0, |frame| {
            let Some(source) = self.sources.get(&*frame.source).map(|state| state.id) else {
                return true;
            };
            for (_, envelope) in frame.records() {
                if let Some((uid, entry)) = seen_entry(&envelope, source)
                    && let Some(change) = changes.get_mut(&uid)
                {
                    *change = Some(entry);
                }
            }
            for uid in &frame.forgotten {
                changes.entry(UidKey(*uid)).and_modify(|change| *change = None);
            }
            true
        });
        let tail = self.log.tail().next;
        let mut changes = changes.into_iter().peekable();
        while changes.peek().is_some() {
            self.add_seen(changes.by_ref().take(PAGE).collect(), tail)?;
        }
        read.and(self.save_seen())
    }
}

/// The lower bound of what all sinks have had: what was journalled after it, and is gone with the
/// log, is read again.
pub(super) fn resume_from(positions: &Positions) -> BTreeMap<Arc<str>, Resume> {
    let mut resume = BTreeMap::<Arc<str>, Resume>::new();
    for (source, version) in positions.sinks.values().flatten() {
        let own = Resume { epoch: positions.epoch, resource_version: version.0 };
        let lowest = resume.entry(source.as_str().into()).or_insert(own);
        *lowest = (*lowest).min(own);
    }
    // A sink that has had nothing of a source has to get all of it.
    resume.retain(|source, _| positions.sinks.values().all(|own| own.contains_key(&**source)));
    resume
}

/// The positions of the newest epoch. A sink that still is in an older one has none of it yet.
pub(in crate::bridge) fn positions_of<'a>(
    sinks: impl Iterator<Item = (String, &'a SinkState)> + Clone,
) -> Positions {
    let resumes = sinks.clone().flat_map(|(_, sink)| sink.positions.values());
    let epoch = resumes.map(|resume| resume.epoch).max().unwrap_or(0);
    let sinks = sinks.map(|(name, sink)| {
        let newest = sink.positions.iter().filter(|(_, resume)| resume.epoch == epoch);
        let newest = newest.map(|(source, at)| (source.clone(), Version(at.resource_version)));
        (name, newest.collect())
    });
    Positions { epoch, sinks: sinks.collect() }
}
