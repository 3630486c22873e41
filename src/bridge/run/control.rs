//! Sinks that come, change and go while the bridge runs.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tidings_kube::{broadcaster::Broadcaster, correlator::Keys};
use tidings_log::LogHandle;
use tokio::{
    sync::{mpsc, watch},
    task::spawn_blocking,
};

use super::{
    BridgeError,
    handle::{SinkHandle, SinkHandleError, SinkRunner},
    sink::SinkParts,
};
use crate::{
    bridge::{
        Enrich, OwnWrites, SinkOptions, SinkProgress, Sinks, Watchdog,
        control::ReplayDesk,
        objects::Enricher,
        published::Published,
        redelivery::Retries,
        restore::{RestoredSink, SavedSinks},
        shared::lock,
        sinks::KnownSink,
        stop::Stop,
        tasks::{Failing as _, Tasks, answer_of, cause_of},
    },
    journal::{DeadLettersReader, ReadError},
};

/// All that the sinks of a bridge have in common.
pub(super) struct Common {
    pub(super) log: LogHandle,
    pub(super) broadcaster: Broadcaster<Published>,
    pub(super) keys: Keys,
    pub(super) letters: DeadLettersReader,
    pub(super) letters_changed: watch::Receiver<Retries>,
    pub(super) own_writes: Option<OwnWrites>,
    pub(super) watchdog: Watchdog,
    pub(super) sinks: Sinks,
    /// To be read anew.
    pub(super) saved: Arc<SavedSinks>,
    pub(super) stop: Stop,
}

impl Common {
    /// A sink that goes on from there, already at work.
    pub(super) fn begin(
        &self,
        sink: SinkOptions,
        from: RestoredSink,
        enricher: Option<Enricher>,
    ) -> (Begun, SinkRunner) {
        let RestoredSink { state, correlator, had, .. } = &from;
        let name = sink.name.clone();
        let progress = Arc::new(SinkProgress::new(
            &name,
            sink.kind,
            sink.overflow,
            state.clone(),
            correlator.as_ref(),
            had.all(),
        ));
        let replays = Arc::new(ReplayDesk::new(sink.enrich.is_some()));
        let known = KnownSink { progress: Arc::clone(&progress), replays: Arc::clone(&replays) };
        let (handle, requests) = SinkHandle::new(&name);
        let parts = SinkParts {
            log: self.log.clone(),
            broadcaster: self.broadcaster.clone(),
            keys: self.keys.clone(),
            enricher,
            letters: self.letters.clone(),
            letters_changed: self.letters_changed.clone(),
            replays,
            own_writes: self.own_writes.clone(),
            progress,
            sinks: self.sinks.clone(),
            gathering: self.watchdog.pulse(format!("gathering for sink {name}")),
            delivery: self.watchdog.pulse(format!("delivery to sink {name}")),
            stop: self.stop.clone(),
        };
        let runner = SinkRunner {
            name,
            enrich: sink.enrich.clone(),
            saved: Arc::clone(&self.saved),
            requests,
            run: Some(parts.spawn(sink, from)),
            unsaved: false,
            parts,
        };
        (Begun { handle, known, enrich: runner.enrich.clone() }, runner)
    }
}

/// Adds, changes and removes sinks of a running bridge. Clones are of the same bridge; see
/// [`Bridge::sinks`](super::Bridge::sinks).
#[derive(Clone)]
pub struct SinkControl(Arc<Inner>);

struct Inner {
    common: Common,
    /// Of all sinks that have run, also of those that are configured no longer.
    handles: Mutex<BTreeMap<String, Begun>>,
    begun: mpsc::UnboundedSender<SinkRunner>,
}

/// A sink that has run.
pub(super) struct Begun {
    handle: SinkHandle,
    known: KnownSink,
    /// Cannot change.
    enrich: Option<Enrich>,
}

impl SinkControl {
    /// With the sinks of the start, and where those that come later come out.
    pub(super) fn new(
        common: Common,
        sinks: Vec<Begun>,
    ) -> (Self, mpsc::UnboundedReceiver<SinkRunner>) {
        let (begun, beginning) = mpsc::unbounded_channel();
        common.sinks.edit(|known| known.extend(sinks.iter().map(|sink| sink.known.clone())));
        let handles = sinks.into_iter().map(|sink| (sink.handle.name().to_owned(), sink));
        let handles = Mutex::new(handles.collect());
        (Self(Arc::new(Inner { common, handles, begun })), beginning)
    }

    /// The handle of one sink; nothing where there never was one of that name.
    pub(super) fn handle(&self, name: &str) -> Option<SinkHandle> {
        lock(&self.0.handles).get(name).map(|sink| sink.handle.clone())
    }

