//! A file of lines that is rotated by size and age.

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
use serde::de::IgnoredAny;

use super::RotateOptions;
use crate::{
    bridge::{Failure, FailureClass, Secrets},
    sinks::lines::Written,
};

/// The time behind the name of a rotated file. Such names stand in the order of their times.
const TIME: &str = "%Y%m%dT%H%M%S.%3fZ";
/// The beginning of each line.
const BEGIN: &[u8; 2] = b"{\"";
/// The longest incomplete line, in bytes. A longer one is another program's.
const MOST_LINE_BYTES: u64 = 64 << 20;
/// How far ahead of the clock the name of a rotated file may be, in milliseconds: the clock may have been set back.
const MOST_AHEAD_MS: i64 = 86_400_000;
/// How often the file is opened if others move it before it is locked.
const OPENED_AT_MOST: usize = 8;

/// A file of lines, and the rotated ones: `events.ndjson`, `events.ndjson.20261128T000000.123Z`.
#[derive(Debug)]
pub(super) struct RotatingFile {
    path: PathBuf,
    rotate: RotateOptions,
    open: Option<Open>,
}

/// The file that is written.
#[derive(Debug)]
struct Open {
    file: File,
    /// Its length in bytes, which the disk has.
    length: u64,
    /// The period of its last line.
    period: i64,
}

impl RotatingFile {
    pub(super) fn new(path: PathBuf, rotate: RotateOptions) -> Self {
        Self { path, rotate, open: None }
    }

    /// Writes lines, and waits until the disk has them. Lines that it may not have do not count, and are taken back.
    pub(super) fn write(&mut self, lines: &[u8], now: Timestamp) -> Written {
        let mut written = 0;
        let result = self.append(lines, now, &mut written);
        if result.is_err() {
            self.open = None;
        }
        (written, result)
    }

    fn append(&mut self, lines: &[u8], now: Timestamp, written: &mut usize) -> Result<(), Failure> {
        let period = self.period(now);
        if let Some(open) = self.open.take() {
            self.open = self.if_current(open)?;
        }
        while *written < lines.len() {
            let mut open = match self.open.take() {
                Some(open) => open,
                None => self.opened(period)?,
            };
            let lines = &lines[*written..];
            let fits = open.fits(lines, self.rotate.size);
            if open.length > 0 && (fits == 0 || open.period < period) {
                self.rotate(now)?;
                continue;
            }
            open.write(&lines[..fits]).map_err(|error| self.failed("write", &error))?;
            *written += fits;
            open.period = period;
            self.open = Some(open);
        }
        Ok(())
    }

