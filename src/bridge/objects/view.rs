//! What is known of the objects that records are about: the view `objects`.
//!
//! For each object there are [versions](Versions), and a record is enriched with the one that is true
//! at it. Ingest adds them in the order of the log. Where it does not know an object, records about
//! it wait: until an answer comes, which then is true from the first of them on, or until the time
//! of a record is over. A sink that comes to a record whose time is over decides on it: with what
//! is known by then, or with a miss, for good. What comes later is true only of later records. All of
//! that is done under one lock, so no two sinks decide differently.

mod inner;

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tidings_kube::correlator::{Key, Keys};
use tokio::sync::{Notify, futures::Notified};

use self::inner::{Inner, Recovery};
pub(super) use self::inner::{REFRESH, millis};
use super::{
    Known, LISTED_WITHIN, Place, Reference, Versions, key_of_stored,
    sighting::{Answer, Compared, Decision, Remembered, Sighting},
};
use crate::{
    bridge::shared::lock,
    journal::{ObjectsCommit, ObjectsView, SavedObject},
};

/// See the [module](self).
pub(super) struct View {
    pub(super) keys: Keys,
    secret: u128,
    budget_ms: u64,
    cache: usize,
    inner: Mutex<Inner>,
    /// Something that a sink may wait for has come.
    changed: Notify,
}

