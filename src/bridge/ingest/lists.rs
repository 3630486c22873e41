//! Lists: what is new of one is exported oldest first, and what was missed is stated.
//!
//! A list comes in the order of names, and its resourceVersions in none. It is staged on disk, so
//! that its size does not matter, until it is whole. What that takes is bounded by the size of the
//! journal: of a list that is larger the oldest part is exported, and then it is fetched again for
//! the rest.

mod judge;

use std::{io, mem, sync::Arc, time::Instant};

use bytes::Bytes;
use jiff::Timestamp;
use tidings_kube::reflector::{ReplaceReason, Replaced};
use tidings_log::{Directory, ExternalSort, Resume, Sorted, Staging};

use self::judge::Item;
use super::{FRAME_BYTES, GaveUp, Ingest, IngestSource, Pending};
use crate::{
    bridge::{gap::Gap, own_writes::Whose, shared::now_ms},
    event::{Incoming, UidKey},
    journal::Unfinished,
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

/// The next uid of a list in ascending order; nothing after the last.
fn next_uid(listed: &mut Sorted<16>) -> io::Result<Option<UidKey>> {
    Ok(listed.next_record()?.map(|bytes| UidKey(u128::from_be_bytes(bytes))))
}

/// A list on its way into the journal.
pub(super) struct Replacing {
    reason: ReplaceReason,
    staging: Staging,
    /// The uids of the list, to find what has been deleted unseen; `None` when nothing was known, or
    /// something is left for the next pass.
    listed: Option<ExternalSort<16>>,
    /// The bytes that they take on disk in the pass that leaves nothing; `None` when nothing was known.
    uids: Option<u64>,
    /// Before it was asked for, in milliseconds since the epoch.
    asked_ms: u64,
    /// When it had begun to come, and so was taken, in milliseconds since the epoch.
    taken_ms: Option<u64>,
    /// It has an Event that contradicts what is known.
    other_history: bool,
    /// Its number.
    list: u64,
    /// There is no room for what is newer: that is left for the next pass.
    up_to: Option<u64>,
}

impl Replacing {
    /// Whether a version is left for the next pass.
    fn leaves(&self, version: u64) -> bool {
        self.up_to.is_some_and(|up_to| version > up_to)
    }

    /// Adds what an item is known by.
    fn list(&mut self, uid: UidKey) -> io::Result<()> {
        self.uids.iter_mut().for_each(|uids| *uids += size_of::<UidKey>() as u64);
        self.listed.as_mut().map_or(Ok(()), |listed| listed.push(uid.0.to_be_bytes()))
    }

    /// Leaves what is newest for the next pass while it takes more than `most` bytes on disk.
    fn shrink_to(&mut self, most: u64, directory: &Directory) -> io::Result<()> {
        let uids = self.uids.unwrap_or(0);
        if uids > most {
            return Err(too_long(uids));
        }
        let listed = if self.listed.is_some() { uids } else { 0 };
        // To halve it takes half as much again.
        if listed + self.staging.bytes() * 3 / 2 <= most || self.staging.len() < 2 {
            return Ok(());
        }
        self.listed = None;
        let staging = mem::replace(&mut self.staging, Staging::create(directory)?);
        let (half, up_to) = staging.halve(directory)?;
        (self.staging, self.up_to) = (half, Some(up_to));
        Ok(())
    }
}

/// What has been exported of a list that there was not room for as a whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    reason: ReplaceReason,
    /// All that is not newer.
    up_to: u64,
    /// The resourceVersion of that list.
    version: u64,
    facts: Unfinished,
}

