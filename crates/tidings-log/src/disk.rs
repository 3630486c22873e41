//! What the log asks of the file system, in one place, so that tests can make any of it fail.

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

    /// Cuts the file.
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

/// The real file system.
pub(super) struct RealDisk;

impl Disk for RealDisk {}
