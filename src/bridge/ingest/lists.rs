//! Lists: what is new of one is exported oldest first, and what was missed is stated.
//!
//! A list comes in the order of names, and its resourceVersions in none. It is staged on disk, so
//! that its size does not matter, until it is whole.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use jiff::Timestamp;

use super::{FRAME_BYTES, GaveUp, Ingest, IngestSource, Pending};
use crate::{
    bridge::{
        heartbeat::is_heartbeat,
        shared::{Gap, now_ms},
    },
    cache::ReplaceReason,
    event::Incoming,
    journal::{Resume, SortedUids, StagedUids, Staging},
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
}

impl Ingest {
    pub(super) fn begin_replace(&mut self, source: usize, reason: ReplaceReason) {
        match Staging::create(self.writer.directory()) {
            Ok(staging) => {
                let known = !self.shared.seen.is_empty();
                let listed = known.then(|| StagedUids::new(self.writer.directory()));
                self.sources[source].replacing = Some(Replacing { reason, staging, listed });
            }
            Err(error) => self.staging_failed(source, &error),
        }
    }

    pub(super) fn page(&mut self, source: usize, items: &[Bytes]) -> Result<(), GaveUp> {
        let cutoff = self.sources[source].spec.first_since.map(|since| {
            Timestamp::from_millisecond(now_ms().cast_signed()).unwrap_or_default() - since
        });
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
            let news = self.is_news(source, reason, cutoff, &incoming)?;
            let Some(replacing) = &mut self.sources[source].replacing else { return Ok(()) };
            let listed = replacing.listed.as_mut();
            let mut staged = listed.map_or(Ok(()), |listed| listed.push(incoming.uid));
            if news {
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

    /// Whether an item of a list has not been journalled in this version.
    fn is_news(
        &mut self,
        source: usize,
        reason: ReplaceReason,
        cutoff: Option<Timestamp>,
        incoming: &Incoming<'_>,
    ) -> Result<bool, GaveUp> {
        let version = incoming.resource_version;
        let resume = self.sources[source].spec.resume;
        let before = match reason {
            ReplaceReason::NewEpoch => return Ok(true),
            // What is known of it is asked only where it matters: it may have to be read.
            ReplaceReason::Gap { .. } if version <= resume.resource_version => return Ok(false),
            ReplaceReason::Gap { .. } | ReplaceReason::First => self.writer.known(incoming.uid)?,
        };
        if reason == ReplaceReason::First && before.is_none() {
            let recent =
                |cutoff| incoming.fields.time().parse().is_ok_and(|time: Timestamp| time >= cutoff);
            return Ok(cutoff.is_none_or(recent));
        }
        // A list that was cut short by a crash has journalled some already.
        Ok(version > resume.resource_version
            && before.is_none_or(|entry| entry.resource_version < version))
    }

    /// Exports what is new of a list, oldest first, and then moves the resume point. Answers
    /// whether the list could be kept; if not, it has to be fetched again.
    pub(super) fn end_replace(
        &mut self,
        source: usize,
        resource_version: u64,
    ) -> Result<bool, GaveUp> {
        let Some(replacing) = self.sources[source].replacing.take() else { return Ok(false) };
        match self.replace(source, replacing, resource_version) {
            Ok(()) => Ok(true),
            Err(NotKept::GaveUp) => Err(GaveUp),
            Err(NotKept::Staging(error)) => {
                self.staging_failed(source, &error);
                Ok(false)
            }
        }
    }

    fn replace(
        &mut self,
        source: usize,
        Replacing { reason, staging, listed }: Replacing,
        resource_version: u64,
    ) -> Result<(), NotKept> {
        let mut sorted = staging.into_sorted()?;
        let replayed = reason != ReplaceReason::First;
        let observed = Timestamp::now().to_string();
        let before_list = self.sources[source].spec.resume;
        let journalled_ms = self.sources[source].journalled_ms;
        let (mut frame, mut item) = (self.frame(source, 0), Vec::new());
        let (mut exported, mut skipped) = (0u64, 0u64);
        while sorted.next_into(&mut item)?.is_some() {
            // It was decoded once already, when it was staged.
            let Ok(incoming) = Incoming::decode(&item) else { continue };
            let before = self.before(&frame, incoming.uid)?;
            let delta = self.record(&mut frame, source, &incoming, before, &observed, replayed);
            exported += 1;
            skipped += delta.saturating_sub(1);
            if frame.is_full() {
                let full = std::mem::replace(&mut frame, self.frame(source, FRAME_BYTES / 2));
                // The resume point stays where it was until the whole list is in.
                self.append(source, full, before_list)?;
            }
        }
        if let Some(listed) = listed {
            self.forget_all_but(source, listed.into_sorted()?, &mut frame)?;
        }
        let epoch = before_list.epoch + u32::from(reason == ReplaceReason::NewEpoch);
        self.append(source, frame, Resume { epoch, resource_version })?;
        self.state_what_was_missed(source, reason, journalled_ms, exported, skipped);
        Ok(())
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

    fn state_what_was_missed(
        &self,
        source: usize,
        reason: ReplaceReason,
        journalled_ms: Option<u64>,
        exported: u64,
        skipped: u64,
    ) {
        let spec = &self.sources[source].spec;
        match reason {
            ReplaceReason::First => {
                tracing::info!(source = &*spec.key, exported, "the first list is in the journal");
            }
            ReplaceReason::NewEpoch => {
                self.shared.counters.epochs.fetch_add(1, Ordering::Relaxed);
                let to_ms = now_ms();
                let from_ms = journalled_ms.unwrap_or(to_ms);
                let source = Arc::clone(&spec.key);
                let gap = Gap { source, from_ms, to_ms, skipped, epoch: true };
                self.shared.counters.set_last_gap(gap);
                tracing::warn!(
                    source = &*spec.key,
                    exported,
                    epoch = spec.resume.epoch,
                    "a new epoch: everything that the API server lists is exported again under the same ids"
                );
            }
            ReplaceReason::Gap { .. } if exported == 0 => {
                tracing::info!(
                    source = &*spec.key,
                    "the watch could not be resumed, and nothing was missed"
                );
            }
            ReplaceReason::Gap { last_sign_of_life_ms } => {
                let to_ms = now_ms();
                let from_ms = last_sign_of_life_ms.or(spec.last_heard_ms).unwrap_or(to_ms);
                let source = Arc::clone(&spec.key);
                let gap = Gap { source, from_ms, to_ms, skipped, epoch: false };
                let length_ms = to_ms.saturating_sub(from_ms);
                self.shared.counters.gap_ms.fetch_add(length_ms, Ordering::Relaxed);
                self.shared.counters.gaps.fetch_add(1, Ordering::Relaxed);
                self.shared.counters.skipped_increments.fetch_add(skipped, Ordering::Relaxed);
                tracing::warn!(
                    source = &*spec.key,
                    from = gap.from().to_string(),
                    to = gap.to().to_string(),
                    replayed = exported,
                    skipped_increments = skipped,
                    "a gap in the watch: the newest version of each Event was replayed; \
                     versions between, and Events that came and went, were not seen"
                );
                self.shared.counters.set_last_gap(gap);
            }
        }
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
