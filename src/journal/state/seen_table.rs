//! The view `seen` as it has been committed: on disk, and in memory a fingerprint of each uid.

use std::{
    fs::File,
    io::{self, Seek as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
};

use redb::{Database, ReadableDatabase as _, ReadableTable as _, ReadableTableMetadata as _};
use redb::{TableDefinition, WriteTransaction};
use tidings_log::{Damage, private};

use super::{Directory, NAME, file::Trouble, fingerprints::Fingerprints, open_database};
use crate::event::{SeenEntry, UidKey};

/// uid: resourceVersion, occurrences, source.
const SEEN: TableDefinition<'_, u128, (u64, u32, u16)> = TableDefinition::new("seen");

/// Why the view could not be read. What was asked for is to be asked for again later.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the state in {}: {reason}", path.display())]
pub struct ReadError {
    path: PathBuf,
    reason: String,
}

impl ReadError {
    pub(super) fn new(path: &Path, reason: impl Into<String>) -> Self {
        Self { path: path.to_owned(), reason: reason.into() }
    }
}

/// What the owner of the state and the readers of the view share.
#[derive(Debug)]
pub(super) struct Store {
    path: PathBuf,
    /// Nothing after a failed commit, until the next: redb does not go on with a file that failed
    /// it.
    database: RwLock<Option<Database>>,
    /// The file, to know whether it has its name still.
    file: Mutex<File>,
    /// Of the table as it has been committed.
    known: Mutex<Fingerprints>,
    /// The last to go: until then no other process opens the file.
    directory: Directory,
}

impl Store {
    pub(super) fn new(
        path: PathBuf,
        database: Database,
        known: Fingerprints,
        directory: Directory,
    ) -> io::Result<Self> {
        let file = Mutex::new(File::open(&path)?);
        let (database, known) = (RwLock::new(Some(database)), Mutex::new(known));
        Ok(Self { path, database, file, known, directory })
    }

    /// Sees that the file is there under its name. One that was taken away is stated as damage, and
    /// written again from what is still open.
    pub(super) fn keep_in_place(&self, now_ms: u64) -> Result<(), redb::Error> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if private::is_at(&file, &self.path)? {
            return Ok(());
        }
        self.directory.keep_in_place(now_ms)?;
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        // Closed first, so that what it has is whole.
        *database = None;
        if self.path.exists() {
            self.directory.set_aside(NAME, "it took the place of a file that is in use", now_ms)?;
        }
        let temporary = self.path.with_extension("redb.tmp");
        let mut opening = private::file();
        opening.read(true).write(true).create(true).truncate(true);
        let mut new = opening.open(&temporary)?;
        file.rewind()?;
        io::copy(&mut *file, &mut new)?;
        new.sync_all()?;
        std::fs::rename(&temporary, &self.path)?;
        *file = new;
        self.directory.damages().note(Damage::of_file(NAME, Damage::TAKEN_AWAY, now_ms));
        File::open(self.directory.path())?.sync_all()?;
        *database = Some(self.open_again()?);
        Ok(())
    }

    fn open_again(&self) -> Result<Database, redb::Error> {
        let opened = open_database(&self.path, false, Trouble::default())?;
        // A commit that failed may be in the file all the same.
        *self.known() = fingerprints(&opened)?;
        Ok(opened)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Calls with the database, which is opened again if need be, and is closed on failure.
    pub(super) fn with_database<T>(
        &self,
        call: impl FnOnce(&Database) -> Result<T, redb::Error>,
    ) -> Result<T, redb::Error> {
        {
            let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
            if database.is_none() {
                // Another one would be made, and would know nothing.
                if !private::is_at(&file, &self.path)? {
                    return Err(io::Error::from(io::ErrorKind::NotFound).into());
                }
                *database = Some(self.open_again()?);
            }
        }
        // Readers go on meanwhile.
        let called = self.read(call).transpose();
        if called.is_err() {
            self.close();
        }
        called?.ok_or(redb::Error::PreviousIo)
    }

    pub(super) fn close(&self) {
        *self.database.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Calls with the database, if it is open.
    pub(super) fn read<T>(&self, call: impl FnOnce(&Database) -> T) -> Option<T> {
        self.database.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(call)
    }

    /// The same, with what went wrong in words.
    pub(super) fn read_or_say<T>(
        &self,
        call: impl FnOnce(&Database) -> Result<T, redb::Error>,
    ) -> Result<T, ReadError> {
        match self.read(call) {
            Some(read) => read.map_err(|e| ReadError::new(&self.path, e.to_string())),
            None => Err(ReadError::new(&self.path, "it is closed after a failure")),
        }
    }

    /// Changes have been committed; for each, whether the table had its uid before.
    pub(super) fn note(&self, changes: &[(UidKey, Option<SeenEntry>)], replaced: &[bool]) {
        let mut known = self.known();
        for ((uid, entry), replaced) in changes.iter().zip(replaced) {
            match (entry, replaced) {
                (Some(_), false) => known.insert(*uid),
                (None, true) => known.remove(*uid),
                (Some(_), true) | (None, false) => {}
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, Fingerprints> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reader of the view; clones are cheap.
#[derive(Clone, Debug)]
pub struct SeenTable(Arc<Store>);

impl SeenTable {
    pub(super) fn new(store: Arc<Store>) -> Self {
        Self(store)
    }

    /// What has been committed of an Event. Reads the disk only where there probably is something.
    pub fn get(&self, uid: UidKey) -> Result<Option<SeenEntry>, ReadError> {
        if !self.0.known().may_contain(uid) {
            return Ok(None);
        }
        self.0.read_or_say(|database| {
            let table = database.begin_read()?.open_table(SEEN)?;
            Ok(table.get(uid.0)?.map(|value| entry(value.value())))
        })
    }

    /// Up to `limit` Events, ascending in their uids, from one on.
    pub fn page(&self, from: UidKey, limit: usize) -> Result<Vec<(UidKey, SeenEntry)>, ReadError> {
        self.0.read_or_say(|database| {
            let table = database.begin_read()?.open_table(SEEN)?;
            let mut page = Vec::with_capacity(limit);
            for item in table.range(from.0..)?.take(limit) {
                let (uid, value) = item?;
                page.push((UidKey(uid.value()), entry(value.value())));
            }
            Ok(page)
        })
    }

    /// How many Events there are.
    pub fn len(&self) -> usize {
        self.0.known().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn entry((resource_version, occurrences, source): (u64, u32, u16)) -> SeenEntry {
    SeenEntry::new(resource_version, u64::from(occurrences), source)
}

/// Makes the table if it is not there.
pub(super) fn make(transaction: &WriteTransaction) -> Result<(), redb::Error> {
    transaction.open_table(SEEN)?;
    Ok(())
}

/// Removes the table.
pub(super) fn clear(transaction: &WriteTransaction) -> Result<(), redb::Error> {
    transaction.delete_table(SEEN)?;
    Ok(())
}

/// Answers for each change whether the table had its uid before.
pub(super) fn write(
    transaction: &WriteTransaction,
    changes: &[(UidKey, Option<SeenEntry>)],
) -> Result<Vec<bool>, redb::Error> {
    let mut table = transaction.open_table(SEEN)?;
    let mut replaced = Vec::with_capacity(changes.len());
    for (uid, entry) in changes {
        let before = match entry {
            Some(entry) => {
                let value = (entry.resource_version, entry.occurrences, entry.source());
                table.insert(uid.0, value)?.is_some()
            }
            None => table.remove(uid.0)?.is_some(),
        };
        replaced.push(before);
    }
    Ok(replaced)
}

/// Reads what is in the table.
pub(super) fn fingerprints(database: &Database) -> Result<Fingerprints, redb::Error> {
    let table = database.begin_read()?.open_table(SEEN)?;
    let mut known = Fingerprints::with_capacity(table.len()? as usize);
    for item in table.iter()? {
        let (uid, _) = item?;
        known.insert(UidKey(uid.value()));
    }
    Ok(known)
}
