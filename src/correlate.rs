//! The correlator: which events are similar, which are repeats, which are too many.
//!
//! The core works on [fingerprints](Key) and knows no Event: an [`Aggregator`] says which of a
//! group's members are to be combined, a [`SpamFilter`] how many events a source may send about an
//! object. Both keep a bounded number of entries, the least recently used goes first, and neither
//! has a clock: time is handed in as nanoseconds since the Unix epoch. Both can be saved and
//! loaded, see [`Aggregator::save`] and [`SpamFilter::save`]; the [`Keys`] belong to what they
//! made, so they are saved with it.

mod aggregate;
mod bounded;
pub mod defaults;
mod key;
mod saved;
mod spam;
#[cfg(test)]
mod tests;

pub use aggregate::{Aggregator, Observed};
pub use key::{Key, Keys};
pub use saved::Damaged;
pub use spam::SpamFilter;
