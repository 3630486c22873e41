//! A bounded queue with one reader that anyone may close, from any thread and without waiting.
//!
//! Closing is what stops a watcher and what shuts the broadcaster down: nothing goes in any more,
//! whoever waits to put something in is refused, and what is in can still be read. The bounded
//! channel of Tokio has all that, but only its reader can close it. So the bound is a semaphore
//! beside an unbounded channel: a permit for each free place, and its closing is the queue's.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::task::AtomicWaker;
use tokio::sync::{Semaphore, SemaphorePermit, TryAcquireError, mpsc};

/// Makes a queue of `capacity` places, at least one, with `first` in it already; it has a place for
/// each of these, too.
pub(super) fn queue<T>(capacity: usize, first: Vec<T>) -> (Sender<T>, Receiver<T>) {
    let capacity = capacity.max(first.len()).clamp(1, Semaphore::MAX_PERMITS);
    let (sender, receiver) = mpsc::unbounded_channel();
    let gate = Arc::new(Gate {
        room: Semaphore::new(capacity.saturating_sub(first.len())),
        reader: AtomicWaker::new(),
    });
    for item in first {
        // The receiver is here, so it is open.
        let _ = sender.send(item);
    }
    let sender = Sender { items: sender, gate: Arc::clone(&gate) };
    (sender, Receiver { items: receiver, gate, capacity })
}

/// What may go in, whatever the queue is of.
#[derive(Debug)]
pub(super) struct Gate {
    /// A permit for each free place; closed when the queue is.
    room: Semaphore,
    /// The reader, while it waits.
    reader: AtomicWaker,
}

impl Gate {
    pub(super) fn close(&self) {
        self.room.close();
        self.reader.wake();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.room.is_closed()
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
    /// A place, if there is one that nobody waited for.
    pub(super) fn try_reserve(&self) -> Result<Place<'_, T>, Refused> {
        match self.gate.room.try_acquire() {
            Ok(permit) => Ok(Place { permit, items: &self.items }),
            Err(TryAcquireError::NoPermits) => Err(Refused::Full),
            Err(TryAcquireError::Closed) => Err(Refused::Closed),
        }
    }

    /// Waits for a place, in line with all who do; `None` when the queue is closed.
    pub(super) async fn reserve(&self) -> Option<Place<'_, T>> {
        let permit = self.gate.room.acquire().await.ok()?;
        Some(Place { permit, items: &self.items })
    }

    pub(super) fn close(&self) {
        self.gate.close();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.gate.is_closed()
    }
}

/// The right to put one item in; dropped, it is for the next in line.
pub(super) struct Place<'a, T> {
    permit: SemaphorePermit<'a>,
    items: &'a mpsc::UnboundedSender<T>,
}

impl<T> Place<'_, T> {
    /// Puts the item in: it will be read, unless the reader is dropped. It comes back if the queue
    /// was closed meanwhile.
    pub(super) fn put(self, item: T) -> Result<(), T> {
        self.permit.forget();
        self.items.send(item).map_err(|error| error.0)
    }
}

/// The end where items come out. Dropping it closes the queue.
#[derive(Debug)]
pub(super) struct Receiver<T> {
    items: mpsc::UnboundedReceiver<T>,
    gate: Arc<Gate>,
    capacity: usize,
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
            self.gate.room.add_permits(1);
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
            self.gate.room.add_permits(1);
        }
        item
    }

    /// How many items it holds at most.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
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
