//! Lists: what is new of one is exported oldest first, and what was missed is stated.
//!
//! A list comes in the order of names, and its resourceVersions in none. It is staged on disk, so
//! that its size does not matter, until it is whole.

use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use jiff::Timestamp;

use super::{FRAME_BYTES, GaveUp, Ingest};
use crate::{
    bridge::{
        heartbeat::is_heartbeat,
        shared::{Gap, now_ms},
    },
    cache::ReplaceReason,
    event::{Incoming, UidKey},
    journal::{Resume, Staging},
};

/// A list on its way into the journal.
pub(super) struct Replacing {
    reason: ReplaceReason,
    staging: Staging,
    /// The uids of the list, to find what has been deleted unseen; `None` when nothing was known.
    listed: Option<HashSet<UidKey>>,
}

impl Ingest {
    pub(super) fn begin_replace(&mut self, source: usize, reason: ReplaceReason) {
        match Staging::create(self.log.directory()) {
            Ok(staging) => {
                let id = self.sources[source].spec.id;
                let known = self.seen.iter().any(|(_, entry)| entry.source == id);
                let listed = known.then(HashSet::new);
                self.sources[source].replacing = Some(Replacing { reason, staging, listed });
            }
            Err(error) => self.staging_failed(source, &error),
        }
    }

    pub(super) fn page(&mut self, source: usize, items: &[Bytes]) {
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
            let before = self.seen.get(incoming.uid);
            let resume = self.sources[source].spec.resume;
            let Some(replacing) = &mut self.sources[source].replacing else { return };
            if let Some(listed) = &mut replacing.listed {
                listed.insert(incoming.uid);
            }
            let version = incoming.resource_version;
            let news = match replacing.reason {
                ReplaceReason::NewEpoch => true,
                ReplaceReason::First if before.is_none() => match cutoff {
                    None => true,
                    Some(cutoff) => {
                        incoming.fields.time().parse().is_ok_and(|time: Timestamp| time >= cutoff)
                    }
                },
                // A list that was cut short by a crash has journalled some already.
                ReplaceReason::First | ReplaceReason::Gap { .. } => {
                    version > resume.resource_version
                        && before.is_none_or(|entry| entry.resource_version < version)
                }
            };
            if news && let Err(error) = replacing.staging.push(version, item) {
                self.staging_failed(source, &error);
                return;
            }
        }
    }

    /// Exports what is new of a list, oldest first, and then moves the resume point. Answers
    /// whether the list could be kept; if not, it has to be fetched again.
    pub(super) fn end_replace(
        &mut self,
        source: usize,
        resource_version: u64,
    ) -> Result<bool, GaveUp> {
        let Some(Replacing { reason, staging, listed }) = self.sources[source].replacing.take()
        else {
            return Ok(false);
        };
        let mut sorted = match staging.into_sorted() {
            Ok(sorted) => sorted,
            Err(error) => {
                self.staging_failed(source, &error);
                return Ok(false);
            }
        };
        let replayed = reason != ReplaceReason::First;
        let observed = Timestamp::now().to_string();
        let before_list = self.sources[source].spec.resume;
        let journalled_ms = self.sources[source].journalled_ms;
        let (mut frame, mut item) = (self.frame(source, 0), Vec::new());
        let (mut exported, mut skipped) = (0u64, 0u64);
        loop {
            match sorted.next_into(&mut item) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => {
                    self.append(source, frame, before_list)?;
                    self.staging_failed(source, &error);
                    return Ok(false);
                }
            }
            // It was decoded once already, when it was staged.
            let Ok(incoming) = Incoming::decode(&item) else { continue };
            let before = self.seen.get(incoming.uid);
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
            let id = self.sources[source].spec.id;
            let gone = self.seen.iter().filter(|(uid, e)| e.source == id && !listed.contains(uid));
            for uid in gone.map(|(uid, _)| uid).collect::<Vec<_>>() {
                frame.builder.forget(uid);
                frame.changed.push((uid, None));
                self.seen.remove(uid);
            }
        }
        let epoch = before_list.epoch + u32::from(reason == ReplaceReason::NewEpoch);
        self.append(source, frame, Resume { epoch, resource_version })?;
        self.state_what_was_missed(source, reason, journalled_ms, exported, skipped);
        Ok(true)
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

    fn staging_failed(&mut self, source: usize, error: &std::io::Error) {
        self.sources[source].replacing = None;
        tracing::error!(
            source = &*self.sources[source].spec.key,
            %error,
            "a list cannot be staged on disk: it will be fetched again"
        );
    }
}
