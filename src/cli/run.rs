//! `tidings run`.

use std::{
    fs::Permissions,
    os::unix::fs::PermissionsExt as _,
    panic::resume_unwind,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use futures_util::future::OptionFuture;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidings_log::Sync;
use tokio::{
    runtime::{Builder, Handle},
    signal::unix::{Signal, SignalKind, signal},
};

use super::{
    EXIT_CONFIGURATION, failed, kube_client,
    logging::{self, Logging},
    own_events::Recording,
    reload::{Reloader, Running},
};
#[cfg(feature = "otlp")]
use crate::admin::{Exporting, MetricsExport};
use crate::{
    admin::{AdminServer, ControlSocket, ReloadHandle},
    bridge::{Bridge, BridgeView, Heartbeat},
    config::{self, Settings, SinkSettings},
    sinks::Proxy,
};

/// How long a stop may take to deliver what has been read. Kubernetes kills after 30 s by default.
const DRAIN_WITHIN: Duration = Duration::from_secs(10);

/// Why the program ends by itself, and the exit code for it.
struct Failure {
    error: Box<dyn std::error::Error + Send>,
    code: u8,
}

impl Failure {
    fn configuration(error: impl std::error::Error + Send + 'static) -> Self {
        Self { error: Box::new(error), code: EXIT_CONFIGURATION }
    }
}

impl<E: std::error::Error + Send + 'static> From<E> for Failure {
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
    let logging = logging::start(settings.log);
    raise_descriptors();
    // The bridge has the threads of one; the other is the main thread, for what is served alone.
    let runtime = Builder::new_multi_thread().enable_all().build();
    let serving = Builder::new_current_thread().enable_all().build();
    let (runtime, serving) = match (runtime, serving) {
        (Ok(runtime), Ok(serving)) => (runtime, serving),
        (Err(error), _) | (_, Err(error)) => {
            return failed(&format!("cannot start the runtime: {error}"), 1);
        }
    };
    // Before there is anything that a signal could leave behind.
    let (signals, hangup) = {
        let _within = runtime.enter();
        match Signals::new(path.is_some()) {
            Ok(signals) => signals,
            Err(error) => return failed(&format!("cannot listen to signals: {error}"), 1),
        }
    };
    warn_of_plain_secrets(&settings);
    warn_of_proxies(&settings.sinks);
    // Without a configuration nothing is kept: the journal goes with the process.
    let scratch = match path {
        Some(_) => None,
        None => match scratch_directory() {
            Ok(scratch) => {
                scratch.path().clone_into(&mut settings.journal.path);
                settings.journal.log.sync = Sync::Never;
                Some(scratch)
            }
            Err(error) => return failed(&format!("cannot make a temporary directory: {error}"), 1),
        },
    };
    let reloading = path.zip(hangup).map(|(path, hangup)| (path.to_owned(), hangup, logging));
    let followed = follow(settings, reloading, signals, serving.handle().clone());
    let ended = serving
        .block_on(runtime.spawn(followed))
        .unwrap_or_else(|error| resume_unwind(error.into_panic()));
    // A write to a disk that hangs must not keep the program from ending.
    runtime.shutdown_timeout(Duration::from_secs(1));
    serving.shutdown_background();
    drop(scratch);
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { error, code }) => failed(&error, code),
    }
}

/// Says where a secret stands in the file.
pub(super) fn warn_of_plain_secrets(settings: &Settings) {
    if !settings.plain_secrets.is_empty() {
        tracing::warn!(
            at = settings.plain_secrets.join(", "),
            "secrets stand in the configuration file itself: write {{env: NAME}} or {{file: PATH}} instead"
        );
    }
}

/// Says of each sink over HTTP that it does not use a proxy that the environment names.
pub(super) fn warn_of_proxies<'a>(sinks: impl IntoIterator<Item = &'a SinkSettings>) {
    let named = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let Some(variable) = Proxy::VARIABLES.iter().find(|name| named(name)) else { return };
    for sink in sinks {
        if sink.sink.proxy() == Some(&Proxy::None) {
            tracing::warn!(
                sink = sink.name,
                variable,
                hint = "write `proxy: env` on the sink to use it",
                "the environment names a proxy, which this sink does not use"
            );
        }
    }
}

