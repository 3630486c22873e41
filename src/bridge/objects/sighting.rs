//! What is found about objects, what is asked of the view, and what it answers.

use std::sync::Arc;

use tidings_kube::correlator::Key;

use super::{Known, Place, Reference};
use crate::event::Missing;

/// What ingest finds about the object of a record that it is about to write.
#[derive(Debug)]
pub(in crate::bridge) struct Sighting {
    pub(super) key: Key,
    pub(super) news: News,
}

#[derive(Debug)]
pub(super) enum News {
    /// What is known still holds.
    None,
    /// It still holds, but it is time to look again.
    Old(Reference),
    /// This is known from here on.
    Known(Finding),
    /// This much is known, and the rest is asked for.
    Partial(Finding, Reference),
    /// It was asked for in vain.
    Missing(Missing),
    /// It is asked for; the place is what the Event says.
    Unknown(Reference, Option<Place>),
}

/// What is known of an object, and where from.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) known: Arc<Known>,
    pub(super) fingerprint: u64,
    pub(super) place: Option<Place>,
    pub(super) incomplete: bool,
}

/// How what is at hand of an object compares with what is known of it.
pub(super) enum Compared {
    Same,
    Old,
    /// It is news; the place is what is known of that, and `patient` says not to ask for more yet.
    News {
        place: Option<Place>,
        patient: bool,
    },
}

/// What is known of an object of which nothing is at hand.
pub(super) enum Remembered {
    Known(Arc<Known>),
    /// Known, but it is time to look again.
    Old(Arc<Known>),
    /// Not known, and it is too early to ask again.
    Missing,
    Nothing,
}

/// What came of asking.
pub(super) enum Answer {
    Known(Finding),
    Missing(Missing),
    /// It is tried again.
    Trouble(Missing),
    /// It is not tried any longer.
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
