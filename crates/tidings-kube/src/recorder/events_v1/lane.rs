//! The order of the writes of one series.

use std::{pin::Pin, sync::Arc};

use futures_util::FutureExt as _;
use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    task::unconstrained,
};

/// One write of a series at a time, in the order in which they were decided.
///
/// client-go holds the lock of all its series over some of the calls and none over the others.
#[derive(Clone, Debug, Default)]
pub(super) struct Lane(Arc<Mutex<()>>);

/// A place in a lane's queue; dropping it gives it up.
pub(super) enum Turn {
    /// The lane was free.
    Come(OwnedMutexGuard<()>),
    /// Others are before.
    Queued(Pin<Box<dyn Future<Output = OwnedMutexGuard<()>> + Send>>),
}

impl Lane {
    /// Queues up at once, not only when the turn is awaited.
    pub(super) fn queue(&self) -> Turn {
        // Tokio's mutex serves those who wait in the order of their first poll, which is here.
        // Unconstrained, because a task whose budget is used up would not be queued.
        let mut turn = Box::pin(unconstrained(Arc::clone(&self.0).lock_owned()));
        match turn.as_mut().now_or_never() {
            Some(guard) => Turn::Come(guard),
            None => Turn::Queued(turn),
        }
    }
}

impl Turn {
    /// Waits until it is this one's turn, which lasts until the guard is dropped.
    pub(super) async fn come(self) -> OwnedMutexGuard<()> {
        match self {
            Self::Come(guard) => guard,
            Self::Queued(turn) => turn.await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn turns_come_in_the_order_of_queueing_and_a_dropped_one_is_skipped() {
        let lane = Lane::default();
        let (first, second, third) = (lane.queue(), lane.queue(), lane.queue());
        let guard = first.come().await;
        drop(second);
        let mut third = Box::pin(third.come());
        assert!(third.as_mut().now_or_never().is_none(), "one at a time");
        drop(guard);
        let _guard = third.await;
        assert!(matches!(lane.queue(), Turn::Queued(_)));
    }
}
