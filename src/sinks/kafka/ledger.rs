//! What has been handed to librdkafka and not yet been settled with the bridge.

use std::{collections::BTreeMap, ops::Range};

use rdkafka::types::RDKafkaErrorCode;

use super::reports::Report;
use crate::bridge::{EventFate, Failure};

/// Where a record is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum State {
    /// In librdkafka's queue or in flight.
    Queued,
    /// All replicas have it.
    Acked,
    /// It was not taken.
    Failed(RDKafkaErrorCode),
    /// It was never queued and never will be, so nothing behind it is held up.
    Unqueueable(Failure),
}

/// Records by their place in the journal.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    states: BTreeMap<u64, State>,
    outstanding: usize,
    /// How many were queued since nothing was outstanding: whether an error can be about one of
    /// them alone.
    together: usize,
}

impl Ledger {
    /// How many reports are due.
    pub(super) fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Whether the last failure can only be about one record, because it travelled alone. Brokers
    /// refuse a whole message set for one bad record, or for the size of all.
    pub(super) fn was_alone(&self) -> bool {
        self.together == 1
    }

    pub(super) fn get(&self, seq: u64) -> Option<&State> {
        self.states.get(&seq)
    }

    pub(super) fn queued(&mut self, seq: u64) {
        if self.outstanding == 0 {
            self.together = 0;
        }
        self.outstanding += 1;
        self.together += 1;
        self.states.insert(seq, State::Queued);
    }

    pub(super) fn unqueueable(&mut self, seq: u64, failure: Failure) {
        self.states.insert(seq, State::Unqueueable(failure));
    }

    /// Notes a delivery report.
    pub(super) fn apply(&mut self, report: Report) {
        if let Some(state @ State::Queued) = self.states.get_mut(&report.seq) {
            *state = report.error.map_or(State::Acked, State::Failed);
            self.outstanding -= 1;
        }
    }

    /// Forgets the settled records that are not among these. The bridge never comes back to those
    /// before; those behind are errands' where these are live, and are sent again.
    pub(super) fn keep(&mut self, these: &Range<u64>) {
        self.states.retain(|seq, state| these.contains(seq) || *state == State::Queued);
    }

    /// The first of these records that failed.
    pub(super) fn first_failed(&self, these: &Range<u64>) -> Option<(u64, RDKafkaErrorCode)> {
        self.states.range(these.clone()).find_map(|(seq, state)| match state {
            State::Failed(code) => Some((*seq, *code)),
            _ => None,
        })
    }

    /// The final fate of a record, if it has one; it is the bridge's from then on.
    pub(super) fn settle(&mut self, seq: u64) -> Option<EventFate> {
        if matches!(self.states.get(&seq), Some(State::Acked | State::Unqueueable(..))) {
            return self.states.remove(&seq).map(|state| match state {
                State::Unqueueable(failure) => EventFate::Failed(failure),
                _ => EventFate::Delivered,
            });
        }
        None
    }

    /// Forgets everything from `seq` on, to be queued anew. Only when nothing is outstanding.
    pub(super) fn forget_from(&mut self, seq: u64) {
        self.states.split_off(&seq);
    }

    /// Takes the outstanding reports for lost: their producer is gone.
    pub(super) fn abandon(&mut self) {
        self.states.retain(|_, state| *state != State::Queued);
        self.outstanding = 0;
    }
}
