//! Witnesses: how a history is told from another one that has the same numbers.
//!
//! An etcd that was restored from a snapshot gives out the revisions after it a second time. Once it
//! has come to the resume point again, nothing about that number is strange any more, and a watch
//! from it leaves out what was written between the snapshot and there. What tells is an object that
//! was read before: asked for the very version in which it was read (`resourceVersionMatch=Exact`,
//! which reads etcd as it was then), the API server either has it so, or is of another history. That
//! it was changed or deleted later does not matter; only what is compacted cannot be asked for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize;

use super::{
    ListOptions, ListWatchError, Source, VersionMatch,
    list_items::{ListItems, ListMeta},
};

/// An object as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Witness {
    /// `metadata.namespace`; empty where there is none.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: u64,
}

/// What a store has to show for the history that it was fed, as it shares it with its reflector;
/// clones are the same. Empty, nothing is asked.
#[derive(Clone, Debug, Default)]
pub struct Witnesses(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    newest: Option<Witness>,
    /// The newest that the API server has confirmed. What came since may be of another history
    /// already: an open watch goes on when etcd has been restored and has grown past it.
    confirmed: Option<Witness>,
}

impl Witnesses {
    /// This object was read last.
    pub fn read(&self, witness: Witness) {
        self.lock().newest = Some(witness);
    }

    /// Another history begins: those before say nothing of it.
    pub fn begin_anew(&self, witness: Option<Witness>) {
        *self.lock() = Known { newest: witness, confirmed: None };
    }

    fn to_ask(&self) -> Vec<Witness> {
        let known = self.lock();
        let newest = known.newest.iter().filter(|newest| Some(*newest) != known.confirmed.as_ref());
        known.confirmed.iter().chain(newest).cloned().collect()
    }

    /// The API server has it, and so has the history that both are of.
    fn confirm(&self, witness: Witness) {
        self.lock().confirmed = Some(witness);
    }

    /// It has been compacted, and stays so.
    fn forget(&self, witness: &Witness) {
        let mut known = self.lock();
        let Known { newest, confirmed } = &mut *known;
        for place in [newest, confirmed] {
            if place.as_ref() == Some(witness) {
                *place = None;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks for the witnesses, the oldest first; answers the first that the API server does not know.
///
/// # Errors
///
/// It could not be asked, and nothing is known.
pub(super) async fn unknown_witness(
    source: &Source,
    witnesses: &Witnesses,
) -> Result<Option<Witness>, ListWatchError> {
    for witness in witnesses.to_ask() {
        match ask(source, &witness).await? {
            Testimony::Known => witnesses.confirm(witness),
            Testimony::Unknown => return Ok(Some(witness)),
            Testimony::Compacted => witnesses.forget(&witness),
            Testimony::NotUnderstood => {}
        }
    }
    Ok(None)
}

enum Testimony {
    Known,
    Unknown,
    Compacted,
    /// What answers does not know such questions: a proxy, for one.
    NotUnderstood,
}

async fn ask(source: &Source, witness: &Witness) -> Result<Testimony, ListWatchError> {
    let Witness { namespace, name, uid, resource_version } = witness;
    // In a field selector these would have to be escaped; no API server takes them in a name.
    if name.contains([',', '=', '\\']) {
        return Ok(Testimony::NotUnderstood);
    }
    let page = ListOptions {
        limit: Some(1),
        resource_version: resource_version.to_string(),
        version_match: VersionMatch::Exact,
        only: Some((namespace.clone(), name.clone())),
        ..ListOptions::default()
    };
    let mut answer = match source.list(&page).await {
        Ok(answer) => answer,
        Err(error) if error.is_expired() => return Ok(Testimony::Compacted),
        Err(ListWatchError::Status { status, .. }) if matches!(status.code, 400 | 404 | 422) => {
            return Ok(Testimony::NotUnderstood);
        }
        Err(error) => return Err(error),
    };
    let (mut splitter, mut items) = (ListItems::new(), Vec::new());
    while let Some(chunk) = answer.list_chunk().await? {
        splitter.push(&chunk, &mut items)?;
    }
    let ListMeta { resource_version: listed_at, .. } = splitter.finish(&source.list_kind())?;
    if listed_at != page.resource_version {
        return Ok(Testimony::NotUnderstood);
    }
    let is_it = |item: &[u8]| {
        read(item).is_some_and(|(its_uid, version)| its_uid == *uid && version == listed_at)
    };
    let known = items.iter().any(|item| is_it(item));
    Ok(if known { Testimony::Known } else { Testimony::Unknown })
}

/// The uid and the resourceVersion of an object.
fn read(item: &[u8]) -> Option<(String, String)> {
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        uid: String,
        resource_version: String,
    }
    let Metadata { uid, resource_version } = serde_json::from_slice::<Object>(item).ok()?.metadata;
    Some((uid, resource_version))
}
