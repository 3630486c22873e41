//! What is watched and what was fetched, in one place.

use std::sync::{Arc, OnceLock};

use super::{
    fetched::Fetched,
    lookup::{Found, Lookup},
    reference::Ref,
    watched::Watched,
};
use crate::bridge::now_ms;

/// A [`Lookup`] in what is watched first, then in what was fetched.
pub(super) struct AtHand {
    /// Nothing before the watches are set up.
    watched: OnceLock<Arc<Watched>>,
    pub(super) fetched: Fetched,
}

impl AtHand {
    pub(super) fn new(capacity: usize) -> Self {
        Self { watched: OnceLock::new(), fetched: Fetched::new(capacity) }
    }

    /// From now on this is watched.
    pub(super) fn set_watched(&self, watched: Arc<Watched>) {
        // A bridge sets its watches up once.
        let _ = self.watched.set(watched);
    }

    /// Whether objects like this are watched, so that what is at hand of them is never old.
    pub(super) fn watches(&self, object: Ref<'_>) -> bool {
        self.watched.get().is_some_and(|watched| watched.watches(object))
    }
}

impl Lookup for AtHand {
    fn find(&self, object: Ref<'_>) -> Found {
        let watched = self.watched.get().and_then(|watched| watched.find(object, now_ms()));
        watched.map_or_else(|| self.fetched.find(object, now_ms()), Found::Object)
    }
}
