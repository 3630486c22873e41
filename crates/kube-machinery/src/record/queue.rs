//! The queue of a sink, handler or log, one event after the other.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt as _;
use k8s_openapi::api::core::v1::Event;

use super::{
    report::{Fate, Tally},
    stage::Stage,
};
use crate::watch::Watcher;

/// A sink, handler or log that takes the events of a queue.
pub(super) trait Takes: Send {
    /// The type that is named where it panics.
    fn name() -> &'static str;

    /// Takes one event.
    fn take(&mut self, event: &Event) -> impl Future<Output = Fate> + Send;
}

/// Has each event taken until the queue ends, or the time of a shutdown is up. Then what is left in the queue is
/// counted as not written, and the answer says how much that is. A panic costs the event that is in hand.
pub(super) async fn take_each<T: Takes>(
    mut events: Watcher<Arc<Event>>,
    mut stage: Stage,
    tally: &Tally,
    taker: &mut T,
) -> Option<u64> {
    loop {
        let event = tokio::select! {
            biased;
            () = stage.time_is_up() => break,
            event = events.next() => event,
        };
        tally.set_dropped(events.dropped());
        let event = event?;
        let taken = tokio::select! {
            biased;
            () = stage.time_is_up() => Ok(Fate::NotWritten),
            taken = AssertUnwindSafe(taker.take(&event)).catch_unwind() => taken,
        };
        match taken {
            Ok(fate) => tally.add(fate),
            Err(panic) => tally.add_panic(T::name(), &*panic),
        }
    }
    // Who sets a time closes the queue, so this ends.
    let mut left = 0;
    while events.next().await.is_some() {
        tally.add(Fate::NotWritten);
        left += 1;
    }
    tally.set_dropped(events.dropped());
    Some(left)
}
