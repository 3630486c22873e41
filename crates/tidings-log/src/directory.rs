//! The journal directory and the lock on it.

use std::{
    fs::{self, DirEntry, File, TryLockError},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use jiff::{civil::DateTime, tz::TimeZone};

use super::{Damage, Damages, access, damage::timestamp, format, private};

/// The file that is locked.
pub(super) const LOCK: &str = "lock";
/// What is set aside is moved to a directory of this name and the time.
const ASIDE: &str = "damaged-";
const ASIDE_TIME: &str = "%Y-%m-%dT%H-%M-%SZ";
/// So many of these directories are kept, the newest.
const KEPT_ASIDE: usize = 4;

/// Why a journal cannot be opened. Damage is never the reason.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory is not there and cannot be made.
    #[error("cannot create the journal directory {}: {source}", path.display())]
    Create {
        /// The directory.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// It is a link to what is not there.
    #[error(
        "the journal directory {} is a symbolic link to {}, which is not there",
        path.display(), target.display()
    )]
    Dangling {
        /// The link.
        path: PathBuf,
        /// What it says.
        target: PathBuf,
    },
    /// Everybody may write to the directory, and nothing is mounted there.
    #[error(
        "the journal directory {} can be written by every user (its mode is {mode:04o}): each of \
         them could change what is in it", path.display()
    )]
    WritableByAll {
        /// The directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
        /// The user of the process is its owner.
        ours: bool,
    },
    /// Something in the directory cannot be read or written.
    #[error("cannot open {}: {source}", path.display())]
    Access {
        /// The file or directory.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// The lock is something else.
    #[error("{} is not a file, and the lock on the journal has to be one", path.display())]
    NotALock {
        /// Where the lock should be.
        path: PathBuf,
    },
    /// Another process has it.
    #[error("the journal directory {} is held by another process", path.display())]
    Held {
        /// The directory.
        path: PathBuf,
    },
    /// A later version wrote it.
    #[error(
        "{} is of journal format {found}, and this build reads up to {}",
        path.display(), format::VERSION
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version it states.
        found: u32,
    },
}

impl OpenError {
    /// Makes an error of the operating system's answer about a path.
    pub fn access(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::Access { path: path.to_owned(), source }
    }
}

/// A directory with one log in it and the files that its owner keeps beside the log; held by this
/// process until the last clone is dropped.
///
/// ```text
/// lock                        held by the one process that uses the directory
/// 00000000000000000001.log    segments of the log, named by their first sequence
/// damaged-<time>/             files that could not be used, set aside
/// staging-<number>.tmp        files of [`Staging`](super::Staging) and [`ExternalSort`](super::ExternalSort)
/// ```
///
/// The owner's files have other names.
#[derive(Clone, Debug)]
pub struct Directory(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    /// What is to be said of who may use it.
    remark: Option<String>,
    damages: Damages,
    /// Open for as long as the lock is to be held.
    lock: Mutex<File>,
}

impl Directory {
    /// Makes the directory if it is not there, locks it, and removes what a crash left half done.
    ///
    /// `beside` are the names of the owner's own files and directories in it. They are made fit for
    /// this user alone, as the log's are, and `<name>.tmp` is removed as what a crash left.
    ///
    /// # Errors
    ///
    /// [`OpenError`], but not [`OpenError::Newer`].
    pub fn open(path: &Path, beside: &[&str]) -> Result<Self, OpenError> {
        let remark = access::prepare(path)?;
        let lock = take_lock(path)?;
        for entry in fs::read_dir(path).map_err(OpenError::access(path))?.flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if is_leftover(name, beside) {
                let remove =
                    if entry.path().is_dir() { fs::remove_dir_all } else { fs::remove_file };
                // What cannot be removed is said when it is in the way.
                let _ = remove(entry.path());
            } else if is_of_journal(name, beside) {
                private::put_right(&entry.path()).map_err(OpenError::access(&entry.path()))?;
            }
        }
        let damages = Damages::default();
        Ok(Self(Arc::new(Inner { path: path.to_owned(), remark, damages, lock: Mutex::new(lock) })))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// What is to be said of who may use it, if anything.
    pub fn remark(&self) -> Option<&str> {
        self.0.remark.as_deref()
    }

    /// The damage that was found in it since it was opened.
    pub fn damages(&self) -> &Damages {
        &self.0.damages
    }

