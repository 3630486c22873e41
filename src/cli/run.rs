//! `tidings run`.

use std::{path::Path, process::ExitCode, time::Duration};

use futures_util::future::OptionFuture;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{EXIT_CONFIGURATION, failed, kube_client, logging, own_events::Recording};
use crate::{
    admin::{AdminServer, ControlSocket},
    bridge::{Bridge, BridgeView, Heartbeat},
    config::{self, Settings, SyncPolicy},
};

/// How long a stop may take to deliver what has been read. Kubernetes kills after 30 s by default.
const DRAIN_WITHIN: Duration = Duration::from_secs(10);

/// Why the program ends by itself, and the exit code for it.
struct Failure {
    error: Box<dyn std::error::Error>,
    code: u8,
}

impl Failure {
    fn configuration(error: impl std::error::Error + 'static) -> Self {
        Self { error: Box::new(error), code: EXIT_CONFIGURATION }
    }
}

impl<E: std::error::Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { error: Box::new(error), code: 1 }
    }
}

pub(super) fn run(path: Option<&Path>) -> ExitCode {
    let settings = match path {
        Some(path) => config::load(path, std::env::vars_os()),
        None => config::without_file(std::env::vars_os()),
    };
    let mut settings = match settings {
        Ok(settings) => settings,
        Err(error) => return failed(&error, EXIT_CONFIGURATION),
    };
    logging::start(settings.log);
    // Without a configuration nothing is kept: the journal goes with the process.
    let scratch = match path {
        Some(_) => None,
        None => match tempfile::Builder::new().prefix("tidings-").tempdir() {
            Ok(scratch) => {
                scratch.path().clone_into(&mut settings.journal.path);
                settings.journal.sync = SyncPolicy::Never;
                Some(scratch)
            }
            Err(error) => return failed(&format!("cannot make a temporary directory: {error}"), 1),
        },
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("cannot start the runtime: {error}"), 1),
    };
    let ended = runtime.block_on(follow(settings, path));
    // A write to a disk that hangs must not keep the program from ending.
    runtime.shutdown_timeout(Duration::from_secs(1));
    drop(scratch);
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { error, code }) => failed(&error, code),
    }
}

async fn follow(settings: Settings, config: Option<&Path>) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let (client, origin) = kube_client::connect(settings.source.kubeconfig.as_deref())
        .await
        .map_err(Failure::configuration)?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        credentials = origin,
        journal = config.map(|_| settings.journal.path.display().to_string()),
        sinks = settings.sinks.len(),
        "starting"
    );
    let heartbeat = settings.source.heartbeat;
    let listen = config.map(|_| settings.server.listen);
    let mut options = settings.into_bridge_options().map_err(Failure::configuration)?;
    let recording = Recording::start(&client).await?.map(|(recording, own_events)| {
        options.heartbeat =
            heartbeat.map(|every| Heartbeat { about: own_events.about.clone(), every });
        options.own_events = Some(own_events);
        recording
    });
    // What is kept nowhere has no operator.
    let directory = config.map(|_| options.journal.path.clone());
    let mut bridge = tokio::select! {
        bridge = Bridge::start(client, options) => bridge?,
        () = signals.stop() => return Ok(()),
    };
    let mut admin = match listen {
        None => None,
        Some(address) => match AdminServer::start(address, bridge.view()).await {
            Ok(admin) => {
                tracing::info!(address = %admin.address(), "the admin server listens");
                Some(admin)
            }
            Err(error) => {
                tracing::error!(%error, "the program cannot go on: what has been read is delivered");
                signals.or_at_once(bridge.stop(DRAIN_WITHIN)).await?;
                return Err(error.into());
            }
        },
    };
    let mut control = directory.and_then(|directory| control_socket(&directory, &bridge));
    let served = OptionFuture::from(admin.as_mut().map(AdminServer::failed));
    let controlled = OptionFuture::from(control.as_mut().map(ControlSocket::failed));
    let recorded = OptionFuture::from(recording.as_ref().map(Recording::failed));
    let failure: Option<Failure> = tokio::select! {
        () = signals.stop() => None,
        error = bridge.failed() => Some(error.into()),
        Some(error) = served => Some(error.into()),
        Some(error) = controlled => Some(error.into()),
        Some(error) = recorded => Some(error.into()),
    };
    match &failure {
        None => tracing::info!("stopping: reading ends, what has been read is delivered"),
        Some(Failure { error, .. }) => {
            // All of it is the last word of the program.
            let error = error.to_string();
            let error = error.lines().next().unwrap_or_default();
            tracing::error!(error, "the program cannot go on: what has been read is delivered");
        }
    }
    let view = bridge.view();
    let stopping = async {
        // While the bridge holds the directory: afterwards the socket there may be its successor's.
        if let Some(control) = control {
            control.stop().await;
        }
        let stopped = bridge.stop(DRAIN_WITHIN).await;
        if let Some(recording) = recording {
            recording.stop().await;
        }
        if let Some(admin) = admin {
            admin.stop().await;
        }
        stopped
    };
    let stopped = signals.or_at_once(stopping).await;
    say_where_it_stands(&view);
    failure.map_or(Ok(()), Err)?;
    Ok(stopped?)
}

/// The socket for `dead-letters` and `replay`. The bridge does its work without it, too.
fn control_socket(directory: &Path, bridge: &Bridge) -> Option<ControlSocket> {
    let started = ControlSocket::start(directory, bridge.view(), bridge.control());
    let failed = |error: &std::io::Error| {
        tracing::warn!(
            %error,
            directory = %directory.display(),
            "the control socket cannot be made: `tidings dead-letters` and `tidings replay` do not reach \
             this bridge; mend the directory, or give journal.path one that takes sockets, and restart",
        );
    };
    started.inspect_err(failed).ok()
}

fn say_where_it_stands(view: &BridgeView) {
    for sink in crate::admin::status(view).sinks {
        tracing::info!(
            sink = sink.name,
            delivered = sink.delivered,
            filtered = sink.filtered,
            dead_lettered = sink.dead_lettered,
            lost = sink.lost,
            pending = sink.pending,
            "stopped"
        );
    }
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Completes at the next of either.
    async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Waits for the end of what stops in order; another signal ends the program where it is.
    async fn or_at_once<T>(&mut self, stopping: impl Future<Output = T>) -> T {
        tokio::select! {
            stopped = stopping => stopped,
            () = self.stop() => {
                tracing::warn!("a signal while stopping: ending at once");
                std::process::exit(1);
            }
        }
    }
}
