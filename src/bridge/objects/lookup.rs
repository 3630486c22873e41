//! What is at hand of an object and of the controllers above it, without asking anyone.

use std::{hash::Hasher as _, sync::Arc};

use rustc_hash::FxHasher;

use super::reference::{Ref, Reference};
use crate::{
    cache::{Metadata, OwnerReference},
    event::{Missing, Owner},
};

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
    pub(super) object: Arc<Metadata>,
    /// The nearest first.
    pub(super) owners: Vec<Owner>,
    /// The first of them that is not at hand: what is above it is not known yet.
    pub(super) unknown: Option<Reference>,
    /// Another number where any of the objects is another version.
    pub(super) fingerprint: u64,
}

/// What is at hand of an object, with the controllers above it if they are wanted.
pub(super) fn look_up(
    lookup: &dyn Lookup,
    object: Ref<'_>,
    owners_wanted: bool,
) -> Result<Chain, Found> {
    let facts = match lookup.find(object) {
        Found::Object(facts) => facts,
        nothing => return Err(nothing),
    };
    let mut hasher = FxHasher::default();
    add(&mut hasher, &facts);
    let mut chain = Chain { object: facts, owners: Vec::new(), unknown: None, fingerprint: 0 };
    let mut above = controller(&chain.object).filter(|_| owners_wanted);
    while let Some(owner) = above.take()
        && chain.owners.len() < MAX_OWNERS
    {
        let reference = Ref::of_owner(&owner, object.namespace);
        // A Node belongs to nobody.
        let found = if reference.is_node() { Found::Unknown } else { lookup.find(reference) };
        match found {
            Found::Object(facts) => {
                add(&mut hasher, &facts);
                above = controller(&facts);
            }
            Found::Missing(_) => hasher.write_u8(0),
            Found::Unknown if reference.is_node() => {}
            Found::Unknown => chain.unknown = Some(reference.to_owned()),
        }
        chain.owners.push(owner);
    }
    // 0 stands for nothing at all.
    chain.fingerprint = hasher.finish().max(1);
    Ok(chain)
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

fn controller(object: &Metadata) -> Option<Owner> {
    let OwnerReference { api_version, kind, name, uid, .. } = object.controller()?;
    Some(Owner {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
    })
}
