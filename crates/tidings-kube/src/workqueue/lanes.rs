//! What is queued, in lanes that take turns.

use std::collections::{HashMap, VecDeque};

/// Items, each in the lane that it says it belongs to. Within a lane they come out as they went in,
/// and of the lanes that have any each gives one in its turn.
#[derive(Debug)]
pub(super) struct Lanes<T> {
    lane_of: fn(&T) -> &str,
    items: HashMap<Box<str>, VecDeque<T>>,
    /// The lanes that have any, the next one first.
    turns: VecDeque<Box<str>>,
    len: usize,
}

impl<T> Lanes<T> {
    pub(super) fn new(lane_of: fn(&T) -> &str) -> Self {
        Self { lane_of, items: HashMap::new(), turns: VecDeque::new(), len: 0 }
    }

    pub(super) fn push(&mut self, item: T) {
        self.len += 1;
        let lane = (self.lane_of)(&item);
        if let Some(there) = self.items.get_mut(lane) {
            return there.push_back(item);
        }
        let lane: Box<str> = lane.into();
        self.turns.push_back(lane.clone());
        self.items.insert(lane, VecDeque::from([item]));
    }

    pub(super) fn pop(&mut self) -> Option<T> {
        let lane = self.turns.pop_front()?;
        let items = self.items.get_mut(&lane)?;
        let item = items.pop_front();
        if items.is_empty() {
            self.items.remove(&lane);
        } else {
            self.turns.push_back(lane);
        }
        self.len -= usize::from(item.is_some());
        item
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}