    /// Sees that the directory is there, with our lock in it: what was taken away is made again, and
    /// that is stated.
    pub fn keep_in_place(&self, now_ms: u64) -> io::Result<()> {
        let mut lock = self.0.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.path();
        if private::is_at(&lock, &path.join(LOCK))? {
            return Ok(());
        }
        let reason = if path.is_dir() {
            "the lock on the journal was taken away, and is made again"
        } else {
            "the journal's directory was taken away, and is made again; what no process had open is gone"
        };
        let failed = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        private::directory().create(path).map_err(failed)?;
        *lock = take_lock(path).map_err(|error| match error {
            OpenError::Access { source, .. } => failed(source),
            other => io::Error::other(other),
        })?;
        self.0.damages.note(Damage::of_file(path.display(), reason, now_ms));
        Ok(())
    }

    /// Moves a file of the journal, by its name, to `damaged-<time>/` and notes that it was damaged
    /// and what is done without it. Everything that one process sets aside is together there. The
    /// newest four of these directories are kept, up to the retention age
    /// ([`Log::retain`](super::Log::retain)).
    ///
    /// # Errors
    ///
    /// What the operating system answers; the file is where it was then.
    pub fn set_aside(&self, name: &str, reason: &str, now_ms: u64) -> io::Result<PathBuf> {
        let from = self.path().join(name);
        let aside = self.0.damages.aside(|| self.make_aside(now_ms))?;
        let to = free(&aside.join(name.replace('/', "-")));
        fs::rename(&from, &to)?;
        let reason = format!("{reason} (set aside as {})", to.display());
        self.0.damages.note(Damage::of_file(name, reason, now_ms));
        Ok(to)
    }

    /// The same for what has to be out of the way.
    pub(super) fn set_aside_or_fail(
        &self,
        path: &Path,
        reason: &str,
        now_ms: u64,
    ) -> Result<(), OpenError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        self.set_aside(&name, reason, now_ms).map_err(OpenError::access(path))?;
        Ok(())
    }

    /// Makes a directory for what is set aside, and removes those that are too many with it.
    fn make_aside(&self, now_ms: u64) -> io::Result<PathBuf> {
        let time = timestamp(now_ms).to_zoned(TimeZone::UTC).strftime(ASIDE_TIME);
        let path = free(&self.path().join(format!("{ASIDE}{time}")));
        private::directory().create(&path)?;
        for aside in asides(self.path())?.iter().rev().skip(KEPT_ASIDE) {
            aside.remove();
        }
        Ok(path)
    }

    /// Removes what was set aside: all that is older than `age_ms` and, while the directory takes
    /// more than `size` with its `bytes`, the oldest; but of the newest only what takes more than a
    /// quarter of that. Answers how many bytes that was.
    pub(super) fn drop_aside(
        &self,
        now_ms: u64,
        age_ms: u64,
        size: u64,
        mut bytes: u64,
    ) -> io::Result<u64> {
        let asides = asides(self.path())?;
        let newest = asides.last().map(|aside| aside.path.clone());
        let mut dropped = 0;
        for aside in asides {
            let spare = newest.as_ref() != Some(&aside.path) || aside.bytes > size / 4;
            let old = now_ms.saturating_sub(aside.time_ms) > age_ms;
            if old || (spare && bytes > size) {
                aside.remove();
                bytes = bytes.saturating_sub(aside.bytes);
                dropped += aside.bytes;
            }
        }
        Ok(dropped)
    }

    /// What everything that is not a segment takes on disk, in bytes.
    pub fn other_bytes(&self) -> io::Result<u64> {
        let is_segment =
            |entry: &DirEntry| entry.file_name().to_str().and_then(format::segment_first).is_some();
        let entries = fs::read_dir(self.path())?.flatten();
        Ok(entries.filter(|entry| !is_segment(entry)).map(|entry| bytes_of(&entry)).sum())
    }
}

/// A directory of files that were set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Aside {
    pub path: PathBuf,
    /// When it was made, milliseconds since the epoch; to the second, as its name has it.
    pub time_ms: u64,
    /// What it takes on disk.
    pub bytes: u64,
}

