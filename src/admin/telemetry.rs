//! The metrics of the bridge, sent to an OTLP receiver.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures_util::future::OptionFuture;
use prometheus_client::encoding::text::encode;
use rustix::system::uname;
use tokio::{
    sync::{oneshot, watch},
    task::{JoinHandle, spawn_blocking},
    time::{sleep, timeout},
};

use super::registry;
use crate::{
    bridge::{BridgeView, Outcome, Sink},
    encode::metrics::of_openmetrics,
    event::{Batch, Record},
    sinks::{OtlpOptions, SinkBuildError},
};

/// As the exporters of OpenTelemetry do.
const EVERY: Duration = Duration::from_secs(60);
/// How long the last export may take.
const LAST_WITHIN: Duration = Duration::from_secs(2);

/// The settings of the receiver cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("telemetry.otlp: {0}")]
pub struct TelemetryError(SinkBuildError);

/// A client that can send the metrics.
#[derive(Clone)]
pub struct MetricsExport {
    client: Arc<dyn Sink>,
    resource: BTreeMap<String, String>,
}

/// Sends the metrics at the start, every minute, when the receiver changes, and at the end.
#[derive(Debug)]
pub struct Exporting {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
    receiver: Telemetry,
}

/// The receiver of the metrics, which may change; clones are the same.
#[derive(Clone)]
pub struct Telemetry(watch::Sender<Option<MetricsExport>>);

impl Telemetry {
    /// Sends the metrics there from now on; nowhere with `None`.
    pub fn set(&self, export: Option<MetricsExport>) {
        self.0.send_replace(export);
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Telemetry")
    }
}

impl MetricsExport {
    /// Sets it up; nothing is contacted yet.
    ///
    /// # Errors
    ///
    /// A certificate, a header or the address cannot be used; the error names the key.
    pub fn new(options: &OtlpOptions) -> Result<Self, TelemetryError> {
        let client = options.build_for_metrics().map_err(TelemetryError)?;
        Ok(Self { client, resource: options.resource.clone() })
    }

    /// Sends all metrics once, and says why they were not taken.
    async fn export(&self, view: &BridgeView) -> Option<String> {
        let (view, resource) = (view.clone(), self.resource(view));
        // Counters of events may have many series.
        let messages = spawn_blocking(move || {
            let mut text = String::new();
            // Writing to a string cannot fail.
            let _ = encode(&mut text, &registry(&view));
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            of_openmetrics(&text, &resource, u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
        });
        let mut failure = None;
        for message in messages.await.ok()? {
            let batch = Batch { records: vec![Record { seq: 0, envelope: message.into() }] };
            match self.client.send(&batch).await {
                Outcome::Delivered | Outcome::PerEvent(_) => {}
                Outcome::Partial { rejected: 0, reason } => {
                    failure = Some(format!("the receiver warns: {reason}"));
                }
                Outcome::Partial { rejected, reason } => {
                    failure = Some(format!("the receiver refuses {rejected} points: {reason}"));
                }
                Outcome::Failed(failure) => return Some(failure.reason.to_string()),
            }
        }
        failure
    }

    /// The attributes of the resource: those of the configuration, and else these.
    fn resource(&self, view: &BridgeView) -> BTreeMap<String, String> {
        let cluster = view.cluster.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let host = uname().nodename().to_string_lossy().into_owned();
        let known = [
            ("k8s.cluster.name", cluster.name),
            ("k8s.cluster.uid", cluster.uid),
            ("service.instance.id", Some(host)),
            ("service.version", Some(env!("CARGO_PKG_VERSION").to_owned())),
        ];
        let known = known.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        known.chain(self.resource.clone()).collect()
    }
}

impl Exporting {
    /// Starts it on the current runtime.
    pub fn start(export: Option<MetricsExport>, view: BridgeView) -> Self {
        let (stop, stopped) = oneshot::channel();
        let receiver = Telemetry(watch::Sender::new(export));
        let task = tokio::spawn(run(receiver.0.subscribe(), view, stopped));
        Self { stop, task, receiver }
    }

    /// The handle that changes the receiver.
    pub fn receiver(&self) -> Telemetry {
        self.receiver.clone()
    }

    /// Sends them for the last time.
    pub async fn stop(self) {
        drop(self.stop);
        let _ = self.task.await;
    }
}

async fn run(
    mut receiver: watch::Receiver<Option<MetricsExport>>,
    view: BridgeView,
    mut stopped: oneshot::Receiver<()>,
) {
    let mut failing = None;
    loop {
        let export = receiver.borrow_and_update().clone();
        let failure = tokio::select! {
            failure = OptionFuture::from(export.as_ref().map(|export| export.export(&view))) => failure.flatten(),
            _ = &mut stopped => break,
            Ok(()) = receiver.changed() => {
                failing = None;
                continue;
            }
        };
        match &failure {
            Some(error) if failing.is_none() => tracing::warn!(
                error,
                hint = "check `telemetry.otlp`: its address, and its protocol, whose port usually is 4317 for grpc and \
                        4318 for http",
                "metrics cannot be sent by OTLP"
            ),
            Some(error) => tracing::debug!(error, "metrics can still not be sent by OTLP"),
            None if failing.is_some() => tracing::info!("metrics are sent by OTLP again"),
            None => {}
        }
        failing = failure;
        tokio::select! {
            () = sleep(EVERY) => {}
            _ = &mut stopped => break,
            Ok(()) = receiver.changed() => failing = None,
        }
    }
    let export = receiver.borrow_and_update().clone();
    if let Some(export) = export {
        let _ = timeout(LAST_WITHIN, export.export(&view)).await;
    }
}
