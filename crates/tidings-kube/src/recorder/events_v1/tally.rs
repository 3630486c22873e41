//! What became of the occurrences that were observed.

use std::{collections::HashMap, ops::AddAssign};

/// Numbers one series; a key that comes again after its series ended has a new number.
pub(super) type SeriesId = u64;

/// What became of the occurrences that reached the recording to a sink.
///
/// `observed = announced + pending + lost` at every moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Events taken, each of them one occurrence.
    pub observed: u64,
    /// Occurrences that the API server knows of: it has the event, with a count that covers them.
    pub announced: u64,
    /// Occurrences that it does not know of yet. They are counted, and come with the next write of
    /// their series.
    pub pending: u64,
    /// Occurrences of series that have ended, and whose writing failed for good.
    pub lost: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.observed += other.observed;
        self.announced += other.announced;
        self.pending += other.pending;
        self.lost += other.lost;
    }
}

/// One series as far as its numbers go.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    occurrences: u64,
    /// So many of them were in what was written last.
    announced: u64,
    /// Writes decided and not settled.
    under_way: usize,
    cached: bool,
}

/// The accounts of the series that are cached or have a write under way.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    open: HashMap<SeriesId, Account>,
    closed: Tally,
    opened: SeriesId,
}

impl Ledger {
    /// A new series, cached, without an occurrence.
    pub(super) fn open(&mut self) -> SeriesId {
        self.opened += 1;
        self.open.insert(self.opened, Account { cached: true, ..Account::default() });
        self.opened
    }

    pub(super) fn occurred(&mut self, series: SeriesId) {
        self.account(series).occurrences += 1;
    }

    /// A write was decided; answers how many occurrences it covers.
    pub(super) fn write(&mut self, series: SeriesId) -> u64 {
        let account = self.account(series);
        account.under_way += 1;
        account.occurrences
    }

    /// A write has ended. `announced` is what it covers, if the API server took it.
    pub(super) fn settle(&mut self, series: SeriesId, announced: Option<u64>) {
        let account = self.account(series);
        account.under_way = account.under_way.saturating_sub(1);
        if let Some(announced) = announced {
            account.announced = announced;
        }
        self.close_if_over(series);
    }

    /// The series is no longer cached.
    pub(super) fn forget(&mut self, series: SeriesId) {
        self.account(series).cached = false;
        self.close_if_over(series);
    }

    pub(super) fn occurrences(&self, series: SeriesId) -> u64 {
        self.open.get(&series).map_or(0, |account| account.occurrences)
    }

    /// So many of them does the API server know of.
    pub(super) fn announced(&self, series: SeriesId) -> u64 {
        self.open.get(&series).map_or(0, |account| account.announced)
    }

    /// Whether the API server does not know of all occurrences.
    pub(super) fn owes(&self, series: SeriesId) -> bool {
        self.open.get(&series).is_some_and(|account| account.announced < account.occurrences)
    }

    pub(super) fn tally(&self) -> Tally {
        let mut tally = self.closed;
        for account in self.open.values() {
            tally.observed += account.occurrences;
            tally.announced += account.announced;
            tally.pending += account.occurrences - account.announced;
        }
        tally
    }

    fn account(&mut self, series: SeriesId) -> &mut Account {
        self.open.entry(series).or_default()
    }

    fn close_if_over(&mut self, series: SeriesId) {
        if let Some(account) = self.open.get(&series)
            && !account.cached
            && account.under_way == 0
        {
            self.closed.observed += account.occurrences;
            self.closed.announced += account.announced;
            self.closed.lost += account.occurrences - account.announced;
            self.open.remove(&series);
        }
    }
}
