//! The state beside the log: every view of it, brought up to date in one transaction.
//!
//! It is never ahead of the log: the caller syncs the log, then commits the state. When it is
//! damaged it is set aside and begun anew; the log and `positions.json` have what it takes.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use redb::{Database, ReadableDatabase as _, ReadableTable as _, ReadableTableMetadata as _};
use redb::{StorageError, TableDefinition, WriteTransaction};
use serde::{Serialize, de::DeserializeOwned};
use tidings_log::{Damage, Directory, OpenError as LogError, Position, format};

use self::{
    dead_letters::DeadLetters,
    file::{StateFile, Trouble},
    fingerprints::Fingerprints,
    seen_table::Store,
};
use super::{Inputs, OpenError, delivered, disk_hint, positions};

mod dead_letters;
mod file;
mod fingerprints;
mod letter_shares;
mod letters;
mod look;
mod model;
mod objects;
mod seen_table;
#[cfg(test)]
mod tests;

pub use dead_letters::DeadLettersReader;
pub use letter_shares::NamespaceLetters;
pub use letters::{
    LetterCounts, LetterError, LetterFate, LetterOutcome, LetterQuery, LetterState, Letters,
};
pub(super) use look::look;
pub use model::{
    CorrelatorInputs, DeadLetter, Destinations, Loaded, SavedCorrelator, SavedWitness, SinkState,
    SourceState, StateCommit, Totals, Unfinished,
};
use objects::{OBJECTS, OBJECTS_VIEW, Sweep};
pub use objects::{ObjectsCommit, ObjectsReader, ObjectsView, SavedObject};
pub use seen_table::{ReadError, SeenTable};

pub(super) const NAME: &str = "state.redb";

/// redb's page cache, in bytes. What is hot is the upper part of a few trees; a larger one was not
/// measurably faster.
const CACHE: usize = 1 << 20;

/// The version of what is in the tables.
const VERSION: u64 = 1;

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const CLUSTER: TableDefinition<'_, &str, &str> = TableDefinition::new("cluster");
const OWN: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("own");
const SINKS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("sinks");
const SOURCES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("sources");
/// What it knows up to, as the next sequence and how many were never used, and the state itself.
const CORRELATORS: TableDefinition<'_, &str, (u64, u64, &[u8])> =
    TableDefinition::new("correlators");

/// What a sink's correlator has decided by since it was saved, in parts: each ends before a sequence.
/// What all records before that took in the log, and the [inputs](Inputs).
const INPUTS: TableDefinition<'_, (&str, u64), (u64, &[u8])> =
    TableDefinition::new("correlator_inputs");

/// The consequence of a state that is begun anew.
const WITHOUT: &str =
    "sinks go on from positions.json, under the same ids; their totals begin anew";

/// Why a commit failed. All of it is stored, or nothing, which is more likely; the same is to be
/// committed again later, together with what has changed by then.
#[derive(Debug, thiserror::Error)]
#[error("cannot store the state in {}: {source}\nhint: {}", path.display(), self.hint())]
pub struct CommitError {
    path: PathBuf,
    source: Box<redb::Error>,
}

impl CommitError {
    fn hint(&self) -> &'static str {
        match &*self.source {
            redb::Error::Io(error) => disk_hint(error),
            _ => "its disk has failed before: it is opened again and tried again by itself",
        }
    }
}

/// The store. It belongs to one thread, as the log's writer does; another one may read the view
/// `seen` in it.
#[derive(Debug)]
pub struct State {
    store: Arc<Store>,
    dead: DeadLetters,
    sweep: Sweep,
    /// The last commit failed. What was in it may be stored all the same, and comes again.
    comes_again: bool,
}

/// A reader of what is saved of sinks; clones are cheap.
#[derive(Clone, Debug)]
pub struct SinksReader(Arc<Store>);

impl SinksReader {
    /// What is saved now. Blocks on the disk.
    ///
    /// # Errors
    ///
    /// The state cannot be read now, which does not mean that nothing is saved.
    pub fn load(&self) -> Result<Loaded, ReadError> {
        self.0.read_or_say(read_tables)
    }
}

