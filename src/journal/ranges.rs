//! A set of sequences, kept as the ranges that it is made of.

use std::{collections::VecDeque, ops::Range};

/// So many ranges at most; beyond that the lowest goes. They take 1 MiB, and are as many as records
/// that a sink takes one by one, with others between them, in a second.
const MOST: usize = 1 << 16;

/// See the [module](self). In order, and apart from each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges(VecDeque<Range<u64>>);

impl Ranges {
    /// Whether nothing is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The sequence after the last of it; 0 if it is empty.
    pub(crate) fn end(&self) -> u64 {
        self.0.back().map_or(0, |last| last.end)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Range<u64>> {
        self.0.iter()
    }

    /// Whether a sequence is in it.
    pub(crate) fn contains(&self, sequence: u64) -> bool {
        self.0.get(self.ending_after(sequence)).is_some_and(|range| range.contains(&sequence))
    }

    /// How many sequences of a range are in it.
    pub(crate) fn count_in(&self, of: Range<u64>) -> u64 {
        let from = self.ending_after(of.start);
        let overlap =
            |range: &Range<u64>| range.end.min(of.end).saturating_sub(range.start.max(of.start));
        self.0.range(from..).take_while(|range| range.start < of.end).map(overlap).sum()
    }

    /// How many are in it from a sequence on.
    pub(crate) fn count_from(&self, sequence: u64) -> u64 {
        self.count_in(sequence..u64::MAX)
    }

    /// Adds a range. That is cheapest at the end.
    pub(crate) fn add(&mut self, mut new: Range<u64>) {
        if new.is_empty() {
            return;
        }
        // Those that it overlaps or touches become one with it.
        let from = self.0.partition_point(|range| range.end < new.start);
        let mut to = from;
        while let Some(range) = self.0.get(to).filter(|range| range.start <= new.end) {
            new = range.start.min(new.start)..range.end.max(new.end);
            to += 1;
        }
        if to == from {
            self.0.insert(from, new);
        } else {
            self.0[from] = new;
            self.0.drain(from + 1..to);
        }
        if self.0.len() > MOST {
            self.0.pop_front();
        }
    }

    /// Drops what is before a sequence.
    pub(crate) fn drop_before(&mut self, sequence: u64) {
        let gone = self.ending_after(sequence);
        self.0.drain(..gone);
        if let Some(first) = self.0.front_mut() {
            first.start = first.start.max(sequence);
        }
    }

    fn ending_after(&self, sequence: u64) -> usize {
        self.0.partition_point(|range| range.end <= sequence)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_hold_what_a_plain_set_holds(
            added in prop::collection::vec((0u64..200, 0u64..12), 0..60),
            before in 0u64..200,
            (from, length) in (0u64..200, 0u64..100),
        ) {
            let (mut ranges, mut plain) = (Ranges::default(), BTreeSet::new());
            for (at, (start, length)) in added.iter().enumerate() {
                ranges.add(*start..start + length);
                plain.extend(*start..start + length);
                if at == added.len() / 2 {
                    ranges.drop_before(before);
                    plain.retain(|sequence| *sequence >= before);
                }
            }
            let listed: BTreeSet<u64> = ranges.iter().cloned().flatten().collect();
            prop_assert_eq!(&listed, &plain);
            let apart = ranges.0.iter().zip(ranges.0.iter().skip(1));
            prop_assert!(apart.into_iter().all(|(a, b)| a.end < b.start), "{:?}", ranges);
            prop_assert_eq!(ranges.end(), plain.last().map_or(0, |last| last + 1));
            prop_assert_eq!(
                ranges.count_in(from..from + length),
                plain.range(from..from + length).count() as u64
            );
            prop_assert_eq!(ranges.contains(from), plain.contains(&from));
        }
    }

    #[test]
    fn the_lowest_go_when_there_are_too_many() {
        let mut ranges = Ranges::default();
        for n in 0..MOST as u64 + 10 {
            ranges.add(2 * n..2 * n + 1);
        }
        assert_eq!((ranges.0.len(), ranges.0[0].clone()), (MOST, 20..21));
    }
}