impl View {
    /// As it was saved, on a log whose next record has the sequence `tail`. What was not decided in
    /// earlier runs waits until `recovered_by_ms` to be [told of](Self::recovered) again.
    pub(super) fn new(
        saved: Option<ObjectsView>,
        budget: Duration,
        cache: usize,
        tail: u64,
        recovered_by_ms: u64,
    ) -> Self {
        let secret = saved.map_or_else(|| fastrand::u128(..), |saved| saved.secret);
        let observed = saved.map_or(tail, |saved| saved.decided.min(tail));
        let recovery = Recovery { start: observed, end: tail, until_ms: recovered_by_ms };
        let recovery = Some(recovery).filter(|recovery| recovery.start < tail);
        let inner = Inner::new(observed, recovery, saved);
        Self {
            keys: Keys::with_secret(secret.to_le_bytes()),
            secret,
            budget_ms: millis(budget),
            cache,
            inner: Mutex::new(inner),
            changed: Notify::new(),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// The records between are to be [observed](Self::observe) once more: nothing was decided
    /// about those from the second sequence on.
    pub(super) fn to_recover(&self) -> (u64, u64) {
        let inner = self.inner();
        let applied = inner.saved.map_or(inner.observed, |saved| saved.applied);
        (applied.min(inner.observed), inner.observed)
    }

    /// Everything up to here has been observed again.
    pub(super) fn recovered(&self, tail: u64, now_ms: u64) {
        let mut inner = self.inner();
        inner.observed = inner.observed.max(tail);
        inner.caught_up = true;
        if let Some(recovery) = &mut inner.recovery {
            recovery.until_ms = now_ms + self.budget_ms;
        }
        drop(inner);
        self.changed.notify_waiters();
    }

    /// Compares what is at hand of an object, by its fingerprint, its uid, and the node that the Event
    /// claims.
    pub(super) fn compare(
        &self,
        key: Key,
        fingerprint: u64,
        uid: &str,
        claim: Option<&str>,
        now_ms: u64,
    ) -> Compared {
        let claimed = || claim.map(|node| Place::claimed(node, uid));
        let mut inner = self.inner();
        let Some(entry) = inner.entries.get(&key) else {
            return Compared::News { place: claimed(), patient: false };
        };
        let place = entry.place.as_ref();
        let news = claim.is_some_and(|node| place.is_none_or(|at| at.gives_way_to(node, uid)));
        // Where the Event claims nothing, the claim of another one does not do.
        let doubted = claim.is_none() && place.is_some_and(|at| at.claimed);
        let due = now_ms >= entry.again_ms;
        if entry.fingerprint != fingerprint || news || ((entry.incomplete || doubted) && due) {
            let place = if news { claimed() } else { place.cloned() };
            return Compared::News { place, patient: !due };
        }
        // Only what was fetched says when it is to be fetched again.
        if entry.again_ms > 0 && due { Compared::Old } else { Compared::Same }
    }

    /// What is known of an object of which nothing is at hand.
    pub(super) fn remembered(&self, key: Key, now_ms: u64) -> Remembered {
        let mut inner = self.inner();
        let Some(entry) = inner.entries.get(&key) else { return Remembered::Nothing };
        let due = now_ms >= entry.again_ms;
        match entry.versions.last() {
            Some(last) if last.known.info.missing.is_none() => {
                let known = Arc::clone(&last.known);
                if due { Remembered::Old(known) } else { Remembered::Known(known) }
            }
            Some(_) if !due => Remembered::Missing,
            Some(_) | None => Remembered::Nothing,
        }
    }

    /// Takes what was found about the records of a frame from the sequence `first` on, which was
    /// journalled at `time_ms`. Answers what is to be asked for.
    pub(super) fn observe(
        &self,
        first: u64,
        time_ms: u64,
        sightings: impl IntoIterator<Item = Option<Sighting>>,
    ) -> Vec<Reference> {
        let mut asks = Vec::new();
        let mut inner = self.inner();
        for (seq, sighting) in (first..).zip(sightings) {
            if let Some(Sighting { key, news }) = sighting {
                inner.observe(key, seq, time_ms + self.budget_ms, news, &mut asks);
            }
            inner.observed = inner.observed.max(seq + 1);
        }
        drop(inner);
        self.changed.notify_waiters();
        asks
    }

    /// A record that was decided about in an earlier run is about this object.
    pub(super) fn touch(&self, key: Key, seq: u64) {
        let mut inner = self.inner();
        let entry = inner.entry(key);
        entry.last = entry.last.max(seq);
    }

    /// Whether a record still waits for the object.
    pub(super) fn waits(&self, key: Key, now_ms: u64) -> bool {
        let inner = self.inner();
        let waiting = inner.entries.peek(&key).and_then(|entry| entry.waiting.as_ref());
        waiting.is_some_and(|waiting| waiting.until_ms > now_ms)
    }

    /// Where an object is, as far as that was said.
    pub(super) fn place(&self, key: Key) -> Option<Place> {
        self.inner().entries.peek(&key)?.place.clone()
    }

    /// Whether the state store may have versions that are not known here.
    pub(super) fn is_whole(&self, key: Key) -> bool {
        self.inner().entries.peek(&key).is_some_and(|entry| entry.whole)
    }

    /// What is known so far of an object that is asked for.
    pub(super) fn partial(&self, key: Key, known: Arc<Known>) {
        let mut inner = self.inner();
        let entry = inner.entries.peek_mut(&key);
        if let Some(waiting) = entry.and_then(|entry| entry.waiting.as_mut()) {
            waiting.partial = Some(known);
        }
    }

    /// What came of asking for an object.
    pub(super) fn answer(&self, key: Key, answer: Answer, now_ms: u64) {
        let mut inner = self.inner();
        inner.answer(key, answer, now_ms);
        drop(inner);
        self.changed.notify_waiters();
    }

    /// Whether it is known how a record is enriched.
    pub(super) fn is_decided(&self, key: Key, seq: u64) -> bool {
        let inner = self.inner();
        inner.entries.peek(&key).is_some_and(|entry| entry.versions.at(seq).is_some())
    }

    /// What the state store has of an object.
    pub(super) fn loaded(&self, key: Key, stored: Option<SavedObject>) {
        let mut inner = self.inner();
        // Before it is there: who asked for it still has to find it.
        inner.shrink_if_large(self.cache);
        let entry = inner.entry(key);
        if !entry.whole {
            let SavedObject { last, versions } = stored.unwrap_or_default();
            let saved = entry.versions.put_before(Versions::load(versions));
            entry.saved_from = entry.saved_from.max(saved);
            entry.saved_last = entry.saved_last.max(last);
            entry.last = entry.last.max(last);
            entry.whole = true;
        }
    }

    /// Whether the state store's newest version is what the waiting records are enriched with: it
    /// is, if it knows the object.
    pub(super) fn settle_with_stored(&self, key: Key) -> bool {
        let mut inner = self.inner();
        let Some(entry) = inner.entries.peek_mut(&key) else { return false };
        let known = entry.versions.last().is_some_and(|last| last.known.info.missing.is_none());
        if known {
            entry.waiting = None;
            drop(inner);
            self.changed.notify_waiters();
        }
        known
    }

    /// The object of a record, if it was journalled a short while ago.
    pub(super) fn recent(&self, seq: u64) -> Option<Key> {
        let inner = self.inner();
        let first = inner.recent.front()?.0;
        // Mostly every record is about an object, so the place follows from the sequence.
        let guess = usize::try_from(seq.checked_sub(first)?).ok()?;
        let at = match inner.recent.get(guess) {
            Some((there, _)) if *there == seq => guess,
            _ => inner.recent.binary_search_by_key(&seq, |(seq, _)| *seq).ok()?,
        };
        inner.recent.get(at).map(|(_, key)| *key)
    }

    /// How a record is enriched that is about an object and was journalled at `time_ms`.
    pub(super) fn decide(&self, key: Key, seq: u64, time_ms: u64, now_ms: u64) -> Decision {
        let mut inner = self.inner();
        let recovery = inner.recovery.filter(|again| (again.start..again.end).contains(&seq));
        let (until_ms, longest_ms) = match recovery {
            Some(again) => (again.until_ms, millis(LISTED_WITHIN)),
            None => (time_ms + self.budget_ms, 0),
        };
        // So far ahead no time is but of a clock that was set back since; nobody waits for that.
        let until_ms = Some(until_ms).filter(|ms| *ms <= now_ms + longest_ms + 2 * self.budget_ms);
        let until_ms = until_ms.unwrap_or(now_ms);
        inner.decide(key, seq, until_ms, now_ms)
    }

    /// Completes when something has come since `enable` was called on it.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// What is to be saved: new versions; and with `all` which record was the last about each object.
    /// `oldest` is the oldest record in the log.
    pub(super) fn take(&self, all: bool, oldest: u64) -> ObjectsCommit {
        self.inner().take(self.secret, all, oldest, self.cache)
    }

    /// It is on the disk.
    pub(super) fn saved(&self, commit: &ObjectsCommit) {
        let mut inner = self.inner();
        for (key, saved) in &commit.changed {
            if let Some(entry) = inner.entries.peek_mut(&key_of_stored(*key)) {
                entry.saved_last = entry.saved_last.max(saved.last);
                // What came meanwhile may be in the place of a version that is on the disk.
                if !entry.unsaved {
                    let newest = saved.versions.last().map_or(0, |(from, _)| *from);
                    entry.saved_from = entry.saved_from.max(newest);
                }
            }
        }
        if commit.view.is_some() {
            inner.saved = commit.view;
        }
        inner.shrink(self.cache);
    }

    /// It is not.
    pub(super) fn put_back(&self, commit: &ObjectsCommit) {
        let mut inner = self.inner();
        for (key, saved) in &commit.changed {
            if !saved.versions.is_empty() {
                inner.is_unsaved(key_of_stored(*key));
            }
        }
    }
}