/// Why a file cannot be used.
#[derive(Debug)]
enum Unusable {
    /// The operating system does not let us; the file may be fine.
    Refused(io::Error),
    /// Reading it failed, for once or for longer; the file may be fine.
    Unread(io::Error),
    Newer(u64),
    Held,
    Damaged(String),
}

impl State {
    /// Opens the state of a directory. One that is damaged is [set aside](Directory::set_aside)
    /// and a new one is begun; [`Loaded::set_aside`] says so. One that is missing where a bridge has
    /// been is damaged, too; [`Loaded::lost`] says so of both.
    ///
    /// Of dead letters the newest are kept that take `dead_letter_bytes` together.
    ///
    /// # Errors
    ///
    /// [`OpenError`]; never on damage.
    pub fn open(
        directory: &Directory,
        dead_letter_bytes: u64,
        now_ms: u64,
    ) -> Result<(Self, Loaded), OpenError> {
        let path = directory.path().join(NAME);
        let mut set_aside = None;
        let access = OpenError::access(&path);
        let missing = !path.try_exists().map_err(access)?
            && has_past(directory).map_err(OpenError::access(directory.path()))?;
        let opened = open_and_load(&path).or_else(|unusable| {
            let Unusable::Damaged(reason) = unusable else { return Err(unusable) };
            let said = format!("{reason}; {WITHOUT}, and the dead letters are in the file only");
            let aside = directory.set_aside(NAME, &said, now_ms).map_err(Unusable::Refused)?;
            set_aside = Some((aside, reason));
            open_and_load(&path)
        });
        let (database, mut loaded, mut dead, known) =
            opened.map_err(|unusable| refused(unusable, directory, &path))?;
        if missing {
            let reason = format!(
                "it is missing, and is begun anew; {WITHOUT}, and the dead letters are gone"
            );
            directory.damages().note(Damage::of_file(NAME, reason, now_ms));
        }
        loaded.lost = missing || set_aside.is_some();
        loaded.set_aside = set_aside;
        dead.limit = dead_letter_bytes;
        dead.share();
        let store = Store::new(path.clone(), database, known, directory.clone());
        let store = Arc::new(store.map_err(OpenError::access(&path))?);
        Ok((Self { store, dead, sweep: Sweep::default(), comes_again: false }, loaded))
    }

    /// Opens the state of a directory for a command beside the bridge: where there is none, none is
    /// made, and one that is damaged is left for the bridge, which sets it aside and says so.
    ///
    /// # Errors
    ///
    /// [`OpenError`]; on damage, too.
    pub fn open_as_it_is(directory: &Directory) -> Result<Option<Self>, OpenError> {
        let path = directory.path().join(NAME);
        if !path.exists() {
            return Ok(None);
        }
        let opened = open_and_load(&path);
        let (database, _, mut dead, known) = opened.map_err(|unusable| match unusable {
            Unusable::Damaged(reason) => OpenError::Damaged { path: path.clone(), reason },
            other => refused(other, directory, &path),
        })?;
        let store = Store::new(path.clone(), database, known, directory.clone());
        let store = Arc::new(store.map_err(OpenError::access(&path))?);
        // Nothing goes for want of room: how much there is, only the bridge knows.
        dead.limit = u64::MAX;
        Ok(Some(Self { store, dead, sweep: Sweep::default(), comes_again: false }))
    }

    /// The view `seen` as it has been committed, to be read beside the commits.
    pub fn seen(&self) -> SeenTable {
        SeenTable::new(Arc::clone(&self.store))
    }

    /// The view `objects` as it has been committed, to be read beside the commits.
    pub fn objects(&self) -> ObjectsReader {
        ObjectsReader(Arc::clone(&self.store))
    }

    /// Sees that the file is there under its name. One that was taken away while it was in use is
    /// stated as damage, and written again from what is still open. Cheap enough for each second.
    ///
    /// # Errors
    ///
    /// It could not be written again: nothing can be committed then, until a later call succeeds.
    pub fn keep_in_place(&self, now_ms: u64) -> Result<(), CommitError> {
        self.store.keep_in_place(now_ms).map_err(|e| self.error(e))
    }

