//! What stands under the lock of the [`View`](super::View).

use std::{collections::VecDeque, sync::Arc, time::Duration};

use lru::LruCache;
use rustc_hash::FxBuildHasher;
use tidings_kube::correlator::Key;

use crate::{
    bridge::objects::{
        Known, Place, Reference, Versions,
        sighting::{Answer, Decision, Finding, News},
        stored_key,
        versions::Version,
    },
    event::Missing,
    journal::{ObjectsCommit, ObjectsView, SavedObject},
};

/// Of so many records it is kept which object they are about, so that a live sink need not read it.
const RECENT: usize = 8192;
/// What was fetched is fetched again after this.
pub(in crate::bridge::objects) const REFRESH: Duration = Duration::from_mins(5);
/// What was asked for in vain is asked for again after this.
const ASK_AGAIN: Duration = Duration::from_secs(30);

pub(super) struct Inner {
    /// In the order of use. Longer than `cache` only by what waits or is not saved.
    pub(super) entries: LruCache<Key, Entry, FxBuildHasher>,
    /// Sequences and objects, in order.
    pub(super) recent: VecDeque<(u64, Key)>,
    /// Ingest has told of the records before it.
    pub(super) observed: u64,
    /// Sinks have decided on the records before it, told of or not.
    pub(super) decided: u64,
    /// Records of earlier runs that nothing was decided about.
    pub(super) recovery: Option<Recovery>,
    /// It is known which record is the last about each object: those of earlier runs have been told
    /// of again.
    pub(super) caught_up: bool,
    /// Between two saves, entries are forgotten when there are more than this.
    shrink_above: usize,
    /// What has versions that are not saved.
    pub(super) unsaved: Vec<Key>,
    /// What the state store has.
    pub(super) saved: Option<ObjectsView>,
}

#[derive(Clone, Copy)]
pub(super) struct Recovery {
    /// The sequences of the first of them and after the last.
    pub(super) start: u64,
    pub(super) end: u64,
    /// Until when they wait, in milliseconds since the epoch.
    pub(super) until_ms: u64,
}

/// What is known of one object.
#[derive(Default)]
pub(super) struct Entry {
    pub(super) versions: Versions,
    /// The state store has none before these.
    pub(super) whole: bool,
    /// Of what the newest version was made; 0: of nothing that is at hand.
    pub(super) fingerprint: u64,
    /// Something above or about it is not known.
    pub(super) incomplete: bool,
    pub(super) place: Option<Place>,
    pub(super) waiting: Option<Waiting>,
    /// It is not asked for again before, in milliseconds since the epoch.
    pub(super) again_ms: u64,
    /// The last record about it.
    pub(super) last: u64,
    pub(super) saved_last: u64,
    /// The newest version that is saved begins here.
    pub(super) saved_from: u64,
    pub(super) unsaved: bool,
}

/// Records that wait for an answer.
pub(super) struct Waiting {
    /// The first of them that nothing was decided about.
    pub(super) first: u64,
    /// Until when the last of them waits, in milliseconds since the epoch.
    pub(super) until_ms: u64,
    /// What is known so far.
    pub(super) partial: Option<Arc<Known>>,
    /// What keeps the answer away.
    pub(super) trouble: Option<Missing>,
}

impl Inner {
    pub(super) fn new(
        observed: u64,
        recovery: Option<Recovery>,
        saved: Option<ObjectsView>,
    ) -> Self {
        let caught_up = recovery.is_none() && saved.is_none_or(|saved| saved.applied >= observed);
        Self {
            entries: LruCache::unbounded_with_hasher(FxBuildHasher),
            recent: VecDeque::new(),
            observed,
            decided: observed,
            recovery,
            caught_up,
            shrink_above: 0,
            unsaved: Vec::new(),
            saved,
        }
    }

    pub(super) fn entry(&mut self, key: Key) -> &mut Entry {
        self.entries.get_or_insert_mut(key, Entry::default)
    }

