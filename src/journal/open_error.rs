//! Why a journal cannot be opened, and how to mend that by the configuration's keys.

use std::{
    borrow::Cow,
    io,
    path::{Path, PathBuf},
};

use tidings_log::OpenError as LogError;

const NEWER: &str = "run the newer version again, or point journal.path to another directory";

/// Why a journal cannot be opened. Damage is a reason only for one that is opened as it is.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory, or the log in it.
    #[error("{0}\nhint: {hint}", hint = hint_of(.0))]
    Log(LogError),
    /// The state cannot be read, though it is there and may be. It is not known to be damaged.
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
    /// The state is damaged, and is not to be set aside.
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
    /// A later version wrote the state.
    #[error("{} is of journal format {found}, and this build reads up to {newest}\nhint: {NEWER}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version it states.
        found: u64,
        /// The newest that can be read.
        newest: u64,
    },
}

impl From<LogError> for OpenError {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

impl OpenError {
    /// Makes an error of the operating system's answer about a path.
    pub(super) fn access(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        |source| LogError::access(path)(source).into()
    }
}

/// How to mend a directory or a log that cannot be opened.
pub(super) fn hint_of(error: &LogError) -> Cow<'static, str> {
    match error {
        LogError::Create { .. } => {
            "create it for the user that runs tidings, or point journal.path to where that user may \
             write"
        }
        LogError::Dangling { .. } => {
            "create that directory for the user that runs tidings, mount what belongs there, or point \
             journal.path to another one"
        }
        LogError::WritableByAll { path, mode, ours } => return mend(path, *mode, *ours).into(),
        LogError::Access { .. } => {
            "the user that runs tidings must be able to read and write the journal directory and every \
             file in it; mend its owner and mode, or point journal.path to another directory"
        }
        LogError::NotALock { .. } => "move it away",
        LogError::Held { .. } => {
            "stop the other tidings, or give each one a journal.path of its own"
        }
        LogError::Newer { .. } => NEWER,
    }
    .into()
}

/// How to mend a directory that everybody may write to.
fn mend(path: &Path, mode: u32, ours: bool) -> String {
    let path = path.display();
    // A directory for everybody's files stays one.
    if mode & 0o1000 != 0 {
        return format!("mkdir -m 0700 '{path}/tidings', and point journal.path there");
    }
    let way = if ours { "0700" } else { "o-w" };
    format!(
        "chmod {way} '{path}', when you know that all that is in it is the journal's own; or point \
         journal.path to a directory that is not there yet: it is made for this user alone"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_everybody_may_write_to_is_mended_by_what_it_is() {
        let hint = |mode, ours| {
            hint_of(&LogError::WritableByAll { path: "/tmp".into(), mode, ours }).into_owned()
        };
        assert!(hint(0o777, true).starts_with("chmod 0700 '/tmp'"));
        assert!(hint(0o777, false).starts_with("chmod o-w '/tmp'"));
        assert!(hint(0o1777, true).starts_with("mkdir -m 0700 '/tmp/tidings'"));
    }
}
