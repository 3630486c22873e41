//! Asking for objects that are not at hand.
//!
//! They come through a work queue: an object is asked for once at a time, however many records wait
//! for it. All requests share one rate. Where more is asked for than the rate allows, the namespaces
//! take turns, and what nobody waits for any longer is passed over, so that the rest has a chance.

use std::{sync::Arc, time::Duration};

use tidings_kube::workqueue::Item;
use tokio::sync::Mutex;

use super::{
    Objects, Reference,
    get::{Api, Got, NotGot},
    lookup::{Chain, Found, Lookup, look_up},
    place::Place,
    rate::Rate,
    reference::Ref,
    sighting::{Answer, Finding},
    view::REFRESH,
};
use crate::{
    bridge::{now_ms, tasks::Tasks},
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
        let at_hand = matches!(self.objects.at_hand.find(object), Found::Object(_));
        if !at_hand && self.is_stored(reference).await {
            return queue.forget(reference);
        }
        let answer = match self.ask(object).await {
            Ok(finding) => Answer::Known(finding),
            Err(NotGot::Missing(why)) => Answer::Missing(why),
            Err(NotGot::Later(after)) if view.waits(key, now_ms()) => {
                view.answer(key, Answer::Trouble(Missing::Unavailable), now_ms());
                return match after {
                    Some(after) => queue.add_after(reference.clone(), after),
                    None => queue.add_rate_limited(reference.clone()),
                };
            }
            Err(NotGot::Later(_)) => Answer::Nothing,
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
    async fn ask(&self, object: Ref<'_>) -> Result<Finding, NotGot> {
        let Objects { view, at_hand, wanted, .. } = &*self.objects;
        let key = object.key(&view.keys);
        let mut place = view.place(key);
        let old = !at_hand.watches(object) && !at_hand.fetched.is_fresh(object, REFRESH, now_ms());
        if old {
            let said = place.as_ref().is_some_and(|place| !place.claimed);
            let whole = wanted.node && object.is_pod() && !said;
            place = self.fetch(object, whole).await?.or(place);
        }
        let known =
            |chain: &Chain, place: &Option<Place>| wanted.known(object, chain, place.as_ref());
        let chain = loop {
            let chain = match look_up(&**at_hand, object, wanted.owners) {
                Ok(chain) => chain,
                Err(Found::Missing(why)) => return Err(NotGot::Missing(why)),
                // It was watched, and has gone meanwhile.
                Err(_) => {
                    place = self.fetch(object, false).await?.or(place);
                    match look_up(&**at_hand, object, wanted.owners) {
                        Ok(chain) => chain,
                        Err(_) => return Err(NotGot::Missing(Missing::NotFound)),
                    }
                }
            };
            let Some(owner) = &chain.unknown else { break chain };
            view.partial(key, known(&chain, &place));
            match self.fetch(owner.as_ref(), false).await {
                // What is missing is at hand as missing.
                Ok(_) | Err(NotGot::Missing(_)) => {}
                Err(later) => return Err(later),
            }
        };
        let mut info = known(&chain, &place);
        if wanted.lacks_node(object, &info.info) && !old {
            view.partial(key, Arc::clone(&info));
            match self.fetch(object, true).await {
                Ok(said) => place = said.or(place),
                Err(NotGot::Missing(_)) => {}
                Err(later) => return Err(later),
            }
            info = known(&chain, &place);
        }
        let incomplete = wanted.lacks_node(object, &info.info);
        Ok(Finding { known: info, fingerprint: chain.fingerprint, place, incomplete })
    }

    /// Gets one object, to have it at hand; answers where it is, if `whole` of it was asked for.
    async fn fetch(&self, object: Ref<'_>, whole: bool) -> Result<Option<Place>, NotGot> {
        let fetched = &self.objects.at_hand.fetched;
        match self.api.get(object, whole).await {
            Ok(Got { object: mut got, node }) => {
                // An annotation may be 256 KiB.
                self.objects.wanted.keep_of(&mut got);
                let uid: Box<str> = got.uid().unwrap_or_default().into();
                fetched.put(object.to_owned(), Arc::new(got), now_ms());
                Ok(node.map(|node| Place { node, claimed: false, uid }))
            }
            Err(NotGot::Missing(why)) => {
                fetched.put_missing(object.to_owned(), why, now_ms());
                Err(NotGot::Missing(why))
            }
            Err(later) => Err(later),
        }
    }
}

/// What has failed is asked for again after this, and then after twice as long each time.
pub(super) const RETRY: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(20)..=Duration::from_secs(5);

#[cfg(test)]
mod tests;
