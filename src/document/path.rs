//! The way from the root of a configuration to one of its values.

use std::fmt;

use super::yaml::{Node, Origin, Value};

/// Keys and indices from the root. Shown as `sinks.audit.kafka.brokers[0]`.
#[derive(Clone, Debug)]
pub(crate) struct Path(Vec<Step>);

#[derive(Clone, Debug)]
enum Step {
    Key(String),
    Index(usize),
}

impl Path {
    pub(crate) fn root(key: &str) -> Self {
        Self(vec![Step::Key(key.to_owned())])
    }

    pub(crate) fn key(&self, key: &str) -> Self {
        self.step(Step::Key(key.to_owned()))
    }

    pub(crate) fn index(&self, index: usize) -> Self {
        self.step(Step::Index(index))
    }

    fn step(&self, step: Step) -> Self {
        Self(self.0.iter().cloned().chain([step]).collect())
    }

    /// Where the value stands; where it is absent, the key that it would stand below.
    pub(crate) fn origin<'n>(&self, root: &'n Node) -> &'n Origin {
        match self.find(root) {
            // The key says more than the first line of a block below it.
            (Some(Node { value: Value::Map(_) | Value::Null, .. }) | None, key) => key,
            (Some(node), _) => &node.origin,
        }
    }

    /// Where the key of the value stands, or that of the nearest one above it.
    pub(crate) fn key_origin<'n>(&self, root: &'n Node) -> &'n Origin {
        self.find(root).1
    }

    /// The value, if it is there, and where its key or that of the nearest one above it stands.
    fn find<'n>(&self, root: &'n Node) -> (Option<&'n Node>, &'n Origin) {
        let (mut node, mut origin) = (root, &root.origin);
        for step in &self.0 {
            let next = match (step, &node.value) {
                (Step::Key(key), Value::Map(_)) => node.get(key).map(|e| (&e.node, &e.key_origin)),
                (Step::Index(i), Value::List(items)) => items.get(*i).map(|n| (n, &n.origin)),
                _ => None,
            };
            match next {
                Some(next) => (node, origin) = next,
                None => return (None, origin),
            }
        }
        (Some(node), origin)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if i == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}
