//! The broadcaster: one incoming queue, one loop, a queue for each watcher.
//!
//! ```text
//! publish ─────────▶ ┌──────────────┐        ┌─▶ queue ─▶ Watcher::next
//! publish_or_drop ─▶ │incoming queue│ ─ loop ─┼─▶ queue ─▶ Watcher::next
//! watch ───────────▶ └──────────────┘        └─▶ queue ─▶ Watcher::next
//! ```
//!
//! It is apimachinery's `watch.Broadcaster`, which the event recorders of client-go send through.
//! Items go through one queue in one order, the loop hands each to every watcher, and a registration
//! is itself a message of that queue, so that a watcher sees exactly the items that come after it.
//! [Shutdown](Broadcaster::shutdown) hands out what is queued and closes every watcher.
//!
//! ```
//! use tidings_kube::broadcaster::{Broadcaster, FullChannel, NotSent};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! // As the event recorder has it: a slow watcher loses items, and nobody ever waits.
//! let broadcaster = Broadcaster::new(1000, FullChannel::Drop { queue: 2 });
//! let mut watcher = broadcaster.watch().await.unwrap();
//! for item in ["pulled", "created", "started"] {
//!     broadcaster.publish_or_drop(item).unwrap();
//! }
//! broadcaster.shutdown().await;
//!
//! assert_eq!(watcher.next().await, Some("pulled"));
//! assert_eq!(watcher.next().await, Some("created"));
//! assert_eq!((watcher.next().await, watcher.dropped()), (None, 1));
//! assert_eq!(broadcaster.publish_or_drop("killed"), Err(NotSent::Stopped("killed")));
//! # });
//! ```
//!
//! [`flush`](Broadcaster::flush) waits until every watcher has done with what is queued.
//!
//! # When something is full
//!
//! Nothing grows without bound, so there are two places where items meet a full queue, and each
//! counts what it drops.
//!
//! - The *incoming queue*, when the loop does not keep up. The publisher chooses: it
//!   [waits](Broadcaster::publish), or it [drops](Broadcaster::publish_or_drop) the item, which
//!   [`Broadcaster::dropped`] counts.
//! - A *watcher's queue*, when it is not read fast enough. The broadcaster's [`FullChannel`] says
//!   what then: the watcher loses the item ([`Watcher::dropped`] counts it), the loop waits, or the
//!   watcher is spilled.
//!
//! *Spill* is beyond client-go, and for items that stand in a log as well. A watcher that falls
//! behind has its queue closed behind the last item that fitted; it reads the log from there, and
//! registers again when it has caught up. So the loop never waits and nothing is lost, and the
//! live path never touches the disk.
//!
//! # Where it is better than client-go
//!
//! The order of items, the lengths of the queues, what a full one keeps and what shutdown hands out
//! are client-go's. These are not:
//!
//! - A watcher's [stop](Stopper::stop) never waits, not for the loop and not for a blocked
//!   publisher; and `publish_or_drop` never waits for a blocked publisher.
//! - A publisher that waits for room when shutdown comes is told [`Stopped`], where client-go makes
//!   shutdown wait behind it. An item that was accepted (`Ok`) is always handed out.
//! - Lost items are counted, at both places.
//! - [`flush`](Broadcaster::flush) tells when everybody has done with what was published.

mod distribute;
mod flush;
mod full_channel;
mod mux;
mod queue;
#[cfg(test)]
mod tests;
mod watcher;

pub use full_channel::FullChannel;
pub use mux::{Broadcaster, INCOMING_QUEUE_LENGTH, NotSent, Stopped};
pub use watcher::{Empty, Stopper, Watcher};