    /// What is saved of sinks, to be read beside the commits.
    pub fn sinks(&self) -> SinksReader {
        SinksReader(Arc::clone(&self.store))
    }

    /// Stores all of it on stable storage, or nothing. The log must have been synced up to every
    /// position in it.
    pub fn commit(&mut self, commit: &StateCommit) -> Result<(), CommitError> {
        let (mut dead, mut sweep) = (self.dead.clone(), self.sweep);
        let stored = self.store.with_database(|database| {
            dead.make_sure(database)?;
            let transaction = database.begin_write()?;
            let replaced = write(&transaction, commit)?;
            dead.write(&transaction, &commit.dead_letters, &commit.letter_fates)?;
            objects::write(&transaction, &commit.objects, &mut sweep)?;
            transaction.commit()?;
            Ok(replaced)
        });
        if stored.is_err() {
            self.note_failed_commit();
        }
        let replaced = stored.map_err(|e| self.error(e))?;
        self.store.note(&commit.seen, &replaced);
        self.sweep = sweep;
        self.comes_again = false;
        self.have(dead);
        Ok(())
    }

    /// The dead letters, to be read beside the commits.
    pub fn dead_letters(&self) -> DeadLettersReader {
        DeadLettersReader::new(&self.store, &self.dead)
    }

    /// Marks dead letters so that they are sent again, and answers how many are. It is on stable
    /// storage when this returns; each bridge sends what is marked, now or after its start.
    ///
    /// Of letters that are named each has to be one that can be sent: of one of these sinks, and of
    /// an event that is known. Of others those that cannot be are left as they are.
    ///
    /// # Errors
    ///
    /// [`LetterError`]; nothing is marked then.
    pub fn retry_letters(
        &mut self,
        letters: &Letters,
        configured: &[String],
    ) -> Result<u64, LetterError> {
        self.change_letters(|dead, transaction| dead.retry(transaction, letters, configured))
    }

    /// Drops dead letters, and answers how many went. It is on stable storage when this returns.
    ///
    /// # Errors
    ///
    /// [`LetterError`]; nothing is dropped then.
    pub fn drop_letters(&mut self, letters: &Letters) -> Result<u64, LetterError> {
        self.change_letters(|dead, transaction| dead.drop(transaction, letters))
    }

    fn change_letters(
        &mut self,
        change: impl FnOnce(
            &mut DeadLetters,
            &WriteTransaction,
        ) -> Result<Result<u64, LetterError>, redb::Error>,
    ) -> Result<u64, LetterError> {
        if self.comes_again {
            // Letters of that commit would be there again after the change, as they were before it.
            return Err(self.error(redb::Error::PreviousIo).into());
        }
        let mut dead = self.dead.clone();
        let changed = self.store.with_database(|database| {
            dead.make_sure(database)?;
            let transaction = database.begin_write()?;
            let changed = change(&mut dead, &transaction)?;
            match changed {
                Ok(_) => transaction.commit()?,
                Err(_) => transaction.abort()?,
            }
            Ok(changed)
        });
        self.dead.in_doubt |= changed.is_err();
        let changed = changed.map_err(|e| self.error(e))??;
        self.have(dead);
        Ok(changed)
    }

    fn note_failed_commit(&mut self) {
        self.dead.in_doubt = true;
        self.comes_again = true;
    }

    fn have(&mut self, dead: DeadLetters) {
        self.dead = dead;
        self.dead.in_doubt = false;
        self.dead.share();
    }

    /// Whether it can be read. After a failure it cannot, until something is committed.
    pub fn is_open(&self) -> bool {
        self.store.read(|_| ()).is_some()
    }

    /// As after a failure.
    #[cfg(test)]
    pub(crate) fn close(&self) {
        self.store.close();
    }

    fn error(&self, source: redb::Error) -> CommitError {
        CommitError { path: self.store.path().to_owned(), source: Box::new(source) }
    }
}

