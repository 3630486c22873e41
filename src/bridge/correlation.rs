//! Correlation in a sink's watcher: the algorithm of client-go's recorder on what the journal holds.
//!
//! Each version of an Event that the sink wants is aggregated, counted and put to the spam filter,
//! as [`correlator`](tidings_kube::correlator) does it for a recorder: 10 similar ones within 600 s are one
//! group, an object has 25 tokens and gets one back every 300 s. A version costs one token and
//! counts by its delta. What was decided stands in the envelope's `correlation`.
//!
//! With [`Suppress`](CorrelateMode::Suppress) a version without a token is *held*: the increments
//! that the receiver has not been told of are summed by what they are counted under. They come out
//! with the next delivery of that, or as a summary: the version held last, under its own id, with
//! the sum as its delta. That is due 600 s after the first was held, or earlier when more is held
//! than there is room for, when much has been journalled since, or when the program stops. So the
//! deltas that come out add up to those that went in.
//!
//! A delivery that stands for versions of a group has the first four and the last four of their
//! [messages](Messages) with it. They are read from the log when it is made, so what is held takes
//! the same few bytes whatever it says.
//!
//! The log has to keep what is held. In a small journal 600 s may be more than it can: then it would
//! have to drop it, or to stop intake for a sink that has caught up. So an eighth of the journal's
//! size is the most that comes behind what is held. At least half of the size is the log's; and of
//! that half, an eighth has to be free for intake to go on, and an eighth is for a segment, which is
//! counted, and dropped, as a whole. What is left is for the frames under way.
//!
//! # The same decisions at every time
//!
//! The clock is the time at which the record was journalled, and nothing here asks another one; nor
//! how full the disk is: what was journalled is the sum of the records, those included that the
//! sink does not want. So the same records and the same state give the same decisions, live, late,
//! or again after a crash. The state is saved now and then with the position that it knows, which is
//! never beyond the sink's own. Of one that holds versions back, what it has decided by since, its
//! [inputs](Input), is saved with each of the sink's positions: so it is brought up to that at the start,
//! whatever the log still has. Any other is brought up from the log, by the `match` of that run.
//!
//! The one thing that does not wait for a record is a summary when nothing else comes: the watcher asks for it once the wall clock has passed the time, and by then no record of
//! an earlier time can follow.

mod held;
mod inputs;
mod messages;
mod names;
mod saved;
mod stage;
#[cfg(test)]
mod tests;

use std::{num::NonZeroUsize, time::Duration};

use lru::LruCache;
use rustc_hash::FxBuildHasher;
use tidings_kube::correlator::{Aggregator, Key, Keys, SpamFilter, defaults};

use super::CorrelateMode;
use crate::{
    event::{Correlation, CorrelationAction, EnvelopeParts, EventFields, Record},
    journal::Holding,
};
pub(super) use held::Summary;
use held::{Entry, Held};
pub(super) use inputs::Input;
pub(super) use messages::Messages;
pub(super) use names::Names;
pub(super) use stage::{Passed, Stage};

/// The longest that increments are held back.
pub(super) const HOLD: Duration = Duration::from_secs(600);

/// What is held is announced when this part of the journal's size has come behind it.
const HOLD_SHARE: u64 = 8;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Correlator {
    mode: CorrelateMode,
    keys: Keys,
    groups: Aggregator,
    /// Occurrences by what they are counted under.
    counts: LruCache<Key, u64, FxBuildHasher>,
    spam: SpamFilter,
    held: Held,
    /// It was decided that everything held is to come out.
    letting_go: bool,
}

/// What becomes of a version.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It is sent, with this in its envelope.
    Send {
        /// Without its messages.
        correlation: Correlation,
        /// The messages of the versions that it stands for, where these are more than itself.
        messages: Messages,
        /// Its own, and what was held.
        delta: u64,
        /// So many versions that were held are announced with this one, and have their fate with it.
        released: u64,
    },
    /// It is held.
    Hold {
        /// There was no room: this is to be announced now.
        evicted: Option<Summary>,
    },
}

impl Correlator {
    /// With nothing known, for a journal of a size; nothing for a mode that needs none.
    pub(super) fn new(mode: CorrelateMode, keys: &Keys, retention_size: u64) -> Option<Self> {
        (mode != CorrelateMode::None).then(|| Self {
            mode,
            keys: keys.clone(),
            groups: Aggregator::new(
                defaults::LRU_CACHE_SIZE,
                defaults::MAX_EVENTS,
                defaults::MAX_INTERVAL,
            ),
            counts: LruCache::with_hasher(CAPACITY, FxBuildHasher),
            spam: SpamFilter::new(defaults::LRU_CACHE_SIZE, defaults::BURST, defaults::QPS),
            held: Held::new(retention_size),
            letting_go: false,
        })
    }

    /// Under which keys a version is counted. One of an earlier build goes by those of that build, until
    /// it is [switched](Self::switch): what it knows it knows under them.
    pub(super) fn names(&self, parts: &EnvelopeParts<'_>, event: &EventFields<'_>) -> Names {
        if self.held.settles_early {
            return Names::of_earlier(event, &self.keys);
        }
        Names::of(self.keys.prefix(&[parts.cluster()]), event, &self.keys)
    }

    /// The next record, which the sink may want or not, has an envelope of so many bytes. What is
    /// [due](Self::due) has to be taken after it.
    pub(super) fn read(&mut self, envelope: usize) {
        self.held.read(envelope);
    }

