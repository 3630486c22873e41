//! The one way to stop: a tree of cancellation tokens, and a deadline for what is queued.
//!
//! ```text
//! bridge ─▶ over ─▶ draining          a token that is cancelled takes along what it points to
//!            │         ├──▶ draining of intake, of each sink
//!            └─────────┴──▶ over of each sink
//! ```
//!
//! | cancelled | intake and ingest | a sink | the checkpointer |
//! |---|---|---|---|
//! | draining | reads no more; a disk that takes nothing and a sink that blocks are not waited for | delivers what is queued; a receiver that fails is not waited for | |
//! | over: the deadline | waits for nothing | an attempt under way is given up | |
//! | bridge: all others have ended | | | saves for the last time |
//!
//! A bridge that is dropped cancels the whole tree at once.

use std::{pin::pin, time::Duration};

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// A sink may take so long to let go of its connections.
const CLOSE_WITHIN: Duration = Duration::from_secs(3);

/// Tells a part that it is to stop. Clones are the same part.
#[derive(Clone, Debug)]
pub(super) struct Stop {
    draining: CancellationToken,
    over: CancellationToken,
}

impl Stop {
    /// That of a whole, which is over at the latest when a token is cancelled.
    pub(super) fn under(token: &CancellationToken) -> Self {
        let over = token.child_token();
        Self { draining: over.child_token(), over }
    }

    /// That of a part, which stops with the whole, and may be stopped before.
    pub(super) fn part(&self) -> Self {
        Self { draining: self.draining.child_token(), over: self.over.child_token() }
    }

    /// Begins to drain, and waits for the end of what does. When that takes longer than `within`,
    /// nothing is waited for any longer, and it has to end by itself.
    pub(super) async fn drain<T>(&self, within: Duration, end: impl Future<Output = T>) -> T {
        self.draining.cancel();
        let mut end = pin!(end);
        tokio::select! {
            ended = &mut end => return ended,
            () = sleep(within) => self.over.cancel(),
        }
        end.await
    }

    /// Waits for tasks that end by themselves at the deadline; closing a sink may take a moment beyond
    /// it. Answers whether they have ended by then.
    pub(super) async fn ends_in_time(&self, ended: impl Future<Output = ()>) -> bool {
        tokio::select! {
            () = ended => true,
            () = async { self.over().await; sleep(CLOSE_WITHIN).await } => false,
        }
    }

    /// Whether nothing new is begun.
    pub(super) fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// Whether nothing is waited for.
    pub(super) fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Completes when nothing new is to be begun.
    pub(super) async fn draining(&self) {
        self.draining.cancelled().await;
    }

    /// Completes when nothing is to be waited for any longer.
    pub(super) async fn over(&self) {
        self.over.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    fn state(stop: &Stop) -> (bool, bool) {
        (stop.is_draining(), stop.is_over())
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_drains_alone_and_is_over_at_its_deadline() {
        let whole = Stop::under(&CancellationToken::new());
        let (one, other) = (whole.part(), whole.part());
        assert_eq!(one.drain(Duration::from_secs(1), ready(7)).await, 7);
        assert_eq!(state(&one), (true, false), "it ended in time");
        one.drain(Duration::from_secs(1), one.over()).await;
        assert_eq!(state(&one), (true, true));
        assert_eq!((state(&other), state(&whole)), ((false, false), (false, false)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_stops_with_the_whole() {
        let token = CancellationToken::new();
        let whole = Stop::under(&token);
        let (drained, part) = (whole.part(), whole.part());
        drained.drain(Duration::from_secs(60), ready(())).await;
        whole
            .drain(Duration::from_secs(1), async {
                assert_eq!(state(&part), (true, false));
                drained.over().await;
            })
            .await;
        assert_eq!(state(&part), (true, true));
    }

    #[test]
    fn all_is_over_when_the_token_above_is_dropped_with_its_guard() {
        let token = CancellationToken::new();
        let whole = Stop::under(&token);
        let part = whole.part();
        drop(token.drop_guard());
        assert_eq!((state(&whole), state(&part)), ((true, true), (true, true)));
        assert_eq!(state(&whole.part()), (true, true), "one that begins later, too");
    }
}
