//! How many destinations a sink's templates may make: whoever may write Events must not fill a receiver with
//! indices, tenants or paths.
//!
//! The number for a day, of UTC, is bounded; one namespace makes at most an eighth of them, so that it leaves room for
//! the others. An event for one more is refused here. The destinations of a day are kept over restarts, by their hashes.

use std::sync::Arc;

use futures_util::{FutureExt as _, future::BoxFuture};
use sha2::{Digest as _, Sha256};

use super::{Failure, Outcome, Reason, RefusedClass, Secrets, Sink, SinkProgress, shared::now_ms};
use crate::{
    event::{Batch, EnvelopeParts, Record},
    journal::Destinations,
};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// The part of them that one namespace may make.
const SHARE: usize = 8;

/// A sink with a bounded number of destinations a day.
pub(super) struct Bounded {
    pub(super) sink: Arc<dyn Sink>,
    pub(super) most: usize,
    pub(super) progress: Arc<SinkProgress>,
}

impl Bounded {
    /// Takes the destination of a record, or says why it is not sent.
    fn admit(&self, record: &Record) -> Result<(), Reason> {
        let Some(destination) = self.sink.destination(record)? else { return Ok(()) };
        let namespace = || {
            let fields = EnvelopeParts::of(&record.envelope).and_then(|parts| parts.fields());
            fields.map_or(0, |event| hash(&event.metadata.namespace))
        };
        let day = now_ms() / DAY_MS;
        self.progress
            .destinations(|made| made.admit(self.most, day, hash(&destination), namespace))
            .map_err(|beyond| Secrets::none().reason(beyond))
    }
}

impl Sink for Bounded {
    fn begin(&self, journal_has_past: bool) {
        self.sink.begin(journal_has_past);
    }

    fn send<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Outcome> {
        let mut parts = Vec::new();
        let mut admitted = Vec::with_capacity(batch.records.len());
        for (at, record) in batch.records.iter().enumerate() {
            match self.admit(record) {
                Ok(()) => admitted.push(at),
                Err(reason) => {
                    let failure = Failure::refused(RefusedClass::Unsendable, reason);
                    parts.push((vec![at], Outcome::Failed(failure)));
                }
            }
        }
        if parts.is_empty() {
            return self.sink.send(batch);
        }
        async move {
            let records: Vec<_> = admitted.iter().map(|at| batch.records[*at].clone()).collect();
            if !records.is_empty() {
                parts.push((admitted, self.sink.send(&Batch { records }).await));
            }
            Outcome::of_parts(batch.records.len(), parts)
        }
        .boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.sink.close()
    }
}

/// Why a destination is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Beyond {
    #[error("expected at most {0} destinations a day, found one more: see `maxDestinations`")]
    All(usize),
    #[error(
        "expected at most {0} destinations a day by one namespace, found one more: see `maxDestinations`"
    )]
    Namespace(usize),
}

impl Destinations {
    /// Takes the destination of an event of a namespace, by their hashes.
    fn admit(
        &mut self,
        most: usize,
        day: u64,
        destination: u64,
        namespace: impl FnOnce() -> u64,
    ) -> Result<(), Beyond> {
        if day != self.day {
            *self = Self { day, made: Vec::new() };
        }
        let Err(at) = self.made.binary_search_by_key(&destination, |(made, _)| *made) else {
            return Ok(());
        };
        if self.made.len() >= most {
            return Err(Beyond::All(most));
        }
        let namespace = namespace();
        let share = (most / SHARE).max(1);
        if self.made.iter().filter(|(_, by)| *by == namespace).count() >= share {
            return Err(Beyond::Namespace(share));
        }
        self.made.insert(at, (destination, namespace));
        Ok(())
    }
}

/// A hash for which nobody finds a second text.
fn hash(text: &str) -> u64 {
    let digest = Sha256::digest(text.as_bytes());
    digest[..8].iter().fold(0, |hash, byte| hash << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_a_number_of_destinations_and_a_namespace_an_eighth_of_them() {
        let mut made = Destinations::default();
        let mut admit =
            |most, day, namespace, destination| made.admit(most, day, destination, || namespace);
        for n in 0..2 {
            assert_eq!(admit(16, 7, 1, n), Ok(()));
        }
        assert_eq!(admit(16, 7, 1, 2), Err(Beyond::Namespace(2)));
        // A destination that is known is for everyone.
        assert_eq!(admit(16, 7, 1, 1), Ok(()));
        for n in 2..16 {
            assert_eq!(admit(16, 7, n, n), Ok(()));
        }
        assert_eq!(admit(16, 7, 99, 99), Err(Beyond::All(16)));
        assert_eq!(admit(16, 8, 1, 99), Ok(()));
        // The clock was ahead.
        assert_eq!(admit(16, 7, 1, 98), Ok(()));
        assert_eq!(admit(3, 9, 1, 1), Ok(()));
        assert_eq!(admit(3, 9, 1, 2), Err(Beyond::Namespace(1)));
    }

    #[test]
    fn destinations_are_saved_with_a_sink_and_read_again() {
        let mut state = crate::journal::SinkState::default();
        let bare = serde_json::to_string(&state).unwrap();
        assert!(!bare.contains("destinations"), "{bare}");
        assert_eq!(serde_json::from_str::<crate::journal::SinkState>(&bare).unwrap(), state);
        state.destinations = Destinations { day: 20_000, made: vec![(u64::MAX, hash("shop"))] };
        let saved = serde_json::to_string(&state).unwrap();
        assert_eq!(serde_json::from_str::<crate::journal::SinkState>(&saved).unwrap(), state);
    }
}
