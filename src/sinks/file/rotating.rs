//! A file of lines that makes way for the next one when it is large or old.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, ErrorKind, Write as _},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use rustix::{fs::OFlags, io::Errno};

use super::RotateOptions;
use crate::sinks::lines::Written;

/// The time behind the name of a file. Names of one length stand in the order of their times.
const TIME: &str = "%Y%m%dT%H%M%S.%3fZ";
/// How long a line may be that was not written whole, in bytes. A longer one is not ours.
const MOST_LINE_BYTES: u64 = 64 << 20;

/// A file of lines, and those before it: `events.ndjson`, `events.ndjson.20261128T000000.123Z`.
#[derive(Debug)]
pub(super) struct RotatingFile {
    path: PathBuf,
    rotate: RotateOptions,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    file: File,
    length: u64,
    /// The period of its last line.
    period: i64,
}

impl RotatingFile {
    pub(super) fn new(path: PathBuf, rotate: RotateOptions) -> Self {
        Self { path, rotate, open: None }
    }

    /// Writes lines, and waits until the disk has them. Lines that it may not have do not count.
    pub(super) fn write(&mut self, lines: &[u8], now: Timestamp) -> Written {
        let mut written = 0;
        let mut result = self.append(lines, now, &mut written);
        if let Some(open) = self.open.take() {
            match self.synced(&open, &mut written) {
                Ok(()) if result.is_ok() => self.open = Some(open),
                Ok(()) => {}
                Err(error) => result = Err(error),
            }
        }
        (written, result)
    }

    fn append(&mut self, lines: &[u8], now: Timestamp, written: &mut usize) -> io::Result<()> {
        let period = self.period(now);
        while *written < lines.len() {
            let open = match self.open.take() {
                Some(open) => self.named(open)?,
                None => None,
            };
            let mut open = match open {
                Some(open) => open,
                None => self.opened(period)?,
            };
            let lines = &lines[*written..];
            let fits = open.fits(lines, self.rotate.size);
            if open.length > 0 && (fits == 0 || open.period < period) {
                self.synced(&open, written)?;
                self.make_way(now)?;
                continue;
            }
            let result = open.write(&lines[..fits], written);
            open.period = period;
            self.open = Some(open);
            result.map_err(|error| self.failed("write to", error))?;
        }
        Ok(())
    }

    /// The file, if it is still the one of its name.
    fn named(&self, mut open: Open) -> io::Result<Option<Open>> {
        let named = match fs::symlink_metadata(&self.path) {
            Ok(named) => named,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed("find", error)),
        };
        let metadata = open.file.metadata().map_err(|error| self.failed("find", error))?;
        // Others may have cut it.
        open.length = metadata.len();
        Ok(((metadata.dev(), metadata.ino()) == (named.dev(), named.ino())).then_some(open))
    }

    /// Opens the file, or makes it, and cuts away half a line at its end.
    fn opened(&self, period: i64) -> io::Result<Open> {
        let failed = |error| self.failed("open", error);
        DirBuilder::new().recursive(true).create(self.directory()).map_err(failed)?;
        // Not a link, which a rename would move instead of the file, and without waiting for the reader of a pipe.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o640).custom_flags(flags.bits() as i32);
        let file = options.open(&self.path).map_err(|error| {
            let is_link = Errno::from_io_error(&error) == Some(Errno::LOOP);
            failed(if is_link { unusable("it is a symbolic link") } else { error })
        })?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(failed(unusable("it is not a regular file")));
        }
        file.try_lock().map_err(|error| match error {
            TryLockError::Error(error) => self.failed("lock", error),
            TryLockError::WouldBlock => {
                let words = "another sink or process writes it";
                failed(io::Error::new(ErrorKind::ResourceBusy, words))
            }
        })?;
        let length = cut(&file).map_err(failed)?;
        let mut open = Open { file, length, period };
        if length == 0 {
            self.sync_directory()?;
        } else if let Ok(modified) = metadata.modified()
            && let Ok(modified) = Timestamp::try_from(modified)
        {
            open.period = self.period(modified);
        }
        Ok(open)
    }

    /// Renames the file, and removes the oldest ones before it.
    fn make_way(&self, now: Timestamp) -> io::Result<()> {
        let failed = |error| self.failed("rotate", error);
        let mut before = self.before().map_err(failed)?;
        // Behind the newest of them, also where the clock was set back.
        let first = before.last().map_or(i64::MIN, |newest| newest + 1);
        before.push(now.as_millisecond().max(first));
        let names = before.iter().rev().map(|time| self.name_at(*time));
        let mut names = names.collect::<io::Result<Vec<_>>>().map_err(failed)?.into_iter();
        if let Some(name) = names.next() {
            or_gone(fs::rename(&self.path, name)).map_err(failed)?;
        }
        for old in names.skip(self.rotate.keep.saturating_sub(1)) {
            or_gone(fs::remove_file(old)).map_err(failed)?;
        }
        self.sync_directory()
    }

    /// The times of the files before this one, in milliseconds since 1970, the oldest first.
    fn before(&self) -> io::Result<Vec<i64>> {
        let name = self.path.file_name().unwrap_or_default().as_bytes();
        let mut times = Vec::new();
        for entry in fs::read_dir(self.directory())? {
            let entry = entry?.file_name();
            let rest = entry.as_bytes().strip_prefix(name).and_then(|rest| rest.strip_prefix(b"."));
            if let Some(text) = rest.and_then(|rest| std::str::from_utf8(rest).ok())
                && let Ok(time) = text.parse::<Timestamp>()
                && time.strftime(TIME).to_string() == text
            {
                times.push(time.as_millisecond());
            }
        }
        times.sort_unstable();
        Ok(times)
    }

    fn name_at(&self, millis: i64) -> io::Result<PathBuf> {
        let time = Timestamp::from_millisecond(millis).map_err(io::Error::other)?;
        let mut path = self.path.clone().into_os_string();
        path.push(format!(".{}", time.strftime(TIME)));
        Ok(path.into())
    }

    fn directory(&self) -> &Path {
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        parent.unwrap_or(Path::new("."))
    }

    fn period(&self, time: Timestamp) -> i64 {
        let age = i64::try_from(self.rotate.age.as_millis()).unwrap_or(i64::MAX);
        time.as_millisecond().div_euclid(age.max(1))
    }

    /// Waits until the disk has what is written; nothing counts that it may not have.
    fn synced(&self, open: &Open, written: &mut usize) -> io::Result<()> {
        let nobodys = || io::Error::other("it was removed meanwhile");
        let synced = open.file.sync_data().and_then(|()| open.file.metadata());
        let named = synced.and_then(|all| if all.nlink() > 0 { Ok(()) } else { Err(nobodys()) });
        named.map_err(|error| {
            *written = 0;
            self.failed("write to", error)
        })
    }

    /// Waits until the disk has the names of the files.
    fn sync_directory(&self) -> io::Result<()> {
        let synced = File::open(self.directory()).and_then(|directory| directory.sync_all());
        synced.map_err(|error| self.failed("sync the directory of", error))
    }

    fn failed(&self, what: &str, error: io::Error) -> io::Error {
        let words = format!("cannot {what} {}: {error}", self.path.display());
        io::Error::new(error.kind(), words)
    }
}

