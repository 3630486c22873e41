//! The journal's directory and the lock on it.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::format;

/// Why a journal cannot be opened. Damage is never the reason, but for who opens it as it is.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory is not there and cannot be made.
    #[error(
        "cannot create the journal directory {}: {source}\nhint: create it for the user that runs \
         tidings, or point journal.path to where that user may write", path.display()
    )]
    Create {
        /// The directory.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// Something in the directory cannot be read or written.
    #[error(
        "cannot open {}: {source}\nhint: the user that runs tidings must be able to read and write \
         the journal directory and every file in it; mend its owner and mode, or point \
         journal.path to another directory", path.display()
    )]
    Access {
        /// The file or directory.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// Another process has it.
    #[error(
        "the journal directory {} is held by another process\nhint: stop the other tidings, or \
         give each one a journal.path of its own", path.display()
    )]
    Held {
        /// The directory.
        path: PathBuf,
    },
    /// It is damaged, and whoever opens it is not the bridge.
    #[error(
        "{} is damaged: {reason}\nhint: the next start of the bridge sets it aside, says what that may \
         have cost, and goes on", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A later version of Tidings wrote it.
    #[error(
        "{} is of journal format {found}, and this build reads up to {}\nhint: run the newer \
         version again, or point journal.path to another directory", path.display(), format::VERSION
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version it states.
        found: u32,
    },
}

impl OpenError {
    pub(super) fn access(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::Access { path: path.to_owned(), source }
    }
}

/// A journal's directory, held by this process until the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Directory(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    /// Open for as long as the lock is to be held.
    _lock: File,
}

impl Directory {
    /// Makes the directory if it is not there, locks it, and removes what a crash left half done.
    ///
    /// # Errors
    ///
    /// [`OpenError`], but not [`OpenError::Newer`].
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        std::fs::create_dir_all(path)
            .map_err(|source| OpenError::Create { path: path.to_owned(), source })?;
        let lock_path = path.join("lock");
        // The file stays when the lock is let go: to unlink it would be to lock another one.
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&lock_path)
            .map_err(OpenError::access(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::Held { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => return Err(OpenError::access(&lock_path)(source)),
        }
        for entry in std::fs::read_dir(path).map_err(OpenError::access(path))?.flatten() {
            let name = entry.file_name();
            if name.to_str().is_some_and(is_leftover) {
                // What cannot be removed is in nobody's way.
                let _ = std::fs::remove_file(entry.path());
            }
        }
        Ok(Self(Arc::new(Inner { path: path.to_owned(), _lock: lock })))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// What everything that is not a segment takes on disk, in bytes.
    pub(super) fn other_bytes(&self) -> io::Result<u64> {
        let mut bytes = 0;
        for entry in std::fs::read_dir(self.path())?.flatten() {
            let segment = entry.file_name().to_str().and_then(format::segment_first).is_some();
            // Blocks, because a store may be sparse; a file that is gone by now takes nothing.
            if !segment && let Ok(metadata) = entry.metadata() {
                bytes += metadata.blocks() * 512;
            }
        }
        Ok(bytes)
    }
}

/// What a journal writes under one name before it counts.
fn is_leftover(name: &str) -> bool {
    name.strip_suffix(".tmp").is_some_and(|name| {
        name.starts_with("staging-")
            || name == "positions.json"
            || format::segment_first(name).is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_held_by_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let held = Directory::open(&path).unwrap();
        let error = Directory::open(&path).unwrap_err();
        assert!(matches!(error, OpenError::Held { .. }));
        assert!(error.to_string().contains("held by another process\nhint: "), "{error}");
        drop(held);
        Directory::open(&path).unwrap();
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named_with_the_cause_and_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = Directory::open(&file.join("journal")).unwrap_err().to_string();
        assert!(error.contains("file/journal: Not a directory"), "{error}");
        assert!(error.contains("\nhint: "), "{error}");
    }

    #[test]
    fn what_a_crash_left_half_done_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let leftovers = ["staging-0.tmp", "00000000000000000001.log.tmp", "positions.json.tmp"];
        let others = ["notes.tmp", "staging-0", "00000000000000000001.log"];
        for name in leftovers.iter().chain(&others) {
            std::fs::write(dir.path().join(name), "x").unwrap();
        }
        Directory::open(dir.path()).unwrap();
        assert!(leftovers.iter().all(|name| !dir.path().join(name).exists()));
        assert!(others.iter().all(|name| dir.path().join(name).exists()));
    }
}
