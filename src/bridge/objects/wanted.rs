//! What of objects is kept: all that any sink asks for.

use std::sync::Arc;

use tidings_kube::object::Metadata;

use super::{
    Enrich, KeyPatterns, Known, Place,
    lookup::{Chain, MIRROR},
    reference::Ref,
};
use crate::event::{ObjectInfo, Owner};

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

    /// What is kept of an object, at a place that may be known from elsewhere.
    pub(super) fn known(
        &self,
        object: Ref<'_>,
        chain: &Chain,
        place: Option<&Place>,
    ) -> Arc<Known> {
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let labels = chain.object().labels().filter(|(key, _)| self.asks(|sink| &sink.labels, key));
        let annotations = chain.object().annotations();
        let annotations = annotations.filter(|(key, _)| self.asks(|sink| &sink.annotations, key));
        let owners = chain.owners();
        let place = place.filter(|place| *place.uid == *chain.uid());
        let node = self.node_of(object, &owners, place);
        Arc::new(Known::new(ObjectInfo {
            labels: labels.map(owned).collect(),
            annotations: annotations.map(owned).collect(),
            node_claimed: node.is_some_and(|(_, claimed)| claimed),
            node: node.map(|(node, _)| node.to_owned()),
            owners,
            missing: None,
        }))
    }

    /// The node of an object, as far as that is asked for, and whether it is only claimed: of a Node
    /// its name, of a Pod what the API server said of it, or the owner if it mirrors a static one, or
    /// what an Event claims.
    fn node_of<'a>(
        &self,
        object: Ref<'a>,
        owners: &'a [Owner],
        place: Option<&'a Place>,
    ) -> Option<(&'a str, bool)> {
        if !self.node {
            return None;
        }
        if object.is_node() {
            return Some((object.name, false));
        }
        let mirrored = owners.iter().find(|owner| owner.kind == "Node" && object.is_pod());
        match (place, mirrored) {
            (None | Some(Place { claimed: true, .. }), Some(owner)) => Some((&*owner.name, false)),
            (place, _) => place.map(|place| (&*place.node, place.claimed)),
        }
    }

    /// Whether the API server is to be asked for the node of an object.
    pub(super) fn lacks_node(&self, object: Ref<'_>, known: &ObjectInfo) -> bool {
        self.node && object.is_pod() && (known.node.is_none() || known.node_claimed)
    }
}
