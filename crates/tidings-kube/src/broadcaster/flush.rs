//! How a flush learns that everybody is done: a mark goes through the queues behind the items, and
//! when nobody holds it any more, everybody has come to it.

use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard, oneshot};

/// The right to flush. A broadcaster has one, so that no queue holds more than one mark, however
/// often somebody asks whose wait is cut short.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns(Arc<Mutex<()>>);

impl Turns {
    /// A mark, when the one before it has gone everywhere, and what ends when this one has.
    pub(super) async fn mark(&self) -> (Mark, Passed) {
        let turn = Arc::clone(&self.0).lock_owned().await;
        let (gone, passed) = oneshot::channel();
        (Mark { _turn: Arc::new((turn, gone)) }, Passed(passed))
    }
}

/// Only its end says something.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    _turn: Arc<(OwnedMutexGuard<()>, oneshot::Sender<()>)>,
}

/// The end of a mark and all its clones.
#[derive(Debug)]
pub(super) struct Passed(oneshot::Receiver<()>);

impl Passed {
    pub(super) async fn wait(self) {
        // Nothing is ever sent there, so this ends when the sender goes.
        let _ = self.0.await;
    }
}
