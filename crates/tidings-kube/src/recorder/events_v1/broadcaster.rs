//! The broadcaster: from recorders to watchers, one of which may record to a sink.

use std::{
    any::type_name,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::events::v1::Event;
use tokio::{
    task::{JoinHandle, JoinSet},
    time::timeout_at,
};
use tracing::{error, info};

use super::{
    EventBroadcasterOptions, EventRecorder, EventSink, RecordingOptions, Tally,
    recorder::{Counters, queue},
    recording::Recording,
    series::SeriesCache,
    state::{State, Stop, from_now},
};
use crate::{
    broadcaster::{Broadcaster, FullChannel, Stopped, Stopper},
    foreign::caught,
    recorder::{Clock, RecorderCounts},
};

/// How long [`EventBroadcaster::shutdown`] waits for sinks.
pub const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(10);

/// Hands the events of its recorders to its watchers (client-go's `tools/events.EventBroadcaster`).
///
/// It works on the Tokio runtime that it was made on, until [`shutdown`](Self::shutdown).
pub struct EventBroadcaster {
    broadcaster: Broadcaster<Arc<Event>>,
    clock: Clock,
    host_name: String,
    counters: Arc<Counters>,
    recordings: Mutex<Vec<Started>>,
    watchers: Mutex<JoinSet<()>>,
    watchers_panicked: Arc<AtomicU64>,
}

/// What a broadcaster did, when it was shut down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShutdownReport {
    /// What was recorded, and what was dropped before it came to any recording.
    pub recorders: RecorderCounts,
    /// Events that the queue before a recording had no room for, of all recordings.
    pub recording_queue_full: u64,
    /// What became of the rest, of all recordings. What is pending here is not written, and will
    /// not be.
    pub tally: Tally,
    /// Events that event watchers panicked on, which are lost to them. The log has the name and the
    /// message. What a sink panicked on is lost in the tally.
    pub watchers_panicked: u64,
}

impl EventBroadcaster {
    /// Starts it on the current Tokio runtime.
    pub fn new(options: EventBroadcasterOptions) -> Self {
        let full = FullChannel::Drop { queue: options.watcher_queue };
        Self {
            broadcaster: Broadcaster::new(options.incoming_queue, full),
            clock: options.clock,
            host_name: options.host_name,
            counters: Arc::default(),
            recordings: Mutex::default(),
            watchers: Mutex::default(),
            watchers_panicked: Arc::default(),
        }
    }

    /// A recorder for a controller, whose name is qualified, as in `example.io/scheduler`.
    pub fn new_recorder(&self, reporting_controller: impl Into<String>) -> EventRecorder {
        let reporting_controller = reporting_controller.into();
        EventRecorder {
            reporting_instance: format!("{reporting_controller}-{}", self.host_name),
            reporting_controller,
            broadcaster: self.broadcaster.clone(),
            clock: Arc::clone(&self.clock),
            counters: Arc::clone(&self.counters),
        }
    }

    /// Queues an event that is complete already, as somebody else made it; as little as a
    /// recorder's does the call wait or fail.
    pub fn forward(&self, event: Event) {
        queue(event, &self.broadcaster, &self.counters);
    }

    /// Writes every event from now on to a sink, repeated ones as a series with a count.
    ///
    /// Each sink counts on its own.
    pub async fn start_recording_to_sink(
        &self,
        sink: impl EventSink,
        options: RecordingOptions,
    ) -> Result<RecordingHandle, Stopped> {
        let watcher = self.broadcaster.watch().await?;
        let series = SeriesCache::new(options.max_series, options.finish_interval);
        let state = Arc::new(State::new(series));
        let clock = Arc::clone(&self.clock);
        let recording = Recording { sink, clock, options, state: Arc::clone(&state) };
        let task = tokio::spawn(recording.run(watcher));
        let mut recordings = self.recordings();
        recordings.retain(|earlier| !earlier.task.is_finished());
        recordings.push(Started { state: Arc::clone(&state), task });
        drop(recordings);
        Ok(RecordingHandle { state })
    }