impl Ingest {
    pub(super) fn begin_replace(
        &mut self,
        source: usize,
        list: u64,
        reason: ReplaceReason,
        asked_ms: u64,
    ) -> Result<(), GaveUp> {
        if self.lists_under_way() == 0 {
            self.room = self.writer.room_for_lists();
        }
        let same = |pass: &Pass| mem::discriminant(&pass.reason) == mem::discriminant(&reason);
        let listed = &mut self.sources[source];
        listed.pass = listed.pass.filter(same);
        if reason == ReplaceReason::First {
            if !listed.is_read_in_part() {
                // From here on it is a gap if only a part of the list comes into the log.
                listed.hear(asked_ms);
                listed.save(true);
            }
            self.mark_begin(source)?;
        }
        match Staging::create(self.writer.directory()) {
            Ok(staging) => {
                let known = !self.shared.seen.is_empty();
                let listed = known.then(|| ExternalSort::new(self.writer.directory()));
                let uids = known.then_some(0);
                self.sources[source].replacing = Some(Replacing {
                    reason,
                    staging,
                    listed,
                    uids,
                    asked_ms,
                    taken_ms: None,
                    other_history: false,
                    list,
                    up_to: None,
                });
            }
            Err(error) => self.staging_failed(source, list, &error),
        }
        Ok(())
    }

    /// Has the log itself say since when a first list is under way, by the time of a frame that has
    /// nothing else: the state, which says so too, may be lost before the list is whole.
    fn mark_begin(&mut self, source: usize) -> Result<(), GaveUp> {
        let begun_ms = self.sources[source].last_heard_ms().unwrap_or_else(now_ms);
        let mut frame = self.frame(source, 0);
        let written = self.writer.append_of(&mut frame.builder, 0, || begun_ms)?;
        let resume = self.sources[source].spec.resume;
        self.sources[source].appended(resume, written.next());
        Ok(())
    }

    fn lists_under_way(&self) -> u64 {
        self.sources.iter().filter(|source| source.replacing.is_some()).count() as u64
    }

    pub(super) fn page(
        &mut self,
        source: usize,
        items: &[Bytes],
        came_ms: u64,
        read: Instant,
    ) -> Result<(), GaveUp> {
        let cutoff = self.sources[source].cutoff();
        let most = self.room / self.lists_under_way().max(1);
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
            if self.told_whose(&incoming.fields, read)? == Whose::Heartbeat {
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
            let mut staged = replacing.list(incoming.uid);
            if let Item::News = is
                && !replacing.leaves(incoming.resource_version)
            {
                staged =
                    staged.and_then(|()| replacing.staging.push(incoming.resource_version, item));
            }
            staged = staged.and_then(|()| replacing.shrink_to(most, self.writer.directory()));
            let list = replacing.list;
            if let Err(error) = staged {
                self.staging_failed(source, list, &error);
                return Ok(());
            }
        }
        Ok(())
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
        if replacing.other_history || self.went_back(source, resource_version) {
            self.sources[source].pass = None;
            return Ok(Replaced::OtherHistory);
        }
        let list = replacing.list;
        match self.replace(source, replacing, resource_version) {
            Ok(replaced) => Ok(replaced),
            Err(NotKept::GaveUp) => Err(GaveUp),
            Err(NotKept::Staging(error)) => {
                self.staging_failed(source, list, &error);
                Ok(Replaced::NotKept)
            }
        }
    }

