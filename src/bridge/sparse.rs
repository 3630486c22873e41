//! Values by number, where numbers lie close to each other: little more room than the values take.

use std::{collections::BTreeMap, ops::Range};

/// So many numbers have one block.
const BLOCK: u64 = 64;

/// Values by number. See the [module](self).
#[derive(Debug)]
pub(super) struct Sparse<T>(BTreeMap<u64, Block<T>>);

/// The values of a block, in order, and which numbers they have.
#[derive(Debug)]
struct Block<T> {
    has: u64,
    values: Vec<T>,
}

impl<T> Default for Sparse<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> Block<T> {
    /// Where the value of a number is, or belongs.
    fn place(&self, bit: u64) -> usize {
        (self.has & (bit - 1)).count_ones() as usize
    }
}

fn bit(number: u64) -> u64 {
    1 << (number % BLOCK)
}

impl<T> Sparse<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, number: u64) -> Option<&T> {
        let (block, bit) = (self.0.get(&(number / BLOCK))?, bit(number));
        (block.has & bit > 0).then(|| &block.values[block.place(bit)])
    }

    pub(super) fn contains(&self, number: u64) -> bool {
        self.get(number).is_some()
    }

    /// Adds the value of a number that has none.
    pub(super) fn insert(&mut self, number: u64, value: T) {
        let block = self.0.entry(number / BLOCK);
        // Most are alone, or many.
        let block = block.or_insert_with(|| Block { has: 0, values: Vec::with_capacity(1) });
        debug_assert!(block.has & bit(number) == 0, "{number} has a value");
        let place = block.place(bit(number));
        block.values.insert(place, value);
        block.has |= bit(number);
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<T> {
        let (block, bit) = (self.0.get_mut(&(number / BLOCK))?, bit(number));
        if block.has & bit == 0 {
            return None;
        }
        let value = block.values.remove(block.place(bit));
        block.has &= !bit;
        if block.has == 0 {
            self.0.remove(&(number / BLOCK));
        }
        Some(value)
    }

    /// The first number of a range that has a value.
    pub(super) fn first_in(&self, range: Range<u64>) -> Option<u64> {
        self.numbers_from(range.start).next().filter(|number| *number < range.end)
    }

    /// The numbers from one on that have values, in order.
    pub(super) fn numbers_from(&self, from: u64) -> impl Iterator<Item = u64> {
        let blocks = self.0.range(from / BLOCK..);
        let numbers = blocks.flat_map(|(at, block)| {
            let bits = (0..BLOCK).filter(|bit| block.has >> bit & 1 > 0);
            bits.map(move |bit| at * BLOCK + bit)
        });
        numbers.skip_while(move |number| *number < from)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sparse_map_has_what_a_map_has(
            steps in prop::collection::vec((0u64..300, any::<bool>()), 0..400),
            from in 0u64..300,
        ) {
            let (mut sparse, mut map) = (Sparse::default(), BTreeMap::new());
            for (at, (number, adds)) in steps.into_iter().enumerate() {
                if adds && !map.contains_key(&number) {
                    sparse.insert(number, at);
                    map.insert(number, at);
                } else {
                    prop_assert_eq!(sparse.remove(number), map.remove(&number));
                }
                prop_assert_eq!(sparse.get(from), map.get(&from));
            }
            let all: Vec<_> = map.range(from..).map(|(number, _)| *number).collect();
            prop_assert_eq!(sparse.numbers_from(from).collect::<Vec<_>>(), &all[..]);
            let first = all.first().copied().filter(|number| *number < 250);
            prop_assert_eq!(sparse.first_in(from..250), first);
            prop_assert_eq!(sparse.is_empty(), map.is_empty());
        }
    }
}
