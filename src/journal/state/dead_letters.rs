//! The dead letters: what receivers refused for good, kept until somebody has it sent again or
//! drops it.
//!
//! They are counted in the transaction that changes them, so for each sink, at any moment,
//! `dead-lettered = events in letters + overflowed + dropped - arrived`. None of the last three ever
//! falls: they are shown as counters. For want of room the oldest go, those of a namespace that has more
//! than its [share](super::letter_shares) first; but parked ones only where there are no others. What a sink is to be
//! sent of them is indexed by that sink and the namespace: its own letters that are to be retried, and those that
//! others forward to it.

use std::{
    collections::BTreeMap,
    ops::Range,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use bytes::Bytes;
use redb::{
    ReadableDatabase as _, ReadableTable as _, Table, TableDefinition, TableError, WriteTransaction,
};

use super::{
    DeadLetter, LetterCounts, LetterError, LetterFate, LetterOutcome, LetterQuery, LetterState,
    Letters, META, NamespaceLetters, ReadError, json,
    letter_shares::{LetterShares, is_of},
    parse,
    seen_table::Store,
};
use crate::event::with_namespace;

/// By number, in the order in which they died: everything but the envelope as JSON, the envelope.
const LETTERS: TableDefinition<'_, u64, (&[u8], &[u8])> = TableDefinition::new("dead letters");
/// By the sink that is to be sent it, and the namespace: the [place](DeadLetter::place) of a letter.
pub(super) const DUE: TableDefinition<'_, (&str, &str, u64), ()> =
    TableDefinition::new("dead letters due by namespace");
/// As it was in earlier journals: by sink.
pub(super) const DUE_BY_SINK: TableDefinition<'_, (&str, u64), ()> =
    TableDefinition::new("dead letters due");
/// By sink: how many events went with letters for want of room, and by command.
const GONE: TableDefinition<'_, &str, (u64, u64)> = TableDefinition::new("dead letters gone");
/// By sink: how many events of these were on their way then, and have arrived.
const ARRIVED: TableDefinition<'_, &str, u64> = TableDefinition::new("dead letters arrived");
/// The number that the next letter gets, in `META`.
const NEXT: &str = "next dead letter";

/// The counts, for whoever reads them beside the commits.
#[derive(Debug, Default)]
struct Counts {
    by_sink: BTreeMap<String, LetterCounts>,
    shares: LetterShares,
    limit: u64,
}

type Shared = Arc<Mutex<Counts>>;

/// What there is of dead letters.
#[derive(Clone, Debug, Default)]
pub(super) struct DeadLetters {
    /// The most that they may take, in bytes.
    pub(super) limit: u64,
    next: u64,
    bytes: u64,
    counts: BTreeMap<String, LetterCounts>,
    shares: LetterShares,
    /// A commit failed, and may be in the file all the same.
    pub(super) in_doubt: bool,
    shared: Shared,
}

/// Reads the letters while somebody else writes them. Clones are cheap. Blocks on the disk. It does not
/// keep the journal open: once the state is dropped nothing can be read.
#[derive(Clone, Debug)]
pub struct DeadLettersReader {
    store: Weak<Store>,
    path: Arc<Path>,
    shared: Shared,
}

impl DeadLettersReader {
    pub(super) fn new(store: &Arc<Store>, letters: &DeadLetters) -> Self {
        let (path, shared) = (store.path().into(), Arc::clone(&letters.shared));
        Self { store: Arc::downgrade(store), path, shared }
    }

    fn read<T>(
        &self,
        call: impl FnOnce(&redb::Database) -> Result<T, redb::Error>,
    ) -> Result<T, ReadError> {
        match self.store.upgrade() {
            Some(store) => store.read_or_say(call),
            None => Err(ReadError::new(&self.path, "the journal is closed")),
        }
    }

    /// The letters that a query asks for.
    pub fn list(&self, query: &LetterQuery) -> Result<Vec<DeadLetter>, ReadError> {
        self.read(|database| {
            let table = database.begin_read()?.open_table(LETTERS)?;
            let mut letters = Vec::new();
            let before = query.before.unwrap_or(u64::MAX);
            for item in table.range(..before)?.rev() {
                if letters.len() >= query.limit {
                    break;
                }
                let (number, row) = item?;
                let letter = read(number.value(), row.value())?;
                if matches(&letter, query.sink.as_deref(), query.class.as_deref()) {
                    letters.push(letter);
                }
            }
            Ok(letters)
        })
    }

    /// One letter; nothing if it is not kept, or not any more.
    pub fn get(&self, number: u64) -> Result<Option<DeadLetter>, ReadError> {
        self.read(|database| {
            let table = database.begin_read()?.open_table(LETTERS)?;
            table.get(number)?.map(|row| read(number, row.value())).transpose()
        })
    }

    /// The namespaces of letters that a sink is to be sent, in order, each with the place after the last that it was never
    /// sent.
    pub fn due_namespaces(&self, sink: &str) -> Result<Vec<(String, u64)>, ReadError> {
        self.read(|database| {
            let due = database.begin_read()?.open_table(DUE)?;
            let mut namespaces: Vec<(String, u64)> = Vec::new();
            loop {
                let before = namespaces.last().map(|(namespace, _)| (sink, &**namespace, u64::MAX));
                let Some(next) = due.range(before.unwrap_or((sink, "", 0))..)?.next() else {
                    break;
                };
                let (key, _) = next?;
                let (of, namespace, first) = key.value();
                if of != sink {
                    break;
                }
                let new = (sink, namespace, first)..(sink, namespace, DeadLetter::TRIED);
                let last = match due.range(new)?.next_back() {
                    Some(last) => last?.0.value().2 + 1,
                    None => 0,
                };
                namespaces.push((namespace.to_owned(), last));
            }
            Ok(namespaces)
        })
    }

    /// The letters of a namespace in some places that a sink is to be sent, in their order: up to `limit`, and no more
    /// bytes of envelopes than these, but for the first.
    pub fn due(
        &self,
        sink: &str,
        namespace: &str,
        places: Range<u64>,
        limit: usize,
        bytes: u64,
    ) -> Result<Vec<DeadLetter>, ReadError> {
        self.read(|database| {
            let transaction = database.begin_read()?;
            let due = transaction.open_table(DUE)?;
            let table = transaction.open_table(LETTERS)?;
            let mut letters = Vec::new();
            let mut size = 0;
            let all = (sink, namespace, places.start)..(sink, namespace, places.end);
            for item in due.range(all)?.take(limit) {
                let (.., place) = item?.0.value();
                let number = place & !DeadLetter::TRIED;
                if let Some(row) = table.get(number)? {
                    size += row.value().1.len() as u64;
                    if size > bytes && !letters.is_empty() {
                        break;
                    }
                    letters.push(read(number, row.value())?);
                }
            }
            Ok(letters)
        })
    }

    /// The counts by sink, as of the last commit.
    pub fn counts(&self) -> BTreeMap<String, LetterCounts> {
        lock(&self.shared).by_sink.clone()
    }

    /// The ten namespaces whose letters take most, as of the last commit.
    pub fn namespaces(&self) -> Vec<NamespaceLetters> {
        lock(&self.shared).shares.first()
    }

    /// How many letters a sink is to be sent, as of the last commit.
    pub fn due_count(&self, sink: &str) -> u64 {
        lock(&self.shared).by_sink.get(sink).map_or(0, |counts| counts.due)
    }

    /// Whether a namespace may have so many bytes more in parked letters, and all namespaces so many. They are bounded
    /// more tightly than others, so that they never have to be removed.
    pub fn has_room_to_park(&self, namespace: &str, own: u64, all: u64) -> bool {
        let Counts { shares, limit, .. } = &*lock(&self.shared);
        shares.has_room_to_park(namespace, own, all, *limit)
    }
}

impl DeadLetters {
    /// Counts what is in the tables, which are made if they are not there.
    pub(super) fn load(database: &redb::Database) -> Result<Self, redb::Error> {
        let transaction = database.begin_read()?;
        let next = transaction.open_table(META)?.get(NEXT)?.map_or(0, |next| next.value());
        let mut dead = Self { next, ..Self::default() };
        for item in transaction.open_table(LETTERS)?.iter()? {
            let (number, row) = item?;
            let size = size(row.value());
            let letter = read(number.value(), row.value())?;
            dead.next = dead.next.max(letter.number.saturating_add(1));
            dead.count(&letter, size, u64::saturating_add);
        }
        for item in transaction.open_table(GONE)?.iter()? {
            let (sink, row) = item?;
            let counts = dead.counts.entry(sink.value().to_owned()).or_default();
            (counts.overflowed, counts.dropped) = row.value();
        }
        for item in transaction.open_table(ARRIVED)?.iter()? {
            let (sink, arrived) = item?;
            dead.counts.entry(sink.value().to_owned()).or_default().arrived = arrived.value();
        }
        dead.share();
        Ok(dead)
    }

    /// Makes sure of the counts after a commit that failed. The numbers go on from where they were: what
    /// is committed again takes its own place.
    pub(super) fn make_sure(&mut self, database: &redb::Database) -> Result<(), redb::Error> {
        if self.in_doubt {
            let Self { bytes, counts, shares, .. } = Self::load(database)?;
            (self.bytes, self.counts, self.shares) = (bytes, counts, shares);
        }
        Ok(())
    }

    /// How many letters are kept, and what they take in bytes.
    pub(super) fn kept(&self) -> (u64, u64) {
        (self.counts.values().map(|counts| counts.letters).sum(), self.bytes)
    }

    /// Shows the counts to readers: after the commit that made them.
    pub(super) fn share(&self) {
        let (by_sink, shares, limit) = (self.counts.clone(), self.shares.clone(), self.limit);
        *lock(&self.shared) = Counts { by_sink, shares, limit };
    }

    /// Adds letters, takes in what became of others, and drops the oldest ones for which there is
    /// no room. Answers whether anything changed.
    pub(super) fn write(
        &mut self,
        transaction: &WriteTransaction,
        new: &[DeadLetter],
        fates: &BTreeMap<String, Vec<LetterFate>>,
    ) -> Result<bool, redb::Error> {
        if new.is_empty() && fates.is_empty() && self.bytes <= self.limit {
            return Ok(false);
        }
        let mut tables = Tables::open(transaction)?;
        for (sink, fates) in fates {
            for fate in fates {
                self.settle(&mut tables, sink, fate)?;
            }
        }
        for letter in new {
            let letter = DeadLetter { number: self.next, ..letter.clone() };
            self.next += 1;
            self.insert(&mut tables, &letter)?;
        }
        if !new.is_empty() {
            transaction.open_table(META)?.insert(NEXT, self.next)?;
        }
        self.make_room(&mut tables)?;
        Ok(true)
    }

    /// Drops the oldest letters for which there is no room, those of a namespace that has more than its
    /// share first, and parked ones last.
    fn make_room(&mut self, tables: &mut Tables<'_>) -> Result<(), redb::Error> {
        while self.bytes > self.limit {
            let excess = self.bytes - self.limit;
            let over = self.shares.over(self.limit);
            let over = over.as_ref().map(|(namespace, over)| (&**namespace, *over));
            let mut numbers = match over {
                Some((namespace, over)) => {
                    tables.oldest(Some(namespace), excess.min(over), false)?
                }
                None => tables.oldest(None, excess, false)?,
            };
            if numbers.is_empty() {
                numbers = tables.oldest(None, excess, true)?;
            }
            if numbers.is_empty() {
                break;
            }
            for number in numbers {
                let Some(letter) = self.remove(tables, number)? else { continue };
                self.counts.entry(letter.sink.clone()).or_default().overflowed += letter.events();
                self.note_gone(tables, &letter.sink)?;
            }
        }
        Ok(())
    }

    /// Marks letters so that they are sent again. Answers how many are.
    pub(super) fn retry(
        &mut self,
        transaction: &WriteTransaction,
        which: &Letters,
        configured: &[String],
    ) -> Result<Result<u64, LetterError>, redb::Error> {
        let mut tables = Tables::open(transaction)?;
        let why_not = |letter: &DeadLetter| {
            if letter.unidentified > 0 || letter.envelope.is_empty() {
                return Some(LetterError::Unidentified(letter.number));
            }
            let is_configured = configured.contains(&letter.sink);
            (!is_configured).then(|| LetterError::NotConfigured {
                number: letter.number,
                sink: letter.sink.clone(),
            })
        };
        let numbers = match tables.numbers(which)? {
            Ok(numbers) => numbers,
            Err(error) => return Ok(Err(error)),
        };
        let (mut queued, mut refused) = (0, None);
        for number in numbers {
            let Some(mut letter) = tables.get(number)? else { continue };
            match why_not(&letter) {
                Some(error) if matches!(which, Letters::Numbers(_)) => return Ok(Err(error)),
                Some(error) => refused = refused.or(Some(error)),
                None => {
                    queued += 1;
                    letter.state = LetterState::RetryRequested;
                    self.insert(&mut tables, &letter)?;
                }
            }
        }
        // Where some can be sent, those that cannot are no reason not to.
        Ok(refused.filter(|_| queued == 0).map_or(Ok(queued), Err))
    }

    /// Drops letters. Answers how many went.
    pub(super) fn drop(
        &mut self,
        transaction: &WriteTransaction,
        which: &Letters,
    ) -> Result<Result<u64, LetterError>, redb::Error> {
        let mut tables = Tables::open(transaction)?;
        let numbers = match tables.numbers(which)? {
            Ok(numbers) => numbers,
            Err(error) => return Ok(Err(error)),
        };
        let mut gone = 0;
        for number in numbers {
            let Some(letter) = self.remove(&mut tables, number)? else { continue };
            gone += 1;
            self.counts.entry(letter.sink.clone()).or_default().dropped += letter.events();
            self.note_gone(&mut tables, &letter.sink)?;
        }
        Ok(Ok(gone))
    }

    fn settle(
        &mut self,
        tables: &mut Tables<'_>,
        by: &str,
        fate: &LetterFate,
    ) -> Result<(), redb::Error> {
        let letter = self.remove(tables, fate.number)?;
        match (&fate.outcome, letter) {
            // This was in the commit that failed.
            (LetterOutcome::Delivered, None) if self.in_doubt => {}
            // It went while it was on its way.
            (LetterOutcome::Delivered, None) => {
                let counts = self.counts.entry(by.to_owned()).or_default();
                counts.arrived += 1;
                tables.arrived.insert(by, counts.arrived)?;
            }
            (LetterOutcome::Failed { reason, time_ms }, Some(mut letter)) => {
                letter.failed(reason, *time_ms);
                self.insert(tables, &letter)?;
            }
            (LetterOutcome::Refused { class, reason, time_ms }, Some(mut letter)) => {
                letter.failed(reason, *time_ms);
                letter.state = LetterState::Kept;
                letter.class.clone_from(class);
                self.insert(tables, &letter)?;
            }
            (LetterOutcome::Forwarded, Some(mut letter)) => {
                letter.forward = None;
                self.insert(tables, &letter)?;
            }
            (LetterOutcome::Delivered, Some(_))
            | (
                LetterOutcome::Failed { .. }
                | LetterOutcome::Refused { .. }
                | LetterOutcome::Forwarded,
                None,
            ) => {}
        }
        Ok(())
    }

    fn insert(&mut self, tables: &mut Tables<'_>, letter: &DeadLetter) -> Result<(), redb::Error> {
        self.remove(tables, letter.number)?;
        let row = json(letter);
        let row = (&*row, &*letter.envelope);
        tables.letters.insert(letter.number, row)?;
        set_due(&mut tables.due, letter)?;
        self.count(letter, size(row), u64::saturating_add);
        Ok(())
    }

    fn remove(
        &mut self,
        tables: &mut Tables<'_>,
        number: u64,
    ) -> Result<Option<DeadLetter>, redb::Error> {
        let (letter, size) = match tables.letters.remove(number)? {
            Some(row) => (read(number, row.value())?, size(row.value())),
            None => return Ok(None),
        };
        with_namespace(&letter.envelope, |namespace| -> Result<(), redb::Error> {
            for sink in letter.due_at() {
                tables.due.remove((sink, namespace, letter.place(sink)))?;
            }
            Ok(())
        })?;
        self.count(&letter, size, u64::saturating_sub);
        Ok(Some(letter))
    }

    /// Counts a letter in or out.
    fn count(&mut self, letter: &DeadLetter, size: u64, add: fn(u64, u64) -> u64) {
        self.bytes = add(self.bytes, size);
        self.shares.count(letter, size, add);
        let counts = self.counts.entry(letter.sink.clone()).or_default();
        counts.letters = add(counts.letters, 1);
        counts.events = add(counts.events, letter.events());
        counts.bytes = add(counts.bytes, size);
        counts.parked = add(counts.parked, u64::from(letter.is_parked()));
        for sink in letter.due_at() {
            let counts = self.counts.entry(sink.to_owned()).or_default();
            counts.due = add(counts.due, 1);
        }
    }

    fn note_gone(&self, tables: &mut Tables<'_>, sink: &str) -> Result<(), redb::Error> {
        let counts = self.counts.get(sink).copied().unwrap_or_default();
        tables.gone.insert(sink, (counts.overflowed, counts.dropped))?;
        Ok(())
    }
}

type DueTable<'a> = Table<'a, (&'static str, &'static str, u64), ()>;

struct Tables<'a> {
    letters: Table<'a, u64, (&'static [u8], &'static [u8])>,
    due: DueTable<'a>,
    gone: Table<'a, &'static str, (u64, u64)>,
    arrived: Table<'a, &'static str, u64>,
}

