//! Of which namespaces Events were cut, and how many: for whoever asks who writes so much.

use std::collections::HashMap;

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
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Namespaces(HashMap<Box<str>, u64>);

impl Namespaces {
    /// An Event of it was cut.
    pub(super) fn note_cut(&mut self, namespace: &str) {
        if let Some(count) = self.0.get_mut(namespace) {
            *count += 1;
            return;
        }
        let least = self.0.iter().min_by_key(|(_, count)| **count);
        let least = least.filter(|_| self.0.len() >= KNOWN).map(|(name, _)| name.clone());
        if let Some(least) = least {
            self.0.remove(&least);
        }
        self.0.insert(namespace.into(), 1);
    }

    /// Those of which most were cut, those first.
    pub(super) fn first(&self, most: usize) -> Vec<NamespaceCounts> {
        let mut counts: Vec<_> = self.0.iter().collect();
        counts.sort_unstable_by(|(a, cut_a), (b, cut_b)| cut_b.cmp(cut_a).then(a.cmp(b)));
        let first = counts.into_iter().take(most).map(|(namespace, truncated)| NamespaceCounts {
            namespace: namespace.to_string(),
            truncated: *truncated,
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
                namespaces.note_cut("louder");
                namespaces.note_cut("louder");
                namespaces.note_cut("less");
            }
        }
        assert_eq!(namespaces.0.len(), KNOWN);
        let first: Vec<_> =
            namespaces.first(3).into_iter().map(|n| (n.namespace, n.truncated)).collect();
        let expected = [("loud", 10_000), ("louder", 10_000), ("less", 5000)];
        assert_eq!(first, expected.map(|(name, count)| (name.to_owned(), count)));
    }
}