/// The directory of a journal that nobody is to find again.
fn scratch_directory() -> std::io::Result<tempfile::TempDir> {
    let for_us_alone = Permissions::from_mode(0o700);
    tempfile::Builder::new().prefix("tidings-").permissions(for_us_alone).tempdir()
}

async fn follow(
    settings: Settings,
    reloading: Option<(PathBuf, Signal, Logging)>,
    mut signals: Signals,
    serving: Handle,
) -> Result<(), Failure> {
    let configured = reloading.is_some();
    let (client, origin, access) = tokio::select! {
        // Its exec plugin may take long.
        connected = kube_client::connect(&settings.source) => connected.map_err(Failure::configuration)?,
        () = signals.stop() => return Ok(()),
    };
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        credentials = origin,
        journal = configured.then(|| settings.journal.path.display().to_string()),
        sinks = settings.sinks.len(),
        "starting"
    );
    let in_force = settings.clone();
    let heartbeat = settings.source.heartbeat;
    let server = configured.then(|| settings.server.clone());
    #[cfg(feature = "otlp")]
    let telemetry = settings.telemetry.as_ref().map(MetricsExport::new).transpose();
    #[cfg(feature = "otlp")]
    let telemetry = telemetry.map_err(Failure::configuration)?;
    let mut options = settings.into_bridge_options().map_err(Failure::configuration)?;
    let recording = Recording::start(&client).await?.map(|(recording, own_events)| {
        options.heartbeat =
            heartbeat.map(|every| Heartbeat { about: own_events.about.clone(), every });
        options.own_events = Some(own_events);
        recording
    });
    // What is kept nowhere has no operator.
    let directory = configured.then(|| options.journal.path.clone());
    let mut bridge = tokio::select! {
        bridge = Bridge::start(client, options) => bridge?,
        () = signals.stop() => return Ok(()),
    };
    let mut admin = match server {
        None => None,
        Some(server) => match within(&serving, || AdminServer::start(server, bridge.view())) {
            Ok(admin) => {
                tracing::info!(address = %admin.address(), "the admin server listens");
                warn_in_a_pod(&admin);
                Some(admin)
            }
            Err(error) => {
                tracing::error!(%error, "the program cannot go on: what has been read is delivered");
                signals.or_at_once(bridge.stop(DRAIN_WITHIN)).await??;
                return Err(error.into());
            }
        },
    };
    #[cfg(feature = "otlp")]
    let telemetry = Exporting::start(telemetry, bridge.view());
    let (reload, requests) = ReloadHandle::new();
    let mut control = directory
        .and_then(|directory| within(&serving, || control_socket(&directory, &bridge, reload)));
    let reloading = reloading.zip(admin.as_ref()).map(|((path, hangup, logging), admin)| {
        let view = bridge.view();
        let running = Running {
            sinks: bridge.sinks(),
            counters: view.counters,
            access,
            token: admin.token(),
            logging,
            #[cfg(feature = "otlp")]
            telemetry: telemetry.receiver(),
            configuration: view.configuration,
        };
        Reloader::new(path, in_force, running).run(hangup, requests)
    });
    let served = OptionFuture::from(admin.as_mut().map(AdminServer::failed));
    let controlled = OptionFuture::from(control.as_mut().map(ControlSocket::failed));
    let reloading = OptionFuture::from(reloading);
    let failure: Option<Failure> = tokio::select! {
        () = signals.stop() => None,
        error = bridge.failed() => Some(error.into()),
        Some(error) = served => Some(error.into()),
        Some(error) = controlled => Some(error.into()),
        Some(never) = reloading => match never {},
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
        #[cfg(feature = "otlp")]
        telemetry.stop().await;
        if let Some(recording) = recording {
            recording.stop().await;
        }
        if let Some(admin) = admin {
            admin.stop().await;
        }
        stopped
    };
    let stopped = signals.or_at_once(stopping).await?;
    say_where_it_stands(&view);
    failure.map_or(Ok(()), Err)?;
    Ok(stopped?)
}

