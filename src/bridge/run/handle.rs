//! One sink of a running bridge: stopped and started alone, while the others go on.
//!
//! A sink is stopped at the border of a batch. What is on its way is delivered, as long as the receiver
//! takes it; then everything that it has reached is on the disk: the position, the totals, what the
//! correlator holds, the dead letters. It is started with that, as the first start of a bridge does it,
//! so in between another process could have it. Meanwhile it is to the journal what a sink is whose
//! receiver is down.

use std::{io, sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    task::spawn_blocking,
    time::timeout,
};

use super::{
    BridgeError, SAVED_WITHIN,
    sink::{Run, SinkParts},
};
use crate::{
    bridge::{
        Enrich, SinkCondition, SinkOptions,
        restore::{RestoredSink, SavedSinks},
        tasks::{Failing as _, answer_of, cause_of},
    },
    journal::{ReadError, SinkState},
};

/// Stops and starts one sink of a running bridge. Clones are the same one; see
/// [`Bridge::sink`](super::Bridge::sink).
#[derive(Clone, Debug)]
pub struct SinkHandle {
    name: Arc<str>,
    requests: mpsc::Sender<Request>,
}

/// Why a sink was not stopped or started.
#[derive(Debug, thiserror::Error)]
pub enum SinkHandleError {
    /// It cannot be started once more.
    #[error("the sink `{0}` runs already\nhint: stop it first")]
    Running(String),
    /// It cannot be stopped once more.
    #[error("the sink `{0}` is stopped already")]
    Stopped(String),
    /// The bridge has ended, or is about to.
    #[error("the bridge is stopping")]
    Stopping,
    /// The options are those of another sink.
    #[error("expected options of the sink `{expected}`, found those of `{found}`")]
    OtherSink {
        /// The handle's.
        expected: String,
        /// The name in the options.
        found: String,
    },
    /// An option that cannot change while the bridge runs.
    #[error(
        "`{key}` of the sink `{sink}` cannot change while the bridge runs\nhint: restart the bridge"
    )]
    Fixed {
        /// Which sink.
        sink: String,
        /// Which option.
        key: &'static str,
    },
    /// The sink is stopped, and how far it is could not be saved.
    #[error(
        "the state of the sink `{0}` could not be saved within {seconds} s: the disk does not answer\n\
         hint: the sink is stopped and nothing is lost; start it when the disk answers again",
        seconds = SAVED_WITHIN.as_secs()
    )]
    NotSaved(String),
    /// What is saved cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The file of what it has had cannot be used.
    #[error("cannot open the file of what the sink `{sink}` was delivered: {error}")]
    File {
        /// Which sink.
        sink: String,
        /// The operating system's answer.
        error: io::Error,
    },
}

/// What a handle asks for.
pub(super) enum Request {
    Stop { within: Duration, answer: Answer<SinkState> },
    Start { options: Box<SinkOptions>, answer: Answer<()> },
}

type Answer<T> = oneshot::Sender<Result<T, SinkHandleError>>;

impl SinkHandle {
    /// A handle, and where its requests come out.
    pub(super) fn new(name: &str) -> (Self, mpsc::Receiver<Request>) {
        let (requests, asked) = mpsc::channel(1);
        (Self { name: name.into(), requests }, asked)
    }

    /// The sink's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Stops the sink at the border of a batch, and answers what is saved of it then. What is on its
    /// way is delivered `within` this time; a receiver that fails is not waited for, and what it has
    /// not had is pending in the journal. What `suppress` holds stays held. A replay to it ends.
    ///
    /// Once asked, it is done, whether the answer is waited for or not.
    ///
    /// # Errors
    ///
    /// It is stopped already, or the bridge is stopping; or it is stopped and could not be saved.
    pub async fn stop(&self, within: Duration) -> Result<SinkState, SinkHandleError> {
        self.ask(|answer| Request::Stop { within, answer }).await
    }

    /// Starts the sink with what is saved of it, under other options than before if they are: all but
    /// `name` and `enrich`, and [`start`](SinkOptions::start) means nothing to it. The
    /// [`sink`](SinkOptions::sink) is a new one: the last was closed.
    ///
    /// # Errors
    ///
    /// It runs already, the options cannot be its own, or the bridge is stopping; or what is saved
    /// cannot be read.
    pub async fn start(&self, options: SinkOptions) -> Result<(), SinkHandleError> {
        let options = Box::new(options);
        self.ask(|answer| Request::Start { options, answer }).await
    }

    async fn ask<T>(
        &self,
        request: impl FnOnce(Answer<T>) -> Request,
    ) -> Result<T, SinkHandleError> {
        let (answer, answered) = oneshot::channel();
        let asked = self.requests.send(request(answer)).await;
        asked.map_err(|_| SinkHandleError::Stopping)?;
        answered.await.unwrap_or(Err(SinkHandleError::Stopping))
    }
}

