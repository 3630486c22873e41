//! The tasks that record to one sink.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::events::v1::Event;
use tokio::{
    sync::{Semaphore, watch},
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};
use tracing::{error, warn};

use super::{
    EventSink, RecordingOptions, Tally,
    attempt::try_to_write,
    key::SeriesKey,
    lane::Turn,
    series::{Ending, Observed, SeriesCache, Write},
};
use crate::{record::Clock, watch::Watcher};

/// So many series are refreshed, or finished, at the same time.
const WRITES_OF_MAINTENANCE: usize = 8;

/// Whether recording goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    No,
    /// Take what is queued and write what is owed, but do not wait for a sink that fails, nor
    /// longer than this.
    DrainUntil(Instant),
    /// Let go of everything.
    Now,
}

/// What the tasks of one recording share.
pub(super) struct Shared {
    pub(super) sink: Box<dyn EventSink>,
    pub(super) clock: Clock,
    pub(super) options: RecordingOptions,
    pub(super) series: Mutex<SeriesCache>,
    pub(super) stop: watch::Sender<Stop>,
    /// Events that the queue before the recording had no room for.
    pub(super) dropped: AtomicU64,
}

impl Shared {
    pub(super) fn series(&self) -> MutexGuard<'_, SeriesCache> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn tally(&self) -> Tally {
        self.series().tally()
    }

    /// Asks the recording to end. What was asked before is not taken back.
    pub(super) fn end(&self, how: Stop) {
        self.stop.send_if_modified(|stop| {
            let first = *stop == Stop::No || how == Stop::Now;
            if first {
                *stop = how;
            }
            first
        });
    }

    /// Decides a write and queues it in one step, so that the writes of a series come in the order
    /// of their decisions.
    fn decide(&self, decide: impl FnOnce(&mut SeriesCache) -> Option<Write>) -> Option<Queued> {
        let mut series = self.series();
        decide(&mut series).map(Queued::from)
    }

    /// Takes one occurrence; answers what is to be written for it.
    fn observe(&self, event: &Event) -> [Option<Queued>; 2] {
        let now = self.clock.now();
        let mut series = self.series();
        let Observed { farewell, write } = series.observe(event, now);
        [farewell.map(Queued::from), write.map(Queued::from)]
    }

    /// Tries until the event is written or refused, or it was tried often enough.
    async fn record(&self, Queued { mut write, mut turn }: Queued) {
        let mut stop = self.stop.subscribe();
        for tries in 1.. {
            let draining = *stop.borrow_and_update() != Stop::No;
            let guard = turn.come().await;
            let ending = try_to_write(&*self.sink, &mut write.event).await;
            if !matches!(ending, Ending::Failed) {
                self.series().settle(write, ending);
                break;
            }
            drop(guard);
            let last = tries >= self.options.max_tries;
            if last || draining {
                error!(
                    namespace = ?write.event.metadata.namespace, name = ?write.event.metadata.name,
                    tries, "event is not written, and not tried again"
                );
                self.series().settle(write, Ending::Failed);
                break;
            }
            tokio::select! {
                () = sleep(jittered(self.options.sleep)) => {}
                // One more try at once, and no more.
                _ = stop.wait_for(|stop| *stop != Stop::No) => {}
            }
            turn = write.lane.queue();
        }
    }

    /// Tries once: what is not written now comes with the next round.
    async fn record_once(&self, Queued { mut write, turn }: Queued) {
        let _guard = turn.come().await;
        let ending = try_to_write(&*self.sink, &mut write.event).await;
        self.series().settle(write, ending);
    }

    async fn each(
        &self,
        keys: Vec<Arc<SeriesKey>>,
        decide: impl Fn(&mut SeriesCache, &Arc<SeriesKey>) -> Option<Write>,
    ) {
        let decide = &decide;
        stream::iter(keys)
            .for_each_concurrent(WRITES_OF_MAINTENANCE, |key| async move {
                if let Some(queued) = self.decide(|series| decide(series, &key)) {
                    self.record_once(queued).await;
                }
            })
            .await;
    }

    async fn refresh(&self) {
        let keys = self.series().to_refresh();
        self.each(keys, SeriesCache::refresh).await;
    }

    async fn finish(&self) {
        let keys = self.series().to_finish(self.clock.now());
        self.each(keys, |series, key| series.finish(key, self.clock.now())).await;
    }

    async fn dismiss_all(&self) {
        let keys = self.series().to_dismiss();
        self.each(keys, SeriesCache::dismiss).await;
    }

    /// Refreshes and finishes, both at once at first and then each so long after its last end.
    async fn maintain(&self) {
        let (mut refresh, mut finish) = (Instant::now(), Instant::now());
        loop {
            sleep_until(refresh.min(finish)).await;
            if Instant::now() >= refresh {
                self.refresh().await;
                refresh = Instant::now() + self.options.refresh_interval;
            }
            if Instant::now() >= finish {
                self.finish().await;
                finish = Instant::now() + self.options.finish_interval;
            }
        }
    }
}

/// A write with its place in the lane of its series.
struct Queued {
    write: Write,
    turn: Turn,
}

impl From<Write> for Queued {
    fn from(write: Write) -> Self {
        let turn = write.lane.queue();
        Self { write, turn }
    }
}

/// client-go's `wait.Jitter(d, 0.25)`.
fn jittered(pause: Duration) -> Duration {
    pause + pause.mul_f64(0.25 * fastrand::f64())
}

/// Records until the broadcaster is shut down or the recording stopped.
pub(super) async fn run(shared: Arc<Shared>, mut watcher: Watcher<Arc<Event>>) {
    let mut writes = JoinSet::new();
    let work = async {
        tokio::select! {
            () = shared.maintain() => {}
            () = take(&shared, &mut watcher, &mut writes) => {}
        }
        while writes.join_next().await.is_some() {}
        shared.dismiss_all().await;
    };
    tokio::select! {
        () = work => {}
        () = cut(shared.stop.subscribe()) => warn!("recording is cut short"),
    }
}

async fn take(
    shared: &Arc<Shared>,
    watcher: &mut Watcher<Arc<Event>>,
    writes: &mut JoinSet<()>,
) {
    let permits = Arc::new(Semaphore::new(shared.options.max_writes.get()));
    while let Some(event) = watcher.next().await {
        shared.dropped.store(watcher.dropped(), Ordering::Relaxed);
        // Nobody closes the semaphore.
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        let [farewell, write] = shared.observe(&event);
        while writes.try_join_next().is_some() {}
        if farewell.is_none() && write.is_none() {
            continue;
        }
        let shared = Arc::clone(shared);
        writes.spawn(async move {
            let record = |queued: Option<Queued>| async {
                if let Some(queued) = queued {
                    shared.record(queued).await;
                }
            };
            tokio::join!(record(farewell), record(write));
            drop(permit);
        });
    }
    shared.dropped.store(watcher.dropped(), Ordering::Relaxed);
}

/// Waits until the recording has to end, whatever is not written yet.
async fn cut(mut stop: watch::Receiver<Stop>) {
    loop {
        let now = *stop.borrow_and_update();
        let end = async {
            match now {
                Stop::No => std::future::pending().await,
                Stop::DrainUntil(until) => sleep_until(until).await,
                Stop::Now => {}
            }
        };
        tokio::select! {
            () = end => return,
            // Never an error: `Shared` keeps the sender.
            _ = stop.changed() => {}
        }
    }
}