    pub(super) fn is_unsaved(&mut self, key: Key) {
        let entry = self.entry(key);
        if !std::mem::replace(&mut entry.unsaved, true) {
            self.unsaved.push(key);
        }
    }

    pub(super) fn push(&mut self, key: Key, from: u64, known: Arc<Known>) {
        let from = from.max(self.decided);
        let entry = self.entry(key);
        if entry.versions.push(from, known) {
            // It may be in the place of one that is saved.
            entry.saved_from = entry.saved_from.min(from.saturating_sub(1));
            self.is_unsaved(key);
        }
    }

    pub(super) fn observe(
        &mut self,
        key: Key,
        seq: u64,
        until_ms: u64,
        news: News,
        asks: &mut Vec<Reference>,
    ) {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((seq, key));
        let entry = self.entry(key);
        entry.last = entry.last.max(seq);
        if let Some(waiting) = &mut entry.waiting {
            waiting.until_ms = waiting.until_ms.max(until_ms);
        }
        match news {
            News::None => {}
            News::Old(reference) => asks.push(reference),
            News::Known(finding) => {
                entry.take(&finding);
                let from = entry.waiting.take().map_or(seq, |waiting| waiting.first);
                self.push(key, from, finding.known);
            }
            News::Partial(finding, reference) => {
                entry.take(&finding);
                if entry.wait(seq, until_ms, Some(finding.known)) {
                    asks.push(reference);
                }
            }
            News::Missing(why) => {
                let from = entry.waiting.take().map_or(seq, |waiting| waiting.first);
                self.push(key, from, Arc::new(Known::missing(why)));
            }
            News::Unknown(reference, place) => {
                entry.place = Place::newer(entry.place.take(), place);
                if entry.wait(seq, until_ms, None) {
                    asks.push(reference);
                }
            }
        }
    }

    pub(super) fn answer(&mut self, key: Key, answer: Answer, now_ms: u64) {
        let observed = self.observed;
        let entry = self.entry(key);
        match answer {
            Answer::Known(finding) => {
                entry.take(&finding);
                let again = if finding.incomplete { ASK_AGAIN } else { REFRESH };
                entry.again_ms = now_ms + millis(again);
                let from = entry.waiting.take().map_or(observed, |waiting| waiting.first);
                self.push(key, from, finding.known);
            }
            Answer::Missing(why) => {
                entry.again_ms = now_ms + millis(ASK_AGAIN);
                let waiting = entry.waiting.take();
                let known = entry.versions.last().is_some_and(|v| v.known.info.missing.is_none());
                // What was known before it went is still true of it.
                if !known && let Some(waiting) = waiting {
                    self.push(key, waiting.first, Arc::new(Known::missing(why)));
                }
            }
            Answer::Nothing => {
                if let Some(waiting) = entry.waiting.take()
                    && let Some(known) = waiting.known()
                {
                    self.push(key, waiting.first, known);
                }
            }
            Answer::Trouble(why) => {
                if let Some(waiting) = &mut entry.waiting {
                    waiting.trouble = Some(why);
                }
            }
        }
    }

    pub(super) fn decide(&mut self, key: Key, seq: u64, until_ms: u64, now_ms: u64) -> Decision {
        if seq >= self.observed {
            if now_ms < until_ms {
                return Decision::Wait(until_ms);
            }
            self.decided = self.decided.max(seq + 1);
        }
        let decided = self.decided;
        let Some(entry) = self.entries.peek_mut(&key) else { return Decision::Read };
        if let Some(waiting) = &mut entry.waiting
            && waiting.first.max(decided) <= seq
        {
            if now_ms < until_ms {
                return Decision::Wait(until_ms);
            }
            // Its time is over: what there is has to do, for all that have waited so far.
            let from = std::mem::replace(&mut waiting.first, seq + 1);
            if let Some(known) = waiting.known() {
                self.push(key, from, known);
            }
        }
        let Some(entry) = self.entries.peek(&key) else { return Decision::Read };
        match entry.versions.at(seq) {
            Some(version) => Decision::Known(Arc::clone(&version.known)),
            None if entry.whole => {
                // As no version tells of this one decision, it goes for all records of its time.
                self.decided = self.decided.max(seq + 1);
                Decision::Miss
            }
            None => Decision::Read,
        }
    }

