//! Which sequences numbers have: a byte or two for each where numbers lie close to each other.

use std::{collections::BTreeMap, ops::Range};

use crate::{bridge::sink::delivery::Number, varint};

/// So many numbers have one block.
const BLOCK: u64 = 64;

/// Sequences by number. See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Sequences(BTreeMap<u64, Block>);

/// The sequences of a block, in the order of the numbers, and which numbers have one.
#[derive(Debug)]
struct Block {
    has: u64,
    first: u64,
    /// How far each of the others lies behind the one before it, or before it, in as many bytes as that takes;
    /// empty where they count up as the numbers do.
    steps: Box<[u8]>,
}

impl Block {
    /// Of sequences in the order of their places in the block, if there are any.
    fn new(all: &[(u64, u64)]) -> Option<Self> {
        let first = all.first()?.1;
        let has = all.iter().fold(0, |has, (place, _)| has | 1 << place);
        let counts_up =
            |pair: &[(u64, u64)]| pair[0].1.checked_add(pair[1].0 - pair[0].0) == Some(pair[1].1);
        let mut steps = Vec::new();
        if !all.windows(2).all(counts_up) {
            for pair in all.windows(2) {
                let step = pair[1].1.wrapping_sub(pair[0].1).cast_signed();
                // The sign is the last bit, so that small steps back are small, too.
                let step = ((step << 1) ^ (step >> 63)).cast_unsigned();
                varint::put(step, |byte| steps.push(byte));
            }
        }
        Some(Self { has, first, steps: steps.into() })
    }

    /// Places and sequences, in order.
    fn all(&self) -> impl Iterator<Item = (u64, u64)> {
        let places = (0..BLOCK).filter(|place| self.has >> place & 1 > 0);
        let mut steps = self.steps.iter();
        let mut last: Option<(u64, u64)> = None;
        places.map(move |place| {
            let sequence = match last {
                None => self.first,
                Some((before, sequence)) if self.steps.is_empty() => sequence + place - before,
                Some((_, sequence)) => {
                    let step = varint::take(|| steps.next().copied()).unwrap_or(0);
                    sequence.wrapping_add((step >> 1) ^ (step & 1).wrapping_neg())
                }
            };
            last = Some((place, sequence));
            (place, sequence)
        })
    }
}

impl Sequences {
    pub(super) fn get(&self, number: Number) -> Option<u64> {
        let block = self.0.get(&(number / BLOCK))?;
        let (_, sequence) = block.all().find(|(place, _)| *place == number % BLOCK)?;
        Some(sequence)
    }

    /// Notes the sequence of a number that is not known.
    pub(super) fn insert(&mut self, number: Number, sequence: u64) {
        self.change(number / BLOCK, |all| {
            let at = all.partition_point(|(place, _)| *place < number % BLOCK);
            all.insert(at, (number % BLOCK, sequence));
        });
    }

    /// Takes out a number, and answers its sequence.
    pub(super) fn remove(&mut self, number: Number) -> Option<u64> {
        let sequence = self.get(number)?;
        self.change(number / BLOCK, |all| all.retain(|(place, _)| *place != number % BLOCK));
        Some(sequence)
    }

    /// The first number of a range that has a sequence.
    pub(super) fn first_in(&self, range: Range<Number>) -> Option<Number> {
        let blocks = self.0.range(range.start / BLOCK..=range.end / BLOCK);
        let mut numbers =
            blocks.flat_map(|(block, of)| of.all().map(move |(place, _)| block * BLOCK + place));
        numbers.find(|number| *number >= range.start).filter(|first| *first < range.end)
    }

    /// Takes out those before a number, and answers their sequences.
    pub(super) fn take_before(&mut self, number: Number) -> Vec<u64> {
        let mut taken = Vec::new();
        while let Some(block) = self.0.first_entry().filter(|first| first.key() * BLOCK < number) {
            let (block, of) = block.remove_entry();
            let is_before = |(place, _): &(u64, u64)| block * BLOCK + place < number;
            let (before, behind): (Vec<_>, Vec<_>) = of.all().partition(is_before);
            taken.extend(before.into_iter().map(|(_, sequence)| sequence));
            if let Some(rest) = Block::new(&behind) {
                self.0.insert(block, rest);
                break;
            }
        }
        taken
    }

    fn change(&mut self, block: u64, change: impl FnOnce(&mut Vec<(u64, u64)>)) {
        let mut all: Vec<_> = self.0.get(&block).into_iter().flat_map(Block::all).collect();
        change(&mut all);
        match Block::new(&all) {
            Some(changed) => _ = self.0.insert(block, changed),
            None => _ = self.0.remove(&block),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sequences_are_those_that_were_noted(
            steps in prop::collection::vec((0u64..200, prop_oneof![0u64..4, any::<u64>()]), 0..300),
            (from, length) in (0u64..200, 0u64..100),
        ) {
            let (mut noted, mut map) = (Sequences::default(), BTreeMap::new());
            for (number, step) in steps {
                if let Some(sequence) = map.remove(&number) {
                    prop_assert_eq!(noted.remove(number), Some(sequence));
                } else {
                    // Most count up with the numbers.
                    let sequence = number.wrapping_add(step);
                    noted.insert(number, sequence);
                    map.insert(number, sequence);
                }
                prop_assert_eq!(noted.get(from), map.get(&from).copied());
            }
            let first = map.range(from..from + length).next().map(|(number, _)| *number);
            prop_assert_eq!(noted.first_in(from..from + length), first);
            let behind = map.split_off(&from);
            prop_assert_eq!(noted.take_before(from), map.into_values().collect::<Vec<_>>());
            prop_assert_eq!(
                noted.take_before(u64::MAX),
                behind.into_values().collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn numbers_that_lie_close_take_few_bytes() {
        let mut noted = Sequences::default();
        (0..100_000).for_each(|number| noted.insert(2 * number, 3 * number));
        let steps: usize = noted.0.values().map(|block| block.steps.len()).sum();
        assert!(steps <= 100_000 && noted.0.len() == 3_125, "{steps} bytes");
    }
}
