//! A queue with one reader that anyone may close, from any thread and without waiting.
//!
//! Closing is what stops a watcher and what shuts the broadcaster down: nothing goes in any more,
//! whoever waits to put something in is refused, and what is in can still be read. The bounded
//! channel of Tokio has all that, but only its reader can close it, and its reader waits for those
//! who were given a place and are never polled again. So the bound stands beside an unbounded
//! channel.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use futures_util::task::AtomicWaker;
use tokio::sync::{Semaphore, SemaphorePermit, TryAcquireError, mpsc};

/// Makes a queue with `first` in it already. With `places` it is bounded: it has so many, at least
/// one and at least one for each of `first`. Without, who puts items in sees to that.
pub(super) fn queue<T>(places: Option<usize>, first: Vec<T>) -> (Sender<T>, Receiver<T>) {
    let room = places.map(|places| {
        let free = places.max(1).saturating_sub(first.len());
        Semaphore::new(free.min(Semaphore::MAX_PERMITS))
    });
    let gate = Arc::new(Gate { room, closed: AtomicBool::new(false), reader: AtomicWaker::new() });
    let (sender, receiver) = mpsc::unbounded_channel();
    for item in first {
        // The receiver is here, so it is open.
        let _ = sender.send(item);
    }
    (Sender { items: sender, gate: Arc::clone(&gate) }, Receiver { items: receiver, gate })
}

/// What may go in, whatever the queue is of.
#[derive(Debug)]
pub(super) struct Gate {
    /// A permit for each place that is free, where the queue is bounded.
    room: Option<Semaphore>,
    closed: AtomicBool,
    /// The reader, while it waits.
    reader: AtomicWaker,
}

impl Gate {
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        if let Some(room) = &self.room {
            room.close();
        }
        self.reader.wake();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn free_place(&self) {
        if let Some(room) = &self.room {
            room.add_permits(1);
        }
    }
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Full,
    Closed,
}

/// The end where items go in. The queue ends when the last clone is dropped, too.
#[derive(Debug)]
pub(super) struct Sender<T> {
    items: mpsc::UnboundedSender<T>,
    gate: Arc<Gate>,
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { items: self.items.clone(), gate: Arc::clone(&self.gate) }
    }
}

impl<T> Sender<T> {
    /// Takes a place, if there is one that nobody waited for. [`put`](Self::put) is due then.
    pub(super) fn try_take_place(&self) -> Result<(), Refused> {
        match self.gate.room.as_ref().map(Semaphore::try_acquire) {
            Some(Ok(place)) => place.forget(),
            Some(Err(TryAcquireError::NoPermits)) => return Err(Refused::Full),
            Some(Err(TryAcquireError::Closed)) => return Err(Refused::Closed),
            None if self.is_closed() => return Err(Refused::Closed),
            None => {}
        }
        Ok(())
    }

    /// Waits for a place, in line with all who do, and takes it; `false` when the queue is closed.
    /// [`put`](Self::put) is due then.
    pub(super) async fn take_place(&self) -> bool {
        match &self.gate.room {
            Some(room) => room.acquire().await.map(SemaphorePermit::forget).is_ok(),
            None => !self.is_closed(),
        }
    }

    /// Puts an item into the place that was taken: it will be read, unless the reader is dropped.
    /// It comes back if the queue was closed meanwhile.
    pub(super) fn put(&self, item: T) -> Result<(), T> {
        self.items.send(item).map_err(|error| error.0)
    }

    pub(super) fn close(&self) {
        self.gate.close();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.gate.is_closed()
    }
}

/// The end where items come out. Dropping it closes the queue.
#[derive(Debug)]
pub(super) struct Receiver<T> {
    items: mpsc::UnboundedReceiver<T>,
    gate: Arc<Gate>,
}

impl<T> Receiver<T> {
    /// The next item; `None` when the queue has ended and is empty. Dropping the future loses no
    /// item.
    pub(super) async fn next(&mut self) -> Option<T> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut item = self.items.poll_recv(cx);
        if item.is_pending() {
            self.gate.reader.register(cx.waker());
            if self.gate.is_closed() {
                // What had a place when it was closed may have come since, and may not from here on.
                self.items.close();
                item = self.items.poll_recv(cx);
            }
        }
        if let Poll::Ready(Some(_)) = item {
            self.gate.free_place();
        }
        item
    }

    /// The next item, if there is one now: [`Empty`](mpsc::error::TryRecvError::Empty) when one may
    /// come yet, [`Disconnected`](mpsc::error::TryRecvError::Disconnected) when none will.
    pub(super) fn try_next(&mut self) -> Result<T, mpsc::error::TryRecvError> {
        let mut item = self.items.try_recv();
        if item.is_err() && self.gate.is_closed() {
            self.items.close();
            item = self.items.try_recv();
        }
        if item.is_ok() {
            self.gate.free_place();
        }
        item
    }

    pub(super) fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.gate.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_item_that_comes_after_the_end_goes_back() {
        let (sender, mut receiver) = queue(Some(2), Vec::new());
        assert!(sender.take_place().await && sender.take_place().await);
        sender.close();
        assert_eq!(sender.put(1), Ok(()), "it had its place before");
        assert_eq!(receiver.next().await, Some(1));
        assert_eq!(receiver.next().await, None);
        assert_eq!(sender.put(2), Err(2));
        assert_eq!(receiver.try_next(), Err(mpsc::error::TryRecvError::Disconnected));
    }
}
