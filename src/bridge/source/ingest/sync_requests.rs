//! Where the checkpointer leaves what it wants of ingest.
//!
//! Not in the channel of messages: that is full while ingest stands still, and the checkpointer has to go
//! on saving what is delivered meanwhile.

use std::sync::{Mutex, OnceLock};

use tokio::sync::oneshot;

use crate::{
    bridge::shared::lock,
    journal::{SyncDone, SyncJob},
};

/// See the [module](self). Ingest looks at it with each message, and while it waits.
#[derive(Debug, Default)]
pub(crate) struct SyncRequests {
    left: Mutex<Left>,
    /// Ingest has ended; with everything synced, or not.
    ended: OnceLock<bool>,
}

/// The entries that were left there.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// The checkpointer wants to sync the log.
    pub(super) wanted: Option<oneshot::Sender<Option<SyncJob>>>,
    /// And has.
    pub(super) done: Option<SyncDone>,
}

impl SyncRequests {
    /// Asks for a sync. A question that was not answered is asked no longer.
    pub(crate) fn ask(&self) -> oneshot::Receiver<Option<SyncJob>> {
        let (job, begun) = oneshot::channel();
        lock(&self.left).wanted = Some(job);
        begun
    }

    pub(crate) fn report(&self, done: SyncDone) {
        lock(&self.left).done = Some(done);
    }

    /// Whether ingest left everything synced; nothing before it has ended.
    pub(crate) fn ended(&self) -> Option<bool> {
        self.ended.get().copied()
    }

    pub(super) fn end(&self, synced: bool) {
        // It ends once.
        let _ = self.ended.set(synced);
    }

    pub(super) fn take(&self) -> Left {
        std::mem::take(&mut lock(&self.left))
    }
}