    /// Calls a function with every event from now on, one after the other, in a task of its own.
    /// While it is busy, events wait in a queue; past its length they are lost to this watcher, and
    /// counted. An event that the function panics on is lost to it, logged and counted.
    pub async fn start_event_watcher<H: FnMut(&Event) + Send + 'static>(
        &self,
        mut handler: H,
    ) -> Result<Stopper, Stopped> {
        let mut watcher = self.broadcaster.watch().await?;
        let stopper = watcher.stopper();
        let panicked = Arc::clone(&self.watchers_panicked);
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner).spawn(async move {
            while let Some(event) = watcher.next().await {
                if let Err(panic) = caught(|| handler(&event)) {
                    panicked.fetch_add(1, Ordering::Relaxed);
                    let (namespace, name) = (&event.metadata.namespace, &event.metadata.name);
                    error!(
                        handler = type_name::<H>(),
                        ?namespace,
                        ?name,
                        panic,
                        "An event watcher panicked: it goes on with the next event"
                    );
                }
            }
        });
        Ok(stopper)
    }

    /// Logs every event from now on.
    pub async fn start_logging(&self) -> Result<Stopper, Stopped> {
        self.start_event_watcher(|event| {
            let regarding = event.regarding.clone().unwrap_or_default();
            info!(
                object = %format_args!(
                    "{}/{}",
                    regarding.namespace.unwrap_or_default(),
                    regarding.name.unwrap_or_default()
                ),
                kind = regarding.kind,
                apiVersion = regarding.api_version,
                r#type = event.type_,
                reason = event.reason,
                action = event.action,
                note = event.note,
                "Event occurred"
            );
        })
        .await
    }

    /// What became of the events of all recorders, up to the queue.
    pub fn counts(&self) -> RecorderCounts {
        self.counters.read()
    }

    /// [`shutdown_within`](Self::shutdown_within) [`SHUTDOWN_DEADLINE`].
    pub async fn shutdown(&self) -> ShutdownReport {
        self.shutdown_within(SHUTDOWN_DEADLINE).await
    }

    /// Refuses further events, hands out what is queued, and ends the recordings: each tries once
    /// more what is not written, and then the counts that its sink does not know.
    ///
    /// client-go ends its recordings at once and loses these counts.
    pub async fn shutdown_within(&self, deadline: Duration) -> ShutdownReport {
        let until = from_now(deadline);
        let recordings = std::mem::take(&mut *self.recordings());
        for recording in &recordings {
            recording.state.end(Stop::DrainUntil(until));
        }
        self.broadcaster.shutdown().await;
        let mut report = ShutdownReport { recorders: self.counts(), ..ShutdownReport::default() };
        for Started { state, task } in recordings {
            // An error is a panic of the clock; what is not written is in the tally.
            let _ = task.await;
            report.tally += state.tally();
            report.recording_queue_full += state.dropped();
        }
        let mut watchers =
            std::mem::take(&mut *self.watchers.lock().unwrap_or_else(PoisonError::into_inner));
        let heard = async { while watchers.join_next().await.is_some() {} };
        // One may be stuck.
        let _ = timeout_at(until, heard).await;
        watchers.detach_all();
        report.watchers_panicked = self.watchers_panicked.load(Ordering::Relaxed);
        report
    }

    fn recordings(&self) -> MutexGuard<'_, Vec<Started>> {
        self.recordings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Started {
    state: Arc<State>,
    task: JoinHandle<()>,
}

/// A recording to a sink. Dropping the handle changes nothing.
#[derive(Clone)]
pub struct RecordingHandle {
    state: Arc<State>,
}

impl RecordingHandle {
    /// What became of the occurrences so far.
    pub fn tally(&self) -> Tally {
        self.state.tally()
    }

    /// Series and single events that are tracked.
    pub fn tracked(&self) -> usize {
        self.state.series().len()
    }

    /// Events that the queue before the recording had no room for.
    pub fn dropped(&self) -> u64 {
        self.state.dropped()
    }

    /// Ends the recording at once, as cancelling its context does in client-go: calls are dropped,
    /// nothing is tried again, and counts that the sink does not know are lost. The
    /// [tally](Self::tally) says how many.
    pub fn cancel(&self) {
        self.state.end(Stop::Now);
    }
}
