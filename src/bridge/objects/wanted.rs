//! What of objects is kept: all that any sink asks for.

use std::sync::Arc;

use super::{
    Enrich, KeyPatterns, Known,
    lookup::{Chain, MIRROR},
    reference::Ref,
};
use crate::{
    cache::Metadata,
    event::{ObjectInfo, Owner},
};

/// What every sink asks for, together.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    sinks: Vec<Enrich>,
    pub(super) owners: bool,
    pub(super) node: bool,
}

impl Wanted {
    pub(super) fn new(sinks: Vec<Enrich>) -> Self {
        let owners = sinks.iter().any(|sink| sink.owners);
        let node = sinks.iter().any(|sink| sink.node);
        Self { sinks, owners, node }
    }

    /// Forgets what no sink asks for, so that what is watched takes less memory.
    pub(super) fn keep_of(&self, object: &mut Metadata) {
        object.retain_labels(|key| self.asks(|sink| &sink.labels, key));
        object.retain_annotations(|key| key == MIRROR || self.asks(|sink| &sink.annotations, key));
    }

    /// Whether any sink asks for a label or an annotation.
    fn asks(&self, keys: fn(&Enrich) -> &KeyPatterns, key: &str) -> bool {
        self.sinks.iter().any(|sink| keys(sink).contain(key))
    }

    /// What is kept of an object, on a node that may be known from elsewhere.
    pub(super) fn known(&self, object: Ref<'_>, chain: &Chain, node: Option<&str>) -> Arc<Known> {
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let labels = chain.object().labels().filter(|(key, _)| self.asks(|sink| &sink.labels, key));
        let annotations = chain.object().annotations();
        let annotations = annotations.filter(|(key, _)| self.asks(|sink| &sink.annotations, key));
        let owners = chain.owners();
        Arc::new(Known::new(ObjectInfo {
            labels: labels.map(owned).collect(),
            annotations: annotations.map(owned).collect(),
            node: self.node_of(object, &owners, node),
            owners,
            missing: None,
        }))
    }

    /// The node of an object, as far as that is asked for: of a Node its name, of a Pod that mirrors a
    /// static one its owner, of another one what is known from elsewhere.
    fn node_of(&self, object: Ref<'_>, owners: &[Owner], node: Option<&str>) -> Option<String> {
        if !self.node {
            return None;
        }
        if object.is_node() {
            return Some(object.name.to_owned());
        }
        let mirrored = owners.iter().find(|owner| owner.kind == "Node" && object.is_pod());
        node.or(mirrored.map(|owner| &*owner.name)).map(str::to_owned)
    }

    /// Whether the node of an object has to be asked for.
    pub(super) fn lacks_node(&self, object: Ref<'_>, known: &ObjectInfo) -> bool {
        self.node && object.is_pod() && known.node.is_none()
    }
}