    /// Has a sink run with these options. One that is new begins by its
    /// [`start`](SinkOptions::start), or goes on where it was when it was removed. One that runs is
    /// stopped at the border of a batch and goes on from there: what is on its way is delivered
    /// `within` this time, and a receiver that fails is not waited for.
    ///
    /// # Errors
    ///
    /// The options cannot be its own, what is saved of it cannot be read or saved, or the bridge is
    /// stopping. The sink may be stopped then; asked again, it starts.
    pub async fn put(&self, sink: SinkOptions, within: Duration) -> Result<(), SinkHandleError> {
        let name = sink.name.clone();
        if !self.may_be_put(&sink) {
            return Err(SinkHandleError::Fixed { sink: name, key: "enrich" });
        }
        let Some(handle) = self.handle(&name) else { return self.add(sink).await };
        stop(&handle, within).await?;
        handle.start(sink).await?;
        self.list(&name);
        Ok(())
    }

    /// Whether a sink may run with these options before the bridge is started anew: `enrich` is as it
    /// was when the sink began, and a sink that begins later has none.
    pub fn may_be_put<S>(&self, sink: &SinkOptions<S>) -> bool {
        let handles = lock(&self.0.handles);
        handles.get(&sink.name).and_then(|begun| begun.enrich.as_ref()) == sink.enrich.as_ref()
    }

    /// Stops a sink and has it be configured no longer. The state that it has reached is kept, and the
    /// events that it has not had are pending for it until retention takes them.
    ///
    /// # Errors
    ///
    /// The state cannot be saved, or the bridge is stopping. The sink is stopped all the same, and
    /// still listed.
    pub async fn remove(&self, name: &str, within: Duration) -> Result<(), SinkHandleError> {
        let Some(handle) = self.handle(name) else { return Ok(()) };
        stop(&handle, within).await?;
        self.0.common.sinks.edit(|known| known.retain(|sink| sink.progress.name() != name));
        Ok(())
    }

    /// Has the sinks stand in this order wherever they are listed.
    pub fn arrange(&self, order: &[&str]) {
        let place = |sink: &KnownSink| {
            let name = sink.progress.name();
            order.iter().position(|next| *next == name).unwrap_or(order.len())
        };
        self.0.common.sinks.edit(|known| known.sort_by_cached_key(place));
    }

    /// Lists a sink that runs, unless it is.
    fn list(&self, name: &str) {
        let handles = lock(&self.0.handles);
        let Some(Begun { known: sink, .. }) = handles.get(name) else { return };
        self.0.common.sinks.edit(|known| {
            if !known.iter().any(|listed| Arc::ptr_eq(&listed.progress, &sink.progress)) {
                known.push(sink.clone());
            }
        });
    }

    async fn add(&self, sink: SinkOptions) -> Result<(), SinkHandleError> {
        let name = sink.name.clone();
        let saved = Arc::clone(&self.0.common.saved);
        let restoring = spawn_blocking(move || {
            let restored = saved.reload()?.sink(&sink, None);
            Ok::<_, ReadError>((sink, restored))
        });
        let (sink, restored) = answer_of(restoring).await?;
        let from = restored.map_err(|error| SinkHandleError::File { sink: name.clone(), error })?;
        let (begun, runner) = self.0.common.begin(sink, from, None);
        lock(&self.0.handles).insert(name.clone(), begun);
        self.list(&name);
        self.0.begun.send(runner).map_err(|_| SinkHandleError::Stopping)
    }
}

/// Stops a sink, unless it is stopped.
async fn stop(handle: &SinkHandle, within: Duration) -> Result<(), SinkHandleError> {
    match handle.stop(within).await {
        Ok(_) | Err(SinkHandleError::Stopped(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Runs the sinks of the start, and those that come later, until the bridge stops and all have
/// drained. One that fails is reported, and the others go on until they are told to stop.
pub(super) async fn run(
    mut sinks: Tasks,
    mut beginning: mpsc::UnboundedReceiver<SinkRunner>,
    failures: mpsc::UnboundedSender<BridgeError>,
    stop: Stop,
) -> Result<(), BridgeError> {
    loop {
        tokio::select! {
            // A task that ends then has not failed.
            biased;
            () = stop.draining() => break,
            failure = sinks.next_failure() => {
                // Of a bridge that is dropped nobody hears.
                let _ = failures.send(cause_of(failure, &mut sinks).await);
            }
            Some(runner) = beginning.recv() => spawn(&mut sinks, runner),
        }
    }
    while let Ok(runner) = beginning.try_recv() {
        spawn(&mut sinks, runner);
    }
    let mut fault = None;
    if !stop.ends_in_time(sinks.all_ended(&mut fault)).await {
        tracing::warn!(waiting_for = ?sinks.names(), "a sink could not be closed in time");
    }
    fault.map_or(Ok(()), Err)
}

/// Has a sink run among the others.
pub(super) fn spawn(sinks: &mut Tasks, runner: SinkRunner) {
    sinks.spawn_failing(format!("sink {}", runner.name), runner.run());
}
