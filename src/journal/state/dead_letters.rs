//! The dead letters: what receivers refused for good, kept until somebody has it sent again or
//! drops it.
//!
//! They are counted in the transaction that changes them, so for each sink, at any moment,
//! `dead-lettered = events in letters + overflowed + dropped - arrived`. None of the last three ever
//! falls: they are shown as counters. For want of room the oldest go, those of a namespace that has more
//! than its [share](super::letter_shares) first. What a sink is to be sent of them is
//! indexed by that sink: its own letters that are to be retried, and those that others forward
//! to it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use redb::{
    ReadableDatabase as _, ReadableTable as _, Table, TableDefinition, TableError, WriteTransaction,
};

use super::{
    DeadLetter, DeadLetterCounts, DeadLetterError, DeadLetterFate, DeadLetterOutcome,
    DeadLetterQuery, DeadLetterSelection, DeadLetterState, META, NamespaceDeadLetters, ReadError,
    json,
    letter_shares::{LetterShares, is_of},
    parse,
    seen_table::{Store, WeakStore},
};
use crate::locks::lock;

/// By number, in the order in which they died: everything but the envelope as JSON, the envelope.
const LETTERS: TableDefinition<'_, u64, (&[u8], &[u8])> = TableDefinition::new("dead letters");
/// By the sink that is to be sent it: the number of a letter.
const DUE: TableDefinition<'_, (&str, u64), ()> = TableDefinition::new("dead letters due");
/// By sink: how many events went with letters for want of room, and by command.
const GONE: TableDefinition<'_, &str, (u64, u64)> = TableDefinition::new("dead letters gone");
/// By sink: how many events of these were on their way then, and have arrived.
const ARRIVED: TableDefinition<'_, &str, u64> = TableDefinition::new("dead letters arrived");
/// The number that the next letter gets, in `META`.
const NEXT: &str = "next dead letter";

/// The counts by sink, and the namespaces that have most, for whoever reads them beside the commits.
type Shared = Arc<Mutex<(BTreeMap<String, DeadLetterCounts>, Vec<NamespaceDeadLetters>)>>;

#[derive(Clone, Debug, Default)]
pub(super) struct DeadLetters {
    /// The most that they may take, in bytes.
    pub(super) limit: u64,
    next: u64,
    bytes: u64,
    counts: BTreeMap<String, DeadLetterCounts>,
    shares: LetterShares,
    /// A commit failed, and may be in the file all the same.
    pub(super) in_doubt: bool,
    shared: Shared,
}

/// Reads the letters while somebody else writes them. Clones are cheap. Blocks on the disk. It does not
/// keep the journal open: once the state is dropped nothing can be read.
#[derive(Clone, Debug)]
pub struct DeadLettersReader {
    store: WeakStore,
    shared: Shared,
}

impl DeadLettersReader {
    pub(super) fn new(store: &Arc<Store>, letters: &DeadLetters) -> Self {
        Self { store: WeakStore::of(store), shared: Arc::clone(&letters.shared) }
    }

