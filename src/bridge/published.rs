//! What ingest hands to the watchers of the sinks.

use std::sync::Arc;

use tidings_log::Frame;

use super::correlation::Names;

/// A frame that is in the journal, and what is known of its records while they are in memory.
#[derive(Clone, Debug)]
pub(super) struct Published {
    /// The frame.
    pub(super) frame: Arc<Frame>,
    /// Under which keys each of its records is correlated, made once for all sinks while the Event
    /// was decoded. `None` for what comes from the log: then each sink decodes it for itself.
    pub(super) names: Option<Arc<[Names]>>,
}

impl Published {
    /// The bytes that it keeps in memory.
    pub(super) fn bytes(&self) -> usize {
        let names = self.names.as_ref().map_or(0, |names| size_of_val(&**names));
        self.frame.bytes() + names
    }

    /// The keys of a record of the frame.
    pub(super) fn names(&self, seq: u64) -> Option<&Names> {
        let index = usize::try_from(seq.checked_sub(self.frame.first)?).ok()?;
        self.names.as_ref()?.get(index)
    }
}

impl From<Arc<Frame>> for Published {
    fn from(frame: Arc<Frame>) -> Self {
        Self { frame, names: None }
    }
}
