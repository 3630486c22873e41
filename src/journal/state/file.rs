//! The file of the state, with a memory for what the operating system refused.
//!
//! A file that cannot be read for once is not damaged. What redb makes of a failed read may look like
//! damage, so the failure is kept here and asked for afterwards.

use std::{
    io,
    ops::Bound,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use redb::{BackendError, StorageBackend, backends::FileBackend};
use tidings_log::private;

/// What the operating system answered last, if that was an error.
#[derive(Clone, Debug, Default)]
pub(super) struct Trouble(Arc<Mutex<Option<io::Error>>>);

impl Trouble {
    pub(super) fn take(&self) -> Option<io::Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Notes it. An end that comes too soon is no word of the operating system's.
    pub(super) fn note<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|error| {
            if let Some(code) = error.raw_os_error() {
                let error = io::Error::from_raw_os_error(code);
                *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        })
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct StateFile {
    file: FileBackend,
    trouble: Trouble,
}

impl StateFile {
    /// Opens the file, or makes it.
    pub(super) fn open(path: &Path, trouble: Trouble) -> io::Result<Self> {
        // Neither opening nor reading something else says clearly that it is no file.
        if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no file"));
        }
        let file =
            private::file().read(true).write(true).create(true).truncate(false).open(path)?;
        let file = FileBackend::new(file).map_err(io::Error::other)?;
        Ok(Self { file, trouble })
    }
}

type Range = Bound<u64>;

impl StorageBackend for StateFile {
    fn len(&self) -> io::Result<u64> {
        self.trouble.note(self.file.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        #[cfg(test)]
        self.trouble.note(faults::read())?;
        self.trouble.note(self.file.read(offset, out))
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.trouble.note(self.file.set_len(length))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.trouble.note(self.file.sync_data())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.trouble.note(self.file.write(offset, data))
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Range, end: Range) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Range, end: Range) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Range, end: Range) -> Result<(), BackendError> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Range, end: Range) -> Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Range, end: Range) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Range, end: Range) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}

/// Reads that fail, on the thread of a test.
#[cfg(test)]
pub(super) mod faults {
    use std::{cell::RefCell, collections::BTreeMap, io};

    thread_local! {
        static READS: RefCell<(u32, BTreeMap<u32, i32>)> = RefCell::default();
    }

    /// From now on these reads, counted from 0, fail with these errors. Answers how many there were
    /// since the last call.
    pub(in crate::journal) fn fail(reads: impl IntoIterator<Item = (u32, i32)>) -> u32 {
        READS.replace((0, reads.into_iter().collect())).0
    }

    pub(super) fn read() -> io::Result<()> {
        READS.with_borrow_mut(|(count, failing)| {
            *count += 1;
            let code = failing.get(&(*count - 1));
            code.map_or(Ok(()), |code| Err(io::Error::from_raw_os_error(*code)))
        })
    }
}