    /// The letters that a query asks for, each as `view` shows it: one envelope at a time is in memory.
    pub fn list<T>(
        &self,
        query: &DeadLetterQuery,
        view: impl Fn(&DeadLetter) -> T,
    ) -> Result<Vec<T>, ReadError> {
        self.store.read(|database| {
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
                    letters.push(view(&letter));
                }
            }
            Ok(letters)
        })
    }

    /// One letter; nothing if it is not kept, or not any more.
    pub fn get(&self, number: u64) -> Result<Option<DeadLetter>, ReadError> {
        self.store.read(|database| {
            let table = database.begin_read()?.open_table(LETTERS)?;
            table.get(number)?.map(|row| read(number, row.value())).transpose()
        })
    }

    /// The letters from a number on that a sink is to be sent, the oldest first: up to `limit`, and
    /// until their envelopes reach `bytes`.
    pub fn due(
        &self,
        sink: &str,
        from: u64,
        limit: usize,
        bytes: usize,
    ) -> Result<Vec<DeadLetter>, ReadError> {
        self.store.read(|database| {
            let transaction = database.begin_read()?;
            let due = transaction.open_table(DUE)?;
            let table = transaction.open_table(LETTERS)?;
            let mut letters = Vec::new();
            let mut size = 0;
            for item in due.range((sink, from)..=(sink, u64::MAX))?.take(limit) {
                let (_, number) = item?.0.value();
                if let Some(row) = table.get(number)? {
                    size += row.value().1.len();
                    letters.push(read(number, row.value())?);
                }
                if size >= bytes {
                    break;
                }
            }
            Ok(letters)
        })
    }

    /// The counts by sink, as of the last commit.
    pub fn counts(&self) -> BTreeMap<String, DeadLetterCounts> {
        lock(&self.shared).0.clone()
    }

    /// The ten namespaces whose letters take most, as of the last commit.
    pub fn namespaces(&self) -> Vec<NamespaceDeadLetters> {
        lock(&self.shared).1.clone()
    }

    /// How many letters a sink is to be sent, as of the last commit.
    pub fn due_count(&self, sink: &str) -> u64 {
        lock(&self.shared).0.get(sink).map_or(0, |counts| counts.due)
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
        *lock(&self.shared) = (self.counts.clone(), self.shares.first());
    }

    /// Adds letters, takes in what became of others, and drops the oldest ones for which there is
    /// no room. Answers whether anything changed.
    pub(super) fn write(
        &mut self,
        transaction: &WriteTransaction,
        new: &[DeadLetter],
        fates: &BTreeMap<String, Vec<DeadLetterFate>>,
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
    /// share first.
    fn make_room(&mut self, tables: &mut Tables<'_>) -> Result<(), redb::Error> {
        while self.bytes > self.limit {
            let excess = self.bytes - self.limit;
            let over = self.shares.over(self.limit);
            let over = over.as_ref().map(|(namespace, over)| (&**namespace, *over));
            let numbers = match over {
                Some((namespace, over)) => {
                    let from = self.shares.from(namespace);
                    tables.oldest(from, Some(namespace), excess.min(over))?
                }
                None => tables.oldest(0, None, excess)?,
            };
            let Some(last) = numbers.last().copied() else { break };
            for number in numbers {
                let Some(letter) = self.remove(tables, number)? else { continue };
                self.counts.entry(letter.sink.clone()).or_default().overflowed += letter.events();
                self.note_gone(tables, &letter.sink)?;
            }
            // A flood has the same namespace give way with each letter: what was passed over once is
            // not read again.
            if let Some((namespace, _)) = over {
                self.shares.gone_below(namespace, last + 1);
            }
        }
        Ok(())
    }

    /// Marks letters so that they are sent again. Answers how many are.
    pub(super) fn retry(
        &mut self,
        transaction: &WriteTransaction,
        which: &DeadLetterSelection,
        configured: &[String],
    ) -> Result<Result<u64, DeadLetterError>, redb::Error> {
        let mut tables = Tables::open(transaction)?;
        let why_not = |letter: &DeadLetter| {
            if letter.unidentified > 0 || letter.envelope.is_empty() {
                return Some(DeadLetterError::Unidentified(letter.number));
            }
            let is_configured = configured.contains(&letter.sink);
            (!is_configured).then(|| DeadLetterError::NotConfigured {
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
                Some(error) if matches!(which, DeadLetterSelection::Numbers(_)) => {
                    return Ok(Err(error));
                }
                Some(error) => refused = refused.or(Some(error)),
                None => {
                    queued += 1;
                    letter.state = DeadLetterState::RetryRequested;
                    self.insert(&mut tables, &letter)?;
                }
            }
        }
        // Where some can be sent, those that cannot are no reason not to.
        Ok(refused.filter(|_| queued == 0).map_or(Ok(queued), Err))
    }

    pub(super) fn drop(
        &mut self,
        transaction: &WriteTransaction,
        which: &DeadLetterSelection,
    ) -> Result<Result<u64, DeadLetterError>, redb::Error> {
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
        fate: &DeadLetterFate,
    ) -> Result<(), redb::Error> {
        let letter = self.remove(tables, fate.number)?;
        match (&fate.outcome, letter) {
            // This was in the commit that failed.
            (DeadLetterOutcome::Delivered, None) if self.in_doubt => {}
            // It went while it was on its way.
            (DeadLetterOutcome::Delivered, None) => {
                let counts = self.counts.entry(by.to_owned()).or_default();
                counts.arrived += 1;
                tables.arrived.insert(by, counts.arrived)?;
            }
            (DeadLetterOutcome::Refused { class, reason, attempts, time_ms }, Some(mut letter)) => {
                letter.state = DeadLetterState::Kept;
                letter.class.clone_from(class);
                letter.reason.clone_from(reason);
                letter.attempts = letter.attempts.saturating_add(*attempts);
                letter.time_ms = *time_ms;
                self.insert(tables, &letter)?;
            }
            (DeadLetterOutcome::Forwarded, Some(mut letter)) => {
                letter.forward = None;
                self.insert(tables, &letter)?;
            }
            (DeadLetterOutcome::Delivered, Some(_))
            | (DeadLetterOutcome::Refused { .. } | DeadLetterOutcome::Forwarded, None) => {}
        }
        Ok(())
    }

    fn insert(&mut self, tables: &mut Tables<'_>, letter: &DeadLetter) -> Result<(), redb::Error> {
        self.remove(tables, letter.number)?;
        let row = json(letter);
        let row = (&*row, &*letter.envelope);
        tables.letters.insert(letter.number, row)?;
        for sink in letter.due_at() {
            tables.due.insert((sink, letter.number), ())?;
        }
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
        for sink in letter.due_at() {
            tables.due.remove((sink, number))?;
        }
        self.count(&letter, size, u64::saturating_sub);
        Ok(Some(letter))
    }

    /// Counts a letter in or out.
    fn count(&mut self, letter: &DeadLetter, size: u64, add: fn(u64, u64) -> u64) {
        self.bytes = add(self.bytes, size);
        self.shares.count(letter.number, &letter.envelope, size, add);
        let counts = self.counts.entry(letter.sink.clone()).or_default();
        counts.letters = add(counts.letters, 1);
        counts.events = add(counts.events, letter.events());
        counts.bytes = add(counts.bytes, size);
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

struct Tables<'a> {
    letters: Table<'a, u64, (&'static [u8], &'static [u8])>,
    due: Table<'a, (&'static str, u64), ()>,
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

    /// The numbers of the oldest letters from a number on, of one namespace where it is given, that
    /// take so many bytes.
    fn oldest(
        &self,
        from: u64,
        namespace: Option<&str>,
        bytes: u64,
    ) -> Result<Vec<u64>, redb::Error> {
        let (mut numbers, mut taken) = (Vec::new(), 0);
        for item in self.letters.range(from..)? {
            if taken >= bytes {
                break;
            }
            let (number, row) = item?;
            if namespace.is_none_or(|namespace| is_of(row.value().1, namespace)) {
                numbers.push(number.value());
                taken += size(row.value());
            }
        }
        Ok(numbers)
    }

    /// The numbers of letters, each of which there is.
    fn numbers(
        &self,
        which: &DeadLetterSelection,
    ) -> Result<Result<Vec<u64>, DeadLetterError>, redb::Error> {
        match which {
            DeadLetterSelection::Numbers(numbers) => {
                let mut numbers = numbers.clone();
                numbers.sort_unstable();
                numbers.dedup();
                for number in &numbers {
                    if self.letters.get(number)?.is_none() {
                        return Ok(Err(DeadLetterError::NoSuchDeadLetter(*number)));
                    }
                }
                Ok(Ok(numbers))
            }
            DeadLetterSelection::Of { sink, class } => {
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

pub(super) fn make(transaction: &WriteTransaction) -> Result<(), redb::Error> {
    Tables::open(transaction)?;
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
