//! The configuration is read again while the bridge runs: at SIGHUP, by `tidings reload`, and every 5 s.
//!
//! Each time all of it is read, with every file that it refers to, and compared with the settings in
//! force. Sinks that are equal are not touched. A file with a mistake, or with a change that needs a
//! restart, is rejected as a whole, and the settings in force stay.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    panic::resume_unwind,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use futures_util::future::join_all;
use tokio::{
    signal::unix::Signal,
    sync::mpsc,
    task::{JoinHandle, spawn_blocking},
    time::{MissedTickBehavior, interval, sleep, timeout},
};

use super::{
    kube_client::Access,
    logging::Logging,
    run::{warn_of_plain_secrets, warn_of_proxies},
};
#[cfg(feature = "otlp")]
use crate::admin::{MetricsExport, Telemetry};
use crate::{
    admin::{ReloadError, ReloadRequest, Token, api::Reloaded},
    bridge::{Configuration, EventCounters, SinkControl, SinkHandleError, SinkOptions},
    config::{self, AssembleError, Settings, SinkSettings},
};

/// The time between two looks whether a file has changed.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A file that a look finds changed has to stay as it is for so long: it may be half written.
const SETTLED_FOR: Duration = Duration::from_millis(500);
/// A disk that takes longer to read a few files hangs.
const READ_WITHIN: Duration = Duration::from_secs(10);
/// An attempt under way has the `timeout` of its sink, but no longer than this: other changes wait.
const WAIT_AT_MOST: Duration = Duration::from_mins(1);

/// A configuration as it was read, or why it cannot be in force.
type Found = Result<Settings, String>;

/// Keeps the settings in force up to the file.
pub(super) struct Reloader {
    path: PathBuf,
    /// A pipe has nothing to be read again.
    is_file: bool,
    /// Under way, where a disk hangs.
    reading: Option<JoinHandle<Result<Settings, config::Error>>>,
    in_force: Settings,
    /// Read last, and in force or rejected.
    last: Found,
    /// Sinks that could not be stopped or started as they are to be, which is tried again.
    unfinished: BTreeSet<String>,
    running: Running,
}

/// The parts of a running bridge that change with its configuration.
pub(super) struct Running {
    pub(super) sinks: SinkControl,
    pub(super) counters: Arc<EventCounters>,
    pub(super) access: Arc<Access>,
    pub(super) token: Token,
    pub(super) logging: Logging,
    #[cfg(feature = "otlp")]
    pub(super) telemetry: Telemetry,
    /// Tells what is in force.
    pub(super) configuration: Configuration,
}

impl Reloader {
    /// Of a bridge that was started with these settings.
    pub(super) fn new(path: PathBuf, in_force: Settings, running: Running) -> Self {
        let file = path.display().to_string();
        running.configuration.set_in_force(&file, in_force.shown.clone());
        Self {
            is_file: path.is_file(),
            path,
            reading: None,
            last: Ok(in_force.clone()),
            in_force,
            unfinished: BTreeSet::new(),
            running,
        }
    }

