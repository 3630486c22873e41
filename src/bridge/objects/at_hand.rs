//! What is watched and what was fetched, in one place.

use std::sync::Arc;

use super::{
    fetched::Fetched,
    lookup::{Found, Lookup},
    reference::Ref,
    watched::Watched,
};
use crate::bridge::now_ms;

/// A [`Lookup`] in what is watched first, then in what was fetched.
pub(super) struct AtHand {
    pub(super) watched: Arc<Watched>,
    pub(super) fetched: Fetched,
}

impl AtHand {
    pub(super) fn new(capacity: usize) -> Self {
        Self { watched: Arc::default(), fetched: Fetched::new(capacity) }
    }

    /// Whether objects like this are watched, so that what is at hand of them is never old.
    pub(super) fn watches(&self, object: Ref<'_>) -> bool {
        self.watched.watches(object)
    }
}

impl Lookup for AtHand {
    fn find(&self, object: Ref<'_>) -> Found {
        let watched = self.watched.find(object);
        watched.map_or_else(|| self.fetched.find(object, now_ms()), Found::Object)
    }
}
