//! The journal's directory and the lock on it.

use std::{
    fs::{self, DirEntry, File, TryLockError},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use jiff::{civil::DateTime, tz::TimeZone};

use super::{Damage, Damages, access, delivered, format, positions, private, state};
use crate::{event::timestamp, locks};

const LOCK: &str = "lock";
/// A file that is set aside is moved to a directory of this name and the time.
const ASIDE: &str = "damaged-";
const ASIDE_TIME: &str = "%Y-%m-%dT%H-%M-%SZ";
/// So many of these directories are kept, the newest.
const KEPT_ASIDE: usize = 4;

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
    /// The directory is a link to what is not there.
    #[error(
        "the journal directory {} is a symbolic link to {}, which is not there\nhint: create that \
         directory for the user that runs tidings, mount what belongs there, or point journal.path \
         to another one", path.display(), target.display()
    )]
    Dangling {
        /// The link.
        path: PathBuf,
        /// The target that the link has.
        target: PathBuf,
    },
    /// Everybody may write to the directory, and nothing is mounted there.
    #[error(
        "the journal directory {} can be written by every user (its mode is {mode:04o}): each of \
         them could change what is delivered\nhint: {}",
        path.display(), access::mend(path, *mode, *ours)
    )]
    WritableByAll {
        /// The directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
        /// The user of the process is its owner.
        ours: bool,
    },
    /// A file cannot be read, though it is there and may be. It is not known to be damaged.
    #[error(
        "cannot read {}: {source}\nhint: the file was left as it is, as it may be whole: see to its \
         disk, which the kernel's log may say more of, and start again. Only if it can never be read \
         again, move it away: the bridge then goes on without what is in it", path.display()
    )]
    Unread {
        /// The file.
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
    /// The lock is something else.
    #[error(
        "{} is not a file, and the lock on the journal has to be one\nhint: move it away", path.display()
    )]
    NotALock {
        /// Where the lock should be.
        path: PathBuf,
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
    /// The file is damaged, and the program that opens it is not the bridge.
    #[error(
        "{} is damaged: {reason}\nhint: the next start of the bridge sets it aside, says what that may \
         have cost, and goes on", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage of the file.
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

    /// The error of reading a file: what the disk does not give may be whole.
    pub(crate) fn unread(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        move |source| match source.kind() {
            PermissionDenied | QuotaExceeded | ReadOnlyFilesystem | StorageFull => {
                Self::access(path)(source)
            }
            _ => Self::Unread { path: path.to_owned(), source },
        }
    }
}

/// A journal's directory, held by this process until the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Directory(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    /// A remark about who may use it.
    remark: Option<String>,
    damages: Damages,
    /// Open for as long as the lock is to be held.
    lock: Mutex<File>,
}

