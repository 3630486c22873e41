//! See the [module](super).

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use tokio::sync::{mpsc, oneshot};

/// An item that stands in a log as well, where a watcher that was spilled reads it again.
pub trait Sequenced: Clone + Send + 'static {
    /// What the item counts against a channel's bound in bytes.
    fn bytes(&self) -> usize;
}

impl<T: Sequenced + Sync> Sequenced for Arc<T> {
    fn bytes(&self) -> usize {
        T::bytes(self)
    }
}

/// The bounds of a watcher's channel; the first that is reached spills the watcher.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// Items.
    pub items: usize,
    /// Bytes of items. One item always fits, whatever its size.
    pub bytes: usize,
}

/// The broadcaster was shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("broadcaster already stopped")]
pub struct Stopped;

enum Message<T> {
    Item(T),
    Register(Capacity, oneshot::Sender<Watcher<T>>),
    Shutdown(oneshot::Sender<()>),
}

/// The sending side; cloning it is cheap. The loop ends with [`shutdown`](Self::shutdown), or
/// when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Broadcaster<T> {
    incoming: mpsc::Sender<Message<T>>,
}

impl<T: Sequenced> Broadcaster<T> {
    /// Starts the loop on the current Tokio runtime, with an incoming queue of `incoming` items.
    pub fn new(incoming: usize) -> Self {
        let (sender, receiver) = mpsc::channel(incoming);
        tokio::spawn(distribute(receiver));
        Self { incoming: sender }
    }

    /// Registers a watcher, which sees every item published after this call has returned.
    pub async fn watch(&self, capacity: Capacity) -> Result<Watcher<T>, Stopped> {
        let (answer, registered) = oneshot::channel();
        self.incoming.send(Message::Register(capacity, answer)).await.map_err(|_| Stopped)?;
        registered.await.map_err(|_| Stopped)
    }

    /// Queues an item, waiting while the incoming queue is full.
    pub async fn publish(&self, item: T) -> Result<(), Stopped> {
        self.incoming.send(Message::Item(item)).await.map_err(|_| Stopped)
    }

    /// The same from a thread that is not part of the runtime.
    pub fn publish_blocking(&self, item: T) -> Result<(), Stopped> {
        self.incoming.blocking_send(Message::Item(item)).map_err(|_| Stopped)
    }

    /// Hands out what is queued, closes every watcher and ends the loop. Calling it again is
    /// harmless; publishing or watching afterwards is [`Stopped`].
    pub async fn shutdown(&self) {
        let (answer, done) = oneshot::channel();
        if self.incoming.send(Message::Shutdown(answer)).await.is_ok() {
            let _ = done.await;
        }
    }
}

/// What the loop and a watcher share.
#[derive(Debug, Default)]
struct Shared {
    queued_bytes: AtomicUsize,
    spilled: AtomicBool,
}

/// The loop's end of a watcher.
struct Outlet<T> {
    items: mpsc::Sender<T>,
    max_bytes: usize,
    shared: Arc<Shared>,
}

impl<T: Sequenced> Outlet<T> {
    /// Hands over an item; answers whether the watcher stays registered.
    fn offer(&self, item: &T) -> bool {
        let bytes = item.bytes();
        let queued = self.shared.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = queued == 0 || queued + bytes <= self.max_bytes;
        if !fits {
            self.shared.spilled.store(true, Ordering::Release);
            return false;
        }
        match self.items.try_send(item.clone()) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.shared.spilled.store(true, Ordering::Release);
                false
            }
            Err(mpsc::error::TrySendError::Closed(_)) => false,
        }
    }
}

async fn distribute<T: Sequenced>(mut incoming: mpsc::Receiver<Message<T>>) {
    let mut outlets: Vec<Outlet<T>> = Vec::new();
    while let Some(message) = incoming.recv().await {
        match message {
            Message::Item(item) => outlets.retain(|outlet| outlet.offer(&item)),
            Message::Register(capacity, answer) => {
                let (sender, receiver) = mpsc::channel(capacity.items.max(1));
                let shared = Arc::new(Shared::default());
                let watcher = Watcher { items: receiver, shared: Arc::clone(&shared) };
                // A caller that has gone away meanwhile takes its registration with it.
                if answer.send(watcher).is_ok() {
                    outlets.push(Outlet { items: sender, max_bytes: capacity.bytes, shared });
                }
            }
            Message::Shutdown(answer) => {
                // Refuses what comes from here on, then hands out what was accepted before.
                incoming.close();
                while let Some(message) = incoming.recv().await {
                    if let Message::Item(item) = message {
                        outlets.retain(|outlet| outlet.offer(&item));
                    }
                }
                drop(outlets);
                let _ = answer.send(());
                return;
            }
        }
    }
}