impl Aside {
    pub(super) fn remove(&self) {
        // What cannot be removed is tried again.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The path, or one with a number behind it, where nothing is yet.
fn free(path: &Path) -> PathBuf {
    let (mut found, mut number) = (path.to_owned(), 1);
    while found.exists() {
        number += 1;
        found = PathBuf::from(format!("{}-{number}", path.display()));
    }
    found
}

/// What was set aside in a directory, the oldest first.
pub(super) fn asides(path: &Path) -> io::Result<Vec<Aside>> {
    let mut asides = Vec::new();
    for entry in fs::read_dir(path)?.flatten() {
        let Some(time_ms) = entry.file_name().to_str().and_then(aside_time) else { continue };
        asides.push(Aside { bytes: bytes_of(&entry), path: entry.path(), time_ms });
    }
    // The names begin with the time, in the order of time.
    asides.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    Ok(asides)
}

/// The time in the name of a directory of files that were set aside; nothing for another name.
fn aside_time(name: &str) -> Option<u64> {
    // A number may follow.
    let time = name.strip_prefix(ASIDE)?.split_inclusive('Z').next()?;
    let time = DateTime::strptime(ASIDE_TIME, time).ok()?.to_zoned(TimeZone::UTC).ok()?;
    u64::try_from(time.timestamp().as_millisecond()).ok()
}

/// What everything in a directory takes on disk.
pub(super) fn bytes_of_path(path: &Path) -> io::Result<u64> {
    Ok(fs::read_dir(path)?.flatten().map(|entry| bytes_of(&entry)).sum())
}

/// What a file or a directory takes on disk; in blocks, because a store may be sparse. What is gone
/// by now takes nothing.
fn bytes_of(entry: &DirEntry) -> u64 {
    let Ok(metadata) = entry.metadata() else { return 0 };
    let mut bytes = metadata.blocks() * 512;
    // A link is not followed.
    if metadata.is_dir()
        && let Ok(entries) = fs::read_dir(entry.path())
    {
        bytes += entries.flatten().map(|entry| bytes_of(&entry)).sum::<u64>();
    }
    bytes
}

/// Makes the lock of a directory if it is not there, and takes it.
fn take_lock(directory: &Path) -> Result<File, OpenError> {
    let path = directory.join(LOCK);
    // To open a FIFO would be to wait for who reads it.
    if fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
        return Err(OpenError::NotALock { path });
    }
    // The file stays when the lock is let go: to unlink it would be to lock another one.
    let lock = private::file().write(true).create(true).truncate(false).open(&path);
    let lock = lock.map_err(OpenError::access(&path))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(OpenError::Held { path: directory.to_owned() }),
        Err(TryLockError::Error(source)) => Err(OpenError::access(&path)(source)),
    }
}

/// What a journal writes under one name before it counts.
fn is_leftover(name: &str, beside: &[&str]) -> bool {
    name.strip_suffix(".tmp").is_some_and(|name| {
        name.starts_with("staging-")
            || beside.contains(&name)
            || format::segment_first(name).is_some()
    })
}

/// What a journal keeps in its directory.
fn is_of_journal(name: &str, beside: &[&str]) -> bool {
    name == LOCK
        || beside.contains(&name)
        || format::segment_first(name).is_some()
        || aside_time(name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_held_by_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let held = Directory::open(&path, &["beside"]).unwrap();
        let error = Directory::open(&path, &["beside"]).unwrap_err();
        assert!(matches!(error, OpenError::Held { .. }), "{error}");
        drop(held);
        Directory::open(&path, &["beside"]).unwrap();
    }

    /// Whoever opens one waits until somebody else does.
    #[test]
    fn a_fifo_in_the_place_of_a_file_is_not_opened() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let dir = tempfile::tempdir().unwrap();
        let fifo = |name: &str| {
            mknodat(CWD, dir.path().join(name), FileType::Fifo, Mode::RWXU, 0).unwrap();
        };
        fifo("beside");
        let error = private::read_file(&dir.path().join("beside")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        fifo(LOCK);
        let error = Directory::open(dir.path(), &["beside"]).unwrap_err();
        assert!(matches!(error, OpenError::NotALock { .. }), "{error}");
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named_with_the_cause() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Directory::open(&file.join("journal"), &["beside"]).unwrap_err().to_string();
        assert!(error.contains("file/journal: Not a directory"), "{error}");
    }

    #[test]
    fn a_link_to_nothing_is_named_with_what_it_says() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("journal");
        std::os::unix::fs::symlink("gone", &link).unwrap();
        let error = Directory::open(&link, &["beside"]).unwrap_err().to_string();
        assert!(
            error.contains("journal is a symbolic link to gone, which is not there"),
            "{error}"
        );
        fs::create_dir(dir.path().join("gone")).unwrap();
        Directory::open(&link, &["beside"]).unwrap();
    }

    #[test]
    fn what_a_crash_left_half_done_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let leftovers = ["staging-0.tmp", "00000000000000000001.log.tmp", "beside.tmp"];
        let others = ["notes.tmp", "staging-0", "00000000000000000001.log"];
        for name in leftovers.iter().chain(&others) {
            fs::write(dir.path().join(name), "x").unwrap();
        }
        Directory::open(dir.path(), &["beside"]).unwrap();
        assert!(leftovers.iter().all(|name| !dir.path().join(name).exists()));
        assert!(others.iter().all(|name| dir.path().join(name).exists()));
    }
}
