//! The broadcaster: one incoming queue, one loop, a channel for each watcher.
//!
//! It is client-go's `watch.Broadcaster` in its shape: items go through one queue, one loop hands
//! them to every watcher, and a registration is itself a message of that queue, so that a watcher
//! sees exactly the items that come after it. Shutdown drains the queue and closes every watcher.
//!
//! What it does on a full channel is beyond client-go, which either drops the item or makes the
//! loop wait. Here items carry [their place in a log](Sequenced), and a watcher that falls behind
//! is *spilled*: its channel is closed behind the last item that fitted, it reads the log from
//! there, and registers again when it has caught up. So the loop never waits and nothing is lost;
//! the live path never touches the disk.
//!
//! ```
//! # use tidings::watch::{Broadcaster, Capacity, Sequenced};
//! #[derive(Clone)]
//! struct Line(u64);
//! impl Sequenced for Line {
//!     fn bytes(&self) -> usize { 8 }
//! }
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let broadcaster = Broadcaster::new(100);
//! let mut watcher = broadcaster.watch(Capacity { items: 10, bytes: 1 << 20 }).await.unwrap();
//! broadcaster.publish(Line(1)).await.unwrap();
//! assert_eq!(watcher.next().await.unwrap().0, 1);
//! broadcaster.shutdown().await;
//! assert!(watcher.next().await.is_none() && !watcher.spilled());
//! # });
//! ```

mod broadcaster;

pub use broadcaster::{Broadcaster, Capacity, Sequenced, Stopped, Watcher};
