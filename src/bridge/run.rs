//! The bridge put together: journal, sources, sinks, and the checkpointer that saves what they reach.

mod handle;
mod sink;
mod start;

use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::DropGuard;

use super::{
    BridgeError, BridgeView,
    control::Control,
    error::SAVED_WITHIN,
    published::Published,
    stop::Stop,
    tasks::{Failing, Task, Tasks, first_failure},
};
use crate::watch::Broadcaster;
pub use handle::{SinkHandle, SinkHandleError};

/// A running bridge. It goes on until [`stop`](Self::stop); dropping it ends it as a crash would.
pub struct Bridge {
    view: BridgeView,
    stop: Stop,
    broadcaster: Broadcaster<Published>,
    running: Running,
    control: Control,
    handles: Vec<SinkHandle>,
    /// Ends the checkpointer and whatever has not ended before it: a thread that waits for a disk would keep
    /// the runtime from ending.
    ended: DropGuard,
}

/// The tasks of a running bridge.
struct Running {
    intake: Task,
    sinks: Tasks,
    /// Those beside the way of an event, which end with the bridge.
    aside: Tasks,
    checkpointer: Task,
}

impl Bridge {
    /// The view of the running bridge.
    pub fn view(&self) -> BridgeView {
        self.view.clone()
    }

    /// The control of the running bridge.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// By what one sink is stopped and started alone; nothing if there is none of that name.
    pub fn sink(&self, name: &str) -> Option<SinkHandle> {
        self.handles.iter().find(|handle| handle.name() == name).cloned()
    }

    /// Completes when the bridge cannot go on by itself, with what caused it;
    /// [`stop`](Self::stop) is still due then.
    pub async fn failed(&mut self) -> BridgeError {
        first_failure(&mut self.running).await
    }

    /// Stops reading, delivers what has been read until `deadline` has passed, and saves. A sink
    /// that fails is not waited for; what it has not had is pending in the journal.
    ///
    /// # Errors
    ///
    /// A task panicked on the way, or the disk did not answer in the end. The rest was stopped in
    /// order all the same.
    pub async fn stop(self, deadline: Duration) -> Result<(), BridgeError> {
        let Self { stop, broadcaster, running, ended, .. } = self;
        let Running { mut intake, mut sinks, mut aside, mut checkpointer } = running;
        let mut fault = None;
        let in_order = async {
            let read = tokio::select! {
                read = intake.ended() => read,
                // The disk takes nothing. What is not in the journal is with the API server.
                () = stop.over() => {
                    intake.abort();
                    Ok(())
                }
            };
            let delivered = async {
                // Intake has done so, unless it ended before its time.
                broadcaster.shutdown().await;
                sinks.all_ended(&mut fault).await;
            };
            if !stop.ends_in_time(delivered).await {
                tracing::warn!(waiting_for = ?sinks.names(), "a sink could not be closed in time");
            }
            read
        };
        let read = stop.drain(deadline, in_order).await;
        aside.shutdown(&mut fault).await;
        drop(ended);
        let saved = timeout(SAVED_WITHIN, checkpointer.ended()).await;
        read?;
        fault.map_or(Ok(()), Err)?;
        saved.unwrap_or(Err(BridgeError::NotSaved))
    }
}

impl Failing for Running {
    async fn next_failure(&mut self) -> BridgeError {
        tokio::select! {
            error = self.intake.next_failure() => error,
            error = self.checkpointer.next_failure() => error,
            error = self.sinks.next_failure() => error,
            error = self.aside.next_failure() => error,
        }
    }
}