/// Has what is started run on a runtime.
fn within<T>(runtime: &Handle, start: impl FnOnce() -> T) -> T {
    let _entered = runtime.enter();
    start()
}

/// In a Pod the probes come from outside of it.
fn warn_in_a_pod(admin: &AdminServer) {
    let in_a_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    if in_a_pod && admin.address().ip().is_loopback() {
        tracing::warn!(
            address = %admin.address(),
            "the admin server listens on loopback alone, where the kubelet's probes do not reach it: \
             give the container the variable TIDINGS_SERVER__LISTEN=[::]:8080, as \
             deploy/install.yaml does"
        );
    }
}

/// Journal, sinks and admin server need descriptors; that the soft limit is often 1024 is for programs
/// that use `select`.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // What cannot be raised stays.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// The socket for the commands that ask a running bridge. The bridge does its work without it, too.
fn control_socket(
    directory: &Path,
    bridge: &Bridge,
    reload: ReloadHandle,
) -> Option<ControlSocket> {
    let started = ControlSocket::start(directory, bridge.view(), bridge.control(), reload);
    let failed = |error: &std::io::Error| {
        tracing::warn!(
            %error,
            directory = %directory.display(),
            "the control socket cannot be made: `tidings status`, `dead-letters`, `replay`, `reload` and \
             `config show` do not reach this bridge; mend the directory, or give journal.path one that takes sockets, and restart",
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

/// What the program is told by signals. None ends it undrained: SIGTERM, SIGINT and SIGQUIT stop it, and
/// so does SIGHUP where there is no configuration; the others are a line in the log. Where there is a
/// configuration, SIGHUP has it [read again](Reloader).
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    /// Nothing where a configuration is read again at it.
    hangup: Option<Signal>,
    user_1: Signal,
    user_2: Signal,
    /// Of a terminal that is gone: nobody has anything of what goes on.
    hangup_stops: bool,
}

/// A second signal does not wait for what the first one has begun.
#[derive(Debug, thiserror::Error)]
#[error("a signal while stopping: ending at once")]
struct AtOnce;

impl Signals {
    /// Listens to them; needs a runtime. Where there is a configuration, SIGHUP comes apart.
    fn new(configured: bool) -> std::io::Result<(Self, Option<Signal>)> {
        // Before it is listened to. What `nohup` has started is to outlive its terminal.
        let hangup_stops = !configured && !is_ignored(SignalKind::hangup());
        let hangup = signal(SignalKind::hangup())?;
        let (hangup, of_reload) =
            if configured { (None, Some(hangup)) } else { (Some(hangup), None) };
        let signals = Self {
            hangup_stops,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            hangup,
            user_1: signal(SignalKind::user_defined1())?,
            user_2: signal(SignalKind::user_defined2())?,
        };
        Ok((signals, of_reload))
    }

    /// Completes at the next one that stops the program.
    async fn stop(&mut self) {
        loop {
            let ignored = tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.quit.recv() => return,
                Some(Some(())) = OptionFuture::from(self.hangup.as_mut().map(Signal::recv)) => {
                    if self.hangup_stops {
                        return;
                    }
                    "SIGHUP"
                }
                _ = self.user_1.recv() => "SIGUSR1",
                _ = self.user_2.recv() => "SIGUSR2",
            };
            tracing::warn!("{ignored} means nothing to this program and is ignored");
        }
    }

    /// Waits for the end of what stops in order, unless another signal comes.
    async fn or_at_once<T>(&mut self, stopping: impl Future<Output = T>) -> Result<T, AtOnce> {
        tokio::select! {
            stopped = stopping => Ok(stopped),
            () = self.stop() => Err(AtOnce),
        }
    }
}

/// Whether whoever started the program had it ignore a signal. Where the system does not tell, it did
/// not.
fn is_ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.unwrap_or(0) >> (kind.as_raw_value() - 1) & 1 == 1
}