    pub(super) fn take(
        &mut self,
        secret: u128,
        all: bool,
        oldest: u64,
        cache: usize,
    ) -> ObjectsCommit {
        let mut keys = std::mem::take(&mut self.unsaved);
        // What is to leave the memory has to be saved first.
        let all = all || self.entries.len() > cache;
        let mut first_waiting = self.observed;
        for (key, entry) in &self.entries {
            // What the store has of an object whose last record is gone, as far as it knows, goes.
            let at_risk = entry.saved_last < oldest;
            if (all || at_risk) && entry.last > entry.saved_last && !entry.unsaved {
                keys.push(*key);
            }
            if let Some(waiting) = &entry.waiting {
                first_waiting = first_waiting.min(waiting.first);
            }
        }
        let (applied, next) = self.saved.map_or((1, 1), |saved| (saved.applied, saved.next));
        let view = ObjectsView {
            secret,
            applied: if all && self.caught_up { self.observed } else { applied },
            decided: first_waiting.max(self.decided),
            next: self.observed.max(self.decided).max(next),
        };
        let changed = keys.into_iter().filter_map(|key| {
            let entry = self.entries.peek_mut(&key)?;
            entry.unsaved = false;
            entry.versions.drop_before(oldest);
            if entry.saved_last < oldest {
                // The store may have dropped it, and its versions with it.
                entry.saved_from = 0;
            }
            let versions = entry.versions.after(entry.saved_from).iter().map(Version::save);
            let saved = SavedObject { last: entry.last, versions: versions.collect() };
            Some((stored_key(key), saved))
        });
        let changed: Vec<_> = changed.collect();
        let news = !changed.is_empty() || self.saved != Some(view);
        // Before it is known of every object whether a record is about it, none goes.
        let oldest = if self.caught_up { oldest } else { 0 };
        ObjectsCommit { changed, view: news.then_some(view), oldest }
    }

    /// Forgets if there is far more than is to be kept. Where nothing can be, it is not tried again
    /// for each entry that comes.
    pub(super) fn shrink_if_large(&mut self, cache: usize) {
        if self.entries.len() > self.shrink_above.max(2 * cache) {
            self.shrink(cache);
        }
    }

    /// Forgets what was used least, as far as it is saved and nobody waits for it.
    pub(super) fn shrink(&mut self, cache: usize) {
        for _ in 0..self.entries.len() {
            if self.entries.len() <= cache {
                break;
            }
            let Some((&key, entry)) = self.entries.peek_lru() else { break };
            let saved = !entry.unsaved
                && entry.last <= entry.saved_last
                && entry.versions.after(entry.saved_from).is_empty();
            if entry.waiting.is_some() || !saved {
                self.entries.promote(&key);
            } else {
                self.entries.pop_lru();
            }
        }
        self.shrink_above = 2 * self.entries.len();
    }
}

impl Waiting {
    /// What has to do when no answer comes.
    pub(super) fn known(&self) -> Option<Arc<Known>> {
        let missing = || self.trouble.map(|why| Arc::new(Known::missing(why)));
        self.partial.clone().or_else(missing)
    }
}

impl Entry {
    pub(super) fn take(&mut self, finding: &Finding) {
        self.fingerprint = finding.fingerprint;
        self.incomplete = finding.incomplete;
        self.place = Place::newer(self.place.take(), finding.place.clone());
    }

    /// A record waits; answers whether it is the first to do so.
    pub(super) fn wait(&mut self, seq: u64, until_ms: u64, partial: Option<Arc<Known>>) -> bool {
        let first = self.waiting.is_none();
        let new = || Waiting { first: seq, until_ms, partial: None, trouble: None };
        let waiting = self.waiting.get_or_insert_with(new);
        waiting.partial = partial.or_else(|| waiting.partial.take());
        first
    }
}

pub(in crate::bridge::objects) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
