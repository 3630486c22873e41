//! The sending side. See the [module](super).

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::{
    runtime::Handle,
    sync::{oneshot, watch},
};

use super::{
    distribute::{Message, distribute},
    flush::Turns,
    full_channel::FullChannel,
    queue::{Refused, Sender, queue},
    watcher::{Watcher, registration},
};

/// The broadcaster was shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("broadcaster already stopped")]
pub struct Stopped;

/// Why an item was not sent, with the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSent<T> {
    /// The incoming queue is full, or others wait for the room in it.
    #[error("the broadcaster's queue is full")]
    Full(T),
    /// See [`Stopped`].
    #[error("broadcaster already stopped")]
    Stopped(T),
}

/// The sending side; cloning it is cheap. The loop ends with [`shutdown`](Self::shutdown), or
/// when the last clone is dropped: either way what is queued is handed out first.
///
/// It mirrors `watch.Broadcaster` of apimachinery, which client-go's event broadcasters are made of.
#[derive(Debug)]
pub struct Broadcaster<T> {
    incoming: Sender<Message<T>>,
    full: Arc<FullChannel<T>>,
    dropped: Arc<AtomicU64>,
    flushes: Turns,
    /// Its sender is dropped when the loop has ended.
    running: watch::Receiver<()>,
    /// For threads that are not its own.
    runtime: Handle,
}

impl<T> Clone for Broadcaster<T> {
    fn clone(&self) -> Self {
        Self {
            incoming: self.incoming.clone(),
            full: Arc::clone(&self.full),
            dropped: Arc::clone(&self.dropped),
            flushes: self.flushes.clone(),
            running: self.running.clone(),
            runtime: self.runtime.clone(),
        }
    }
}

/// Items that the incoming queue of client-go's `NewBroadcaster` holds. Its
/// `NewLongQueueBroadcaster` makes it as long as the queue of a watcher.
pub const INCOMING_QUEUE_LENGTH: usize = 25;

