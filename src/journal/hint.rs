//! How to mend what keeps a journal from being opened or written, by the configuration's keys.

use std::{borrow::Cow, io, path::Path};

use tidings_log::{AppendError, OpenError};

/// How to mend a journal that cannot be opened.
pub(crate) fn open_hint(error: &OpenError) -> Cow<'static, str> {
    match error {
        OpenError::Create { .. } => {
            "create it for the user that runs tidings, or point journal.path to where that user may \
             write"
        }
        OpenError::Dangling { .. } => {
            "create that directory for the user that runs tidings, mount what belongs there, or point \
             journal.path to another one"
        }
        OpenError::WritableByAll { path, mode, ours } => return mend(path, *mode, *ours).into(),
        OpenError::Unread { .. } => {
            "the file was left as it is, as it may be whole: see to its disk, which the kernel's log \
             may say more of, and start again. Only if it can never be read again, move it away: the \
             bridge then goes on without what is in it"
        }
        OpenError::Access { .. } => {
            "the user that runs tidings must be able to read and write the journal directory and every \
             file in it; mend its owner and mode, or point journal.path to another directory"
        }
        OpenError::NotALock { .. } => "move it away",
        OpenError::Held { .. } => {
            "stop the other tidings, or give each one a journal.path of its own"
        }
        OpenError::Damaged { .. } => {
            "the next start of the bridge sets it aside, says what that may have cost, and goes on"
        }
        OpenError::Newer { .. } => {
            "run the newer version again, or point journal.path to another directory"
        }
    }
    .into()
}

/// A failed append, and how to mend that.
pub(crate) fn append_failed(error: &AppendError) -> String {
    match error {
        AppendError::Disk { source, .. } => format!("{error}\nhint: {}", disk_hint(source)),
        AppendError::TooLarge { .. } => error.to_string(),
    }
}

/// Files of the journal that cannot be put in their place again, and how to mend that, in one line.
pub(crate) fn not_in_place(error: &io::Error) -> String {
    let refused = error.get_ref().and_then(|inner| inner.downcast_ref::<OpenError>());
    refused.map_or_else(
        || error.to_string(),
        |refused| format!("{refused}; hint: {}", open_hint(refused)),
    )
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

/// How to mend what the operating system answered.
pub(crate) fn disk_hint(error: &io::Error) -> &'static str {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_that_another_process_took_is_named_with_the_way_out() {
        let held = OpenError::Held { path: "/journal".into() };
        let error = not_in_place(&io::Error::other(held));
        assert!(error.contains("held by another process; hint: stop the other"), "{error}");
        assert_eq!(not_in_place(&io::Error::other("gone")), "gone");
    }

    #[test]
    fn a_full_disk_is_named_with_the_way_out() {
        let source = io::ErrorKind::StorageFull.into();
        let error = append_failed(&AppendError::Disk { path: "/tmp/1.log".into(), source });
        assert!(error.starts_with("cannot write to the journal /tmp/1.log: "), "{error}");
        assert!(error.contains("\nhint: free some space"), "{error}");
    }

    #[test]
    fn a_directory_that_everybody_may_write_to_is_mended_by_what_it_is() {
        let hint = |mode, ours| {
            open_hint(&OpenError::WritableByAll { path: "/tmp".into(), mode, ours }).into_owned()
        };
        assert!(hint(0o777, true).starts_with("chmod 0700 '/tmp'"));
        assert!(hint(0o777, false).starts_with("chmod o-w '/tmp'"));
        assert!(hint(0o1777, true).starts_with("mkdir -m 0700 '/tmp/tidings'"));
    }
}
