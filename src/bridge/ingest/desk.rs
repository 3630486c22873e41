//! Where the keeper leaves what it wants of ingest.
//!
//! Not in the channel of messages: that is full while ingest stands still, and the keeper has to go
//! on saving what is delivered meanwhile.

use std::sync::{Mutex, OnceLock};

use tidings_log::{SyncDone, SyncJob};
use tokio::sync::oneshot;

use crate::bridge::shared::lock;

/// See the [module](self). Ingest looks at it with each message, and while it waits.
#[derive(Debug, Default)]
pub(in crate::bridge) struct Desk {
    left: Mutex<Left>,
    /// Ingest has ended; with everything synced, or not.
    ended: OnceLock<bool>,
}

/// What was left there.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// The keeper wants to sync the log.
    pub(super) wanted: Option<oneshot::Sender<Option<SyncJob>>>,
    /// And has.
    pub(super) done: Option<SyncDone>,
}

impl Desk {
    /// Asks for a sync. A question that was not answered is asked no longer.
    pub(in crate::bridge) fn ask(&self) -> oneshot::Receiver<Option<SyncJob>> {
        let (job, begun) = oneshot::channel();
        lock(&self.left).wanted = Some(job);
        begun
    }

    /// Says what came of it.
    pub(in crate::bridge) fn report(&self, done: SyncDone) {
        lock(&self.left).done = Some(done);
    }

    /// Whether ingest left everything synced; nothing before it has ended.
    pub(in crate::bridge) fn ended(&self) -> Option<bool> {
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
