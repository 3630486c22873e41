//! Records that are set aside, and how many of each namespace.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};

use super::{Kept, Number};
use crate::bridge::NamespaceSetAside;

/// The copies of one sink, by number. See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Copies {
    all: BTreeMap<Number, Copy>,
    of: HashMap<Box<str>, u64>,
}

/// A record that is set aside.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) namespace: Box<str>,
    pub(super) attempts: u32,
    pub(super) first_ms: u64,
    pub(super) kept: Kept,
}

impl Copies {
    pub(super) fn insert(&mut self, number: Number, copy: Copy) {
        *self.of.entry(copy.namespace.clone()).or_default() += 1;
        self.all.insert(number, copy);
    }

    pub(super) fn get(&self, number: Number) -> Option<&Copy> {
        self.all.get(&number)
    }

    pub(super) fn remove(&mut self, number: Number) -> Option<Copy> {
        let copy = self.all.remove(&number)?;
        if let Some(left) = self.of.get_mut(&copy.namespace) {
            *left -= 1;
            if *left == 0 {
                self.of.remove(&copy.namespace);
            }
        }
        Some(copy)
    }

    /// The namespaces that have most, those first.
    pub(super) fn first(&self, most: usize) -> Vec<NamespaceSetAside> {
        let mut all: Vec<_> = self.of.iter().collect();
        all.sort_unstable_by_key(|(namespace, events)| (Reverse(**events), *namespace));
        let first = all.into_iter().take(most).map(|(namespace, events)| NamespaceSetAside {
            namespace: namespace.to_string(),
            events: *events,
        });
        first.collect()
    }
}
