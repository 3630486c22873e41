//! Gaps, what a watch did not show, and how they are stated: a log line, counters, the newest few for the
//! status document, the last of each source for the metrics, and an Event of our own.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::Arc,
};

use jiff::Timestamp;

use crate::{event::timestamp, journal::Unfinished};

/// The newest so many are kept to be looked at.
const KEPT: usize = 16;

/// So much earlier than the last sign of life a gap begins, in milliseconds: a watch shows a change
/// a moment after it was made, and the times of most Events are cut to whole seconds.
pub(super) const ON_ITS_WAY_MS: u64 = 1_000;

/// A part of the history that the watch of a source did not show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The source's key.
    pub source: Arc<str>,
    /// Everything before it was shown, in milliseconds since the epoch.
    pub from_ms: u64,
    /// So is everything after it: the list that ended it was taken then, in milliseconds since the
    /// epoch.
    pub to_ms: u64,
    /// How many Events the list brought.
    pub replayed: u64,
    /// Increments that were seen only as part of a larger one.
    pub skipped: u64,
    /// The API server's own history was replaced by another one.
    pub epoch: bool,
}

impl Gap {
    /// A gap from the last sign of life, as far as one is known, to the list that ended it.
    ///
    /// A clock that was set back in between leaves the two in the wrong order; the interval then is
    /// from the one to the other all the same.
    pub(super) fn new(
        source: Arc<str>,
        last_sign_of_life_ms: Option<u64>,
        to_ms: u64,
        Unfinished { replayed, skipped }: Unfinished,
        epoch: bool,
    ) -> Self {
        let from_ms = last_sign_of_life_ms.map_or(to_ms, |ms| ms.saturating_sub(ON_ITS_WAY_MS));
        let (from_ms, to_ms) = (from_ms.min(to_ms), to_ms.max(from_ms));
        Self { source, from_ms, to_ms, replayed, skipped, epoch }
    }

    /// When it began.
    pub fn from(&self) -> Timestamp {
        timestamp(self.from_ms)
    }

    /// When it ended.
    pub fn to(&self) -> Timestamp {
        timestamp(self.to_ms)
    }

    /// How long it was, in milliseconds.
    pub fn length_ms(&self) -> u64 {
        self.to_ms.saturating_sub(self.from_ms)
    }

    pub(super) fn log(&self) {
        let Self { source, replayed, skipped, .. } = self;
        let (source, from, to) = (&**source, self.from().to_string(), self.to().to_string());
        let what = if self.epoch {
            "a new epoch: everything that the API server lists is exported again under the same ids; \
             what its lost history held after the last that was read is not known"
        } else {
            "a gap in the watch: the newest version of each Event was replayed; versions between, \
             and Events that came and went, were not seen"
        };
        tracing::warn!(source, from, to, replayed, skipped_increments = skipped, "{what}");
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, replayed, skipped, .. } = self;
        let (from, to) = (self.from(), self.to());
        if self.epoch {
            write!(
                f,
                "The API server was restored or replaced while it was not watched for {source}, from {from} to {to}: \
                 all {replayed} Events that it lists were sent again under the same ids, and \
                 {skipped} increments came as part of a later one"
            )
        } else {
            write!(
                f,
                "The watch of {source} has a gap from {from} to {to}: the newest version of {replayed} Events was \
                 replayed, {skipped} increments came as part of a later one, and Events that came and went are \
                 not known"
            )
        }
    }
}

/// Gaps of one source, or its new epochs, taken together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GapSum {
    /// How many they are.
    pub(super) count: u64,
    /// The first of them, with what all of them hid, up to the end of the last.
    pub(super) all: Gap,
}

impl From<Gap> for GapSum {
    fn from(all: Gap) -> Self {
        Self { count: 1, all }
    }
}

impl GapSum {
    /// Adds others of the same source and kind.
    pub(super) fn add(&mut self, GapSum { count, all: other }: &Self) {
        let Self { count: sum, all } = self;
        *sum += count;
        all.from_ms = all.from_ms.min(other.from_ms);
        all.to_ms = all.to_ms.max(other.to_ms);
        all.replayed += other.replayed;
        all.skipped += other.skipped;
    }
}

/// The gaps of all sources since the start of the process. What is kept of them does not grow with
/// their number, but with that of the sources.
#[derive(Debug, Default)]
pub(super) struct RecentGaps {
    /// Of all sources.
    newest: VecDeque<Gap>,
    /// Of each source.
    last: BTreeMap<Arc<str>, Gap>,
    /// By source, and apart for new epochs.
    untold: BTreeMap<(Arc<str>, bool), GapSum>,
}

impl RecentGaps {
    pub(super) fn add(&mut self, gap: Gap) {
        let sum = GapSum::from(gap.clone());
        let untold = self.untold.entry((Arc::clone(&gap.source), gap.epoch));
        untold.and_modify(|untold| untold.add(&sum)).or_insert(sum);
        self.last.insert(Arc::clone(&gap.source), gap.clone());
        self.newest.push_back(gap);
        if self.newest.len() > KEPT {
            self.newest.pop_front();
        }
    }

    /// The newest of all sources, oldest first.
    pub(super) fn list(&self) -> Vec<Gap> {
        self.newest.iter().cloned().collect()
    }

    pub(super) fn last(&self) -> Vec<Gap> {
        self.last.values().cloned().collect()
    }

    /// All since this was asked last.
    pub(super) fn take_untold(&mut self) -> Vec<GapSum> {
        std::mem::take(&mut self.untold).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: Unfinished = Unfinished { replayed: 7, skipped: 3 };

    #[test]
    fn an_interval_begins_before_the_last_sign_of_life_and_is_never_turned_round() {
        let interval = |last, to| {
            let gap = Gap::new("*".into(), last, to, FACTS, false);
            (gap.from_ms, gap.to_ms)
        };
        assert_eq!(interval(Some(60_000), 90_000), (59_000, 90_000));
        assert_eq!(interval(Some(90_000), 60_000), (60_000, 89_000), "a clock that was set back");
        assert_eq!(interval(Some(60_500), 60_000), (59_500, 60_000));
        assert_eq!(interval(None, 60_000), (60_000, 60_000));
    }

    #[test]
    fn the_newest_are_kept_and_the_last_of_each_source_and_all_are_told_once() {
        let mut recent = RecentGaps::default();
        let quiet = Gap::new("quiet".into(), Some(5_000), 7_000, FACTS, false);
        recent.add(quiet.clone());
        for n in 1..=40 {
            recent.add(Gap::new("shop".into(), Some(n * 10_000), n * 10_000, FACTS, n == 1));
        }
        let ends: Vec<_> = recent.list().iter().map(|gap| gap.to_ms / 10_000).collect();
        assert_eq!(ends, (25..=40).collect::<Vec<_>>());
        let last: Vec<_> = recent.last().iter().map(|gap| gap.to_ms).collect();
        assert_eq!(last, [7_000, 400_000]);
        let untold = recent.take_untold();
        let counts: Vec<_> = untold.iter().map(|sum| (&*sum.all.source, sum.count)).collect();
        assert_eq!(counts, [("quiet", 1), ("shop", 39), ("shop", 1)]);
        assert_eq!(untold[0].all, quiet);
        let shop = &untold[1].all;
        assert_eq!((shop.from_ms, shop.to_ms, shop.epoch), (19_000, 400_000, false));
        assert_eq!((shop.replayed, shop.skipped), (39 * 7, 39 * 3));
        assert_eq!(recent.take_untold(), []);
    }
}
