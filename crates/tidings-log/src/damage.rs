//! What damage there is, and what it may have cost: from when to when, and how many records.
//!
//! Whoever comes by damage notes it in the one [`Damages`] of the directory: opening, and later the
//! readers. Each place is counted once, by however many readers it is met; a file, each time that it
//! is set aside or was taken away.

use std::{
    collections::{BTreeSet, VecDeque},
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;

/// So many are kept to be shown, the newest.
const SHOWN: usize = 16;
/// So many places are known not to be counted twice; beyond that the oldest are forgotten.
const PLACES: usize = 4096;

/// What cannot be read, or is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DamageKind {
    /// Records in the midst of the log. A reader that had not had them does not get them any more.
    Records,
    /// The end of the log: it ends before what a view of it knows. The resume points are back with it,
    /// and the sources are to be read again from there.
    End,
    /// A file that cannot be used, or is in the place of one, and was set aside; or one that was taken
    /// away while it was in use.
    File,
}

impl DamageKind {
    /// The spelling in documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Records => "records",
            Self::End => "end",
            Self::File => "file",
        }
    }
}

/// One damage, and what it may have cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// What cannot be read.
    pub kind: DamageKind,
    /// The file, by its name in the directory.
    pub file: String,
    /// Where in the file it begins.
    pub offset: u64,
    /// How many bytes are no frame; 0 where the file ends before it should, or is gone.
    pub bytes: u64,
    /// The time of the last frame before it, in milliseconds since the epoch; nothing if nothing
    /// is known of what was before.
    pub from_ms: Option<u64>,
    /// The time of the first frame behind it or, where there is none, of its discovery, in
    /// milliseconds since the epoch.
    pub to_ms: u64,
    /// How many records are missing, at most.
    pub records: u64,
    /// Of a file: what is wrong with it, and what is done without it.
    pub reason: String,
}

impl Damage {
    /// The reason for a file that was taken away.
    pub const TAKEN_AWAY: &str = "it was taken away while it was in use, and was written again \
                                         from the file that was still open";

    /// The reason for a segment that cannot even be read from the file that is still open.
    pub(super) const CUT: &str = "it was cut while it was in use, and cannot be read back; the log goes on \
                                  behind it";

    /// Of a file as a whole.
    pub fn of_file(file: impl fmt::Display, reason: impl Into<String>, now_ms: u64) -> Self {
        Self {
            kind: DamageKind::File,
            file: file.to_string(),
            offset: 0,
            bytes: 0,
            from_ms: None,
            to_ms: now_ms,
            records: 0,
            reason: reason.into(),
        }
    }

    /// The time of the last record before it.
    pub fn from(&self) -> Option<Timestamp> {
        self.from_ms.map(timestamp)
    }

    /// The time of the first frame behind it, or of its discovery.
    pub fn to(&self) -> Timestamp {
        timestamp(self.to_ms)
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, file, offset, bytes, records, reason, .. } = self;
        if *kind == DamageKind::File {
            return write!(f, "{file}: {reason}");
        }
        write!(f, "{file} at {offset}: ")?;
        match bytes {
            0 => write!(f, "something is missing")?,
            _ => write!(f, "{bytes} bytes cannot be read")?,
        }
        let records = match records {
            1 => "1 record".to_owned(),
            n => format!("{n} records"),
        };
        write!(f, ", {records} at most, ")?;
        match self.from() {
            Some(from) => write!(f, "from {from} to {}", self.to())?,
            None => write!(f, "up to {}", self.to())?,
        }
        match kind {
            DamageKind::Records if self.records > 0 => {
                write!(f, ": readers that had not had them do not get them")
            }
            DamageKind::End => {
                write!(f, ": the sources are read again from there")
            }
            _ => Ok(()),
        }
    }
}

fn push(list: &mut VecDeque<Damage>, damage: Damage) {
    if list.len() == SHOWN {
        list.pop_front();
    }
    list.push_back(damage);
}

/// The time that is so many milliseconds after the epoch; what is no time is the epoch.
pub(super) fn timestamp(ms: u64) -> Timestamp {
    Timestamp::from_millisecond(ms.cast_signed()).unwrap_or_default()
}

/// All damage that was found since the start of the process. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Damages(Arc<Mutex<Noted>>);

#[derive(Debug, Default)]
struct Noted {
    count: u64,
    records: u64,
    newest: VecDeque<Damage>,
    places: BTreeSet<(String, u64, DamageKind)>,
    unreported: VecDeque<Damage>,
    aside: Option<PathBuf>,
}

impl Damages {
    /// How many places were found.
    pub fn count(&self) -> u64 {
        self.noted().count
    }

    /// How many records are missing in all of them together, at most.
    pub fn records(&self) -> u64 {
        self.noted().records
    }

    /// The last 16, the newest last.
    pub fn newest(&self) -> Vec<Damage> {
        self.noted().newest.iter().cloned().collect()
    }

    /// Those that this has not answered before, to be logged; no more than the last 16 of them.
    pub fn take_unreported(&self) -> Vec<Damage> {
        self.noted().unreported.drain(..).collect()
    }

    /// Notes one, unless its place is known.
    pub fn note(&self, damage: Damage) {
        let mut noted = self.noted();
        if damage.kind != DamageKind::File {
            if !noted.places.insert((damage.file.clone(), damage.offset, damage.kind)) {
                return;
            }
            if noted.places.len() > PLACES {
                noted.places.pop_first();
            }
        }
        noted.count += 1;
        noted.records += damage.records;
        push(&mut noted.newest, damage.clone());
        push(&mut noted.unreported, damage);
    }

    /// Where files are set aside by this process; `make` says where, the first time.
    pub(super) fn aside<E>(&self, make: impl FnOnce() -> Result<PathBuf, E>) -> Result<PathBuf, E> {
        let mut noted = self.noted();
        let path = match noted.aside.take() {
            // It may have been old enough to go.
            Some(path) if path.is_dir() => path,
            _ => make()?,
        };
        noted.aside = Some(path.clone());
        Ok(path)
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        // No holder leaves it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
