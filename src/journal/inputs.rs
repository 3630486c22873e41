//! Inputs that a correlator decided by, in the order of the log: enough to decide the same again when the
//! log no longer has the records.

use std::{collections::VecDeque, ops::Range};

/// The inputs of one decision, in the correlator's own form.
pub type InputBytes = [u8; 89];

/// A sequence and what was decided by there.
const SIZE: usize = size_of::<u64>() + size_of::<InputBytes>();

/// The inputs of one correlator, each with the sequence of its record. Sequences only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inputs(VecDeque<(u64, InputBytes)>);

impl Inputs {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds one, behind all others, or instead of the last if that is of the same record.
    pub fn push(&mut self, seq: u64, input: InputBytes) {
        self.0.pop_back_if(|(last, _)| *last == seq);
        self.0.push_back((seq, input));
    }

    /// Takes in others by their places there. What they say of a stretch of the log holds, whatever
    /// was said of it before.
    pub fn merge(&mut self, others: &Self, places: Range<usize>) {
        let mut others = others.0.range(places).copied().peekable();
        let Some((first, _)) = others.peek().copied() else { return };
        let from = self.0.partition_point(|(seq, _)| *seq < first);
        if from == self.0.len() {
            self.0.extend(others);
            return;
        }
        let behind = self.0.split_off(from);
        self.0.extend(others);
        let last = self.0.back().map_or(0, |(seq, _)| *seq);
        self.0.extend(behind.into_iter().filter(|(seq, _)| *seq > last));
    }

    /// The sequence of the first of them; 0 if there are none.
    pub(super) fn start(&self) -> u64 {
        self.0.front().map_or(0, |(seq, _)| *seq)
    }

    /// The sequence after the last of them; 0 if there are none.
    pub(crate) fn end(&self) -> u64 {
        self.0.back().map_or(0, |(seq, _)| seq + 1)
    }

    /// Drops those of records before a sequence.
    pub fn drop_before(&mut self, seq: u64) {
        let gone = self.0.partition_point(|(own, _)| *own < seq);
        self.0.drain(..gone);
    }

    /// Leaves the last so many.
    pub(super) fn leave_last(&mut self, most: usize) {
        let over = self.0.len().saturating_sub(most);
        self.0.drain(..over);
    }

    /// Those of a range of records.
    pub fn of(&self, records: Range<u64>) -> impl Iterator<Item = (u64, &InputBytes)> {
        let from = self.0.partition_point(|(seq, _)| *seq < records.start);
        let within = self.0.range(from..).take_while(move |(seq, _)| *seq < records.end);
        within.map(|(seq, input)| (*seq, input))
    }

    /// Appends them, for [`parse`](Self::parse).
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.reserve(self.len() * SIZE);
        for (seq, input) in &self.0 {
            out.extend_from_slice(&seq.to_le_bytes());
            out.extend_from_slice(input);
        }
    }

    /// Parses what [`write`](Self::write) wrote; a part of one at the end is left out.
    pub(super) fn parse(bytes: &[u8]) -> Self {
        let (whole, _) = bytes.as_chunks::<SIZE>();
        let parsed = whole.iter().filter_map(|one| {
            let (seq, input) = one.split_first_chunk()?;
            Some((u64::from_le_bytes(*seq), *input.first_chunk()?))
        });
        Self(parsed.collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn inputs(of: &BTreeMap<u64, u8>) -> Inputs {
        let mut inputs = Inputs::default();
        for (seq, byte) in of {
            inputs.push(*seq, [*byte; 89]);
        }
        inputs
    }

    proptest! {
        #[test]
        fn merged_inputs_say_of_each_stretch_what_was_said_last(
            first in prop::collection::btree_map(0u64..60, any::<u8>(), 0..40),
            second in prop::collection::btree_map(0u64..60, any::<u8>(), 0..40),
            (from, length) in (0u64..60, 0u64..60),
        ) {
            let mut merged = inputs(&first);
            merged.merge(&inputs(&second), 0..second.len());
            let mut expected = first.clone();
            if let (Some((low, _)), Some((high, _))) = (second.first_key_value(), second.last_key_value()) {
                expected.retain(|seq, _| !(low..=high).contains(&seq));
            }
            expected.extend(&second);
            prop_assert_eq!(&merged, &inputs(&expected));
            let mut bytes = Vec::new();
            merged.write(&mut bytes);
            prop_assert_eq!(Inputs::parse(&bytes), merged.clone());
            let of: Vec<u64> = merged.of(from..from + length).map(|(seq, _)| seq).collect();
            let within: Vec<u64> = expected.range(from..from + length).map(|(seq, _)| *seq).collect();
            prop_assert_eq!(of, within);
            merged.drop_before(from);
            expected.retain(|seq, _| *seq >= from);
            prop_assert_eq!(merged, inputs(&expected));
        }
    }
}
