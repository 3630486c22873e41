//! The different messages of what is held.

use std::collections::VecDeque;

use tidings_kube::correlator::Key;

/// Which versions bore the first and the last of the different messages. Their words stay in the log,
/// which keeps what is held, so none is kept here and no length of one takes room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::bridge) struct Messages {
    /// The messages, in the order in which they first came.
    pub(super) known: Vec<u64>,
    /// The versions that bore the first of them first.
    pub(super) first: Vec<u64>,
    /// Those of the others that came last, in that order, and the versions that bore them last.
    pub(super) last: VecDeque<(u64, u64)>,
}

impl Messages {
    /// So many are told apart: beyond that it is not known whether one came before.
    pub(super) const MOST_KNOWN: usize = 32;
    /// So many of the first, and so many of the last, are told.
    pub(super) const MOST_TOLD: usize = 4;

    /// The version `seq`, the latest so far, bore a message.
    pub(super) fn add(&mut self, message: Key, seq: u64) {
        // Half of the key: few have to be told apart.
        let message = u128::from_le_bytes(message.to_bytes()) as u64;
        let known = self.known.iter().position(|known| *known == message);
        if known.is_none() && self.known.len() < Self::MOST_KNOWN {
            self.known.push(message);
            if self.first.len() < Self::MOST_TOLD {
                self.first.push(seq);
                return;
            }
        }
        if known.is_some_and(|at| at < Self::MOST_TOLD) {
            return;
        }
        self.last.retain(|(told, _)| *told != message);
        if self.last.len() == Self::MOST_TOLD {
            self.last.pop_front();
        }
        self.last.push_back((message, seq));
    }

    /// How many there are, or [`MOST_KNOWN`](Self::MOST_KNOWN) if there may be more.
    pub(super) fn distinct(&self) -> u64 {
        self.known.len() as u64
    }

    /// The versions that bore those that are told, in their order.
    pub(super) fn sequences(self) -> impl Iterator<Item = u64> {
        self.first.into_iter().chain(self.last.into_iter().map(|(_, seq)| seq))
    }
}
