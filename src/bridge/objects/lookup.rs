//! What is at hand of an object and of the controllers above it, without asking anyone.

use std::{hash::Hasher as _, sync::Arc};

use rustc_hash::FxHasher;
use tidings_kube::object::{Metadata, OwnerReference};

use super::reference::{Ref, Reference};
use crate::event::{Missing, Owner};

/// So many controllers are followed upwards.
pub(super) const MAX_OWNERS: usize = 8;
/// A static Pod is reported about under the uid that the kubelet gave it; the Pod that stands for it
/// at the API server has another one, and this annotation.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";

/// Where objects are at hand: what is watched, and what was fetched lately.
pub(super) trait Lookup: Send + Sync + 'static {
    /// What is known of an object. Does not wait, and costs little.
    fn find(&self, object: Ref<'_>) -> Found;
}

/// The answer of a [`Lookup`].
#[derive(Clone, Debug)]
pub(super) enum Found {
    Object(Arc<Metadata>),
    /// It was asked for lately, in vain.
    Missing(Missing),
    /// Nothing is known: it may be there or not.
    Unknown,
}

/// An object at hand, and the controllers above it.
#[derive(Debug)]
pub(super) struct Chain {
    /// Each with the one that controls it behind it, as far as they are at hand.
    objects: Vec<Arc<Metadata>>,
    /// Whether the controllers are wanted.
    owners_wanted: bool,
    /// The first controller that is not at hand: what is above it is not known yet.
    pub(super) unknown: Option<Reference>,
    /// Another number where any of the objects is another version.
    pub(super) fingerprint: u64,
}

impl Chain {
    /// The object itself.
    pub(super) fn object(&self) -> &Metadata {
        // It is made with one.
        &self.objects[0]
    }

    /// Its uid.
    pub(super) fn uid(&self) -> &str {
        self.object().uid().unwrap_or_default()
    }

    /// The controllers, the nearest first.
    pub(super) fn owners(&self) -> Vec<Owner> {
        let wanted = if self.owners_wanted { &*self.objects } else { &[] };
        let owners = wanted.iter().filter_map(|object| object.controller());
        owners.take(MAX_OWNERS).map(owned).collect()
    }
}

/// What is at hand of an object, with the controllers above it if they are wanted.
pub(super) fn look_up(
    lookup: &dyn Lookup,
    object: Ref<'_>,
    owners_wanted: bool,
) -> Result<Chain, Found> {
    let mut last = match lookup.find(object) {
        Found::Object(found) => found,
        nothing => return Err(nothing),
    };
    let mut hasher = FxHasher::default();
    add(&mut hasher, &last);
    let (mut objects, mut unknown) = (vec![Arc::clone(&last)], None);
    while owners_wanted && objects.len() <= MAX_OWNERS {
        let Some(OwnerReference { api_version, kind, name, uid, .. }) = last.controller() else {
            break;
        };
        let owner = Ref::of_owner(api_version, kind, name, uid, object.namespace);
        // A Node belongs to nobody.
        if owner.is_node() {
            break;
        }
        match lookup.find(owner) {
            Found::Object(found) => {
                add(&mut hasher, &found);
                objects.push(Arc::clone(&found));
                last = found;
            }
            Found::Missing(_) => {
                hasher.write_u8(0);
                break;
            }
            Found::Unknown => {
                unknown = Some(owner.to_owned());
                break;
            }
        }
    }
    // 0 stands for nothing at all.
    let fingerprint = hasher.finish().max(1);
    Ok(Chain { objects, owners_wanted, unknown, fingerprint })
}

fn add(hasher: &mut FxHasher, facts: &Metadata) {
    hasher.write(facts.uid().unwrap_or_default().as_bytes());
    hasher.write(facts.resource_version().as_bytes());
}

/// Whether what is called so is the object that is meant.
pub(super) fn is_meant(object: Ref<'_>, found: &Metadata) -> bool {
    object.uid.is_empty()
        || found.uid() == Some(object.uid)
        || object.is_pod() && found.annotation(MIRROR) == Some(object.uid)
}

fn owned(owner: OwnerReference<'_>) -> Owner {
    let OwnerReference { api_version, kind, name, uid, .. } = owner;
    Owner {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
    }
}