/// The receiving side of one registration. Dropping it ends the registration.
#[derive(Debug)]
pub struct Watcher<T> {
    items: mpsc::Receiver<T>,
    shared: Arc<Shared>,
}

impl<T: Sequenced> Watcher<T> {
    /// The next item; `None` when the registration has ended, by a spill or by shutdown. Dropping
    /// the future loses no item.
    pub async fn next(&mut self) -> Option<T> {
        let item = self.items.recv().await?;
        self.shared.queued_bytes.fetch_sub(item.bytes(), Ordering::Relaxed);
        Some(item)
    }

    /// Whether the registration ended because the channel was full. Meaningful once
    /// [`next`](Self::next) has answered `None`.
    pub fn spilled(&self) -> bool {
        self.shared.spilled.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Item(u64, usize);
    impl Sequenced for Item {
        fn bytes(&self) -> usize {
            self.1
        }
    }

    async fn rest(watcher: &mut Watcher<Item>) -> Vec<u64> {
        let mut got = Vec::new();
        while let Some(item) = watcher.next().await {
            got.push(item.0);
        }
        got
    }

    const WIDE: Capacity = Capacity { items: 100, bytes: 1000 };

    #[tokio::test]
    async fn a_watcher_sees_what_comes_after_it() {
        let broadcaster = Broadcaster::new(10);
        broadcaster.publish(Item(1, 1)).await.unwrap();
        let mut watcher = broadcaster.watch(WIDE).await.unwrap();
        broadcaster.publish(Item(2, 1)).await.unwrap();
        broadcaster.publish(Item(3, 1)).await.unwrap();
        broadcaster.shutdown().await;
        assert_eq!(rest(&mut watcher).await, [2, 3]);
        assert!(!watcher.spilled());
    }

    #[tokio::test]
    async fn a_full_channel_spills_its_watcher_and_no_other() {
        let broadcaster = Broadcaster::new(10);
        let mut few = broadcaster.watch(Capacity { items: 2, bytes: 1000 }).await.unwrap();
        let mut small = broadcaster.watch(Capacity { items: 100, bytes: 10 }).await.unwrap();
        let mut wide = broadcaster.watch(WIDE).await.unwrap();
        for n in 1..=5 {
            broadcaster.publish(Item(n, 4)).await.unwrap();
        }
        broadcaster.shutdown().await;
        assert_eq!((rest(&mut few).await, few.spilled()), (vec![1, 2], true));
        assert_eq!((rest(&mut small).await, small.spilled()), (vec![1, 2], true));
        assert_eq!((rest(&mut wide).await, wide.spilled()), (vec![1, 2, 3, 4, 5], false));
    }

    #[tokio::test]
    async fn one_item_fits_whatever_its_size() {
        let broadcaster = Broadcaster::new(10);
        let mut watcher = broadcaster.watch(Capacity { items: 10, bytes: 10 }).await.unwrap();
        broadcaster.publish(Item(1, 5000)).await.unwrap();
        assert_eq!(watcher.next().await.unwrap().0, 1);
        broadcaster.publish(Item(2, 5000)).await.unwrap();
        assert_eq!(watcher.next().await.unwrap().0, 2);
    }

    #[tokio::test]
    async fn after_shutdown_everything_is_an_error_and_nothing_hangs() {
        let broadcaster = Broadcaster::<Item>::new(1);
        broadcaster.shutdown().await;
        broadcaster.shutdown().await;
        assert_eq!(broadcaster.watch(WIDE).await.err(), Some(Stopped));
        assert_eq!(broadcaster.publish(Item(1, 1)).await, Err(Stopped));
    }
}
