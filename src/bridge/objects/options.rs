//! Options of enrichment: the parts of involved objects that are wanted, and how they are read.

use std::{fmt, str::FromStr, time::Duration};

use crate::event::ObjectInfo;

/// How what is known of involved objects is read; only where a sink [asks](Enrich) for it.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectOptions {
    /// These are watched, metadata only; whatever else events are about is fetched one by one.
    pub watch: Vec<ResourceName>,
    /// So many requests a second for what is fetched, on average.
    pub qps: u32,
    /// So many at once after a pause; at least 1.
    pub burst: u32,
    /// How long an event waits for its object at most, from when it was journalled.
    pub budget: Duration,
    /// Of so many objects it is kept in memory what is known, and of as many what was fetched; at
    /// least 1.
    pub cache: usize,
}

impl Default for ObjectOptions {
    fn default() -> Self {
        let watch = [("pods", ""), ("replicasets", "apps"), ("deployments", "apps")];
        Self {
            watch: watch.map(|(plural, group)| ResourceName::new(plural, group)).into(),
            qps: 10,
            burst: 20,
            budget: Duration::from_millis(250),
            cache: 4096,
        }
    }
}

impl ObjectOptions {
    /// The permissions that the API server has to give, in words.
    pub fn permissions(&self) -> String {
        let watched: Vec<_> = self.watch.iter().map(ToString::to_string).collect();
        let rest = "get for whatever else events are about";
        match &*watched {
            [] => rest.to_owned(),
            _ => format!("get, list and watch for {}; {rest}", watched.join(", ")),
        }
    }
}

/// A resource by its plural and group, as RBAC and `kubectl` name it: `pods`, `deployments.apps`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceName {
    /// Lower case.
    pub plural: String,
    /// Empty for the core group.
    pub group: String,
}

impl ResourceName {
    /// The resource of these names.
    pub fn new(plural: &str, group: &str) -> Self {
        Self { plural: plural.to_owned(), group: group.to_owned() }
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.group {
            "" => f.write_str(&self.plural),
            group => write!(f, "{}.{group}", self.plural),
        }
    }
}

/// A text that is no `plural` or `plural.group`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a resource, found `{0}`")]
pub struct ParseResourceError(String);

impl FromStr for ResourceName {
    type Err = ParseResourceError;

    fn from_str(text: &str) -> Result<Self, ParseResourceError> {
        let (plural, group) = text.split_once('.').unwrap_or((text, ""));
        let label = |label: &str| {
            !label.is_empty()
                && label.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'))
        };
        let no_group = group.is_empty() && !text.contains('.');
        if label(plural) && (no_group || group.split('.').all(label)) {
            Ok(Self::new(plural, group))
        } else {
            Err(ParseResourceError(text.to_owned()))
        }
    }
}

/// The parts of the objects that events are about that a sink wants to be told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Enrich {
    /// Which labels.
    pub labels: KeyPatterns,
    /// Which annotations.
    pub annotations: KeyPatterns,
    /// The controllers above it.
    pub owners: bool,
    /// The node on which it is.
    pub node: bool,
}

impl Enrich {
    /// The part of an object's info that the sink is told.
    pub(super) fn of(&self, info: &ObjectInfo) -> ObjectInfo {
        let pick = |keys: &KeyPatterns, from: &std::collections::BTreeMap<String, String>| {
            let wanted = from.iter().filter(|(key, _)| keys.contain(key));
            wanted.map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        ObjectInfo {
            labels: pick(&self.labels, &info.labels),
            annotations: pick(&self.annotations, &info.annotations),
            owners: if self.owners { info.owners.clone() } else { Vec::new() },
            node: info.node.clone().filter(|_| self.node),
            node_claimed: info.node_claimed && self.node,
            missing: info.missing,
        }
    }
}

/// Keys of labels or annotations: each is a key, or with a `*` at its end what keys begin with.
/// The default contains none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPatterns(Vec<String>);

impl KeyPatterns {
    /// Keys and patterns.
    pub fn new(patterns: impl IntoIterator<Item = String>) -> Self {
        Self(patterns.into_iter().collect())
    }

    /// Whether one of them is the key or a beginning of it.
    pub fn contain(&self, key: &str) -> bool {
        self.0.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(beginning) => key.starts_with(beginning),
            None => key == pattern,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_at_the_end_stands_for_every_end() {
        let patterns = KeyPatterns::new(["app".to_owned(), "team.example.com/*".to_owned()]);
        for key in ["app", "team.example.com/", "team.example.com/name"] {
            assert!(patterns.contain(key), "{key}");
        }
        for key in ["", "apps", "ap", "team.example.com", "x"] {
            assert!(!patterns.contain(key), "{key}");
        }
        assert!(KeyPatterns::new(["*".to_owned()]).contain("anything"));
        assert!(!KeyPatterns::default().contain("anything"));
    }

    #[test]
    fn resources_are_named_as_in_rbac() {
        for name in ["pods", "deployments.apps", "widgets.shop.example.com"] {
            assert_eq!(name.parse::<ResourceName>().unwrap().to_string(), name);
        }
        for bad in ["", ".", "pods.", ".apps", "Pods", "apps/v1", "pods.apps..x", "pod s"] {
            assert!(bad.parse::<ResourceName>().is_err(), "{bad:?}");
        }
    }
}
