//! Lists: what is new of one is exported oldest first, and what was missed is stated.
//!
//! A list comes in the order of names, and its resourceVersions in none. It is staged on disk, so
//! that its size does not matter, until it is whole.

use std::{io, sync::Arc};

use bytes::Bytes;
use jiff::Timestamp;

use super::{FRAME_BYTES, GaveUp, Ingest, IngestSource, Pending};
use crate::{
    bridge::{gap::Gap, heartbeat::is_heartbeat, shared::now_ms},
    cache::{ReplaceReason, Replaced},
    event::{Incoming, timestamp},
    journal::{Resume, SortedUids, StagedUids, Staging, Unfinished},
};

/// So many Events that a list does not have are forgotten with one frame.
const FORGET_AT_ONCE: usize = 4096;

/// Why a list is not in the journal.
enum NotKept {
    GaveUp,
    Staging(io::Error),
}

impl From<GaveUp> for NotKept {
    fn from(GaveUp: GaveUp) -> Self {
        Self::GaveUp
    }
}

impl From<io::Error> for NotKept {
    fn from(error: io::Error) -> Self {
        Self::Staging(error)
    }
}

/// A list on its way into the journal.
pub(super) struct Replacing {
    reason: ReplaceReason,
    staging: Staging,
    /// The uids of the list, to find what has been deleted unseen; `None` when nothing was known.
    listed: Option<StagedUids>,
    /// Before it was asked for, in milliseconds since the epoch.
    asked_ms: u64,
    /// When it had begun to come, and so was taken, in milliseconds since the epoch.
    taken_ms: Option<u64>,
    /// It has an Event that contradicts what is known.
    other_history: bool,
}

/// What an item of a list is.
enum Item {
    News,
    /// It was journalled in this version, or is not to be.
    NoNews,
    /// It is older than the resume point, and not what is known of it.
    Contradiction,
}

impl Ingest {
    pub(super) fn begin_replace(&mut self, source: usize, reason: ReplaceReason, asked_ms: u64) {
        match Staging::create(self.writer.directory()) {
            Ok(staging) => {
                let known = !self.shared.seen.is_empty();
                let listed = known.then(|| StagedUids::new(self.writer.directory()));
                self.sources[source].replacing = Some(Replacing {
                    reason,
                    staging,
                    listed,
                    asked_ms,
                    taken_ms: None,
                    other_history: false,
                });
            }
            Err(error) => self.staging_failed(source, &error),
        }
    }

    pub(super) fn page(
        &mut self,
        source: usize,
        items: &[Bytes],
        came_ms: u64,
    ) -> Result<(), GaveUp> {
        let cutoff = self.sources[source].spec.first_since.map(|since| timestamp(now_ms()) - since);
        if let Some(replacing) = &mut self.sources[source].replacing {
            replacing.taken_ms.get_or_insert(came_ms);
        }
        for item in items {
            let incoming = match Incoming::decode(item) {
                Ok(incoming) => incoming,
                Err(error) => {
                    self.undecodable(source, &error);
                    continue;
                }
            };
            if is_heartbeat(&incoming.fields) {
                continue;
            }
            let Some(replacing) = &self.sources[source].replacing else { return Ok(()) };
            let reason = replacing.reason;
            let is = self.judge(source, reason, cutoff, &incoming)?;
            let Some(replacing) = &mut self.sources[source].replacing else { return Ok(()) };
            if let Item::Contradiction = is
                && !std::mem::replace(&mut replacing.other_history, true)
            {
                self.contradicted(source, &incoming);
                return Ok(());
            }
            let listed = replacing.listed.as_mut();
            let mut staged = listed.map_or(Ok(()), |listed| listed.push(incoming.uid));
            if let Item::News = is {
                let push = |()| replacing.staging.push(incoming.resource_version, item);
                staged = staged.and_then(push);
            }
            if let Err(error) = staged {
                self.staging_failed(source, &error);
                return Ok(());
            }
        }
        Ok(())
    }

    /// What an item of a list is, by its version.
    fn judge(
        &mut self,
        source: usize,
        reason: ReplaceReason,
        cutoff: Option<Timestamp>,
        incoming: &Incoming<'_>,
    ) -> Result<Item, GaveUp> {
        let version = incoming.resource_version;
        let spec = &self.sources[source].spec;
        let (covered, whole_from) = (version <= spec.resume.resource_version, spec.whole_from);
        let news = match reason {
            ReplaceReason::NewEpoch => true,
            ReplaceReason::Gap { .. } if covered => {
                // Of one history nothing else can be there but what was read.
                let must_be_known = whole_from.is_some_and(|from| version > from);
                let as_known = !must_be_known
                    || self
                        .writer
                        .known(incoming.uid)?
                        .is_some_and(|entry| entry.resource_version == version);
                return Ok(if as_known { Item::NoNews } else { Item::Contradiction });
            }
            ReplaceReason::Gap { .. } | ReplaceReason::First => match self
                .writer
                .known(incoming.uid)?
            {
                None if reason == ReplaceReason::First => {
                    let time = incoming.fields.time();
                    cutoff.is_none_or(|cutoff| time.parse().is_ok_and(|t: Timestamp| t >= cutoff))
                }
                // A list that was cut short by a crash has journalled some already.
                before => !covered && before.is_none_or(|entry| entry.resource_version < version),
            },
        };
        Ok(if news { Item::News } else { Item::NoNews })
    }

