//! Reading the journal at the start: what the disk does not give is tried again, and the frames of the
//! log come one after the other, as views are brought up to the log by them.

use std::{thread, time::Duration};

use crate::journal::{Frame, LogHandle, OpenError};

/// How much of the log is read at once, in bytes.
const READ_BYTES: usize = 1 << 20;

/// A file that cannot be read is read so often in all before the start gives up, this far apart.
const READS: u32 = 5;
const READ_AGAIN: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 200 });

/// Reads a file of the journal, again if the disk does not give it: one that fails once may not fail
/// twice. Blocks meanwhile.
pub(super) fn read_again<T>(
    mut read: impl FnMut() -> Result<T, OpenError>,
) -> Result<T, OpenError> {
    for _ in 1..READS {
        match read() {
            Err(OpenError::Unread { path, source }) => {
                tracing::warn!(file = %path.display(), error = %source, "the journal could not be read: trying again");
                thread::sleep(READ_AGAIN);
            }
            done => return done,
        }
    }
    read()
}

/// Reads the log from a sequence on, until the end or until `take` answers that it has enough.
pub(super) fn for_each_frame(
    log: &LogHandle,
    from: u64,
    mut take: impl FnMut(&Frame) -> bool,
) -> Result<(), OpenError> {
    let mut reader = log.reader(from);
    loop {
        let frames = read_again(|| {
            let file = reader.file().unwrap_or_default();
            reader.read(READ_BYTES).map_err(OpenError::unread(&file))
        })?;
        if frames.is_empty() || !frames.iter().all(|frame| take(frame)) {
            return Ok(());
        }
    }
}
