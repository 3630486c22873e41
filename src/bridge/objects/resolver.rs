//! Asking for objects that are not at hand.
//!
//! They come through a work queue: an object is asked for once at a time, however many records wait
//! for it. All requests share one rate. Where more is asked for than the rate allows, the namespaces
//! take turns, and what nobody waits for any longer is passed over, so that the rest has a chance.

use std::{sync::Arc, time::Duration};

use tokio::sync::Mutex;

use super::{
    Objects, Reference,
    get::{Api, FetchError, FetchedObject},
    lookup::{Chain, Found, look_up},
    observation::{Answer, Finding},
    place::Place,
    rate::Rate,
    reference::Ref,
    view::REFRESH,
};
use crate::{
    bridge::{now_ms, tasks::Tasks},
    cache::workqueue::Item,
    event::Missing,
};

/// So many objects are asked for at once.
pub(super) const WORKERS: usize = 8;

/// Asks for what is queued until the queue is shut down.
pub(super) fn start(
    tasks: &mut Tasks,
    objects: &Arc<Objects>,
    api: &Arc<dyn Api>,
    rate: &Arc<Rate>,
) {
    let choosing = Arc::new(Mutex::new(()));
    for _ in 0..WORKERS {
        let resolver = Resolver {
            objects: Arc::clone(objects),
            api: Arc::clone(api),
            rate: Arc::clone(rate),
            choosing: Arc::clone(&choosing),
        };
        tasks.spawn("the fetching of objects for enrichment", resolver.run());
    }
}

struct Resolver {
    objects: Arc<Objects>,
    api: Arc<dyn Api>,
    rate: Arc<Rate>,
    /// Held by the one of them that waits for the rate and then chooses what to ask for.
    choosing: Arc<Mutex<()>>,
}

impl Resolver {
    async fn run(self) {
        while let Some(item) = self.next().await {
            self.resolve(&item).await;
        }
    }

    async fn next(&self) -> Option<Item<Reference>> {
        let _choosing = self.choosing.lock().await;
        self.rate.ready().await;
        self.objects.queue.get().await
    }

    async fn resolve(&self, reference: &Reference) {
        let Objects { view, queue, .. } = &*self.objects;
        let object = reference.as_ref();
        let key = object.key(&view.keys);
        if !view.waits(key, now_ms()) && queue.len() > self.objects.burst {
            view.answer(key, Answer::Nothing, now_ms());
            return queue.forget(reference);
        }
        let local = matches!(self.objects.local.find(object), Found::Object(_));
        if !local && self.is_stored(reference).await {
            return queue.forget(reference);
        }
        let answer = match self.ask(object).await {
            Ok(finding) => Answer::Known(finding),
            Err(FetchError::Missing(why)) => Answer::Missing(why),
            Err(FetchError::Later(after)) if view.waits(key, now_ms()) => {
                view.answer(key, Answer::Trouble(Missing::Unavailable), now_ms());
                return match after {
                    Some(after) => queue.add_after(reference.clone(), after),
                    None => queue.add_rate_limited(reference.clone()),
                };
            }
            Err(FetchError::Later(_)) => Answer::Nothing,
        };
        view.answer(key, answer, now_ms());
        queue.forget(reference);
    }

    /// Whether an earlier run knew the object. What it knew is enough for what waits.
    async fn is_stored(&self, reference: &Reference) -> bool {
        let view = &self.objects.view;
        let key = reference.as_ref().key(&view.keys);
        if view.is_whole(key) {
            return false;
        }
        self.objects.load(key).await;
        view.settle_with_stored(key)
    }

    /// Gets what is not at hand of an object and of the controllers above it.
    async fn ask(&self, object: Ref<'_>) -> Result<Finding, FetchError> {
        let Objects { view, local, wanted, .. } = &*self.objects;
        let key = object.key(&view.keys);
        let mut place = view.place(key);
        let old =
            !local.watched.watches(object) && !local.fetched.is_fresh(object, REFRESH, now_ms());
        if old {
            let said = place.as_ref().is_some_and(|place| !place.claimed);
            let whole = wanted.node && object.is_pod() && !said;
            place = self.fetch(object, whole).await?.or(place);
        }
        let known =
            |chain: &Chain, place: &Option<Place>| wanted.known(object, chain, place.as_ref());
        let chain = loop {
            let chain = match look_up(local, object, wanted.owners) {
                Ok(chain) => chain,
                Err(Found::Missing(why)) => return Err(FetchError::Missing(why)),
                // It was watched, and has gone meanwhile.
                Err(_) => {
                    place = self.fetch(object, false).await?.or(place);
                    match look_up(local, object, wanted.owners) {
                        Ok(chain) => chain,
                        Err(_) => return Err(FetchError::Missing(Missing::NotFound)),
                    }
                }
            };
            let Some(owner) = &chain.unknown else { break chain };
            view.partial(key, known(&chain, &place));
            match self.fetch(owner.as_ref(), false).await {
                // What is missing is at hand as missing.
                Ok(_) | Err(FetchError::Missing(_)) => {}
                Err(later) => return Err(later),
            }
        };
        let mut info = known(&chain, &place);
        if wanted.lacks_node(object, &info.info) && !old {
            view.partial(key, Arc::clone(&info));
            match self.fetch(object, true).await {
                Ok(said) => place = said.or(place),
                Err(FetchError::Missing(_)) => {}
                Err(later) => return Err(later),
            }
            info = known(&chain, &place);
        }
        let incomplete = wanted.lacks_node(object, &info.info);
        Ok(Finding { known: info, fingerprint: chain.fingerprint, place, incomplete })
    }

    /// Gets one object, to have it at hand; answers where it is, if `whole` of it was asked for.
    async fn fetch(&self, object: Ref<'_>, whole: bool) -> Result<Option<Place>, FetchError> {
        let fetched = &self.objects.local.fetched;
        match self.api.get(object, whole).await {
            Ok(FetchedObject { object: mut got, node }) => {
                // An annotation may be 256 KiB.
                self.objects.wanted.keep_of(&mut got);
                let uid: Box<str> = got.uid().unwrap_or_default().into();
                fetched.put(object.to_owned(), Arc::new(got), now_ms());
                Ok(node.map(|node| Place { node, claimed: false, uid }))
            }
            Err(FetchError::Missing(why)) => {
                fetched.put_missing(object.to_owned(), why, now_ms());
                Err(FetchError::Missing(why))
            }
            Err(later) => Err(later),
        }
    }
}

/// A request that has failed is made again after this, and then after twice as long each time.
pub(super) const RETRY: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(20)..=Duration::from_secs(5);

#[cfg(test)]
mod tests;
