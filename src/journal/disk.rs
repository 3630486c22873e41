//! Requests of the log to the file system, in one place, so that tests can make any of them fail.

use std::{fs::File, io, os::unix::fs::FileExt as _, path::Path};

use super::private;

/// The file system. Each method's default is the real thing.
pub(super) trait Disk: Send {
    /// Makes a new file, or empties the one that is there.
    fn create(&self, path: &Path) -> io::Result<File> {
        private::file().read(true).write(true).create(true).truncate(true).open(path)
    }

    /// Writes all of it, or fails and leaves what was written.
    fn write_all_at(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        file.write_all_at(bytes, at)
    }

    /// Reads as much as there is, up to the length of `into`.
    fn read_at(&self, file: &File, into: &mut [u8], at: u64) -> io::Result<usize> {
        #[cfg(test)]
        faults::read()?;
        let mut done = 0;
        while done < into.len() {
            match file.read_at(&mut into[done..], at + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn set_len(&self, file: &File, length: u64) -> io::Result<()> {
        file.set_len(length)
    }

    /// Waits until the file's content is on stable storage.
    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    /// Gives a file its final name, in place of any other of that name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    /// Unlinks a file; that it is gone already is no error.
    fn remove(&self, path: &Path) -> io::Result<()> {
        match std::fs::remove_file(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    /// Waits until the names in a directory are on stable storage.
    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

pub(super) struct RealDisk;

impl Disk for RealDisk {}

/// How to mend what the operating system answered.
pub(super) fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some space on its disk, or lower journal.retention.size"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "mount its file system writable again; if an error of the disk made it read-only, the \
             kernel's log says which"
        }
        _ => "see to its disk and to who may write there; the kernel's log may say more",
    }
}

/// Reads that fail, on the thread of a test.
#[cfg(test)]
pub(crate) mod faults {
    use std::{cell::RefCell, collections::BTreeMap, io};

    thread_local! {
        static READS: RefCell<(u32, BTreeMap<u32, i32>)> = RefCell::default();
    }

    /// From now on these reads, counted from 0, fail with these errors. Answers how many there were
    /// since the last call.
    pub(crate) fn fail(reads: impl IntoIterator<Item = (u32, i32)>) -> u32 {
        READS.replace((0, reads.into_iter().collect())).0
    }

    pub(crate) fn read() -> io::Result<()> {
        READS.with_borrow_mut(|(count, failing)| {
            *count += 1;
            let code = failing.get(&(*count - 1));
            code.map_or(Ok(()), |code| Err(io::Error::from_raw_os_error(*code)))
        })
    }
}
