//! Enrichment: what is known of the objects that events are about, for the sinks that ask for it.
//!
//! ```text
//!              ┌ watched: informers, metadata only ┐
//! at hand  ◀───┤                                   ├──── resolver ◀── work queue ◀─┐
//!    │         └ fetched lately: a cache           ┘     (gets, within a budget)   │
//!    ▼ look                                                   │ answer        not known
//! ingest ──────────────▶ view: versions of each object ◀──────┘                    │
//!    │ observe, asks ─────────────────────────────────────────────────────────────-┘
//!    ▼                        │ decide        │ what is new, with the sinks' states
//!  log ──▶ feed ──▶ gather: enrich            ▼
//!                                        table `objects` ◀── a sink that is late, a restart
//! ```
//!
//! When a record is journalled, ingest looks what is at hand of its object. What is news is a new
//! *version* of what is known, true from this record on; what is not at hand is asked for, and the
//! record waits, at most for the budget from when it was journalled. A sink that comes to a record
//! enriches it with the version that is true at it, or with the reason why there is none. Whichever
//! sink comes first decides, and all others, late ones and those of later runs too, decide the same:
//! the rules are those of [`view`] and [`versions`], and what they need is kept beside the journal
//! as long as the records are.
//!
//! A crash may take what was decided in its last second, but then nobody has counted on it: the
//! sinks' states are taken before the versions, and saved with them. Records of that time are
//! observed once more at the start; what is delivered again may be told what is known by then.

mod at_hand;
mod discovery;
mod enricher;
mod fetched;
mod get;
mod known;
mod lookup;
mod options;
mod place;
mod rate;
mod reference;
mod resolver;
mod sighting;
#[cfg(test)]
mod tests;
mod versions;
mod view;
mod wanted;
mod watched;
mod watching;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

pub use self::options::{Enrich, KeyPatterns, NotAResource, ObjectOptions, ResourceName};
use self::{
    at_hand::AtHand,
    discovery::Discovery,
    get::{Api, ApiServer},
    known::Known,
    lookup::{Found, look_up},
    place::Place,
    rate::Rate,
    reference::{Ref, Reference, reporting_node},
    sighting::{Compared, Finding, News, Remembered},
    versions::Versions,
    view::{View, millis},
    wanted::Wanted,
};
pub(super) use self::{
    enricher::{Enricher, Told},
    sighting::Sighting,
};
use tidings_kube::{
    correlator::Key,
    workqueue::{ItemExponentialFailureRateLimiter, RateLimitingQueue, WorkQueue},
};
use tidings_log::{Frame, LogHandle};
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep},
};

use super::{
    now_ms,
    restore::for_each_frame,
    tasks::{Tasks, answer_of},
};
use crate::{
    event::{EnvelopeParts, EventFields, ObjectInfo, Record},
    journal::{ObjectsCommit, ObjectsReader, ObjectsView, ReadError, SavedObject},
};

/// The start waits so long for the watched kinds to be listed.
const LISTED_WITHIN: Duration = Duration::from_secs(10);

/// A store that a failed commit has closed is opened again within this time, if it can be.
const REOPENED_WITHIN: Duration = Duration::from_secs(2);
/// The pause between two attempts to read it.
const READ_RETRY: Duration = Duration::from_millis(100);

/// What is known of the objects that records are about. See the [module](self).
pub(super) struct Objects {
    view: View,
    wanted: Wanted,
    at_hand: Arc<AtHand>,
    queue: RateLimitingQueue<Reference>,
    reader: ObjectsReader,
    /// The reader could not read when it was last tried.
    unreadable: AtomicBool,
    options: ObjectOptions,
    burst: usize,
    requests: Arc<AtomicU64>,
}

impl Objects {
    /// For these sinks, on a log whose next record has the sequence `tail`.
    pub(super) fn new(
        options: ObjectOptions,
        sinks: Vec<Enrich>,
        saved: Option<ObjectsView>,
        reader: ObjectsReader,
        tail: u64,
    ) -> Self {
        let ObjectOptions { budget, cache, burst, .. } = options;
        let recovered_by_ms = now_ms() + millis(LISTED_WITHIN + budget);
        let (first, longest) = (*resolver::RETRY.start(), *resolver::RETRY.end());
        Self {
            view: View::new(saved, budget, cache, tail, recovered_by_ms),
            wanted: Wanted::new(sinks),
            at_hand: Arc::new(AtHand::new(cache)),
            // A flood in one namespace leaves the others their share.
            queue: RateLimitingQueue::over(
                WorkQueue::with_lanes(|object: &Reference| &object.namespace),
                ItemExponentialFailureRateLimiter::new(first, longest),
            ),
            reader,
            unreadable: AtomicBool::new(false),
            options,
            burst: burst as usize,
            requests: Arc::default(),
        }
    }

