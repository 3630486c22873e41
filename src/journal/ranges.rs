//! A set of sequences, kept as the ranges that it is made of.

use std::{collections::VecDeque, ops::Range};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// See the [module](self). In order, and apart from each other. In JSON it is an array of numbers: how far
/// each range is behind the one before, and how long it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges {
    ranges: VecDeque<Range<u64>>,
    /// How many sequences are in them.
    count: u64,
}

impl Ranges {
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The sequence after the last of it; 0 if it is empty.
    pub(crate) fn end(&self) -> u64 {
        self.ranges.back().map_or(0, |last| last.end)
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Range<u64>> {
        self.ranges.iter()
    }

    pub(crate) fn contains(&self, sequence: u64) -> bool {
        self.ranges.get(self.ending_after(sequence)).is_some_and(|range| range.contains(&sequence))
    }

    /// How many sequences of a range are in it.
    pub(crate) fn count_in(&self, of: Range<u64>) -> u64 {
        self.iter_in(of).map(|range| length(&range)).sum()
    }

    /// The parts of a range that are in it.
    pub(crate) fn iter_in(&self, of: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let from = self.ending_after(of.start);
        let ranges = self.ranges.range(from..).take_while(move |range| range.start < of.end);
        ranges.map(move |range| range.start.max(of.start)..range.end.min(of.end))
    }

    /// Adds a range. That is cheapest at the end.
    pub(crate) fn add(&mut self, new: Range<u64>) {
        self.add_noting(new, |_, _| {});
    }

    /// The same; `changed` is told by its start which range is gone, or has which end.
    pub(crate) fn add_noting(
        &mut self,
        mut new: Range<u64>,
        mut changed: impl FnMut(u64, Option<u64>),
    ) {
        if new.is_empty() {
            return;
        }
        // Those that it overlaps or touches become one with it.
        let from = self.ranges.partition_point(|range| range.end < new.start);
        let mut to = from;
        while let Some(range) = self.ranges.get(to).filter(|range| range.start <= new.end) {
            self.count -= length(range);
            changed(range.start, None);
            new = range.start.min(new.start)..range.end.max(new.end);
            to += 1;
        }
        self.count += length(&new);
        changed(new.start, Some(new.end));
        if to == from {
            self.ranges.insert(from, new);
        } else {
            self.ranges[from] = new;
            self.ranges.drain(from + 1..to);
        }
    }

    /// Keeps so many ranges, the highest.
    pub(crate) fn leave_last(&mut self, most: usize) {
        let gone = self.ranges.len().saturating_sub(most);
        self.count -= self.ranges.drain(..gone).map(|range| length(&range)).sum::<u64>();
    }

    pub(crate) fn remove(&mut self, sequence: u64) {
        self.remove_noting(sequence, |_, _| {});
    }

    /// The same; `changed` is told by its start which range is gone, or has which end.
    pub(crate) fn remove_noting(
        &mut self,
        sequence: u64,
        mut changed: impl FnMut(u64, Option<u64>),
    ) {
        let at = self.ending_after(sequence);
        let Some(range) = self.ranges.get_mut(at).filter(|range| range.contains(&sequence)) else {
            return;
        };
        self.count -= 1;
        let behind = sequence + 1..range.end;
        range.end = sequence;
        let before_is_empty = range.is_empty();
        changed(range.start, (!before_is_empty).then_some(range.end));
        if !behind.is_empty() {
            changed(behind.start, Some(behind.end));
        }
        match (before_is_empty, behind.is_empty()) {
            (true, true) => _ = self.ranges.remove(at),
            (true, false) => self.ranges[at] = behind,
            (false, true) => {}
            (false, false) => self.ranges.insert(at + 1, behind),
        }
    }

    pub(crate) fn drop_before(&mut self, sequence: u64) {
        let gone = self.ending_after(sequence);
        self.count -= self.ranges.drain(..gone).map(|range| length(&range)).sum::<u64>();
        if let Some(first) = self.ranges.front_mut().filter(|first| first.start < sequence) {
            self.count -= sequence - first.start;
            first.start = sequence;
        }
    }

    /// Drops a sequence and what is behind it.
    pub(crate) fn drop_from(&mut self, sequence: u64) {
        let stay = self.ranges.partition_point(|range| range.start < sequence);
        self.count -= self.ranges.drain(stay..).map(|range| length(&range)).sum::<u64>();
        if let Some(last) = self.ranges.back_mut().filter(|last| last.end > sequence) {
            self.count -= last.end - sequence;
            last.end = sequence;
        }
    }

    fn ending_after(&self, sequence: u64) -> usize {
        self.ranges.partition_point(|range| range.end <= sequence)
    }
}

fn length(range: &Range<u64>) -> u64 {
    range.end - range.start
}

impl Serialize for Ranges {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut end = 0;
        serializer.collect_seq(self.ranges.iter().flat_map(|range| {
            let behind = range.start - std::mem::replace(&mut end, range.end);
            [behind, range.end - range.start]
        }))
    }
}

impl<'de> Deserialize<'de> for Ranges {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let numbers = Vec::<u64>::deserialize(deserializer)?;
        let (mut ranges, mut end) = (Self::default(), 0_u64);
        for pair in numbers.chunks_exact(2) {
            let start = end.saturating_add(pair[0]);
            end = start.saturating_add(pair[1]);
            ranges.add(start..end);
        }
        Ok(ranges)
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
            let apart = ranges.ranges.iter().zip(ranges.ranges.iter().skip(1));
            prop_assert!(apart.into_iter().all(|(a, b)| a.end < b.start), "{:?}", ranges);
            prop_assert_eq!(ranges.end(), plain.last().map_or(0, |last| last + 1));
            prop_assert_eq!(
                ranges.count_in(from..from + length),
                plain.range(from..from + length).count() as u64
            );
            prop_assert_eq!(ranges.contains(from), plain.contains(&from));
            ranges.remove(from);
            plain.remove(&from);
            prop_assert!(!ranges.contains(from));
            prop_assert_eq!(ranges.count(), plain.len() as u64);
            let json = serde_json::to_string(&ranges).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Ranges>(&json).unwrap(), &ranges);
            ranges.drop_from(from);
            let listed: BTreeSet<u64> = ranges.iter().cloned().flatten().collect();
            prop_assert_eq!(listed, plain.range(..from).copied().collect::<BTreeSet<_>>());
        }
    }

    #[test]
    fn the_lowest_go_when_there_are_too_many() {
        let mut ranges = Ranges::default();
        (0..20).for_each(|n| ranges.add(2 * n..2 * n + 1));
        ranges.leave_last(10);
        assert_eq!((ranges.ranges.len(), ranges.ranges[0].clone()), (10, 20..21));
    }
}
