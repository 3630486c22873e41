//! When which records were appended, about: for how far behind a reader is.

use std::collections::VecDeque;

/// Frames that come closer to each other than this, in milliseconds, are one here.
const APART: u64 = 100;
/// So many are known at most; beyond that every other one is forgotten.
const MOST: usize = 1024;

/// The first sequences of some frames and their times, in order. See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Times(VecDeque<(u64, u64)>);

impl Times {
    /// A frame that begins with a sequence was appended at a time, in milliseconds since the epoch.
    pub(super) fn note(&mut self, first: u64, time_ms: u64) {
        if self.0.back().is_some_and(|(_, last)| time_ms < last + APART) {
            return;
        }
        self.0.push_back((first, time_ms));
        if self.0.len() > MOST {
            let mut keep = false;
            self.0.retain(|_| {
                keep = !keep;
                keep
            });
        }
    }

    /// The time of a record, or one before it; of one from before all that is known the oldest time
    /// that is.
    pub(super) fn of(&self, sequence: u64) -> Option<u64> {
        let after = self.0.partition_point(|(first, _)| *first <= sequence);
        self.0.get(after.saturating_sub(1)).map(|(_, time_ms)| *time_ms)
    }

    /// The first sequence that is known.
    pub(super) fn first(&self) -> Option<u64> {
        self.0.front().map(|(first, _)| *first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_the_time_of_its_frame_or_of_one_before_it() {
        let mut times = Times::default();
        assert_eq!(times.of(7), None);
        for (first, time_ms) in [(5, 1000), (8, 1050), (9, 1100), (20, 5000), (21, 4000)] {
            times.note(first, time_ms);
        }
        let known = [3, 5, 8, 9, 19, 20, 30].map(|sequence| times.of(sequence).unwrap());
        assert_eq!(known, [1000, 1000, 1000, 1100, 1100, 5000, 5000]);
    }

    #[test]
    fn of_many_every_other_one_is_known() {
        let mut times = Times::default();
        for second in 0..100_000 {
            times.note(second + 1, second * 1000);
            assert!(times.0.len() <= MOST);
        }
        assert_eq!(times.of(1), Some(0));
        let late = 100_000 * 1000 - times.of(99_999).unwrap();
        assert!(late < 300_000, "{late}");
    }
}