impl<'a> Tables<'a> {
    fn open(transaction: &'a WriteTransaction) -> Result<Self, TableError> {
        Ok(Self {
            letters: transaction.open_table(LETTERS)?,
            due: transaction.open_table(DUE)?,
            gone: transaction.open_table(GONE)?,
            arrived: transaction.open_table(ARRIVED)?,
        })
    }

    fn get(&self, number: u64) -> Result<Option<DeadLetter>, redb::Error> {
        self.letters.get(number)?.map(|row| read(number, row.value())).transpose()
    }

    /// The numbers of the oldest letters that take so many bytes: of one namespace where it is given, parked or not.
    fn oldest(
        &self,
        namespace: Option<&str>,
        bytes: u64,
        parked: bool,
    ) -> Result<Vec<u64>, redb::Error> {
        let (mut numbers, mut taken) = (Vec::new(), 0);
        for item in self.letters.iter()? {
            if taken >= bytes {
                break;
            }
            let (number, row) = item?;
            let is_of_kind = parse::<DeadLetter>(row.value().0)?.is_parked() == parked;
            if is_of_kind && namespace.is_none_or(|namespace| is_of(row.value().1, namespace)) {
                numbers.push(number.value());
                taken += size(row.value());
            }
        }
        Ok(numbers)
    }