impl<T: Clone + Send + 'static> Broadcaster<T> {
    /// Starts the loop on the current Tokio runtime, with an incoming queue of `incoming` items, at
    /// least one.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime, as [`tokio::spawn`] does.
    pub fn new(incoming: usize, full: FullChannel<T>) -> Self {
        let (broadcaster, distributing) = Self::with_loop(incoming, full);
        broadcaster.runtime.spawn(distributing);
        broadcaster
    }

    /// The same with the loop to be run by the caller, who wants to know how it ends.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub fn with_loop(
        incoming: usize,
        full: FullChannel<T>,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (sender, receiver) = queue(Some(incoming), Vec::new());
        let (alive, running) = watch::channel(());
        let distributing = distribute(receiver, full.clone(), alive);
        let (full, dropped) = (Arc::new(full), Arc::default());
        let (flushes, runtime) = (Turns::default(), Handle::current());
        (Self { incoming: sender, full, dropped, flushes, running, runtime }, distributing)
    }

    /// Queues an item, waiting while the incoming queue is full. `Ok` means that it is handed out to
    /// every watcher there is at its turn, also when shutdown comes first. Items of calls that
    /// overlap have no order among them. Dropping the future before it is ready leaves the item
    /// out. client-go's `Action`.
    ///
    /// # Errors
    ///
    /// The broadcaster was shut down, be it before the call or while it waited; the item was not,
    /// and will not be, handed out.
    pub async fn publish(&self, item: T) -> Result<(), Stopped> {
        self.put(Message::Item(item)).await
    }

    /// The same from a thread that may block.
    ///
    /// # Errors
    ///
    /// As [`publish`](Self::publish).
    ///
    /// # Panics
    ///
    /// If it has to wait within an asynchronous context, as [`Handle::block_on`] does.
    pub fn publish_blocking(&self, item: T) -> Result<(), Stopped> {
        match self.try_publish(item) {
            Ok(()) => Ok(()),
            Err(NotSent::Full(item)) => self.runtime.block_on(self.publish(item)),
            Err(NotSent::Stopped(_)) => Err(Stopped),
        }
    }

    /// Queues an item if there is room at once, from any thread. Publishers that wait go first, and
    /// hold nobody up. client-go's `ActionOrDrop`, which a blocked `Action` blocks.
    ///
    /// # Errors
    ///
    /// The item, if it was not queued. Where that is for want of room, it counts as
    /// [`dropped`](Self::dropped).
    pub fn publish_or_drop(&self, item: T) -> Result<(), NotSent<T>> {
        let sent = self.try_publish(item);
        if let Err(NotSent::Full(_)) = sent {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        sent
    }

    fn try_publish(&self, item: T) -> Result<(), NotSent<T>> {
        match self.incoming.try_take_place() {
            Ok(()) => {}
            Err(Refused::Full) => return Err(NotSent::Full(item)),
            Err(Refused::Closed) => return Err(NotSent::Stopped(item)),
        }
        match self.incoming.put(Message::Item(item)) {
            Err(Message::Item(item)) => Err(NotSent::Stopped(item)),
            _ => Ok(()),
        }
    }

    async fn put(&self, message: Message<T>) -> Result<(), Stopped> {
        if !self.incoming.take_place().await {
            return Err(Stopped);
        }
        self.incoming.put(message).map_err(|_| Stopped)
    }

    /// How many items [`publish_or_drop`](Self::publish_or_drop) has dropped because the incoming
    /// queue was full, over all clones.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Registers a watcher, which sees every item that is queued after this call, and none that was
    /// queued before. It waits for its turn in the queue, so behind a loop that waits for another
    /// watcher, too.
    ///
    /// # Errors
    ///
    /// The broadcaster was shut down.
    pub async fn watch(&self) -> Result<Watcher<T>, Stopped> {
        self.watch_with_prefix(Vec::new()).await
    }

    /// The same, with `prefix` in the watcher's queue before anything else. The queue holds one
    /// item more than the prefix at least. client-go's `WatchWithPrefix`.
    ///
    /// # Errors
    ///
    /// The broadcaster was shut down.
    pub async fn watch_with_prefix(&self, prefix: Vec<T>) -> Result<Watcher<T>, Stopped> {
        let (outlet, watcher) = registration(&self.full, prefix);
        let (registered, turn) = oneshot::channel();
        self.put(Message::Register(outlet, registered)).await?;
        turn.await.map_err(|_| Stopped)?;
        Ok(watcher)
    }

    /// Waits until every watcher has done with what was queued before this call: it has read all of
    /// that (or lost it, where the policy is so), and has come back for more. Watchers that were
    /// stopped or dropped are not waited for. What is queued meanwhile goes on as ever.
    ///
    /// A watcher that is not read makes it wait, so a limit of time is wise; dropping the future
    /// ends the waiting only. Of several calls one is under way at a time. client-go has nothing
    /// like it, but makes its registrations wait for their turn in the same way.
    ///
    /// # Errors
    ///
    /// The broadcaster was shut down before the call had its turn.
    pub async fn flush(&self) -> Result<(), Stopped> {
        let (mark, passed) = self.flushes.mark().await;
        self.put(Message::Flush(mark)).await?;
        passed.wait().await;
        Ok(())
    }

    /// Takes nothing more, hands out what is queued, and closes every watcher. It waits for all
    /// that, but not until the watchers have read it. Publishers that wait for room at this moment
    /// are told [`Stopped`]. A second call, also at the same time, does no more than wait.
    ///
    /// From the first poll on, dropping the future ends the waiting only. With
    /// [`FullChannel::Wait`], a watcher that is neither read nor stopped makes it wait for ever.
    pub async fn shutdown(&self) {
        self.incoming.close();
        // Nothing is ever sent there, so this ends when the sender goes.
        let _ = self.running.clone().changed().await;
    }
}
