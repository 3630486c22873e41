//! What both queues are made of: the lock, the waiting for something to pop, the popping, and the
//! count of what the first list brought.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::{sync::Notify, task::coop::consume_budget};

use super::PopError;
use crate::{informer::Delta, object::Object};

/// A pop that takes longer is worth a line in the log …
const SLOW_POP: Duration = Duration::from_millis(100);
/// … when more entries than this wait behind it.
const DEEP_QUEUE: usize = 10;

/// What is in a queue.
pub(in crate::informer) trait Entries<K> {
    /// What is popped at once.
    type Popped: AsRef<[Delta<K>]>;

    fn len(&self) -> usize;
    fn pop(&mut self) -> Option<Self::Popped>;
    /// Takes back what was popped and could not be processed.
    fn put_back(&mut self, popped: Self::Popped);
}

/// What to do with what could not be processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::informer) enum OnError {
    Forget,
    PutBack,
}

/// The entries of a queue behind its lock, and whoever waits for one.
#[derive(Debug)]
pub(in crate::informer) struct Waiting<Q> {
    inside: Mutex<Inside<Q>>,
    changed: Notify,
}

/// What the lock of a queue guards.
#[derive(Debug)]
pub(in crate::informer) struct Inside<Q> {
    pub(in crate::informer) entries: Q,
    pub(in crate::informer) first_list: FirstList,
    closed: bool,
}

impl<Q> Waiting<Q> {
    pub(in crate::informer) fn new(entries: Q) -> Self {
        let inside = Inside { entries, first_list: FirstList::default(), closed: false };
        Self { inside: Mutex::new(inside), changed: Notify::new() }
    }

    /// A panic of somebody else's code under the lock leaves the entries whole: it runs when what
    /// it processes is out already, and before what it transforms is in.
    fn lock(&self) -> MutexGuard<'_, Inside<Q>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is inside, and wakes whoever waits for it.
    pub(in crate::informer) fn change<R>(&self, change: impl FnOnce(&mut Inside<Q>) -> R) -> R {
        let result = change(&mut self.lock());
        self.changed.notify_waiters();
        result
    }

    pub(in crate::informer) fn has_synced(&self) -> bool {
        self.lock().first_list.is_through()
    }

    pub(in crate::informer) fn close(&self) {
        self.change(|inside| inside.closed = true);
    }

    pub(in crate::informer) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Waits for an entry and has it processed, under the lock.
    pub(in crate::informer) async fn pop<K: Object, R, E>(
        &self,
        process: impl FnOnce(&[Delta<K>], bool) -> Result<R, E>,
        on_error: OnError,
    ) -> Result<R, PopError<E>>
    where
        Q: Entries<K>,
    {
        // A consumer that always finds something must not keep its thread for itself.
        consume_budget().await;
        loop {
            // Made before the look, so that no change between the two is missed.
            let changed = self.changed.notified();
            {
                let mut inside = self.lock();
                if let Some(popped) = inside.entries.pop() {
                    let initial = inside.first_list.popped();
                    let result = timed(inside.entries.len(), popped.as_ref(), |deltas| {
                        process(deltas, initial)
                    });
                    if result.is_err() && on_error == OnError::PutBack {
                        inside.first_list.changed();
                        inside.entries.put_back(popped);
                        self.changed.notify_waiters();
                    }
                    return result.map_err(PopError::Process);
                }
                if inside.closed {
                    return Err(PopError::Closed);
                }
            }
            changed.await;
        }
    }
}

/// Says so when processing is slow and many wait for it, as client-go traces it.
fn timed<K: Object, R>(
    waiting: usize,
    deltas: &[Delta<K>],
    process: impl FnOnce(&[Delta<K>]) -> R,
) -> R {
    if waiting <= DEEP_QUEUE {
        return process(deltas);
    }
    let start = Instant::now();
    let result = process(deltas);
    let took = start.elapsed();
    if took >= SLOW_POP {
        let key = deltas.first().map(|delta| delta.object.key());
        tracing::info!(?key, waiting, ?took, "slow event handlers hold up the queue");
    }
    result
}

/// How much of the first list is still queued.
#[derive(Debug, Default)]
pub(in crate::informer) struct FirstList {
    populated: bool,
    left: usize,
}

impl FirstList {
    /// Something was queued that is no list: if it is the first, the first list is empty.
    pub(in crate::informer) fn changed(&mut self) {
        self.populated = true;
    }

    /// A list was queued, as this many entries.
    pub(in crate::informer) fn replaced(&mut self, entries: usize) {
        if !self.populated {
            *self = Self { populated: true, left: entries };
        }
    }

    /// An entry is popped. Answers whether it is of the first list, or even came before it.
    fn popped(&mut self) -> bool {
        let initial = !self.is_through();
        self.left = self.left.saturating_sub(1);
        initial
    }

    fn is_through(&self) -> bool {
        self.populated && self.left == 0
    }
}