impl Directory {
    /// Makes the directory if it is not there, locks it, and removes what a crash left half done.
    ///
    /// # Errors
    ///
    /// [`OpenError`], but not [`OpenError::Newer`].
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let remark = access::prepare(path)?;
        let lock = take_lock(path)?;
        for entry in fs::read_dir(path).map_err(OpenError::access(path))?.flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if is_leftover(name) {
                let remove =
                    if entry.path().is_dir() { fs::remove_dir_all } else { fs::remove_file };
                // What cannot be removed is said when it is in the way.
                let _ = remove(entry.path());
            } else if is_of_journal(name) {
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

    /// A remark about who may use it, if there is one.
    pub fn remark(&self) -> Option<&str> {
        self.0.remark.as_deref()
    }

    /// The damage that was found in it since it was opened.
    pub fn damages(&self) -> &Damages {
        &self.0.damages
    }

    /// Sees that the directory is there, with our lock in it: what was taken away is made again, and
    /// that is stated.
    pub(super) fn stand(&self, now_ms: u64) -> io::Result<()> {
        let mut lock = locks::lock(&self.0.lock);
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
            // All in one line, as what the operating system says.
            other => io::Error::other(other.to_string().replace('\n', "; ")),
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
    /// The operating system's error; the file is where it was then.
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

    /// Whether a bridge has written something here beside the state: it makes the state first.
    pub(super) fn has_past(&self) -> io::Result<bool> {
        let of_past = |name: &str| {
            [positions::NAME, delivered::DIR].contains(&name)
                || format::segment_first(name).is_some()
        };
        let entries = fs::read_dir(self.path())?.flatten();
        Ok(entries.into_iter().any(|entry| entry.file_name().to_str().is_some_and(of_past)))
    }

    /// The size on disk of all that is not a segment, in bytes.
    pub(crate) fn other_bytes(&self) -> io::Result<u64> {
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
    /// The size on disk.
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

/// The files that were set aside in a directory, the oldest first.
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

/// The size on disk of all that is in a directory.
pub(super) fn bytes_of_path(path: &Path) -> io::Result<u64> {
    Ok(fs::read_dir(path)?.flatten().map(|entry| bytes_of(&entry)).sum())
}

/// The size on disk of a file or a directory; in blocks, because a store may be sparse. One that is gone
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

/// Whether it is a file that a journal writes under one name before it counts.
fn is_leftover(name: &str) -> bool {
    name.strip_suffix(".tmp").is_some_and(|name| {
        name.starts_with("staging-")
            || [positions::NAME, state::NAME].contains(&name)
            || format::segment_first(name).is_some()
    })
}

/// Whether it is a file that a journal keeps in its directory.
fn is_of_journal(name: &str) -> bool {
    [LOCK, state::NAME, positions::NAME, delivered::DIR].contains(&name)
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
        let held = Directory::open(&path).unwrap();
        let error = Directory::open(&path).unwrap_err();
        assert!(matches!(error, OpenError::Held { .. }));
        assert!(error.to_string().contains("held by another process\nhint: "), "{error}");
        drop(held);
        Directory::open(&path).unwrap();
    }

    /// Whoever opens one waits until somebody else does.
    #[test]
    fn a_fifo_in_the_place_of_a_file_is_not_opened() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let dir = tempfile::tempdir().unwrap();
        let fifo = |name: &str| {
            mknodat(CWD, dir.path().join(name), FileType::Fifo, Mode::RWXU, 0).unwrap();
        };
        fifo(positions::NAME);
        let directory = Directory::open(dir.path()).unwrap();
        let error = positions::Positions::load(&directory).unwrap_err();
        assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
        fs::create_dir(dir.path().join(delivered::DIR)).unwrap();
        fifo("delivered/out");
        delivered::Delivered::open(&directory, "out", 1, 1, 0).unwrap();
        let damage = directory.damages().newest().pop().unwrap().to_string();
        assert!(damage.contains("delivered/out") && damage.contains("it is no file"), "{damage}");
        drop(directory);
        fs::remove_file(dir.path().join(LOCK)).unwrap();
        fifo(LOCK);
        let error = Directory::open(dir.path()).unwrap_err();
        assert!(matches!(error, OpenError::NotALock { .. }), "{error}");
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named_with_the_cause_and_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Directory::open(&file.join("journal")).unwrap_err().to_string();
        assert!(error.contains("file/journal: Not a directory"), "{error}");
        assert!(error.contains("\nhint: "), "{error}");
    }

    #[test]
    fn a_link_to_nothing_is_named_with_what_it_says() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("journal");
        std::os::unix::fs::symlink("gone", &link).unwrap();
        let error = Directory::open(&link).unwrap_err().to_string();
        assert!(
            error.contains("journal is a symbolic link to gone, which is not there\nhint: "),
            "{error}"
        );
        fs::create_dir(dir.path().join("gone")).unwrap();
        Directory::open(&link).unwrap();
    }

    #[test]
    fn files_that_a_crash_left_half_done_are_removed_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let leftovers = ["staging-0.tmp", "00000000000000000001.log.tmp", "positions.json.tmp"];
        let others = ["notes.tmp", "staging-0", "00000000000000000001.log"];
        for name in leftovers.iter().chain(&others) {
            fs::write(dir.path().join(name), "x").unwrap();
        }
        Directory::open(dir.path()).unwrap();
        assert!(leftovers.iter().all(|name| !dir.path().join(name).exists()));
        assert!(others.iter().all(|name| dir.path().join(name).exists()));
    }
}