    /// Runs until it is dropped.
    pub(super) async fn run(
        mut self,
        mut hangup: Signal,
        mut requests: mpsc::Receiver<ReloadRequest>,
    ) -> Infallible {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                Some(()) = hangup.recv() => {
                    tracing::info!("SIGHUP: the configuration is read again");
                    // The log has the outcome.
                    let _ = self.reload().await;
                }
                Some(request) = requests.recv() => {
                    let reloaded = self.reload().await;
                    // A client that has gone away does not want to know.
                    let _ = request.send(reloaded);
                }
                _ = looks.tick(), if self.is_file => self.look().await,
            }
        }
    }

    async fn reload(&mut self) -> Result<Reloaded, ReloadError> {
        let found = self.read().await;
        self.take(found).await
    }

    /// Takes the content of the file if that is news.
    async fn look(&mut self) {
        let found = self.read().await;
        if found != self.last {
            sleep(SETTLED_FOR).await;
            if self.read().await == found {
                // The log has the outcome.
                let _ = self.take(found).await;
            }
        } else if !self.unfinished.is_empty() {
            let next = self.in_force.clone();
            if let Ok(sinks) = built(self.to_be_put(&next)).await {
                let _ = self.follow(next, sinks).await;
            }
        }
    }

    /// The content of the file now.
    async fn read(&mut self) -> Found {
        let file = self.path.display().to_string();
        if !self.is_file {
            return Err(format!(
                "{file}: expected a file that can be read again, found a pipe\n\
                 hint: start Tidings with a file to change its configuration while it runs"
            ));
        }
        let path = self.path.clone();
        let load = || spawn_blocking(move || config::load(&path, std::env::vars_os()));
        let reading = self.reading.get_or_insert_with(load);
        let Ok(read) = timeout(READ_WITHIN, reading).await else {
            return Err(format!(
                "{file}: expected the file and those that it refers to within {} s, found one that \
                 does not answer\nhint: check their disks, and that none of them is a pipe",
                READ_WITHIN.as_secs()
            ));
        };
        self.reading = None;
        let settings = read
            .map_err(|error| format!("{file}: reading it failed: {error}; this is a bug"))?
            .map_err(|error| error.to_string())?;
        let enriched = settings.sinks.iter().filter(|sink| !self.running.sinks.may_be_put(sink));
        let enriched = enriched.map(|sink| format!("sinks.{}.enrich", sink.name));
        let fixed = self.in_force.fixed_keys_changed(&settings).into_iter().map(str::to_owned);
        let fixed: Vec<_> = fixed.chain(enriched).collect();
        if fixed.is_empty() {
            return Ok(settings);
        }
        Err(format!(
            "{file}: {}: expected no change while Tidings runs, found one\n\
             hint: restart Tidings to take the file as it is, or take this change back",
            fixed.join(", ")
        ))
    }

    /// Puts a content of the file into force, or rejects it.
    async fn take(&mut self, found: Found) -> Result<Reloaded, ReloadError> {
        self.last.clone_from(&found);
        let file = self.path.display().to_string();
        let next = match found {
            Ok(settings) => match self.new_parts(&settings).await {
                Ok(new) => Ok((settings, new)),
                Err(error) => Err(format!("{file}: {error}")),
            },
            Err(error) => Err(error),
        };
        let (next, new) = match next {
            Ok(next) => next,
            Err(error) => {
                let said = "the configuration is rejected: the one before stays in force";
                tracing::error!(file, error, "{said}");
                self.running.configuration.set_rejected(error.clone());
                return Err(ReloadError::Rejected(error));
            }
        };
        let before = &self.in_force;
        let mut keys = Vec::new();
        if next.log.level != before.log.level {
            self.running.logging.set_level(next.log.level);
            keys.push("log.level".to_owned());
        }
        if next.server.token != before.server.token {
            self.running.token.set(next.server.token.clone());
            keys.push("server.token".to_owned());
        }
        if next.source.proxy != before.source.proxy {
            self.running.access.set_proxy(next.source.proxy.clone());
            keys.push("source.proxy".to_owned());
        }
        if next.counters != before.counters {
            self.running.counters.set(next.counters.clone());
            keys.push("metrics".to_owned());
        }
        #[cfg(feature = "otlp")]
        if next.telemetry != before.telemetry {
            self.running.telemetry.set(new.telemetry);
            keys.push("telemetry".to_owned());
        }
        if next.plain_secrets != before.plain_secrets {
            warn_of_plain_secrets(&next);
        }
        warn_of_proxies(next.sinks.iter().filter(|sink| !before.sinks.contains(sink)));
        if next == *before {
            self.running.configuration.clear_rejected();
        } else {
            self.running.configuration.set_in_force(&file, next.shown.clone());
        }
        let (mut reloaded, done) = self.follow(next, new.sinks).await;
        reloaded.changed.extend(keys);
        let Reloaded { added, changed, removed, .. } = &reloaded;
        let (added, changed, removed) = (added.join(", "), changed.join(", "), removed.join(", "));
        tracing::info!(file, added, changed, removed, "the configuration is in force");
        done.map(|()| reloaded)
    }

    /// Makes the parts that these settings want and that are not there; contacts nobody.
    async fn new_parts(&self, next: &Settings) -> Result<NewParts, String> {
        let sinks = built(self.to_be_put(next)).await.map_err(|error| error.to_string())?;
        #[cfg(feature = "otlp")]
        let telemetry = {
            let is_new = next.telemetry != self.in_force.telemetry;
            let otlp = next.telemetry.clone().filter(|_| is_new);
            let making = spawn_blocking(move || otlp.as_ref().map(MetricsExport::new).transpose());
            let made = making.await.unwrap_or_else(|error| resume_unwind(error.into_panic()));
            made.map_err(|error| error.to_string())?
        };
        Ok(NewParts {
            sinks,
            #[cfg(feature = "otlp")]
            telemetry,
        })
    }

    /// The sinks that are new, or are not as these settings want them.
    fn to_be_put(&self, next: &Settings) -> Vec<SinkSettings> {
        let is_as_wanted = |sink: &SinkSettings| {
            self.in_force.sinks.contains(sink) && !self.unfinished.contains(&sink.name)
        };
        next.sinks.iter().filter(|sink| !is_as_wanted(sink)).cloned().collect()
    }

    /// Makes the sinks those of these settings; `sinks` are the new and changed ones. Answers which were
    /// added, changed and removed, and whether all of that is done.
    async fn follow(
        &mut self,
        next: Settings,
        sinks: Vec<SinkOptions>,
    ) -> (Reloaded, Result<(), ReloadError>) {
        let before: BTreeMap<_, _> =
            self.in_force.sinks.iter().map(|sink| (&*sink.name, sink.timeout)).collect();
        let order: Vec<_> = next.sinks.iter().map(|sink| &*sink.name).collect();
        let within =
            |name: &str| before.get(name).map_or(WAIT_AT_MOST, |it| *it.min(&WAIT_AT_MOST));
        let names = before.keys().copied().chain(self.unfinished.iter().map(|name| &**name));
        let gone: BTreeSet<_> = names.filter(|name| !order.contains(name)).collect();
        let (changed, added): (Vec<_>, Vec<_>) =
            sinks.iter().map(|sink| &*sink.name).partition(|name| before.contains_key(name));
        let key = |name: &str| format!("sinks.{name}");
        let reloaded = Reloaded {
            file: self.path.display().to_string(),
            added: added.into_iter().map(key).collect(),
            changed: changed.into_iter().map(key).collect(),
            removed: gone.iter().map(|name| key(name)).collect(),
        };

        // Before the others, which may write to the same file under another name.
        let removing = gone.iter().map(async |name| {
            ((*name).to_owned(), self.running.sinks.remove(name, within(name)).await)
        });
        let mut done = join_all(removing).await;
        let putting = sinks.into_iter().map(async |sink| {
            let (name, within) = (sink.name.clone(), within(&sink.name));
            (name, self.running.sinks.put(sink, within).await)
        });
        done.extend(join_all(putting).await);
        self.running.sinks.arrange(&order);

        self.unfinished.clear();
        self.in_force = next;
        let mut errors = Vec::new();
        for (sink, done) in done {
            let Err(error) = done else { continue };
            if matches!(error, SinkHandleError::Stopping) {
                return (reloaded, Err(ReloadError::Stopping));
            }
            let said = "a sink is not as the configuration wants it: this is tried again";
            tracing::error!(sink, %error, "{said}");
            errors.push(error.to_string());
            self.unfinished.insert(sink);
        }
        if errors.is_empty() {
            return (reloaded, Ok(()));
        }
        (reloaded, Err(ReloadError::Unfinished(errors.join("\n"))))
    }
}

/// The parts that a change of the configuration makes.
struct NewParts {
    sinks: Vec<SinkOptions>,
    /// The receiver of the metrics, where there is another one.
    #[cfg(feature = "otlp")]
    telemetry: Option<MetricsExport>,
}

/// Makes the sinks; contacts nobody.
async fn built(sinks: Vec<SinkSettings>) -> Result<Vec<SinkOptions>, AssembleError> {
    // To read the system's certificates takes a while.
    let building = spawn_blocking(|| sinks.into_iter().map(config::built).collect());
    building.await.unwrap_or_else(|error| resume_unwind(error.into_panic()))
}
