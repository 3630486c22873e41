//! From settings to a bridge: each sink is built, nothing is contacted yet.

use std::sync::Arc;

use super::{JournalSettings, Settings, SinkKind, SinkSettings, SourceSettings, SyncPolicy};
use crate::{
    bridge::{
        BridgeOptions, JournalOptions, Sink, SinkOptions, SourceOptions, SourceStart as BridgeStart,
    },
    event::Cluster,
    journal::{LogOptions, Sync},
    sinks,
};

/// A sink cannot be built from its settings.
#[derive(Debug, thiserror::Error)]
#[error("sinks.{sink}: {error}")]
pub struct AssembleError {
    sink: String,
    error: sinks::SinkBuildError,
}

impl Settings {
    /// What [`Bridge::start`](crate::bridge::Bridge::start) takes, with no Events of its own and no
    /// heartbeat: both need to know a Pod.
    ///
    /// # Errors
    ///
    /// A certificate, a header or an address cannot be used; the error names the sink and the key.
    pub fn into_bridge_options(self) -> Result<BridgeOptions, AssembleError> {
        let sinks = self.sinks.into_iter().map(sink_options).collect::<Result<_, _>>()?;
        Ok(BridgeOptions {
            cluster: Cluster { name: self.cluster.name, uid: self.cluster.uid },
            source: source_options(self.source),
            journal: journal_options(self.journal),
            sinks,
            objects: self.objects,
            own_events: None,
            heartbeat: None,
        })
    }
}

fn source_options(source: SourceSettings) -> SourceOptions {
    SourceOptions {
        namespaces: source.namespaces,
        field_selector: source.field_selector,
        start: match source.start {
            super::SourceStart::All => BridgeStart::All,
            super::SourceStart::Now => BridgeStart::Now,
            super::SourceStart::Since(since) => BridgeStart::Since(since),
        },
    }
}

fn journal_options(journal: JournalSettings) -> JournalOptions {
    let sync = match journal.sync {
        SyncPolicy::Always => Sync::Always,
        SyncPolicy::Never => Sync::Never,
        SyncPolicy::Every(interval) => Sync::Interval(interval),
    };
    JournalOptions {
        path: journal.path,
        log: LogOptions {
            retention_size: journal.retention_size,
            retention_age: journal.retention_age,
            sync,
        },
        dead_letters: journal.dead_letters,
        max_event: journal.max_event,
    }
}

fn sink_options(settings: SinkSettings) -> Result<SinkOptions, AssembleError> {
    let kind = settings.kind.name();
    let sink = build(&settings.kind)
        .map_err(|error| AssembleError { sink: settings.name.clone(), error })?;
    Ok(SinkOptions {
        name: settings.name,
        kind,
        sink,
        filter: settings.filter,
        enrich: settings.enrich,
        correlate: settings.correlate,
        batch: settings.batch,
        retry: settings.retry,
        timeout: settings.timeout,
        concurrency: settings.concurrency,
        max_event: settings.max_event,
        start: settings.start,
        overflow: settings.overflow,
        forward_dead_letters: settings.forward_dead_letters,
    })
}

impl SinkKind {
    /// Whether the transport takes its options.
    pub(super) fn try_build(&self) -> Result<(), sinks::SinkBuildError> {
        build(self).map(drop)
    }
}

fn build(kind: &SinkKind) -> Result<Arc<dyn Sink>, sinks::SinkBuildError> {
    Ok(match kind {
        #[cfg(feature = "kafka")]
        SinkKind::Kafka(options) => Arc::new(sinks::KafkaSink::new(options)?),
        #[cfg(feature = "otlp")]
        SinkKind::Otlp(options) => Arc::new(sinks::OtlpSink::new(options)?),
        #[cfg(feature = "webhook")]
        SinkKind::Webhook(options) => Arc::new(sinks::WebhookSink::new(options)?),
        SinkKind::Stdout => Arc::new(sinks::StdoutSink::new()?),
        // The configuration refuses a kind that is not built in.
        #[cfg(not(all(feature = "kafka", feature = "otlp", feature = "webhook")))]
        other => {
            let reason = format_args!("{} is not built in", other.name());
            let reason = crate::bridge::Secrets::none().reason(reason);
            return Err(sinks::SinkBuildError::Client(reason));
        }
    })
}
