//! Findings about objects, requests to the view, and its answers.

use std::sync::Arc;

use super::{Known, Place, Reference};
use crate::{correlate::Key, event::Missing};

/// The finding of ingest about the object of a record that it is about to write.
#[derive(Debug)]
pub(crate) struct Observation {
    pub(super) key: Key,
    pub(super) change: Change,
}

#[derive(Debug)]
pub(super) enum Change {
    /// All that is known holds still.
    None,
    /// All that is known holds still, but it is time to look again.
    Old(Reference),
    /// This is known from here on.
    Known(Finding),
    /// This much is known, and the rest is asked for.
    Partial(Finding, Reference),
    /// The object was asked for in vain.
    Missing(Missing),
    /// The object is asked for; the place is what the Event says.
    Unknown(Reference, Option<Place>),
}

/// The facts known of an object, and where they are from.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) known: Arc<Known>,
    pub(super) fingerprint: u64,
    pub(super) place: Option<Place>,
    pub(super) incomplete: bool,
}

/// How what is at hand of an object compares with what is known of it.
pub(super) enum Comparison {
    Same,
    Old,
    /// The object is new; the place is what is known of that, and `patient` says not to ask for more yet.
    Change {
        place: Option<Place>,
        patient: bool,
    },
}

/// The state of an object of which nothing is at hand.
pub(super) enum Remembered {
    Known(Arc<Known>),
    /// Known, but it is time to look again.
    Old(Arc<Known>),
    /// Not known, and it is too early to ask again.
    Missing,
    Nothing,
}

/// The answer to a request for an object.
pub(super) enum Answer {
    Known(Finding),
    Missing(Missing),
    /// The request is made again.
    Trouble(Missing),
    /// The request is not made any longer.
    Nothing,
}

/// How a record is enriched.
#[derive(Debug)]
pub(super) enum Decision {
    Known(Arc<Known>),
    /// Nothing is known, for good.
    Miss,
    /// Until this time at the latest, in milliseconds since the epoch.
    Wait(u64),
    /// The state store may know.
    Read,
}
