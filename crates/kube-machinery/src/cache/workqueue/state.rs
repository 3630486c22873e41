//! The queue itself: items and time in, decisions out. It neither waits nor wakes anybody.

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::Hash,
    time::Duration,
};

use tokio::time::Instant;

use super::{lanes::Lanes, metrics::WorkQueueMetrics, waiting::Waiting};

/// Later than anybody waits: what is put off until beyond the end of the clock is ready then.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// Where an item is. client-go's sets say the same: `dirty` are those of `Queued` and
/// `AddedAgain`, `processing` those of `Processing` and `AddedAgain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// In the queue, since it was added.
    Queued(Instant),
    /// With a worker.
    Processing,
    /// With a worker, and, since it was added again, to be queued when that has done with it.
    AddedAgain(Instant),
}

/// How it stands with a queue, and what has gone through it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkQueueStats {
    /// Items in the queue; client-go's metric `depth`.
    pub queued: usize,
    /// Items with a worker.
    pub processing: usize,
    /// How long the worker that has had its item the longest has had it; client-go's
    /// `longest_running_processor_seconds`.
    pub longest_running: Duration,
    /// How long all workers together have had their items; client-go's `unfinished_work_seconds`.
    pub unfinished: Duration,
    /// Items whose time has not come.
    pub waiting: usize,
    /// Adds that led to work, so not those of items that were queued already; client-go's `adds`.
    pub added: u64,
    /// Items that were to be added later; client-go's `retries`, without those without a delay.
    pub put_off: u64,
    /// Adds, now or later, that came after the shutdown.
    pub refused: u64,
    /// Items whose time had not come at the shutdown.
    pub dropped: u64,
}

pub(super) struct State<T> {
    queue: Lanes<T>,
    stages: HashMap<T, Stage>,
    /// Since when a worker has it, of each item that one has.
    processing: HashMap<T, Instant>,
    waiting: Waiting<T>,
    shutting_down: bool,
    /// Whether a drain is to be waited for.
    drain: bool,
    added: u64,
    put_off: u64,
    refused: u64,
    dropped: u64,
    /// When the state was looked at last.
    now: Instant,
    pub(super) metrics: Option<Box<dyn WorkQueueMetrics>>,
}

/// The next thing for a worker.
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
            processing: HashMap::new(),
            waiting: Waiting::default(),
            shutting_down: false,
            drain: false,
            added: 0,
            put_off: 0,
            refused: 0,
            dropped: 0,
            now: Instant::now(),
            metrics: None,
        }
    }
}

impl<T: Clone + Eq + Hash> State<T> {
    fn measure(&self, measure: impl FnOnce(&dyn WorkQueueMetrics, usize)) {
        if let Some(metrics) = &self.metrics {
            measure(&**metrics, self.queue.len());
        }
    }

    /// Adds an item; whether the queue is longer by it.
    pub(super) fn add(&mut self, item: T) -> bool {
        if self.shutting_down {
            self.refused += 1;
            return false;
        }
        let (added, queued) = match self.stages.entry(item) {
            Entry::Vacant(vacant) => {
                self.queue.push(vacant.key().clone());
                vacant.insert(Stage::Queued(self.now));
                (true, true)
            }
            Entry::Occupied(mut occupied) => {
                let processing = *occupied.get() == Stage::Processing;
                if processing {
                    occupied.insert(Stage::AddedAgain(self.now));
                }
                (processing, false)
            }
        };
        if added {
            self.added += 1;
            self.measure(|metrics, _| metrics.added());
        }
        if queued {
            self.measure(WorkQueueMetrics::depth);
        }
        queued
    }

    /// Has an item wait; whether those who wait for the first one have to look again.
    pub(super) fn add_after(&mut self, item: T, delay: Duration) -> bool {
        if self.shutting_down {
            self.refused += 1;
            return false;
        }
        self.put_off += 1;
        self.measure(|metrics, _| metrics.retried());
        let before = self.waiting.next_ready();
        let ready = self.now.checked_add(delay).unwrap_or_else(|| self.now + FAR);
        self.waiting.insert(item, ready);
        self.waiting.next_ready() != before
    }

    /// Looks at the state at this time: queues what waited and is ready; by how many the queue is longer.
    pub(super) fn queue_ready(&mut self, now: Instant) -> usize {
        self.now = now;
        let before = self.queue.len();
        while let Some(item) = self.waiting.pop_ready(now) {
            self.add(item);
        }
        self.queue.len() - before
    }

    /// Gives the next item to a worker.
    pub(super) fn next(&mut self) -> Next<T> {
        if let Some(item) = self.queue.pop() {
            let stage = self.stages.get_mut(&item);
            let stage = stage.map(|stage| std::mem::replace(stage, Stage::Processing));
            self.processing.insert(item.clone(), self.now);
            self.measure(|metrics, depth| {
                if let Some(Stage::Queued(since)) = stage {
                    metrics.waited(self.now.duration_since(since));
                }
                metrics.depth(depth);
            });
            return Next::Item(item);
        }
        if self.shutting_down { Next::End } else { Next::Wait(self.waiting.next_ready()) }
    }

    /// A worker has done with an item; whether the queue is longer by it.
    pub(super) fn done(&mut self, item: &T) -> bool {
        if let Some(since) = self.processing.remove(item) {
            self.measure(|metrics, _| metrics.worked(self.now.duration_since(since)));
        }
        if let Some(stage) = self.stages.get_mut(item)
            && let Stage::AddedAgain(since) = *stage
        {
            *stage = Stage::Queued(since);
            self.queue.push(item.clone());
            self.measure(WorkQueueMetrics::depth);
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
        let running = || self.processing.values().map(|since| self.now.duration_since(*since));
        WorkQueueStats {
            queued: self.queue.len(),
            processing: self.processing.len(),
            longest_running: running().max().unwrap_or_default(),
            unfinished: running().sum(),
            waiting: self.waiting.len(),
            added: self.added,
            put_off: self.put_off,
            refused: self.refused,
            dropped: self.dropped,
        }
    }
}