    /// How often the API server was asked for a single object, or for its kinds.
    pub(super) fn requests(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.requests)
    }

    /// Watches what is to be watched, asks for the rest, and brings the view up to the log. Waits for
    /// the first lists, but not for ever: without them, more is asked for. What is started ends with
    /// `tasks`.
    pub(super) async fn start(
        self: &Arc<Self>,
        client: &kube::Client,
        namespaces: &[String],
        log: &LogHandle,
        tasks: &mut Tasks,
    ) {
        let until = Instant::now() + LISTED_WITHIN;
        tracing::info!(needs = self.options.permissions(), "events are enriched");
        let ObjectOptions { qps, burst, .. } = self.options;
        let rate = Arc::new(Rate::new(qps.into(), burst, self.requests()));
        let discovery = Arc::new(Discovery::new(client.clone(), Arc::clone(&rate)));
        watching::start(self, client, &discovery, namespaces, until, tasks).await;
        let api: Arc<dyn Api> =
            Arc::new(ApiServer { client: client.clone(), discovery, refused: Mutex::default() });
        resolver::start(tasks, self, &api, &rate);
        let (objects, log) = (Arc::clone(self), log.clone());
        answer_of(spawn_blocking(move || objects.recover(&log))).await;
    }

    /// What is at hand of the object of an Event that is about to be journalled. Does not wait.
    pub(super) fn look(&self, event: &EventFields<'_>) -> Option<Sighting> {
        let object = Ref::of(event)?;
        let key = object.key(&self.view.keys);
        let claim = if self.wanted.node { reporting_node(event) } else { None };
        let now = now_ms();
        let news = match look_up(&*self.at_hand, object, self.wanted.owners) {
            Ok(chain) => match self.view.compare(key, chain.fingerprint, chain.uid(), claim, now) {
                Compared::Same => News::None,
                Compared::Old => self.old(object),
                Compared::News { place, patient } => {
                    let known = self.wanted.known(object, &chain, place.as_ref());
                    let lacks_node = claim.is_none() && self.wanted.lacks_node(object, &known.info);
                    let incomplete = chain.unknown.is_some() || lacks_node;
                    let fingerprint = chain.fingerprint;
                    let finding = Finding { known, fingerprint, place, incomplete };
                    if incomplete && !patient {
                        News::Partial(finding, object.to_owned())
                    } else {
                        News::Known(finding)
                    }
                }
            },
            Err(found) => match (self.view.remembered(key, now), found) {
                (Remembered::Known(known) | Remembered::Old(known), _)
                    if let Some(node) = claim.filter(|node| known.gives_way_to(node)) =>
                {
                    let place = Some(Place::claimed(node, object.uid));
                    let node = Some(node.to_owned());
                    let info = ObjectInfo { node, node_claimed: true, ..known.info.clone() };
                    let known = Arc::new(Known::new(info));
                    News::Known(Finding { known, fingerprint: 0, place, incomplete: false })
                }
                (Remembered::Old(_), _) => self.old(object),
                (Remembered::Known(_) | Remembered::Missing, _) => News::None,
                (Remembered::Nothing, Found::Missing(why)) => News::Missing(why),
                (Remembered::Nothing, _) => {
                    let place = claim.map(|node| Place::claimed(node, object.uid));
                    News::Unknown(object.to_owned(), place)
                }
            },
        };
        Some(Sighting { key, news })
    }

    /// What is known holds, but it may be time to look again.
    fn old(&self, object: Ref<'_>) -> News {
        if self.at_hand.watches(object) { News::None } else { News::Old(object.to_owned()) }
    }

    /// Takes what was found about the records of a frame that is in the log now, in their order.
    pub(super) fn observe(&self, frame: &Frame, sightings: Vec<Option<Sighting>>) {
        self.take(frame.first, frame.time_ms, sightings);
    }

    fn take(
        &self,
        first: u64,
        time_ms: u64,
        sightings: impl IntoIterator<Item = Option<Sighting>>,
    ) {
        for reference in self.view.observe(first, time_ms, sightings) {
            // What is watched is on its way, as its events are; it mostly needs no asking.
            let watched = self.at_hand.watches(reference.as_ref());
            let delay = if watched { self.options.budget / 5 } else { Duration::ZERO };
            self.queue.add_after(reference, delay);
        }
    }

    /// Observes once more the records about which earlier runs left nothing decided. Blocks on the
    /// disk.
    pub(super) fn recover(&self, log: &LogHandle) {
        let (from, undecided) = self.view.to_recover();
        let tail = log.tail().next;
        let read = for_each_frame(log, from, |frame| {
            for record in frame.records().map(Record::from).filter(|record| record.seq >= from) {
                let parts = EnvelopeParts::of(&record.envelope);
                let event = parts.and_then(|parts| parts.fields());
                let key = event.as_ref().and_then(Ref::of).map(|of| of.key(&self.view.keys));
                let stored = |key: Key| {
                    self.view.loaded(key, self.stored(key));
                    self.view.touch(key, record.seq);
                    self.view.is_decided(key, record.seq)
                };
                match (key, event) {
                    (Some(key), _) if record.seq < undecided => self.view.touch(key, record.seq),
                    (Some(key), Some(event)) if !stored(key) => {
                        self.take(record.seq, now_ms(), [self.look(&event)]);
                    }
                    _ => {}
                }
            }
            frame.next() < tail
        });
        if let Err(error) = read {
            tracing::error!(%error, "the journal could not be read to its end: some events are enriched with less");
        }
        self.view.recovered(tail, now_ms());
    }

    /// Reads what the state store has of an object. After a commit that failed it is closed until the
    /// next one. For that the first one waits; while the disk takes nothing the others do not, or
    /// it would keep events from being delivered.
    async fn load(&self, key: Key) {
        let until = Instant::now() + REOPENED_WITHIN;
        let stored = loop {
            let reader = self.reader.clone();
            let read = answer_of(spawn_blocking(move || reader.get(stored_key(key)))).await;
            let waits = Instant::now() < until && !self.unreadable.load(Ordering::Relaxed);
            if read.is_ok() || !waits {
                break self.read(read);
            }
            sleep(READ_RETRY).await;
        };
        self.view.loaded(key, stored);
    }

    /// The same at the start, when the store has just been opened. Blocks on the disk.
    fn stored(&self, key: Key) -> Option<SavedObject> {
        self.read(self.reader.get(stored_key(key)))
    }

    /// What was read; that it could not be is said once, until it can.
    fn read(&self, read: Result<Option<SavedObject>, ReadError>) -> Option<SavedObject> {
        let before = self.unreadable.swap(read.is_err(), Ordering::Relaxed);
        read.unwrap_or_else(|error| {
            if !before {
                tracing::error!(%error, "what is kept of objects cannot be read: some events may be enriched unlike before");
            }
            None
        })
    }

    /// What is to be saved, with `all` of which records are about what; `oldest` is the oldest record
    /// in the log.
    pub(super) fn take_changes(&self, all: bool, oldest: u64) -> ObjectsCommit {
        self.view.take(all, oldest)
    }

    /// It is on the disk.
    pub(super) fn saved(&self, commit: &ObjectsCommit) {
        self.view.saved(commit);
    }

    /// It is not, and still has to be saved.
    pub(super) fn put_back(&self, commit: &ObjectsCommit) {
        self.view.put_back(commit);
    }

    /// What a sink is told by, by its number among those that ask.
    pub(super) fn enricher(self: &Arc<Self>, sink: usize, enrich: Enrich) -> Enricher {
        Enricher { objects: Arc::clone(self), sink, enrich: Arc::new(enrich) }
    }
}

/// The key in the state store.
fn stored_key(key: Key) -> u128 {
    u128::from_le_bytes(key.to_bytes())
}

/// The key that is stored as this.
fn key_of_stored(stored: u128) -> Key {
    Key::from_bytes(stored.to_le_bytes())
}