    /// The numbers of letters, each of which there is.
    fn numbers(&self, which: &Letters) -> Result<Result<Vec<u64>, LetterError>, redb::Error> {
        match which {
            Letters::Numbers(numbers) => {
                let mut numbers = numbers.clone();
                numbers.sort_unstable();
                numbers.dedup();
                for number in &numbers {
                    if self.letters.get(number)?.is_none() {
                        return Ok(Err(LetterError::NoSuchLetter(*number)));
                    }
                }
                Ok(Ok(numbers))
            }
            Letters::Of { sink, class } => {
                let mut numbers = Vec::new();
                for item in self.letters.iter()? {
                    let (number, row) = item?;
                    let letter = parse::<DeadLetter>(row.value().0)?;
                    if matches(&letter, sink.as_deref(), class.as_deref()) {
                        numbers.push(number.value());
                    }
                }
                Ok(Ok(numbers))
            }
        }
    }
}

/// Has a letter sent to the sinks that are to be sent it.
fn set_due(due: &mut DueTable<'_>, letter: &DeadLetter) -> Result<(), redb::Error> {
    with_namespace(&letter.envelope, |namespace| {
        for sink in letter.due_at() {
            due.insert((sink, namespace, letter.place(sink)), ())?;
        }
        Ok(())
    })
}

/// Makes the tables that are not there.
pub(super) fn make(transaction: &WriteTransaction) -> Result<(), redb::Error> {
    let mut tables = Tables::open(transaction)?;
    if transaction.delete_table(DUE_BY_SINK)? {
        for item in tables.letters.iter()? {
            let (number, row) = item?;
            set_due(&mut tables.due, &read(number.value(), row.value())?)?;
        }
    }
    Ok(())
}

fn matches(letter: &DeadLetter, sink: Option<&str>, class: Option<&str>) -> bool {
    sink.is_none_or(|sink| sink == letter.sink) && class.is_none_or(|class| class == letter.class)
}

fn read(number: u64, (json, envelope): (&[u8], &[u8])) -> Result<DeadLetter, redb::Error> {
    let letter: DeadLetter = parse(json)?;
    Ok(DeadLetter { number, envelope: Bytes::copy_from_slice(envelope), ..letter })
}

fn size((json, envelope): (&[u8], &[u8])) -> u64 {
    (json.len() + envelope.len()) as u64
}

/// What a panicking holder leaves is whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
