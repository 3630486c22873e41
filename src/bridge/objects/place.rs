//! Where an object is, and whose word that is.

/// The node that an object is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) node: Box<str>,
    /// Only an Event says so; otherwise the API server does.
    pub(super) claimed: bool,
    /// The uid of the object that is there: another one of its name may be elsewhere.
    pub(super) uid: Box<str>,
}

impl Place {
    /// The place that an Event claims.
    pub(super) fn claimed(node: &str, uid: &str) -> Self {
        Self { node: node.into(), claimed: true, uid: uid.into() }
    }

    /// Whether an Event's claim about this object is to be put in its place: what the API server said
    /// stays, as an object does not go elsewhere.
    pub(super) fn gives_way_to(&self, node: &str, uid: &str) -> bool {
        *self.uid != *uid || self.claimed && *self.node != *node
    }

    /// The one of two that is to be kept, of which the second came later.
    pub(super) fn newer(known: Option<Self>, came: Option<Self>) -> Option<Self> {
        match (known, came) {
            (Some(known), Some(came)) => {
                let keep = came.claimed && !known.gives_way_to(&came.node, &came.uid);
                Some(if keep { known } else { came })
            }
            (known, came) => came.or(known),
        }
    }
}