/// Runs a sink, and does what its handles ask for.
pub(super) struct SinkRunner {
    pub(super) name: String,
    /// Cannot change, because others have been told.
    pub(super) enrich: Option<Enrich>,
    pub(super) parts: SinkParts,
    /// To be read anew.
    pub(super) saved: Arc<SavedSinks>,
    pub(super) requests: mpsc::Receiver<Request>,
    /// Nothing while it is stopped.
    pub(super) run: Option<Run>,
    /// What the last run has reached may not be on the disk.
    pub(super) unsaved: bool,
}

impl SinkRunner {
    /// Runs until the bridge stops and the sink has drained; or until a task of it fails.
    pub(super) async fn run(mut self) -> Result<(), BridgeError> {
        loop {
            let failure = async {
                match &mut self.run {
                    Some(run) => run.tasks.next_failure().await,
                    None => std::future::pending().await,
                }
            };
            let request = tokio::select! {
                // A task that ends then has not failed.
                biased;
                () = self.parts.stop.draining() => break,
                failure = failure => {
                    return Err(match &mut self.run {
                        Some(run) => cause_of(failure, &mut run.tasks).await,
                        None => failure,
                    });
                }
                Some(request) = self.requests.recv() => request,
            };
            // Who does not wait any longer has no use for an answer.
            match request {
                Request::Stop { within, answer } => drop(answer.send(self.stop(within).await?)),
                Request::Start { options, answer } => drop(answer.send(self.start(*options).await)),
            }
        }
        let mut fault = None;
        if let Some(run) = &mut self.run {
            run.tasks.all_ended(&mut fault).await;
        }
        fault.map_or(Ok(()), Err)
    }

    /// Stops it. A task that was at fault is the end of the bridge.
    async fn stop(
        &mut self,
        within: Duration,
    ) -> Result<Result<SinkState, SinkHandleError>, BridgeError> {
        let Some(Run { mut tasks, stop, handing_over }) = self.run.take() else {
            return Ok(Err(SinkHandleError::Stopped(self.name.clone())));
        };
        let SinkParts { progress, replays, gathering, delivery, .. } = &self.parts;
        replays.close();
        handing_over.cancel();
        let mut fault = None;
        if !stop.drain(within, stop.ends_in_time(tasks.all_ended(&mut fault))).await {
            let sink = &self.name;
            tracing::warn!(sink, waiting_for = ?tasks.names(), "the sink could not be closed in time");
            tasks.shutdown(&mut fault).await;
        }
        gathering.rests();
        delivery.rests();
        if let Some(fault) = fault {
            return Err(fault);
        }
        progress.update(|sink| {
            sink.condition = SinkCondition::Stopped;
            (sink.oldest_in_hand_ms, sink.head) = (None, None);
        });
        if let Err(not_saved) = self.when_saved().await {
            return Ok(Err(not_saved));
        }
        let state = self.parts.progress.state();
        tracing::info!(
            sink = self.name,
            position = state.standing.position.next,
            "the sink is stopped"
        );
        Ok(Ok(state))
    }

    async fn start(&mut self, sink: SinkOptions) -> Result<(), SinkHandleError> {
        let name = self.name.clone();
        if self.run.is_some() {
            return Err(SinkHandleError::Running(name.clone()));
        }
        if sink.name != self.name {
            return Err(SinkHandleError::OtherSink { expected: name, found: sink.name });
        }
        if sink.enrich != self.enrich {
            return Err(SinkHandleError::Fixed { sink: name, key: "enrich" });
        }
        if self.unsaved {
            self.when_saved().await?;
        }
        let (saved, enricher) = (Arc::clone(&self.saved), self.parts.enricher.clone());
        let restoring = spawn_blocking(move || {
            let restored = saved.reload()?.sink(&sink, enricher.as_ref());
            Ok::<_, ReadError>((sink, restored))
        });
        let (sink, restored) = answer_of(restoring).await?;
        let from = restored.map_err(|error| SinkHandleError::File { sink: name, error })?;
        let RestoredSink { state, correlator, had, .. } = &from;
        let of_options = (sink.kind, sink.overflow);
        self.parts.progress.begin_again(of_options, state, correlator.as_ref(), had.all());
        self.parts.sinks.changed();
        tracing::info!(
            sink = self.name,
            position = state.standing.position.next,
            "the sink is started"
        );
        self.run = Some(self.parts.spawn(sink, from));
        Ok(())
    }

    /// Waits until all that it has reached is on the disk.
    async fn when_saved(&mut self) -> Result<(), SinkHandleError> {
        let saved = timeout(SAVED_WITHIN, self.parts.progress.when_saved()).await;
        self.unsaved = !matches!(saved, Ok(Ok(())));
        if self.unsaved { Err(SinkHandleError::NotSaved(self.name.clone())) } else { Ok(()) }
    }
}