/// Whether a bridge has written something here beside the state: it makes the state first.
fn has_past(directory: &Directory) -> io::Result<bool> {
    let of_past = |name: &str| {
        [positions::NAME, delivered::DIR].contains(&name) || format::segment_first(name).is_some()
    };
    let entries = std::fs::read_dir(directory.path())?.flatten();
    Ok(entries.into_iter().any(|entry| entry.file_name().to_str().is_some_and(of_past)))
}

/// What is said of a file that cannot be used.
fn refused(unusable: Unusable, directory: &Directory, path: &Path) -> OpenError {
    let path = path.to_owned();
    match unusable {
        Unusable::Refused(source) => LogError::Access { path, source }.into(),
        Unusable::Unread(source) => OpenError::Unread { path, source },
        Unusable::Newer(found) => OpenError::Newer { path, found, newest: VERSION },
        Unusable::Held => LogError::Held { path: directory.path().to_owned() }.into(),
        Unusable::Damaged(reason) => {
            LogError::Access { path, source: io::Error::other(reason) }.into()
        }
    }
}

/// Answers for each change of `seen` whether the table had its uid before.
fn write(transaction: &WriteTransaction, commit: &StateCommit) -> Result<Vec<bool>, redb::Error> {
    transaction.open_table(META)?.insert("applied", commit.applied)?;
    if let Some(uid) = &commit.cluster_uid {
        transaction.open_table(CLUSTER)?.insert("uid", uid.as_str())?;
    }
    if let Some(uids) = &commit.heartbeats {
        transaction.open_table(OWN)?.insert("heartbeats", &*json(uids))?;
    }
    let mut sinks = transaction.open_table(SINKS)?;
    for (name, sink) in &commit.sinks {
        sinks.insert(name.as_str(), &*json(sink))?;
    }
    let mut correlators = transaction.open_table(CORRELATORS)?;
    for (name, SavedCorrelator { position, bytes }) in &commit.correlators {
        correlators.insert(name.as_str(), (position.next, position.skipped, &**bytes))?;
    }
    write_inputs(transaction, commit)?;
    let mut sources = transaction.open_table(SOURCES)?;
    for (name, source) in &commit.sources {
        sources.insert(name.as_str(), &*json(source))?;
    }
    seen_table::write(transaction, &commit.seen)
}

fn write_inputs(transaction: &WriteTransaction, commit: &StateCommit) -> Result<(), redb::Error> {
    let mut table = transaction.open_table(INPUTS)?;
    for (name, SavedCorrelator { position, .. }) in &commit.correlators {
        // The correlator knows them.
        table.retain_in((name.as_str(), 0)..=(name.as_str(), position.next), |_, _| false)?;
    }
    for (name, CorrelatorInputs { next, read_bytes, inputs }) in &commit.inputs {
        let mut bytes = Vec::new();
        inputs.write(&mut bytes);
        table.insert((name.as_str(), *next), (*read_bytes, &*bytes))?;
    }
    Ok(())
}

/// Opens the file and reads what is in it. redb promises not to panic on a damaged file whose
/// integrity it was told to check; that is not left to trust. Where a read failed, nothing that redb
/// says is taken for damage.
fn open_and_load(path: &Path) -> Result<(Database, Loaded, DeadLetters, Fingerprints), Unusable> {
    let trouble = Trouble::default();
    let opened = catch_unwind(AssertUnwindSafe(|| {
        let database = open_database(path, true, trouble.clone()).map_err(|e| match e {
            redb::DatabaseError::DatabaseAlreadyOpen => Unusable::Held,
            other => unusable(other.into()),
        })?;
        let (loaded, dead) = load(&database)?;
        let known = seen_table::fingerprints(&database).map_err(unusable)?;
        Ok((database, loaded, dead, known))
    }))
    .unwrap_or_else(|_| {
        Err(Unusable::Damaged("reading it failed in a way not foreseen".to_owned()))
    });
    opened.map_err(|unusable| match (unusable, trouble.take()) {
        (Unusable::Damaged(_), Some(error)) => by_the_system(error),
        (unusable, _) => unusable,
    })
}

fn open_database(
    path: &Path,
    check: bool,
    trouble: Trouble,
) -> Result<Database, redb::DatabaseError> {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE).set_check_integrity_on_open(check);
    builder.create_with_backend(StateFile::open(path, trouble)?)
}

