//! The view `objects`: what is known of the objects that records are about, kept as long as the
//! records are.

use std::sync::Arc;

use redb::{ReadableDatabase as _, ReadableTable as _, Table, TableDefinition, WriteTransaction};

use super::seen_table::{ReadError, Store};

/// The key of an object: the sequence of the last record about it, and its versions packed.
pub(super) const OBJECTS: TableDefinition<'_, u128, (u64, &[u8])> = TableDefinition::new("objects");
/// One row: the secret of the keys, and up to where the view is kept.
pub(super) const OBJECTS_VIEW: TableDefinition<'_, &str, (u128, u64, u64, u64)> =
    TableDefinition::new("objects view");
const THE_VIEW: &str = "view";

/// So many rows are looked at in one commit for objects that no record is about any longer.
const SWEEP: usize = 1000;

/// Up to where the view `objects` is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectsView {
    /// The secret under which the keys of objects are made.
    pub secret: u128,
    /// Of records before this sequence it is known that they are about their object.
    pub applied: u64,
    /// Records before this sequence are enriched with what is kept, or are not for good.
    pub decided: u64,
    /// The sequence from which on it knows of no record.
    pub next: u64,
}

/// The saved state of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedObject {
    /// The sequence of the last record about it.
    pub last: u64,
    /// From which sequence on each version is true, and what it says, in an order in which these
    /// rise.
    pub versions: Vec<(u64, Vec<u8>)>,
}

/// Changes of the view.
#[derive(Clone, Debug, Default)]
pub struct ObjectsCommit {
    /// By key: the last record, and the versions that are new. They take the place of those that are
    /// kept and begin at one of them or behind it.
    pub changed: Vec<(u128, SavedObject)>,
    /// The view after that; nothing: there is none.
    pub view: Option<ObjectsView>,
    /// The sequence of the oldest record in the log. What only older ones need goes.
    pub oldest: u64,
}

/// Reads the view while somebody else writes it. Clones are cheap. Blocks on the disk.
#[derive(Clone, Debug)]
pub struct ObjectsReader(pub(super) Arc<Store>);

impl ObjectsReader {
    /// Reads the saved state of an object.
    ///
    /// # Errors
    ///
    /// The store cannot be read now, which does not mean that nothing is kept.
    pub fn get(&self, key: u128) -> Result<Option<SavedObject>, ReadError> {
        self.0.read_or_say(|database| {
            let table = database.begin_read()?.open_table(OBJECTS)?;
            let row = table.get(key)?;
            Ok(row.map(|row| {
                let (last, packed) = row.value();
                SavedObject { last, versions: unpack(packed) }
            }))
        })
    }
}

pub(super) fn load_view(
    transaction: &redb::ReadTransaction,
) -> Result<Option<ObjectsView>, redb::Error> {
    let row = transaction.open_table(OBJECTS_VIEW)?.get(THE_VIEW)?;
    Ok(row.map(|row| {
        let (secret, applied, decided, next) = row.value();
        ObjectsView { secret, applied, decided, next }
    }))
}

/// Where the search for objects that no record is about has come to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sweep {
    /// The search is for objects whose last record is older than this.
    oldest: u64,
    /// The next key; nothing while there is no search.
    next: Option<u128>,
}

pub(super) fn write(
    transaction: &WriteTransaction,
    commit: &ObjectsCommit,
    sweep: &mut Sweep,
) -> Result<(), redb::Error> {
    let Some(view) = commit.view else { return Ok(()) };
    let mut row = transaction.open_table(OBJECTS_VIEW)?;
    row.insert(THE_VIEW, (view.secret, view.applied, view.decided, view.next))?;
    let mut objects = transaction.open_table(OBJECTS)?;
    // In key order neighbours share pages.
    let mut changed: Vec<_> = commit.changed.iter().collect();
    changed.sort_by_key(|(key, _)| *key);
    for (key, new) in changed {
        merge(&mut objects, *key, new, commit.oldest)?;
    }
    if sweep.next.is_none() && commit.oldest > sweep.oldest {
        *sweep = Sweep { oldest: commit.oldest, next: Some(0) };
    }
    if let Some(from) = sweep.next {
        sweep.next = drop_unneeded(&mut objects, from, sweep.oldest)?;
    }
    Ok(())
}

/// Adds what is new of an object to what is kept of it.
fn merge(
    objects: &mut Table<'_, u128, (u64, &[u8])>,
    key: u128,
    new: &SavedObject,
    oldest: u64,
) -> Result<(), redb::Error> {
    let (mut last, mut versions) = match objects.get(key)? {
        Some(row) => {
            let (last, packed) = row.value();
            (last, unpack(packed))
        }
        None => (0, Vec::new()),
    };
    last = last.max(new.last);
    for (from, what) in &new.versions {
        let kept = versions.partition_point(|(before, _)| before < from);
        if kept < versions.len() || versions.last().is_none_or(|(_, said)| said != what) {
            versions.truncate(kept);
            versions.push((*from, what.clone()));
        }
    }
    let needed = versions.partition_point(|(from, _)| *from <= oldest).saturating_sub(1);
    versions.drain(..needed);
    if !versions.is_empty() {
        objects.insert(key, (last, &*pack(&versions)))?;
    }
    Ok(())
}

/// Drops the objects among the next rows whose last record is older than `oldest`. Answers where to
/// go on.
fn drop_unneeded(
    objects: &mut Table<'_, u128, (u64, &[u8])>,
    from: u128,
    oldest: u64,
) -> Result<Option<u128>, redb::Error> {
    let (mut seen, mut end, mut unneeded) = (0, None, Vec::new());
    for item in objects.range(from..)?.take(SWEEP) {
        let (key, row) = item?;
        (seen, end) = (seen + 1, Some(key.value()));
        if row.value().0 < oldest {
            unneeded.push(key.value());
        }
    }
    for key in unneeded {
        objects.remove(key)?;
    }
    Ok(end.filter(|_| seen == SWEEP).and_then(|last| last.checked_add(1)))
}

/// Each version as its sequence, its length in 4 bytes, and what it says; little endian.
fn pack(versions: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut packed = Vec::new();
    for (from, what) in versions {
        packed.extend_from_slice(&from.to_le_bytes());
        packed.extend_from_slice(&(what.len() as u32).to_le_bytes());
        packed.extend_from_slice(what);
    }
    packed
}

/// As many versions as can be read.
fn unpack(mut packed: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut versions = Vec::new();
    while let Some((from, rest)) = packed.split_first_chunk()
        && let Some((length, rest)) = rest.split_first_chunk()
        && let Some((what, rest)) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)
    {
        versions.push((u64::from_le_bytes(*from), what.to_vec()));
        packed = rest;
    }
    versions
}
