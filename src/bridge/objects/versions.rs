//! Versions of one object, by the records that they are true of.
//!
//! A record is enriched with the newest version that begins at it or before it. A version, once it
//! is there, stays as it is, and one that is added begins behind every record that has been
//! enriched already. So the same record is enriched alike whenever that is done.

use std::sync::Arc;

use super::Known;
use crate::event::ObjectInfo;

/// The facts known from a record on.
#[derive(Clone, Debug)]
pub(super) struct Version {
    /// The sequence of the first record that it is true of.
    pub(super) from: u64,
    pub(super) known: Arc<Known>,
}

/// Versions of one object, each true until the next one begins.
#[derive(Clone, Debug, Default)]
pub(super) struct Versions(Vec<Version>);

impl Versions {
    /// The version that a record is enriched with.
    pub(super) fn at(&self, sequence: u64) -> Option<&Version> {
        let behind = self.0.partition_point(|version| version.from <= sequence);
        self.0[..behind].last()
    }

    pub(super) fn last(&self) -> Option<&Version> {
        self.0.last()
    }

    /// Adds a version, unless it says what the newest says; answers whether it did. It takes the
    /// place of those that begin at it or behind it: no record has been enriched with them.
    pub(super) fn push(&mut self, from: u64, known: Arc<Known>) -> bool {
        let kept = self.0.partition_point(|version| version.from < from);
        let says =
            |last: &Version| Arc::ptr_eq(&last.known, &known) || last.known.info == known.info;
        if kept == self.0.len() && self.0.last().is_some_and(says) {
            return false;
        }
        self.0.truncate(kept);
        self.0.push(Version { from, known });
        true
    }

    /// Puts versions before those that are there; where they meet, the latter hold. Answers where
    /// the last one begins that was put.
    pub(super) fn put_before(&mut self, mut older: Self) -> u64 {
        let first = self.0.first().map_or(u64::MAX, |version| version.from);
        older.0.retain(|version| version.from < first);
        let last = older.0.last().map_or(0, |version| version.from);
        self.0.splice(0..0, older.0);
        last
    }

    /// Drops what no record from `oldest` on is enriched with.
    pub(super) fn drop_before(&mut self, oldest: u64) {
        let behind = self.0.partition_point(|version| version.from <= oldest);
        self.0.drain(..behind.saturating_sub(1));
    }

    /// Those that begin behind a sequence.
    pub(super) fn after(&self, sequence: u64) -> &[Version] {
        &self.0[self.0.partition_point(|version| version.from <= sequence)..]
    }

    /// Loads what the state store holds of an object. A version that cannot be read is left out.
    pub(super) fn load(saved: Vec<(u64, Vec<u8>)>) -> Self {
        let mut versions = Self::default();
        for (from, json) in saved {
            if let Ok(info) = serde_json::from_slice::<ObjectInfo>(&json) {
                versions.push(from, Arc::new(Known::new(info)));
            }
        }
        versions
    }
}

impl Version {
    /// The form in which the state store holds it.
    pub(super) fn save(&self) -> (u64, Vec<u8>) {
        // A struct of strings and maps with string keys always serialises.
        (self.from, serde_json::to_vec(&self.known.info).unwrap_or_default())
    }
}