fn load(database: &Database) -> Result<(Loaded, DeadLetters), Unusable> {
    let version = read_meta(database).map_err(unusable)?;
    if version > VERSION {
        return Err(Unusable::Newer(version));
    }
    let loaded = read_tables(database).map_err(unusable)?;
    Ok((loaded, DeadLetters::load(database).map_err(unusable)?))
}

/// Makes the tables that are not there; answers the version.
fn read_meta(database: &Database) -> Result<u64, redb::Error> {
    let transaction = database.begin_write()?;
    let version = {
        let mut meta = transaction.open_table(META)?;
        let version = meta.get("version")?.map(|value| value.value());
        if version.is_none() {
            meta.insert("version", VERSION)?;
        }
        transaction.open_table(CLUSTER)?;
        transaction.open_table(OWN)?;
        transaction.open_table(SINKS)?;
        transaction.open_table(CORRELATORS)?;
        transaction.open_table(INPUTS)?;
        if transaction.open_table(SOURCES)?.is_empty()? {
            // A first start from a log was interrupted: whose Events these are is not known.
            seen_table::clear(&transaction)?;
        }
        seen_table::make(&transaction)?;
        dead_letters::make(&transaction)?;
        transaction.open_table(OBJECTS)?;
        transaction.open_table(OBJECTS_VIEW)?;
        version
    };
    transaction.commit()?;
    Ok(version.unwrap_or(VERSION))
}

fn read_tables(database: &Database) -> Result<Loaded, redb::Error> {
    let transaction = database.begin_read()?;
    let applied = transaction.open_table(META)?.get("applied")?.map_or(1, |v| v.value());
    let cluster_uid = transaction.open_table(CLUSTER)?.get("uid")?.map(|v| v.value().to_owned());
    let heartbeats = match transaction.open_table(OWN)?.get("heartbeats")? {
        Some(uids) => parse(uids.value())?,
        None => Vec::new(),
    };
    let mut loaded = Loaded { applied, cluster_uid, heartbeats, ..Loaded::default() };
    for item in transaction.open_table(SINKS)?.iter()? {
        let (name, value) = item?;
        loaded.sinks.insert(name.value().to_owned(), parse(value.value())?);
    }
    for item in transaction.open_table(CORRELATORS)?.iter()? {
        let (name, value) = item?;
        let (next, skipped, bytes) = value.value();
        let position = Position { next, skipped };
        let saved = SavedCorrelator { position, bytes: Bytes::copy_from_slice(bytes) };
        loaded.correlators.insert(name.value().to_owned(), saved);
    }
    for item in transaction.open_table(INPUTS)?.iter()? {
        let (key, value) = item?;
        let ((name, next), (read_bytes, bytes)) = (key.value(), value.value());
        let all = loaded.inputs.entry(name.to_owned()).or_default();
        all.add(next, read_bytes, &Inputs::parse(bytes));
    }
    for item in transaction.open_table(SOURCES)?.iter()? {
        let (name, value) = item?;
        loaded.sources.insert(name.value().to_owned(), parse(value.value())?);
    }
    loaded.objects = objects::load_view(&transaction)?;
    Ok(loaded)
}

fn unusable(error: redb::Error) -> Unusable {
    match error {
        // Without such a code it is what redb, or we, have to say of the file.
        redb::Error::Io(e) if e.raw_os_error().is_some() => by_the_system(e),
        other => Unusable::Damaged(other.to_string()),
    }
}

fn by_the_system(error: io::Error) -> Unusable {
    use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    match error.kind() {
        PermissionDenied | QuotaExceeded | ReadOnlyFilesystem | StorageFull => {
            Unusable::Refused(error)
        }
        _ => Unusable::Unread(error),
    }
}

fn json<T: Serialize>(value: &T) -> Vec<u8> {
    // Structs of numbers, strings and maps with string keys always serialise.
    serde_json::to_vec(value).unwrap_or_default()
}

fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, redb::Error> {
    serde_json::from_slice(json)
        .map_err(|e| StorageError::Corrupted(format!("not what was stored: {e}")).into())
}