    /// Decides on the version `seq` that was journalled at `time_ms` and whose increments are
    /// `delta`. What is [due](Self::due) by then has to be taken before.
    pub(super) fn decide(&mut self, names: &Names, seq: u64, delta: u64, time_ms: u64) -> Decision {
        let now_ns = i64::try_from(time_ms).unwrap_or(i64::MAX).saturating_mul(1_000_000);
        let aggregated = self.groups.observe(names.group, names.local, now_ns).is_aggregate();
        let key = if aggregated { names.group } else { names.event };
        let before = self.counts.get(&key).copied();
        let count = before.unwrap_or(0).saturating_add(delta);
        self.counts.put(key, count);
        let allowed = self.spam.allow(names.spam, now_ns);
        if !allowed && self.mode == CorrelateMode::Suppress {
            let new = Entry {
                since_ms: time_ms,
                since_bytes: self.held.read_bytes(),
                first: seq,
                last: seq,
                delta,
                versions: 1,
                pending: 1,
                count,
                aggregated,
                messages: Messages::default(),
            };
            return Decision::Hold { evicted: self.held.add(key, new, names.local) };
        }
        let action = match before {
            _ if !allowed => CorrelationAction::Skip,
            None => CorrelationAction::Create,
            Some(_) => CorrelationAction::Patch,
        };
        let held = self.held.take(key);
        let plain = Correlation { action, aggregated, count, ..Correlation::default() };
        let Some(mut held) = held else {
            let messages = Messages::default();
            return Decision::Send { correlation: plain, messages, delta, released: 0 };
        };
        held.messages.add(names.local, seq);
        Decision::Send {
            correlation: Correlation { summarises: Some(held.versions.saturating_add(1)), ..plain },
            messages: held.messages,
            delta: delta.saturating_add(held.delta),
            released: held.pending,
        }
    }

    /// Takes a record whose fate was settled in an earlier run, which did not note what it decided by. One that was not `wanted` may have brought about a summary.
    pub(super) fn bring_up(&mut self, record: &Record, time_ms: u64, wanted: bool) {
        self.read(record.envelope.len());
        while self.due(time_ms).is_some() {}
        if let Some((parts, event)) = read(record).filter(|_| wanted) {
            let names = self.names(&parts, &event);
            self.decide(&names, record.seq, parts.delta, time_ms);
        }
    }

    /// What has been held for so long at `time_ms`, or before so much that was read, that it is to
    /// be announced; one at a time.
    pub(super) fn due(&mut self, time_ms: u64) -> Option<Summary> {
        let due = self.held.due(time_ms);
        // With the last of it that decision is carried out: it is none about what is held later.
        self.letting_go &= self.held() > 0;
        due
    }

    /// Whether anything is [due](Self::due).
    pub(super) fn is_due(&self, time_ms: u64) -> bool {
        self.held.is_due(time_ms)
    }

    /// When the next is due if nothing more is read, in milliseconds since the epoch.
    pub(super) fn next_due_ms(&self) -> Option<u64> {
        self.held.next_due_ms()
    }

    /// Whether it holds versions back, or may do so yet.
    pub(super) fn holds_back(&self) -> bool {
        self.mode == CorrelateMode::Suppress || self.held() > 0
    }

    /// What waits for its fate.
    pub(super) fn holding(&self) -> Holding {
        self.held.holding()
    }

    /// How many versions wait for their fate.
    pub(super) fn held(&self) -> u64 {
        self.held.holding().versions
    }

    /// Goes on in another mode than the last run's. A mode that holds nothing back lets go what is held,
    /// and a later run has to do so too, whatever its mode: some of it may be out by then. So does one
    /// that goes on from what an earlier build held, which counted it otherwise.
    pub(super) fn switch(&mut self, mode: CorrelateMode) {
        self.mode = mode;
        let earlier_build = std::mem::take(&mut self.held.settles_early);
        self.letting_go |= (mode != CorrelateMode::Suppress || earlier_build) && self.held() > 0;
    }

    /// The journal has this size from now on. Until then everything is decided as in the run before,
    /// whose decisions the receiver may have. Answers whether it is another size, and there is something
    /// to decide by it.
    pub(super) fn fit(&mut self, retention_size: u64) -> bool {
        self.held.fit(retention_size) && self.holds_back()
    }

    /// What it holds is all that is known of what is held, and no more than so many versions are:
    /// all of it is to come out.
    pub(super) fn salvage(&mut self, versions: u64) {
        self.held.limit(versions);
        self.letting_go = self.held() > 0;
    }

    /// Whether there is no more use for it: the mode wants none, and nothing is held.
    pub(super) fn is_unwanted(&self) -> bool {
        self.mode == CorrelateMode::None && self.held() == 0
    }

    /// From now on everything held is to come out before anything else is decided.
    pub(super) fn let_go(&mut self) {
        self.letting_go = true;
    }

    /// Whether what is held is to come out at once: that was decided before the last run ended, or
    /// by a change of the mode.
    pub(super) fn lets_go(&self) -> bool {
        self.held() > 0 && self.letting_go
    }
}

const CAPACITY: NonZeroUsize = NonZeroUsize::new(defaults::LRU_CACHE_SIZE).unwrap();

/// What a record is decided by; nothing for bytes that ingest did not write.
fn read(record: &Record) -> Option<(EnvelopeParts<'_>, EventFields<'_>)> {
    let parts = EnvelopeParts::of(&record.envelope)?;
    Some((parts, parts.fields()?))
}
