//! What a decision was made of.
//!
//! A correlator knows no clock, no disk and no chance, so what it decided can be decided again: after
//! a crash it is brought up with these, from where it was saved to where its sink is. The log is not
//! needed for that, which a sink may have stayed behind of, nor the `match` of that run.

use tidings_kube::correlator::Key;

use super::{Correlator, Decision, Names};
use crate::journal::{CorrelatorInputs, InputBytes, Inputs};

/// See the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bridge) struct Input {
    /// The record, which may have brought about no more than summaries.
    pub(in crate::bridge) seq: u64,
    /// When it was journalled, in milliseconds since the epoch.
    pub(in crate::bridge) time_ms: u64,
    /// What all records up to it took in the log.
    pub(in crate::bridge) read_bytes: u64,
    /// What it is counted under, and its increments; nothing if it was not decided on.
    pub(in crate::bridge) counted: Option<(Names, u64)>,
}

impl Input {
    /// Adds it to others, all of earlier records.
    pub(in crate::bridge) fn add_to(&self, inputs: &mut Inputs) {
        let none = Key::from_bytes([0; 16]);
        let (names, delta) = self
            .counted
            .unwrap_or((Names { event: none, group: none, local: none, spam: none }, 0));
        let mut out: InputBytes = [0; 89];
        let (numbers, rest) = out.split_at_mut(24);
        let all = [self.time_ms, self.read_bytes, delta];
        for (place, number) in numbers.as_chunks_mut().0.iter_mut().zip(all) {
            *place = number.to_le_bytes();
        }
        let keys = [names.event, names.group, names.local, names.spam];
        for (place, key) in rest.as_chunks_mut().0.iter_mut().zip(keys) {
            *place = key.to_bytes();
        }
        rest[64] = u8::from(self.counted.is_some());
        inputs.push(self.seq, out);
    }

    /// The one that [`add_to`](Self::add_to) added.
    pub(in crate::bridge) fn of(seq: u64, bytes: &InputBytes) -> Self {
        let (numbers, rest) = bytes.split_at(24);
        let number = |at: usize| u64::from_le_bytes(numbers.as_chunks().0[at]);
        let key = |at: usize| Key::from_bytes(rest.as_chunks().0[at]);
        let names = || Names { event: key(0), group: key(1), local: key(2), spam: key(3) };
        let counted = (rest[64] != 0).then(|| (names(), number(2)));
        Self { seq, time_ms: number(0), read_bytes: number(1), counted }
    }
}

impl Correlator {
    /// Comes to where it was when a record had been read. What is [due](Self::due) has to be taken
    /// after it.
    pub(super) fn read_to(&mut self, read_bytes: u64) {
        self.held.read_to(read_bytes);
    }

    /// Decides as it did before; nothing on a record that was not decided on. What came of it was
    /// done, or is the caller's.
    pub(super) fn decide_again(&mut self, input: &Input) -> Option<Decision> {
        let (names, delta) = input.counted.as_ref()?;
        Some(self.decide(names, input.seq, *delta, input.time_ms))
    }

    /// Takes what was settled in an earlier run: the decisions are the same again, and what came of
    /// them was done.
    pub(in crate::bridge) fn catch_up(&mut self, decided: &CorrelatorInputs, from: u64) {
        for (seq, bytes) in decided.inputs.of(from..decided.next) {
            let input = Input::of(seq, bytes);
            self.read_to(input.read_bytes);
            while self.due(input.time_ms).is_some() {}
            self.decide_again(&input);
        }
        self.read_to(decided.read_bytes);
    }
}
