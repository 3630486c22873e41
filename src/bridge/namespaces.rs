//! Of which namespaces Events were cut or shed, and how many: for whoever asks who writes so much.

use std::{cmp::Reverse, collections::HashMap};

use serde::Serialize;

/// So many namespaces are known; of more, the one with the least gives way.
const KNOWN: usize = 256;

/// Counts of what became of Events of one namespace on their way into the journal, since the start of the
/// process.
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
pub(super) struct Counts {
    pub(super) shed: u64,
    pub(super) truncated: u64,
}

/// Counts of cut and shed Events by namespace. See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Namespaces(HashMap<Box<str>, Counts>);

impl Namespaces {
    pub(super) fn note(&mut self, namespace: &str, count: impl FnOnce(&mut Counts)) {
        if !self.0.contains_key(namespace) {
            if self.0.len() >= KNOWN
                && let Some((least, _)) = self.0.iter().min_by_key(|(_, counts)| **counts)
            {
                let least = least.clone();
                self.0.remove(&least);
            }
            self.0.insert(namespace.into(), Counts::default());
        }
        self.0.get_mut(namespace).map(count);
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
    fn of_ten_thousand_namespaces_those_stay_of_which_most_was_shed_or_cut() {
        let mut namespaces = Namespaces::default();
        for n in 0..10_000 {
            namespaces.note(&format!("n{n}"), |counts| counts.truncated += 1);
            namespaces.note("loud", |counts| counts.truncated += 1);
            if n % 2 == 0 {
                namespaces.note("louder", |counts| counts.shed += 1);
                namespaces.note("less", |counts| counts.truncated += 1);
            }
        }
        assert_eq!(namespaces.0.len(), KNOWN);
        let first = namespaces.first(3);
        let found: Vec<_> = first.iter().map(|n| (&*n.namespace, n.truncated, n.shed)).collect();
        assert_eq!(found, [("louder", 0, 5000), ("loud", 10_000, 0), ("less", 5000, 0)]);
    }
}
