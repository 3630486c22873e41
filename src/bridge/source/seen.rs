//! The view `seen` as ingest uses it: on disk, with the changes that are not there yet in memory.
//!
//! ```text
//!  get:   young ──not there──▶ batch ──not there──▶ table: fingerprints ──maybe──▶ disk
//!  add:   young ──checkpointer takes it──▶ batch ──commit──▶ table
//! ```
//!
//! Ingest adds the changes of each frame, once it is in the log, to the *young*. The checkpointer takes
//! them all as a *batch*, commits it, and leaves it where it is until it takes the next one: what
//! is patched is mostly what has just been seen, and costs no read. Both are bounded. When the
//! young are full, ingest waits for the checkpointer to take them: intake is as fast as the disk.

use std::{
    mem,
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::watch;

use crate::{
    bridge::shared::lock,
    event::{SeenChanges, SeenEntry, UidKey},
    journal::{ReadError, SeenTable},
};

#[cfg(test)]
mod tests;

/// The most changes that wait to be saved: what a hash table of 32 768 slots takes, 1 MiB.
const MOST: usize = 28_672;
/// At so many the checkpointer is to save them, so that ingest need not wait.
const MANY: usize = MOST / 2;

/// Changes that were taken to be saved, in the order of the uids.
pub(crate) type Batch = Arc<Vec<(UidKey, Option<SeenEntry>)>>;

/// See the [module](self). Ingest writes it and the checkpointer saves it.
#[derive(Debug)]
pub(crate) struct Seen {
    unsaved: Mutex<Unsaved>,
    /// The young were taken.
    taken: Condvar,
    table: SeenTable,
    demand: watch::Sender<Demand>,
}

/// How urgently the young are to be saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Demand {
    /// When the time comes.
    #[default]
    None,
    /// Soon: they are many, or the log would drop what they come from.
    Soon,
    /// At once: ingest waits. Everything that it has appended to the log has been synced.
    Now,
}

#[derive(Debug, Default)]
struct Unsaved {
    /// Changes since the batch was taken.
    young: SeenChanges,
    /// The batch that is being saved, or has been.
    batch: Batch,
    /// The last one could not be saved, so it is not known that this one can.
    failing: bool,
    /// The sequence that the view has been brought up to with the young.
    applied: Option<u64>,
    /// And the one without what is not saved: from there on the log makes up for it.
    saved: u64,
}

impl Seen {
    /// As it has been saved, up to a sequence.
    pub(crate) fn new(table: SeenTable, saved: u64) -> Self {
        let unsaved = Mutex::new(Unsaved { saved, ..Unsaved::default() });
        let taken = Condvar::new();
        Self { unsaved, taken, table, demand: watch::Sender::default() }
    }

    pub(crate) fn get(&self, uid: UidKey) -> Result<Option<SeenEntry>, ReadError> {
        {
            let Unsaved { young, batch, .. } = &*lock(&self.unsaved);
            if let Some(change) = young.get(&uid) {
                return Ok(*change);
            }
            if let Ok(at) = batch.binary_search_by_key(&uid, |(uid, _)| *uid) {
                return Ok(batch[at].1);
            }
        }
        // What was not in the batch is in the table as it was, whatever is committed meanwhile.
        self.table.get(uid)
    }

    pub(crate) fn is_empty(&self) -> bool {
        let unsaved = lock(&self.unsaved);
        unsaved.young.is_empty() && unsaved.batch.is_empty() && self.table.is_empty()
    }

    /// Adds the changes of a frame that has been appended; `applied` is the sequence after it.
    pub(crate) fn add(&self, changes: SeenChanges, applied: u64) {
        let mut unsaved = lock(&self.unsaved);
        unsaved.young.extend(changes);
        unsaved.applied = Some(applied);
        if unsaved.young.len() >= MANY {
            self.save_soon();
        }
    }

    /// Whether so many more changes can be added without waiting.
    pub(crate) fn has_room(&self, more: usize) -> bool {
        has_room(&lock(&self.unsaved), more)
    }

    /// Waits until they can, but no longer than `most`; answers whether they can. Everything that
    /// has been appended to the log has to be synced before.
    pub(crate) fn wait_for_room(&self, more: usize, most: Duration) -> bool {
        let unsaved = lock(&self.unsaved);
        if has_room(&unsaved, more) {
            return true;
        }
        self.demand.send_replace(Demand::Now);
        let waited =
            self.taken.wait_timeout_while(unsaved, most, |unsaved| !has_room(unsaved, more));
        let (unsaved, _) = waited.unwrap_or_else(PoisonError::into_inner);
        has_room(&unsaved, more)
    }