impl Open {
    /// How many bytes of the lines fit: whole lines up to the size of a file, and at least one of an empty file.
    fn fits(&self, lines: &[u8], size: u64) -> usize {
        let room = usize::try_from(size.saturating_sub(self.length)).unwrap_or(usize::MAX);
        let end = memchr::memrchr(b'\n', &lines[..room.min(lines.len())]);
        let end = end.or_else(|| memchr::memchr(b'\n', lines).filter(|_| self.length == 0));
        end.map_or(0, |at| at + 1)
    }

    /// Writes lines, and leaves no half of one.
    fn write(&mut self, lines: &[u8], written: &mut usize) -> io::Result<()> {
        let mut rest = lines;
        while !rest.is_empty() {
            let result = match self.file.write(rest) {
                Ok(0) => Err(ErrorKind::WriteZero.into()),
                result => result,
            };
            match result {
                Ok(more) => {
                    rest = &rest[more..];
                    *written += more;
                    self.length += more as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    // Should it fail, the half is cut away at the next attempt.
                    let _ = cut(&self.file);
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

/// Cuts away what stands behind the last line feed, as a crash or a full disk leaves it, and says how long the file is.
fn cut(file: &File) -> io::Result<u64> {
    let length = file.metadata()?.len();
    let (mut whole, mut first, mut chunk) = (length, None, [0; 8192]);
    while whole > 0 {
        let start = whole.saturating_sub(chunk.len() as u64);
        let chunk = &mut chunk[..(whole - start) as usize];
        file.read_exact_at(chunk, start)?;
        let end = memchr::memrchr(b'\n', chunk).map_or(0, |at| at + 1);
        first = chunk.get(end).copied().or(first);
        whole = start + end as u64;
        if end > 0 {
            break;
        }
        if length - whole > MOST_LINE_BYTES {
            return Err(unusable("it is not a file of lines"));
        }
    }
    match first {
        None => return Ok(length),
        // A crash of the machine may leave zeros.
        Some(b'{' | 0) => {}
        Some(_) => return Err(unusable("its last line is not JSON, so it may be another's")),
    }
    file.set_len(whole)?;
    Ok(whole)
}

/// Somebody else may have moved the file meanwhile.
fn or_gone(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

/// Of a file that is not for us.
fn unusable(words: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, words)
}

#[cfg(test)]
mod tests;
