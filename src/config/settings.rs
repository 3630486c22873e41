//! The settings that the program runs by: references resolved, defaults applied, everything checked.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

pub use super::model::{LogFormat, LogLevel, LogSettings, ServerDetail};
use crate::{
    bridge::{
        BridgeOptions, EventCounter, JournalOptions, ObjectOptions, SinkOptions, SourceOptions,
    },
    event::Cluster,
    sinks::{BuildSink, OtlpOptions, Proxy, Secret, SinkBuildError},
};

/// The options of a sink that is not made yet.
pub type SinkSettings = SinkOptions<Arc<dyn BuildSink>>;

/// A whole configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The cluster that the events are of; without a uid, ask for that of the namespace kube-system.
    pub cluster: Cluster,
    /// Where they come from.
    pub source: SourceSettings,
    /// The journal between.
    pub journal: JournalOptions,
    /// Where they go; at least one, in the order of the file, names unique.
    pub sinks: Vec<SinkSettings>,
    /// Where a secret stands in the file itself, and not a reference to one.
    pub plain_secrets: Vec<String>,
    /// The counters that are made of them.
    pub counters: Vec<EventCounter>,
    /// How objects are read that events are about, if a sink is told of them.
    pub objects: ObjectOptions,
    /// The admin server.
    pub server: ServerSettings,
    /// The OTLP receiver of the metrics.
    pub telemetry: Option<OtlpOptions>,
    /// The log.
    pub log: LogSettings,
    /// All of it as YAML, with the values of the environment, and `***` for secrets.
    pub shown: Arc<str>,
}

/// Where the events come from.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceSettings {
    /// The kubeconfig file, where one is named.
    pub kubeconfig: Option<PathBuf>,
    /// Through which the API server is reached; none: the kubeconfig's own, where it names one.
    pub proxy: Proxy,
    /// The time between two heartbeats, where there is a Pod to write them about.
    pub heartbeat: Option<Duration>,
    /// The Events that are read.
    pub events: SourceOptions,
}

/// The admin server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerSettings {
    /// The address that it listens on; port 0 takes any.
    pub listen: SocketAddr,
    /// The parts that it shows to requests that do not come from loopback.
    pub detail: ServerDetail,
    /// The token that a request shows to see everything.
    pub token: Option<Secret>,
}

impl From<SocketAddr> for ServerSettings {
    /// Details for loopback alone.
    fn from(listen: SocketAddr) -> Self {
        Self { listen, detail: ServerDetail::Loopback, token: None }
    }
}

/// A sink cannot be built from its settings.
#[derive(Debug, thiserror::Error)]
#[error("sinks.{sink}: {error}")]
pub struct AssembleError {
    sink: String,
    error: SinkBuildError,
}

impl Settings {
    /// The options of [`Bridge::start`](crate::bridge::Bridge::start), with no Events of its own and no
    /// heartbeat: both need to know a Pod.
    ///
    /// # Errors
    ///
    /// A certificate, a header or an address cannot be used; the error names the sink and the key.
    pub fn into_bridge_options(self) -> Result<BridgeOptions, AssembleError> {
        let sinks = self.sinks.into_iter().map(built).collect::<Result<_, _>>()?;
        Ok(BridgeOptions {
            cluster: self.cluster,
            source: self.source.events,
            journal: self.journal,
            sinks,
            counters: self.counters,
            objects: self.objects,
            own_events: None,
            heartbeat: None,
        })
    }
}

/// Makes the sink of its settings; contacts nobody.
pub(crate) fn built(settings: SinkSettings) -> Result<SinkOptions, AssembleError> {
    match settings.sink.build() {
        Ok(sink) => Ok(settings.with_sink(sink)),
        Err(error) => Err(AssembleError { sink: settings.name, error }),
    }
}