    /// The first record that the log has to keep, or a crash would make the view forget what it
    /// says; nothing while nothing can be saved, or the log would grow for as long as that is so.
    pub(crate) fn keep_from(&self) -> Option<u64> {
        let unsaved = lock(&self.unsaved);
        (!unsaved.failing).then_some(unsaved.saved)
    }

    /// The log waits for the young to be saved.
    pub(crate) fn save_soon(&self) {
        self.demand.send_if_modified(|demand| {
            mem::replace(demand, Demand::Soon.max(*demand)) < Demand::Soon
        });
    }

    /// To wait for the young to become urgent.
    pub(crate) fn demand(&self) -> watch::Receiver<Demand> {
        self.demand.subscribe()
    }

    /// Takes the young to be saved, and the sequence that the view is brought up to with them, if
    /// there is any news. What was taken before has to be [`put_back`](Self::put_back) or saved.
    pub(crate) fn take(&self) -> Option<(Batch, u64)> {
        let mut unsaved = lock(&self.unsaved);
        // Also where there is nothing: or who waits for a demand would find this one for ever.
        self.demand.send_replace(Demand::None);
        let applied = unsaved.applied.take()?;
        // The memory of the last batch first.
        unsaved.batch = Batch::default();
        let mut batch: Vec<_> = unsaved.young.drain().collect();
        batch.sort_unstable_by_key(|(uid, _)| *uid);
        let batch = Arc::new(batch);
        unsaved.batch = Arc::clone(&batch);
        self.taken.notify_all();
        Some((batch, applied))
    }

    /// Takes in that what was taken has been saved, so the view is on the disk up to this sequence.
    pub(crate) fn saved(&self, applied: u64) {
        let mut unsaved = lock(&self.unsaved);
        (unsaved.failing, unsaved.saved) = (false, applied);
        drop(unsaved);
        self.taken.notify_all();
    }

    /// Takes in that what was taken could not be saved. Until [`saved`](Self::saved) it takes up room
    /// as before, or there would be more of it with each attempt.
    pub(crate) fn put_back(&self, applied: u64) {
        let mut unsaved = lock(&self.unsaved);
        unsaved.failing = true;
        for (uid, entry) in &*mem::take(&mut unsaved.batch) {
            // A newer change holds.
            unsaved.young.entry(*uid).or_insert(*entry);
        }
        unsaved.applied.get_or_insert(applied);
    }

    /// The Events of a source, ascending, and perhaps others. Those that are added meanwhile may
    /// be missing.
    pub(crate) fn of_source(&self, source: u16) -> OfSource<'_> {
        let unsaved = lock(&self.unsaved);
        let changes = unsaved.batch.iter().map(|(uid, entry)| (uid, entry)).chain(&unsaved.young);
        let own = changes.filter(|(_, entry)| entry.is_some_and(|entry| entry.source() == source));
        let mut unsaved: Vec<_> = own.map(|(uid, _)| *uid).collect();
        unsaved.sort_unstable();
        unsaved.dedup();
        let unsaved = unsaved.into_iter();
        OfSource {
            table: &self.table,
            source,
            unsaved,
            page: Vec::new().into_iter(),
            from: Some(UidKey(0)),
        }
    }
}

fn has_room(unsaved: &Unsaved, more: usize) -> bool {
    let batch = if unsaved.failing { unsaved.batch.len() } else { 0 };
    let waiting = unsaved.young.len() + batch;
    waiting == 0 || waiting + more <= MOST
}

/// So many uids are read from the table at a time.
const PAGE: usize = 1000;

#[derive(Debug)]
pub(crate) struct OfSource<'a> {
    table: &'a SeenTable,
    source: u16,
    /// Those of them that may not be in the table yet.
    unsaved: std::vec::IntoIter<UidKey>,
    page: std::vec::IntoIter<(UidKey, SeenEntry)>,
    /// Where the next page begins; nothing after the last.
    from: Option<UidKey>,
}

impl OfSource<'_> {
    /// The next one; nothing after the last. After an error the same is tried again.
    pub(crate) fn next_uid(&mut self) -> Result<Option<UidKey>, ReadError> {
        let in_table = loop {
            if let Some((uid, entry)) = self.page.as_slice().first() {
                if entry.source() == self.source {
                    break Some(*uid);
                }
                self.page.next();
                continue;
            }
            let Some(from) = self.from else { break None };
            let page = self.table.page(from, PAGE)?;
            self.from = page.last().and_then(|(uid, _)| uid.0.checked_add(1)).map(UidKey);
            self.page = page.into_iter();
        };
        let unsaved = self.unsaved.as_slice().first().copied();
        let next = in_table.into_iter().chain(unsaved).min();
        if in_table.is_some() && next == in_table {
            self.page.next();
        }
        if unsaved.is_some() && next == unsaved {
            self.unsaved.next();
        }
        Ok(next)
    }
}
