//! The tasks that record to one sink (client-go's `eventBroadcasterImpl.recordToSink`).

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::events::v1::Event;
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};
use tracing::{error, warn};

use super::{
    EventSink, RecordingOptions,
    attempt::try_to_write,
    key::SeriesKey,
    series::{Ending, SeriesCache, Write},
    state::{Queued, State, Stop, from_now},
};
use crate::{
    broadcaster::Watcher,
    recorder::{Clock, RetryPolicy, SinkError},
};

/// Intervals of nothing would keep a core busy.
const SHORTEST_ROUND: Duration = Duration::from_millis(1);
/// So many series are refreshed, or finished, at the same time.
const WRITES_OF_MAINTENANCE: usize = 8;

/// The one who writes to a sink.
pub(super) struct Recording<S> {
    pub(super) sink: S,
    pub(super) clock: Clock,
    pub(super) options: RecordingOptions,
    pub(super) state: Arc<State>,
}

impl<S: EventSink> Recording<S> {
    /// Records until the queue ends, or the time of a shutdown is up.
    pub(super) async fn run(self, mut watcher: Watcher<Arc<Event>>) {
        let recording = Arc::new(self);
        let mut writes = JoinSet::new();
        let work = async {
            tokio::select! {
                () = recording.maintain() => {}
                () = recording.take(&mut watcher, &mut writes) => {}
            }
            while writes.join_next().await.is_some() {}
            recording.dismiss_all().await;
        };
        tokio::select! {
            () = work => {}
            () = recording.state.time_is_up() => {
                let not_written = recording.state.tally().pending;
                warn!(not_written, "recording ends before everything is written");
            }
        }
    }

    /// Observes one event after the other. What has to be written for them is written by tasks of
    /// their own, as many at most as the options allow.
    async fn take(self: &Arc<Self>, watcher: &mut Watcher<Arc<Event>>, writes: &mut JoinSet<()>) {
        let permits =
            Arc::new(Semaphore::new(self.options.max_writes.get().min(Semaphore::MAX_PERMITS)));
        while let Some(event) = watcher.next().await {
            self.state.set_dropped(watcher.dropped());
            // Before the event is observed: a write that has its turn must not wait for others.
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
            let now = (self.clock)();
            let [farewell, write] = self.state.decide(|series| series.observe(&event, now));
            while writes.try_join_next().is_some() {}
            if farewell.is_none() && write.is_none() {
                continue;
            }
            let recording = Arc::clone(self);
            writes.spawn(async move {
                tokio::join!(recording.record(farewell), recording.record(write));
                drop(permit);
            });
        }
        self.state.set_dropped(watcher.dropped());
    }

    /// Tries until the event is written or refused, or it was tried often enough (client-go's
    /// `attemptRecording`).
    async fn record(&self, queued: Option<Queued>) {
        let Some(Queued { mut write, mut turn }) = queued else { return };
        let mut stop = self.state.ending();
        for tries in 1.. {
            let last = tries >= self.options.max_tries || *stop.borrow_and_update() != Stop::No;
            let guard = turn.come().await;
            let ending = try_to_write(&self.sink, &mut write.event, &self.options.retry).await;
            let ending = match ending {
                // A first try finds nothing of its own.
                Ending::Exists if tries == 1 => Ending::Refused,
                ending => ending,
            };
            let pause = match &ending {
                Ending::Failed(error) if !last => pause(&self.options.retry, tries, error),
                Ending::Failed(_) => {
                    let (namespace, name) =
                        (&write.event.metadata.namespace, &write.event.metadata.name);
                    error!(?namespace, ?name, tries, "event is not written, and not tried again");
                    return self.state.series().settle(write, ending);
                }
                _ => return self.state.series().settle(write, ending),
            };
            drop(guard);
            tokio::select! {
                () = sleep(pause) => {}
                // One more try at once, and no more.
                _ = stop.wait_for(|stop| *stop != Stop::No) => {}
            }
            if *stop.borrow() == Stop::Now {
                // It stays pending: nobody knows better.
                return;
            }
            turn = write.lane.queue();
        }
    }

    /// Tries once: what is not written now comes with the next round.
    async fn record_once(&self, Queued { mut write, turn }: Queued) {
        let _guard = turn.come().await;
        let ending = try_to_write(&self.sink, &mut write.event, &self.options.retry).await;
        self.state.series().settle(write, ending);
    }

    async fn each(
        &self,
        keys: Vec<Arc<SeriesKey>>,
        decide: impl Fn(&mut SeriesCache, &Arc<SeriesKey>) -> Option<Write>,
    ) {
        let decide = &decide;
        stream::iter(keys)
            .for_each_concurrent(WRITES_OF_MAINTENANCE, |key| async move {
                if let [Some(queued)] = self.state.decide(|series| [decide(series, &key)]) {
                    self.record_once(queued).await;
                }
            })
            .await;
    }

    async fn refresh(&self) {
        let keys = self.state.series().to_refresh();
        self.each(keys, SeriesCache::refresh).await;
    }

    async fn finish(&self) {
        let keys = self.state.series().to_finish((self.clock)());
        self.each(keys, |series, key| series.finish(key, (self.clock)())).await;
    }

    async fn dismiss_all(&self) {
        let keys = self.state.series().to_dismiss();
        self.each(keys, SeriesCache::dismiss).await;
    }

    /// Refreshes and finishes, both at once at first and then each so long after its last end.
    async fn maintain(&self) {
        let (mut refresh, mut finish) = (Instant::now(), Instant::now());
        loop {
            sleep_until(refresh.min(finish)).await;
            if Instant::now() >= refresh {
                self.refresh().await;
                refresh = from_now(self.options.refresh_interval.max(SHORTEST_ROUND));
            }
            if Instant::now() >= finish {
                self.finish().await;
                finish = from_now(self.options.finish_interval.max(SHORTEST_ROUND));
            }
        }
    }
}

/// How long to wait after the `tries`-th failure, which is this one.
fn pause(retry: &RetryPolicy, tries: u32, error: &SinkError) -> Duration {
    match *retry {
        // `wait.Jitter(sleep, 0.25)`, where the recorder of core/v1 shortens the first wait only.
        RetryPolicy::ClientGo { sleep } => {
            sleep.saturating_add(sleep.mul_f64(0.25 * fastrand::f64()))
        }
        RetryPolicy::Patient { .. } => retry.wait(tries, error, fastrand::f64()),
    }
}