    fn replace(
        &mut self,
        source: usize,
        Replacing { reason, staging, listed, asked_ms, taken_ms, up_to, .. }: Replacing,
        resource_version: u64,
    ) -> Result<Replaced, NotKept> {
        let mut sorted = staging.into_sorted()?;
        let pass = self.sources[source].pass;
        // What comes and goes between a part of a list and the rest of it is not seen.
        let again = pass.is_some() || self.sources[source].unfinished.is_some();
        let replayed = reason != ReplaceReason::First || self.sources[source].is_read_in_part();
        let observed = Timestamp::now().to_string();
        let before_list = self.sources[source].spec.resume;
        let epoch = before_list.epoch + u32::from(reason == ReplaceReason::NewEpoch);
        // With what was journalled of such a list before a crash, or before the disk failed.
        let mut facts = self.sources[source].unfinished.unwrap_or_default();
        if reason == ReplaceReason::NewEpoch {
            // Of this one everything comes again, but for the increments.
            facts.replayed = 0;
        }
        facts = pass.map_or(facts, |pass| pass.facts);
        let (mut frame, mut item) = (self.frame(source, 0), Vec::new());
        let mut newest = Vec::new();
        while sorted.next_into(&mut item)?.is_some() {
            // It was decoded once already, when it was staged.
            let Ok(incoming) = Incoming::decode(&item) else { continue };
            let before = self.before(&frame, incoming.uid)?;
            facts.count(self.record(&mut frame, source, &incoming, before, &observed, replayed));
            if frame.is_full() {
                let full = std::mem::replace(&mut frame, self.frame(source, FRAME_BYTES / 2));
                self.sources[source].unfinished = Some(to_state(facts, replayed));
                self.sources[source].urgent = true;
                // The resume point stays where it was until the whole list is in.
                self.append(source, full, before_list)?;
            }
            std::mem::swap(&mut newest, &mut item);
        }
        if let Some(up_to) = up_to {
            let facts = to_state(facts, replayed);
            self.has_part(source, Pass { reason, up_to, version: resource_version, facts });
            self.append(source, frame, before_list)?;
            self.sources[source].save(true);
            return Ok(Replaced::Partly);
        }
        if let Some(listed) = listed.filter(|_| self.sources[source].forgets()) {
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
            ReplaceReason::First if !replayed => {
                let (source, exported) = (&*self.sources[source].spec.key, facts.replayed);
                tracing::info!(source, exported, "the first list is in the journal");
            }
            ReplaceReason::NewEpoch => self.state_gap(source, last_heard_ms, to_ms, facts, true),
            _ if facts == Unfinished::default() && !again => {
                let source = &*self.sources[source].spec.key;
                tracing::info!(source, "a list behind a gap has nothing new: nothing was missed");
            }
            _ => self.state_gap(source, last_heard_ms, to_ms, facts, false),
        }
        Ok(Replaced::Kept)
    }

    /// A part of a list is in the journal with the next frame.
    fn has_part(&mut self, source: usize, pass: Pass) {
        let source = &mut self.sources[source];
        tracing::info!(
            source = &*source.spec.key,
            up_to = pass.up_to,
            "there is no room in the journal for a whole list: the oldest part of it is exported, and it is fetched again for the rest"
        );
        source.unfinished = Some(pass.facts);
        (source.pass, source.urgent) = (Some(pass), true);
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
        mut listed: Sorted<16>,
        frame: &mut Pending,
    ) -> Result<(), NotKept> {
        let IngestSource { id, resume, .. } = self.sources[source].spec;
        let seen = Arc::clone(&self.shared.seen);
        let mut known = seen.of_source(id);
        let mut next_listed = next_uid(&mut listed)?;
        while let Some(uid) = self.writer.insist(|_| known.next_uid())? {
            while next_listed.is_some_and(|listed| listed < uid) {
                next_listed = next_uid(&mut listed)?;
            }
            // What was known when the reading began may have been forgotten since.
            if next_listed == Some(uid)
                || self.before(frame, uid)?.is_none_or(|entry| entry.source() != id)
            {
                continue;
            }
            frame.builder.forget(uid.0);
            frame.changed.insert(uid, None);
            if frame.changed.len() >= FORGET_AT_ONCE {
                let full = std::mem::replace(frame, self.frame(source, 0));
                self.append(source, full, resume)?;
            }
        }
        Ok(())
    }

    fn staging_failed(&mut self, source: usize, list: u64, error: &io::Error) {
        let source = &mut self.sources[source];
        source.replacing = None;
        source.spec.not_kept.set(list, format!("it cannot be staged on disk: {error}"));
        tracing::error!(
            source = &*source.spec.key,
            %error,
            "a list cannot be staged on disk: it will be fetched again"
        );
    }
}

/// The facts to be stated of a list that is whole: none of one that nothing came before.
fn to_state(facts: Unfinished, replayed: bool) -> Unfinished {
    if replayed { facts } else { Unfinished::default() }
}

fn too_long(bytes: u64) -> io::Error {
    io::Error::other(format!(
        "expected a list that the journal can hold, found one whose uids alone take {bytes} bytes; raise \
         journal.retention.size, or read less of the API server by source.namespaces or source.fieldSelector"
    ))
}
