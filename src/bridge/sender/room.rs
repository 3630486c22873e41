//! The room for parked records, of which those that are not on the disk yet take theirs.

use std::collections::HashMap;

use crate::{
    event::with_namespace,
    journal::{DeadLetter, DeadLettersReader},
};

/// See the [module](self).
pub(super) struct Room {
    letters: DeadLettersReader,
    /// The size of the envelopes of parked records that are not settled yet, by namespace.
    unsettled: HashMap<String, u64>,
}

impl Room {
    pub(super) fn new(letters: DeadLettersReader) -> Self {
        Self { letters, unsettled: HashMap::new() }
    }

    /// Whether there is room for a record, beside so many bytes of letters that are settled and not saved. Records that
    /// were not even sent get half of what is left: those that were sent never wait for room behind them.
    pub(super) fn takes(&mut self, envelope: &[u8], unsaved: u64, is_sent: bool) -> bool {
        let namespace = with_namespace(envelope, str::to_owned);
        let size = envelope.len() as u64;
        let all = size + unsaved + self.unsettled.values().sum::<u64>();
        let own = size + unsaved + self.unsettled.get(&namespace).copied().unwrap_or_default();
        let part = if is_sent { 1 } else { 2 };
        let takes = self.letters.has_room_to_park(&namespace, part * own, part * all);
        if takes {
            *self.unsettled.entry(namespace).or_default() += size;
        }
        takes
    }

    /// A letter was settled.
    pub(super) fn settled(&mut self, letter: &DeadLetter) {
        if !letter.is_parked() {
            return;
        }
        let namespace = with_namespace(&letter.envelope, str::to_owned);
        if let Some(size) = self.unsettled.get_mut(&namespace) {
            *size = size.saturating_sub(letter.envelope.len() as u64);
            if *size == 0 {
                self.unsettled.remove(&namespace);
            }
        }
    }
}