    /// The file, if it is still the one of its name, and as it was left.
    fn if_current(&self, open: Open) -> Result<Option<Open>, Failure> {
        let named = match fs::symlink_metadata(&self.path) {
            Ok(named) => named,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed("examine", &error)),
        };
        let metadata = open.file.metadata().map_err(|error| self.failed("examine", &error))?;
        let is_current = (metadata.dev(), metadata.ino()) == (named.dev(), named.ino());
        Ok((is_current && metadata.len() == open.length).then_some(open))
    }

    /// Opens the file, or makes it, and repairs its end.
    fn opened(&self, period: i64) -> Result<Open, Failure> {
        let failed = |error| self.failed("open", &error);
        DirBuilder::new().recursive(true).create(self.directory()).map_err(failed)?;
        let mut open = self.locked()?;
        let metadata = open.file.metadata().map_err(failed)?;
        open.length = repaired(&open.file).map_err(failed)?;
        if open.length < metadata.len() {
            let (path, bytes) = (self.path.display(), metadata.len() - open.length);
            tracing::warn!(%path, bytes, "the end of a file is cut: an incomplete line");
        }
        if open.length == 0 {
            let synced = File::open(self.directory()).and_then(|directory| directory.sync_all());
            synced.map_err(|error| self.failed("sync the directory of", &error))?;
        }
        let modified = metadata.modified().ok().and_then(|time| Timestamp::try_from(time).ok());
        open.period = modified.filter(|_| open.length > 0).map_or(period, |time| self.period(time));
        Ok(open)
    }

    /// Opens the file and locks it. It has to be the one of its name then: others may rotate or move it meanwhile.
    fn locked(&self) -> Result<Open, Failure> {
        let failed = |error| self.failed("open", &error);
        // A link is refused, as a rename would move it instead of the file. A pipe is not waited for.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o640).custom_flags(flags);
        for _ in 0..OPENED_AT_MOST {
            let file =
                options.open(&self.path).map_err(|error| match Errno::from_io_error(&error) {
                    Some(Errno::LOOP) => failed(unusable("expected a file, found a symbolic link")),
                    _ => failed(error),
                })?;
            let metadata = file.metadata().map_err(failed)?;
            if !metadata.is_file() {
                return Err(failed(unusable("expected a file, found something else")));
            }
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::Error(error)) => return Err(self.failed("lock", &error)),
                Err(TryLockError::WouldBlock) => {
                    return Err(self.unavailable("another sink or process writes it"));
                }
            }
            let open = Open { file, length: metadata.len(), period: 0 };
            if let Some(open) = self.if_current(open)? {
                return Ok(open);
            }
        }
        Err(self.unavailable("another program moves it again and again"))
    }

    /// Renames the file, and removes the oldest rotated ones.
    fn rotate(&self, now: Timestamp) -> Result<(), Failure> {
        let failed = |error| self.failed("rotate", &error);
        let mut times = self.rotated(now).map_err(failed)?;
        // Behind the newest one, also where the clock was set back.
        let time = times.last().map_or(i64::MIN, |newest| newest + 1).max(now.as_millisecond());
        let name = self.rotated_name(time).map_err(failed)?;
        match fs::rename(&self.path, name) {
            // Another program has moved it.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            result => result.map_err(failed)?,
        }
        times.push(time);
        for old in times.iter().rev().skip(self.rotate.keep) {
            let old = self.rotated_name(*old).map_err(failed)?;
            if let Err(error) = fs::remove_file(&old) {
                let path = old.display();
                tracing::warn!(%path, %error, "a rotated file cannot be removed");
            }
        }
        Ok(())
    }

    /// The times in the names of the rotated files, in milliseconds since 1970, the oldest first.
    fn rotated(&self, now: Timestamp) -> io::Result<Vec<i64>> {
        let name = self.path.file_name().unwrap_or_default().as_bytes();
        let last = now.as_millisecond().saturating_add(MOST_AHEAD_MS);
        let mut times = Vec::new();
        for entry in fs::read_dir(self.directory())? {
            let entry = entry?;
            let found = entry.file_name();
            let rest = found.as_bytes().strip_prefix(name).and_then(|rest| rest.strip_prefix(b"."));
            if let Some(text) = rest.and_then(|rest| std::str::from_utf8(rest).ok())
                && let Ok(time) = text.parse::<Timestamp>()
                && time.strftime(TIME).to_string() == text
                && time.as_millisecond() <= last
                && entry.file_type()?.is_file()
            {
                times.push(time.as_millisecond());
            }
        }
        times.sort_unstable();
        Ok(times)
    }

    fn rotated_name(&self, millis: i64) -> io::Result<PathBuf> {
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

    fn failed(&self, what: &str, error: &io::Error) -> Failure {
        use ErrorKind::{
            AlreadyExists, InvalidFilename, InvalidInput, IsADirectory, NotADirectory, NotFound,
            PermissionDenied, ReadOnlyFilesystem, ResourceBusy, Unsupported,
        };
        let class = match error.kind() {
            AlreadyExists | InvalidFilename | InvalidInput | IsADirectory | NotADirectory
            | NotFound | PermissionDenied | ReadOnlyFilesystem | ResourceBusy | Unsupported => {
                FailureClass::Misconfigured
            }
            _ => FailureClass::Unavailable,
        };
        let reason = format!("cannot {what} {}: {error}", self.path.display());
        Failure::new(class, Secrets::none().reason(reason))
    }

    /// The failure of a file that others hold or move, which may end by itself.
    fn unavailable(&self, words: &str) -> Failure {
        let reason = format!("cannot write {}: {words}", self.path.display());
        Failure::new(FailureClass::Unavailable, Secrets::none().reason(reason))
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

    /// Writes lines, and waits until the disk has them, or takes them back.
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let written = self.file.write_all(lines).and_then(|()| self.file.sync_data());
        let metadata = written.and_then(|()| self.file.metadata());
        let result = metadata.and_then(|metadata| match metadata.nlink() {
            0 => Err(io::Error::other("another program removed it")),
            _ => Ok(()),
        });
        match result {
            Ok(()) => self.length += lines.len() as u64,
            // If that fails, too, the next attempt cuts an incomplete line, and whole lines repeat.
            Err(_) if self.file.metadata().is_ok_and(|metadata| metadata.len() > self.length) => {
                drop(self.file.set_len(self.length));
            }
            Err(_) => {}
        }
        result
    }
}

/// Cuts an incomplete line from the end of a file, as a crash or a full disk leaves it. The answer is the file's length.
///
/// A file that is not of lines of JSON objects is left as it is.
fn repaired(file: &File) -> io::Result<u64> {
    let foreign = || unusable("expected lines of JSON, found something else: name another file");
    let length = file.metadata()?.len();
    let (mut whole, mut chunk) = (length, [0; 8192]);
    while whole > 0 {
        let start = whole.saturating_sub(chunk.len() as u64);
        let chunk = &mut chunk[..(whole - start) as usize];
        file.read_exact_at(chunk, start)?;
        if let Some(at) = memchr::memrchr(b'\n', chunk) {
            whole = start + at as u64 + 1;
            break;
        }
        whole = start;
        if length - whole > MOST_LINE_BYTES {
            return Err(foreign());
        }
    }
    let mut start = *BEGIN;
    if whole > 0 {
        file.read_exact_at(&mut start, 0).map_err(|_| foreign())?;
    }
    let mut rest = vec![0; (length - whole) as usize];
    file.read_exact_at(&mut rest, whole)?;
    // A crash of the machine may leave zeros.
    let end = rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let rest = &rest[..end];
    if start != *BEGIN || !BEGIN.starts_with(&rest[..end.min(BEGIN.len())]) {
        return Err(foreign());
    }
    match serde_json::from_slice::<IgnoredAny>(rest) {
        _ if whole == length => Ok(length),
        // It may be another's, and whole.
        Ok(_) => {
            file.set_len(whole + end as u64)?;
            (&*file).write_all(b"\n")?;
            Ok(whole + end as u64 + 1)
        }
        Err(error) if error.is_eof() => {
            file.set_len(whole)?;
            Ok(whole)
        }
        Err(_) => Err(foreign()),
    }
}

/// The error of a file that is not for us.
fn unusable(words: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, words)
}

#[cfg(test)]
mod tests;