    fn contradicted(&self, source: usize, incoming: &Incoming<'_>) {
        let metadata = &incoming.fields.metadata;
        let spec = &self.sources[source].spec;
        tracing::warn!(
            source = &*spec.key,
            resume_point = spec.resume.resource_version,
            object = %format!("{}/{}", &*metadata.namespace, &*metadata.name),
            resource_version = incoming.resource_version,
            "a list has an Event from before the resume point that was never shown: the API server's etcd was \
             restored and has grown past the resume point, or it is another one"
        );
    }

    /// Exports what is new of a list, oldest first, and then moves the resume point.
    pub(super) fn end_replace(
        &mut self,
        source: usize,
        resource_version: u64,
    ) -> Result<Replaced, GaveUp> {
        let Some(replacing) = self.sources[source].replacing.take() else {
            return Ok(Replaced::NotKept);
        };
        if replacing.other_history {
            return Ok(Replaced::OtherHistory);
        }
        match self.replace(source, replacing, resource_version) {
            Ok(()) => Ok(Replaced::Kept),
            Err(NotKept::GaveUp) => Err(GaveUp),
            Err(NotKept::Staging(error)) => {
                self.staging_failed(source, &error);
                Ok(Replaced::NotKept)
            }
        }
    }

    fn replace(
        &mut self,
        source: usize,
        Replacing { reason, staging, listed, asked_ms, taken_ms, .. }: Replacing,
        resource_version: u64,
    ) -> Result<(), NotKept> {
        let mut sorted = staging.into_sorted()?;
        let replayed = reason != ReplaceReason::First;
        let observed = Timestamp::now().to_string();
        let before_list = self.sources[source].spec.resume;
        let epoch = before_list.epoch + u32::from(reason == ReplaceReason::NewEpoch);
        // With what was journalled of such a list before a crash, or before the disk failed.
        let mut facts = self.sources[source].unfinished.unwrap_or_default();
        if reason == ReplaceReason::NewEpoch {
            // Of this one everything comes again, but for the increments.
            facts.replayed = 0;
        }
        let (mut frame, mut item) = (self.frame(source, 0), Vec::new());
        let mut newest = Vec::new();
        while sorted.next_into(&mut item)?.is_some() {
            // It was decoded once already, when it was staged.
            let Ok(incoming) = Incoming::decode(&item) else { continue };
            let before = self.before(&frame, incoming.uid)?;
            facts.count(self.record(&mut frame, source, &incoming, before, &observed, replayed));
            if frame.is_full() {
                let full = std::mem::replace(&mut frame, self.frame(source, FRAME_BYTES / 2));
                if replayed {
                    self.sources[source].unfinished = Some(facts);
                    self.sources[source].urgent = true;
                }
                // The resume point stays where it was until the whole list is in.
                self.append(source, full, before_list)?;
            }
            std::mem::swap(&mut newest, &mut item);
        }
        if let Some(listed) = listed {
            self.forget_all_but(source, listed.into_sorted()?, &mut frame)?;
        }
        let last_heard_ms = self.sources[source].last_heard_ms();
        self.sources[source].has_list(reason, resource_version, asked_ms);
        if let Ok(newest) = Incoming::decode(&newest) {
            self.sources[source].note_witness(&newest, epoch);
        }
        self.append(source, frame, Resume { epoch, resource_version })?;
        self.sources[source].tell_reflector(reason);
        let to_ms = taken_ms.unwrap_or_else(now_ms);
        match reason {
            ReplaceReason::First => {
                let (source, exported) = (&*self.sources[source].spec.key, facts.replayed);
                tracing::info!(source, exported, "the first list is in the journal");
            }
            ReplaceReason::Gap { .. } if facts == Unfinished::default() => {
                let source = &*self.sources[source].spec.key;
                tracing::info!(source, "the watch could not be resumed, and nothing was missed");
            }
            ReplaceReason::Gap { .. } => self.state_gap(source, last_heard_ms, to_ms, facts, false),
            ReplaceReason::NewEpoch => self.state_gap(source, last_heard_ms, to_ms, facts, true),
        }
        Ok(())
    }

    /// States what a source did not show since then.
    pub(super) fn state_gap(
        &self,
        source: usize,
        last_heard_ms: Option<u64>,
        to_ms: u64,
        facts: Unfinished,
        epoch: bool,
    ) {
        let source = Arc::clone(&self.sources[source].spec.key);
        self.shared.counters.state_gap(Gap::new(source, last_heard_ms, to_ms, facts, epoch));
    }

    /// Forgets the Events of a source that a list does not have: both are read in the order of
    /// their uids.
    fn forget_all_but(
        &mut self,
        source: usize,
        mut listed: SortedUids,
        frame: &mut Pending,
    ) -> Result<(), NotKept> {
        let IngestSource { id, resume, .. } = self.sources[source].spec;
        let seen = Arc::clone(&self.shared.seen);
        let mut known = seen.of_source(id);
        let mut next_listed = listed.next_uid()?;
        while let Some(uid) = self.writer.insist(|_| known.next_uid())? {
            while next_listed.is_some_and(|listed| listed < uid) {
                next_listed = listed.next_uid()?;
            }
            // What was known when the reading began may have been forgotten since.
            if next_listed == Some(uid)
                || self.before(frame, uid)?.is_none_or(|entry| entry.source() != id)
            {
                continue;
            }
            frame.builder.forget(uid);
            frame.changed.insert(uid, None);
            if frame.changed.len() >= FORGET_AT_ONCE {
                let full = std::mem::replace(frame, self.frame(source, 0));
                self.append(source, full, resume)?;
            }
        }
        Ok(())
    }

    fn staging_failed(&mut self, source: usize, error: &io::Error) {
        self.sources[source].replacing = None;
        tracing::error!(
            source = &*self.sources[source].spec.key,
            %error,
            "a list cannot be staged on disk: it will be fetched again"
        );
    }
}
