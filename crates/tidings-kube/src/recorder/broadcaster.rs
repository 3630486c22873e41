//! The middle: what is recorded goes to every sink, handler and log.

use std::{
    any::type_name,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::future::join_all;
use k8s_openapi::api::core::v1::{Event, EventSource};
use tokio::time::{Instant, timeout_at};

use super::{
    event_recorder::{EventRecorder, put},
    handler::{Level, log_structured, run_handler},
    intake::{Intake, Outlet, RecorderCounts},
    options::BroadcasterOptions,
    recording::Recording,
    report::ShutdownReport,
    running::Running,
    sink::EventSink,
    stage::Director,
};
use crate::{
    broadcaster::{Broadcaster, FullChannel, Stopped},
    correlator::EventCorrelator,
};

/// Takes events from recorders and hands them to sinks, handlers and logs: client-go's
/// `tools/record.EventBroadcaster`.
///
/// Each of those has a queue of its own, so none waits for another: one that is too slow loses
/// events, which are counted. When the broadcaster and all its recorders have been dropped without
/// a shutdown, what is queued is still worked on, and then the tasks end.
#[derive(Debug)]
pub struct EventBroadcaster {
    broadcaster: Broadcaster<Arc<Event>>,
    intake: Arc<Intake>,
    options: Arc<BroadcasterOptions>,
    director: Director,
    started: Mutex<Started>,
}

/// Those who were started and have not ended.
#[derive(Debug, Default)]
struct Started {
    sinks: Vec<Running>,
    watchers: Vec<Running>,
}

impl EventBroadcaster {
    /// Starts it on the current Tokio runtime.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime, as [`tokio::spawn`] does.
    pub fn new(options: BroadcasterOptions) -> Self {
        let full = FullChannel::Drop { queue: options.watcher_queue };
        let broadcaster = Broadcaster::new(options.queue, full);
        let outlet = Outlet::Broadcaster(broadcaster.clone());
        Self {
            broadcaster,
            intake: Arc::new(Intake::new(outlet, Arc::clone(&options.clock))),
            options: Arc::new(options),
            director: Director::new(),
            started: Mutex::default(),
        }
    }

    /// A recorder that reports on behalf of `source`.
    pub fn new_recorder(&self, source: EventSource) -> EventRecorder {
        EventRecorder::new(Arc::clone(&self.intake), source)
    }

    /// Queues an event that is complete already, as somebody else made it; as little as a
    /// recorder's does the call wait or fail.
    pub fn forward(&self, event: Event) {
        put(&self.intake, event);
    }

    /// Writes what is recorded from now on to `sink`, through a new correlator. An event that the sink
    /// panics on is lost, logged and [counted](super::SinkCounts::panicked); client-go ends the process then.
    ///
    /// # Errors
    ///
    /// The broadcaster was shut down. client-go logs it and returns an empty watch.
    pub async fn start_recording_to_sink(&self, sink: impl EventSink) -> Result<Running, Stopped> {
        let events = self.broadcaster.watch().await?;
        let (running, alive) = Running::new(events.stopper());
        let recording = Recording {
            sink,
            correlator: EventCorrelator::new((self.options.correlator)()),
            options: Arc::clone(&self.options),
            stage: self.director.stage(),
            tally: running.tally(),
        };
        remember(&mut self.started().sinks, &running);
        tokio::spawn(async move {
            recording.run(events).await;
            drop(alive);
        });
        Ok(running)
    }

    /// Calls `handler` with each event from now on, one at a time. While it is at work, events wait
    /// in its queue; a handler that blocks blocks a thread of the runtime. An event that it panics on is
    /// lost to it, logged and [counted](super::SinkCounts::panicked); client-go ends the process then.
    ///
    /// # Errors
    ///
    /// The broadcaster was shut down.
    pub async fn start_event_watcher<H: FnMut(&Event) + Send + 'static>(
        &self,
        handler: H,
    ) -> Result<Running, Stopped> {
        self.start_watcher(type_name::<H>(), handler).await
    }

    async fn start_watcher(
        &self,
        name: &'static str,
        handler: impl FnMut(&Event) + Send + 'static,
    ) -> Result<Running, Stopped> {
        let events = self.broadcaster.watch().await?;
        let (running, alive) = Running::new(events.stopper());
        let (stage, tally) = (self.director.stage(), running.tally());
        remember(&mut self.started().watchers, &running);
        tokio::spawn(async move {
            run_handler(events, name, handler, stage, &tally).await;
            drop(alive);
        });
        Ok(running)
    }

    /// Gives `log` a line for each event from now on:
    /// `Event(<the object>): type: 'Normal' reason: 'Started' <message>`.
    ///
    /// # Errors
    ///
    /// The broadcaster was shut down.
    pub async fn start_logging<L: FnMut(fmt::Arguments<'_>) + Send + 'static>(
        &self,
        mut log: L,
    ) -> Result<Running, Stopped> {
        self.start_watcher(type_name::<L>(), move |event| {
            let Event { involved_object, type_, reason, message, .. } = event;
            let [type_, reason, message] =
                [type_, reason, message].map(|part| part.as_deref().unwrap_or_default());
            log(format_args!(
                "Event({involved_object:?}): type: '{type_}' reason: '{reason}' {message}"
            ));
        })
        .await
    }

    /// Logs each event from now on by `tracing`: "Event occurred", with the fields `object`,
    /// `fieldPath`, `kind`, `apiVersion`, `type`, `reason` and `note`. The last is the event's message,
    /// a name that `tracing` keeps for its own.
    ///
    /// # Errors
    ///
    /// The broadcaster was shut down.
    pub async fn start_structured_logging(&self, level: Level) -> Result<Running, Stopped> {
        self.start_event_watcher(move |event| log_structured(level, event)).await
    }

    /// Waits until everything that was recorded before this call has its fate at every sink, handler
    /// and log: written, skipped, given up or dropped. What is recorded meanwhile goes on as ever.
    /// It is what to do before [`Running::stop`], and before a test looks at what it wrote. Those who
    /// were stopped are not waited for: see [`Running::ended`].
    ///
    /// An event that is tried again takes its time, two minutes by default, and a sink that never
    /// answers makes it wait for ever; so
    /// `tokio::time::timeout(limit, broadcaster.flush())` is wise. Dropping the future ends the waiting
    /// only. Of several calls one is under way at a time. client-go has nothing like it.
    ///
    /// # Errors
    ///
    /// The broadcaster was shut down before the call had its turn.
    pub async fn flush(&self) -> Result<(), Stopped> {
        self.broadcaster.flush().await
    }

    /// What became of the events of all recorders, up to the queue.
    pub fn counts(&self) -> RecorderCounts {
        self.intake.counts()
    }

    /// Takes nothing more, and lets the sinks work on what is queued for as long as the
    /// [options](BroadcasterOptions::drain) say.
    ///
    /// client-go's `Shutdown` loses a part of the queue by chance, since its 1.29: this is the one
    /// place where the default differs from it. See [`shutdown_at_once`](Self::shutdown_at_once).
    pub async fn shutdown(&self) -> ShutdownReport {
        self.shutdown_within(self.options.drain).await
    }

    /// The same with another limit. Writes that fail are tried again as ever; what is not written
    /// when the time is up is counted and given up, a write that is under way is broken off.
    ///
    /// Several shutdowns, also at the same time, do no harm; the shortest time counts. From the
    /// first poll on, dropping the future ends the waiting only, not the shutdown.
    pub async fn shutdown_within(&self, limit: Duration) -> ShutdownReport {
        let until = Instant::now().checked_add(limit);
        // Before anything is waited for, so that it holds when the caller goes away.
        if let Some(until) = until {
            self.director.end_work(until);
        }
        self.broadcaster.shutdown().await;
        self.report_at_end(until).await
    }

    /// The most that client-go's `Shutdown` may do: waits between two tries end at once and their
    /// event is given up, and each event that is queued is tried just once more. A sink that never
    /// answers makes it wait for ever.
    pub async fn shutdown_at_once(&self) -> ShutdownReport {
        self.director.end_waits();
        self.broadcaster.shutdown().await;
        self.report_at_end(None).await
    }

    async fn report_at_end(&self, until: Option<Instant>) -> ShutdownReport {
        let (sinks, watchers) = {
            let started = self.started();
            (started.sinks.clone(), started.watchers.clone())
        };
        // A sink ends by itself when the time is up; a handler may be stuck.
        join_all(sinks.iter().map(Running::ended)).await;
        let ended = join_all(watchers.iter().map(Running::ended));
        match until {
            Some(until) => drop(timeout_at(until, ended).await),
            None => drop(ended.await),
        }
        ShutdownReport {
            recorders: self.counts(),
            sinks: sinks.iter().map(Running::counts).collect(),
            watchers: watchers.iter().map(Running::counts).collect(),
        }
    }

    fn started(&self) -> MutexGuard<'_, Started> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As a client of client-go has it, but for the end.
impl Default for EventBroadcaster {
    fn default() -> Self {
        Self::new(BroadcasterOptions::default())
    }
}

/// Those who were stopped and have ended make room.
fn remember(started: &mut Vec<Running>, running: &Running) {
    started.retain(|earlier| !earlier.has_ended());
    started.push(running.clone());
}
