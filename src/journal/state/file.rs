//! The file of the state, with a memory for what the operating system refused.
//!
//! A file that cannot be read for once is not damaged. What redb makes of a failed read may look like
//! damage, so the failure is kept here and asked for afterwards.

use std::{
    io,
    ops::Bound,
    path::Path,
    sync::{Arc, Mutex},
};

use redb::{BackendError, StorageBackend, backends::FileBackend};

#[cfg(test)]
use crate::journal::disk;
use crate::{journal::private, locks::lock};

/// The last answer of the operating system, if that was an error.
#[derive(Clone, Debug, Default)]
pub(super) struct Trouble(Arc<Mutex<Option<io::Error>>>);

impl Trouble {
    pub(super) fn take(&self) -> Option<io::Error> {
        lock(&self.0).take()
    }

    /// Notes it. An end that comes too soon is no word of the operating system's.
    pub(super) fn note<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|error| {
            if let Some(code) = error.raw_os_error() {
                let error = io::Error::from_raw_os_error(code);
                *lock(&self.0) = Some(error);
            }
        })
    }
}

/// The file of the state. See the [module](self).
#[derive(Debug)]
pub(super) struct StateFile {
    file: FileBackend,
    trouble: Trouble,
}

impl StateFile {
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
        self.trouble.note(disk::faults::read())?;
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
