//! Resume points that wait until nothing before them is held.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use tidings_log::Resume;

/// So many wait at most; beyond that every other one goes.
const MOST: usize = 1024;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Covered {
    /// The sequence after the frame, its source and its resume point, in journal order.
    waiting: VecDeque<(u64, Arc<str>, Resume)>,
}

impl Covered {
    pub(super) fn push(&mut self, next: u64, source: Arc<str>, resume: Resume) {
        self.waiting.push_back((next, source, resume));
        if self.waiting.len() > MOST {
            self.thin_out();
        }
    }

    /// Takes those of frames that lie before a sequence, all of them without one.
    pub(super) fn take_before(&mut self, held: Option<u64>) -> Vec<(Arc<str>, Resume)> {
        let covered = match held {
            None => self.waiting.len(),
            Some(held) => self.waiting.partition_point(|(next, ..)| *next <= held),
        };
        self.waiting.drain(..covered).map(|(_, source, resume)| (source, resume)).collect()
    }

    /// A later resume point of a source says all that an earlier one does, only later.
    fn thin_out(&mut self) {
        let mut dropped_before = HashSet::new();
        let mut kept: VecDeque<_> = VecDeque::with_capacity(MOST);
        for entry in self.waiting.drain(..).rev() {
            // The last of a source stays, and from there every second one.
            if dropped_before.insert(Arc::clone(&entry.1)) {
                kept.push_front(entry);
            } else {
                dropped_before.remove(&entry.1);
            }
        }
        self.waiting = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resume(resource_version: u64) -> Resume {
        Resume { epoch: 1, resource_version }
    }

    #[test]
    fn what_is_held_keeps_later_resume_points() {
        let mut covered = Covered::default();
        for next in [5, 9, 12] {
            covered.push(next, "*".into(), resume(next * 100));
        }
        let taken = |taken: Vec<(Arc<str>, Resume)>| -> Vec<u64> {
            taken.into_iter().map(|(_, resume)| resume.resource_version).collect()
        };
        assert_eq!(taken(covered.take_before(Some(9))), [500, 900]);
        assert_eq!(taken(covered.take_before(Some(11))), [0; 0]);
        assert_eq!(taken(covered.take_before(None)), [1200]);
    }

    #[test]
    fn many_are_thinned_out_and_the_last_of_each_source_stays() {
        let mut covered = Covered::default();
        covered.push(1, "rare".into(), resume(7));
        for next in 2..10_000 {
            covered.push(next, "*".into(), resume(next));
            assert!(covered.waiting.len() <= MOST + 1);
        }
        let all = covered.take_before(None);
        assert!(all.contains(&("rare".into(), resume(7))));
        assert_eq!(all.last(), Some(&("*".into(), resume(9_999))));
    }
}
