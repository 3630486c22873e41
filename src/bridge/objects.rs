//! Enrichment: what is known of the objects that events are about, for the sinks that ask for it.
//!
//! ```text
//!              ┌ watched: informers, metadata only ┐
//! at hand  ◀───┤                                   ├──── resolver ◀── work queue ◀─┐
//!    │         └ fetched lately: a cache           ┘     (gets, within a budget)   │
//!    ▼ look                                                   │ answer        not known
//! ingest ──────────────▶ view: versions of each object ◀──────┘                    │
//!    │ observe, asks ─────────────────────────────────────────────────────────────-┘
//!    ▼                        │ decide        │ what is new, with the sinks' states
//!  log ──▶ feed ──▶ gather: enrich            ▼
//!                                        table `objects` ◀── a sink that is late, a restart
//! ```
//!
//! When a record is journalled, ingest looks what is at hand of its object. What is news is a new
//! *version* of what is known, true from this record on; what is not at hand is asked for, and the
//! record waits, at most for the budget from when it was journalled. A sink that comes to a record
//! enriches it with the version that is true at it, or with the reason why there is none. Whichever
//! sink comes first decides, and all others, late ones and those of later runs too, decide the same:
//! the rules are those of [`view`] and [`versions`], and what they need is kept beside the journal
//! as long as the records are.
//!
//! A crash may take what was decided in its last second, but then nobody has counted on it: the
//! sinks' states are taken before the versions, and saved with them. Records of that time are
//! observed once more at the start.

mod asked;
mod at_hand;
mod enricher;
mod facts;
mod fetched;
mod get;
mod known;
mod lookup;
mod options;
mod reference;
mod resolver;
mod sighting;
mod stored;
#[cfg(test)]
mod tests;
mod versions;
mod view;
mod wanted;
mod watched;

use std::{sync::Arc, time::Duration};

pub use self::options::{Enrich, KeyPatterns, NotAResource, ObjectOptions, ResourceName};
use self::{
    known::Known, reference::Reference, versions::Versions, view::View, wanted::Wanted,
};
