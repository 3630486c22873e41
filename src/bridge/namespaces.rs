//! Of which namespaces Events were cut or shed, and how many: for whoever asks who writes so much.

use std::{cmp::Reverse, collections::HashMap};

use serde::Serialize;

/// So many namespaces are counted apart. Where there are more, the one with the least gives way, and
/// begins anew when it comes again.
const KNOWN: usize = 1024;

/// What became of a namespace's Events on their way into the journal, since the start of the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceCounts {
    /// The namespace.
    pub namespace: String,
    /// Changes journalled whose Event was cut.
    pub truncated: u64,
    /// Changes whose Event was shed: lost for every sink.
    pub shed: u64,
}

/// Ordered by what matters more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Counts {
    shed: u64,
    truncated: u64,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Namespaces(HashMap<Box<str>, Counts>);

impl Namespaces {
    /// An Event of it was cut.
    pub(super) fn note_cut(&mut self, namespace: &str) {
        self.of(namespace).truncated += 1;
    }

    /// An Event of it was shed.
    pub(super) fn note_shed(&mut self, namespace: &str) {
        self.of(namespace).shed += 1;
    }

    fn of(&mut self, namespace: &str) -> &mut Counts {
        if self.0.len() >= KNOWN && !self.0.contains_key(namespace) {
            let least = self.0.iter().min_by_key(|(_, counts)| **counts);
            let least = least.map(|(name, _)| name.clone()).unwrap_or_default();
            self.0.remove(&least);
        }
        self.0.entry(namespace.into()).or_default()
    }

    /// Those of which most were shed, and then cut, those first.
    pub(super) fn first(&self, most: usize) -> Vec<NamespaceCounts> {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_unstable_by_key(|(namespace, counts)| (Reverse(**counts), (*namespace).clone()));
        let first = all.into_iter().take(most).map(|(namespace, counts)| NamespaceCounts {
            namespace: namespace.to_string(),
            truncated: counts.truncated,
            shed: counts.shed,
        });
        first.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespaces_with_most_are_known_however_many_there_are() {
        let mut namespaces = Namespaces::default();
        for n in 0..10_000 {
            namespaces.note_cut(&format!("n{n}"));
            namespaces.note_cut("loud");
            if n % 2 == 0 {
                namespaces.note_shed("louder");
                namespaces.note_cut("less");
            }
        }
        assert_eq!(namespaces.0.len(), KNOWN);
        let first = namespaces.first(3);
        let found: Vec<_> = first.iter().map(|n| (&*n.namespace, n.truncated, n.shed)).collect();
        assert_eq!(found, [("louder", 0, 5000), ("loud", 10_000, 0), ("less", 5000, 0)]);
    }
}
