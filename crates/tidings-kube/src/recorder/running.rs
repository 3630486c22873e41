//! What a start gives back: the handle of a task that reads events.

use std::sync::Arc;

use tokio::sync::watch;

use super::report::{SinkCounts, Tally};
use crate::broadcaster::Stopper;

/// A sink, handler or log that is at work. Dropping it changes nothing.
#[derive(Clone, Debug)]
pub struct Running {
    stopper: Stopper,
    tally: Arc<Tally>,
    /// Its sender goes with the task.
    done: watch::Receiver<()>,
}

impl Running {
    /// A handle, and what the task has to keep until its end.
    pub(super) fn new(stopper: Stopper) -> (Self, watch::Sender<()>) {
        let (sender, done) = watch::channel(());
        (Self { stopper, tally: Arc::default(), done }, sender)
    }

    pub(super) fn tally(&self) -> Arc<Tally> {
        Arc::clone(&self.tally)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.done.has_changed().is_err()
    }

    /// Takes no new events: what is in its queue is still worked on, then the task ends. What was
    /// recorded just before may not have come to its queue yet, and does not any more; whoever wants
    /// it there waits for [`EventBroadcaster::flush`](super::EventBroadcaster::flush) first. From
    /// any thread, and without waiting. client-go's `Stop` of the watch that a start returns, where
    /// what is on its way comes to the queue or not, by chance.
    pub fn stop(&self) {
        self.stopper.stop();
    }

    /// Waits until the task has ended, after [`stop`](Self::stop) or a shutdown.
    pub async fn ended(&self) {
        // Nothing is ever sent there, so this ends when the sender goes.
        let _ = self.done.clone().changed().await;
    }

    /// What became of the events so far. A handler or a log counts those that it was given as
    /// written.
    pub fn counts(&self) -> SinkCounts {
        self.tally.counts()
    }
}
