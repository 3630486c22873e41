//! The work queue: keys of what is to be looked at, and workers that look.
//!
//! ```text
//!  add ─────────────────▶ ┌───────────────────┐ get   ┌────────┐
//!  add_after ─▶ waiting ─▶│ queue, in order   │──────▶│ worker │─ dropping the Item: done
//!  add_rate_limited ─▲    └───────────────────┘       └────────┘
//!                    │              ▲ added again meanwhile │ │
//!                    │              └───────────────────────┘ │
//!                    └────────────── it failed ───────────────┘
//! ```
//!
//! It is client-go's `util/workqueue`. What goes through it is not what has happened but what it has
//! happened to: a key, such as `namespace/name`. So a thousand changes of one object that nobody had
//! time to look at are one item, and a worker reads the object as it is by then.
//!
//! - An item that is queued already is not queued again.
//! - An item is with one worker at most. Added while it is there, it is queued when that worker has
//!   done with it, so the last change is never missed.
//! - Otherwise items come out in the order in which they went in; of a queue with lanes
//!   ([`WorkQueue::with_lanes`]), lane by lane in turn.
//!
//! ```
//! use tidings_kube::workqueue::WorkQueue;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let queue = WorkQueue::new();
//! for key in ["default/web", "default/db", "default/web"] {
//!     queue.add(key);
//! }
//! queue.shut_down();
//! queue.add("default/late");
//!
//! let web = queue.get().await.unwrap();
//! assert_eq!(*web, "default/web");
//! assert_eq!(*queue.get().await.unwrap(), "default/db");
//! assert!(queue.get().await.is_none());
//! # });
//! ```
//!
//! # Later
//!
//! [`WorkQueue::add_after`] queues an item when some time has passed; of two times for one item the
//! earlier counts. [`RateLimitingQueue`] puts a [`RateLimiter`] in front of that, which says how
//! long: the more often an item failed, the longer. It is told when an item has succeeded
//! ([`RateLimitingQueue::forget`]); if it never is, it remembers that item for ever.
//!
//! # Shutting down
//!
//! After [`WorkQueue::shut_down`] nothing goes in; what is queued still comes out, and then
//! [`WorkQueue::get`] says that there is no more. What only waits for its time is dropped.
//! [`WorkQueue::shut_down_with_drain`] does the same and comes back when the workers have done with
//! all of it. [`WorkQueueStats`] counts what was dropped and what came too late.
//!
//! # The loop that every controller writes
//!
//! is [`controller::run_workers`].
//!
//! # What it costs
//!
//! A key is kept twice while it is queued or worked on, twice while it waits, and once by the
//! limiter from its first failure until it is forgotten. So the queue grows with the number of
//! different keys, and with nothing else: not with the number of changes. There is no task behind
//! it. Whoever waits in `get` keeps the time; the queue can be made outside of a runtime.
//!
//! # Where it is better than client-go
//!
//! - What [`WorkQueue::get`] gives is done when it is dropped, also when the worker panics or is
//!   cancelled. In client-go a forgotten `Done` locks an item out for ever.
//! - [`WorkQueue::shut_down_with_drain`] waits for what is queued, too, as client-go's comment says.
//!   Its code comes back as soon as no item is with a worker.
//! - `add_after` never waits. client-go's has a channel of 1000 before the heap.
//! - Whatever is not worked on is counted.

mod bucket;
pub mod controller;
mod lanes;
mod limiters;
mod rate_limiting;
mod state;
#[cfg(test)]
mod tests;
mod waiting;
mod work_queue;

pub use bucket::{BucketRateLimiter, TokenBucket};
pub use limiters::{
    ItemExponentialFailureRateLimiter, ItemFastSlowRateLimiter, MaxOfRateLimiter, RateLimiter,
    WithMaxWaitRateLimiter, default_controller_rate_limiter, default_item_based_rate_limiter,
};
pub use rate_limiting::RateLimitingQueue;
pub use work_queue::{Item, WorkQueue, WorkQueueStats};
