//! How to mend what keeps a journal from being written, by the configuration's keys.

use std::io;

use tidings_log::AppendError;

use super::open_error::hint_of;

/// A failed append, and how to mend that.
pub(crate) fn append_failed(error: &AppendError) -> String {
    match error {
        AppendError::Disk { source, .. } => format!("{error}\nhint: {}", disk_hint(source)),
        AppendError::TooLarge { .. } => error.to_string(),
    }
}

/// The error of a journal whose files cannot be put in their place again, with its hint, in one line.
pub(crate) fn not_in_place(error: &io::Error) -> String {
    let refused = error.get_ref().and_then(|inner| inner.downcast_ref::<tidings_log::OpenError>());
    refused.map_or_else(
        || error.to_string(),
        |refused| format!("{refused}; hint: {}", hint_of(refused)),
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
        let held = tidings_log::OpenError::Held { path: "/journal".into() };
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
}
