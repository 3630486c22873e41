//! Files that a journal needs for a moment: removed when they are let go of, and what a crash
//! leaves, when the directory is opened.

use std::{fs::File, io, path::PathBuf};

use super::{Directory, private};

/// An open file and its removal.
#[derive(Debug)]
pub(super) struct Scratch {
    pub(super) file: File,
    path: PathBuf,
    /// So that no other process takes the directory, and removes the file as a leftover.
    _directory: Directory,
}

impl Scratch {
    /// A new file; there may be several at a time.
    pub(super) fn create(directory: &Directory) -> io::Result<Self> {
        let mut number = 0u32;
        loop {
            let path = directory.path().join(format!("staging-{number}.tmp"));
            match private::file().read(true).write(true).create_new(true).open(&path) {
                Ok(file) => return Ok(Self { file, path, _directory: directory.clone() }),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(e) => return Err(e),
            }
        }
    }
}

impl io::Write for Scratch {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays is removed at the next open.
        let _ = std::fs::remove_file(&self.path);
    }
}
