//! The facts known of an object, and those that each sink is told of.

use std::sync::OnceLock;

use bytes::Bytes;

use super::Enrich;
use crate::event::{Missing, ObjectInfo};

/// For so many sinks it is kept what they are told; for more it is made anew each time.
const KEPT: usize = 4;

/// The facts known of an object, as far as any sink asks for them.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) info: ObjectInfo,
    told: [OnceLock<Bytes>; KEPT],
}

impl Known {
    pub(super) fn new(info: ObjectInfo) -> Self {
        Self { info, told: Default::default() }
    }

    /// Nothing is, and why.
    pub(super) fn missing(why: Missing) -> Self {
        Self::new(ObjectInfo { missing: Some(why), ..ObjectInfo::default() })
    }

    /// Whether an Event's claim to another node is to be put in the place of what is known.
    pub(super) fn gives_way_to(&self, claim: &str) -> bool {
        let known = self.info.node.as_deref();
        known != Some(claim) && (known.is_none() || self.info.node_claimed)
    }

    /// The member `object` for a sink, by its number among those that ask for it.
    pub(super) fn told(&self, sink: usize, enrich: &Enrich) -> Bytes {
        // A struct of strings and maps with string keys always serialises.
        let tell = || serde_json::to_vec(&enrich.of(&self.info)).unwrap_or_default().into();
        match self.told.get(sink) {
            Some(told) => told.get_or_init(tell).clone(),
            None => tell(),
        }
    }
}
