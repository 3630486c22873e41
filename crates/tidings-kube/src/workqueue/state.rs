//! The queue itself: items and time in, decisions out. It neither waits nor wakes anybody.

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::Hash,
    time::Duration,
};

use tokio::time::Instant;

use super::{lanes::Lanes, waiting::Waiting, work_queue::WorkQueueStats};

/// Later than anybody waits: what is put off until beyond the end of the clock is ready then.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// Where an item is. client-go's sets say the same: `dirty` are those of `Queued` and
/// `AddedAgain`, `processing` those of `Processing` and `AddedAgain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// In the queue.
    Queued,
    /// With a worker.
    Processing,
    /// With a worker, and to be queued when that has done with it.
    AddedAgain,
}

#[derive(Debug)]
pub(super) struct State<T> {
    queue: Lanes<T>,
    stages: HashMap<T, Stage>,
    waiting: Waiting<T>,
    shutting_down: bool,
    /// Whether a drain is to be waited for.
    drain: bool,
    added: u64,
    put_off: u64,
    refused: u64,
    dropped: u64,
}

/// What there is for a worker.
pub(super) enum Next<T> {
    Item(T),
    /// Nothing before this instant, if nothing is added.
    Wait(Option<Instant>),
    /// Nothing any more.
    End,
}

impl<T> State<T> {
    pub(super) fn new(lane_of: fn(&T) -> &str) -> Self {
        Self {
            queue: Lanes::new(lane_of),
            stages: HashMap::new(),
            waiting: Waiting::default(),
            shutting_down: false,
            drain: false,
            added: 0,
            put_off: 0,
            refused: 0,
            dropped: 0,
        }
    }
}

impl<T: Clone + Eq + Hash> State<T> {
    /// Adds an item; whether the queue is longer by it.
    pub(super) fn add(&mut self, item: T) -> bool {
        if self.shutting_down {
            self.refused += 1;
            return false;
        }
        match self.stages.entry(item) {
            Entry::Vacant(vacant) => {
                self.queue.push(vacant.key().clone());
                vacant.insert(Stage::Queued);
                self.added += 1;
                true
            }
            Entry::Occupied(mut occupied) => {
                if *occupied.get() == Stage::Processing {
                    occupied.insert(Stage::AddedAgain);
                    self.added += 1;
                }
                false
            }
        }
    }

    /// Has an item wait; whether those who wait for the first one have to look again.
    pub(super) fn add_after(&mut self, item: T, now: Instant, delay: Duration) -> bool {
        if self.shutting_down {
            self.refused += 1;
            return false;
        }
        self.put_off += 1;
        let before = self.waiting.next_ready();
        self.waiting.insert(item, now.checked_add(delay).unwrap_or_else(|| now + FAR));
        self.waiting.next_ready() != before
    }

    /// Queues what waited and is ready by now; by how many the queue is longer.
    pub(super) fn queue_ready(&mut self, now: Instant) -> usize {
        let before = self.queue.len();
        while let Some(item) = self.waiting.pop_ready(now) {
            self.add(item);
        }
        self.queue.len() - before
    }

    /// Gives the next item to a worker.
    pub(super) fn next(&mut self) -> Next<T> {
        if let Some(item) = self.queue.pop() {
            if let Some(stage) = self.stages.get_mut(&item) {
                *stage = Stage::Processing;
            }
            return Next::Item(item);
        }
        if self.shutting_down { Next::End } else { Next::Wait(self.waiting.next_ready()) }
    }

    /// A worker has done with an item; whether the queue is longer by it.
    pub(super) fn done(&mut self, item: &T) -> bool {
        if let Some(stage @ Stage::AddedAgain) = self.stages.get_mut(item) {
            *stage = Stage::Queued;
            self.queue.push(item.clone());
            return true;
        }
        self.stages.remove(item);
        false
    }

    pub(super) fn shut_down(&mut self, drain: bool) {
        self.shutting_down = true;
        self.drain = drain;
        self.dropped += self.waiting.len() as u64;
        self.waiting.clear();
    }

    pub(super) fn is_shutting_down(&self) -> bool {
        self.shutting_down
    }

    /// Whether a drain has come to its end: all is done, or somebody does not want to wait for it.
    pub(super) fn is_drained(&self) -> bool {
        self.stages.is_empty() || !self.drain
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn stats(&self) -> WorkQueueStats {
        WorkQueueStats {
            queued: self.queue.len(),
            // Of all that have a stage, those in the queue are the others.
            processing: self.stages.len() - self.queue.len(),
            waiting: self.waiting.len(),
            added: self.added,
            put_off: self.put_off,
            refused: self.refused,
            dropped: self.dropped,
        }
    }
}
