//! OTLP over gRPC or HTTP: logs, of which [`encode::otlp`](crate::encode::otlp) makes the messages, and metrics.
//!
//! A partial success is the receiver's last word: it took the request, and names a number that it
//! dropped. Nothing of it is sent again.

mod answer;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod grpc;
mod grpc_status;
mod http;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;

use self::grpc::GrpcSink;
use super::{OtlpOptions, OtlpProtocol};
use crate::{
    bridge::{Failure, Outcome, RefusedClass, Secrets, Sink},
    encode::{EncodeError, otlp::LogsEncoder},
    event::Batch,
    sinks::SinkBuildError,
};

/// Checks the options and sets up a client of logs; nothing is connected yet.
pub(super) fn logs(options: &OtlpOptions) -> Result<Arc<dyn Sink>, SinkBuildError> {
    let own = options.resource.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    // Its buffers are used again.
    let encoder = Mutex::new(LogsEncoder::new(own));
    let encode = move |batch: &Batch| {
        encoder.lock().unwrap_or_else(PoisonError::into_inner).encode(batch).map(Bytes::from)
    };
    build(options, Messages { signal: &LOGS, encode: Box::new(encode) })
}

/// A client of metrics: a batch has one record, whose envelope is an encoded message.
pub(super) fn metrics(options: &OtlpOptions) -> Result<Arc<dyn Sink>, SinkBuildError> {
    let message = |batch: &Batch| {
        let record = batch.records.first();
        Ok(record.map(|record| record.envelope.clone()).unwrap_or_default())
    };
    build(options, Messages { signal: &METRICS, encode: Box::new(message) })
}

fn build(options: &OtlpOptions, messages: Messages) -> Result<Arc<dyn Sink>, SinkBuildError> {
    let secrets = options.http.secrets();
    Ok(match options.protocol {
        OtlpProtocol::Grpc => {
            Arc::new(GrpcSink::new(&options.http, messages, Secrets::of(secrets))?)
        }
        OtlpProtocol::Http => Arc::new(http::sink(&options.http, messages, secrets)?),
    })
}

/// A kind of telemetry.
struct Signal {
    /// The method of gRPC.
    method: &'static str,
    /// The path of HTTP.
    path: &'static str,
    /// How many things a message may hold that a receiver can reject one by one.
    items: fn(&Batch) -> u64,
}

const LOGS: Signal = Signal {
    method: "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    path: "/v1/logs",
    items: |batch| batch.records.len() as u64,
};

const METRICS: Signal = Signal {
    method: "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    path: "/v1/metrics",
    items: |_| u64::MAX,
};

/// Makes the message of a batch.
type Encode = dyn Fn(&Batch) -> Result<Bytes, EncodeError> + Send + Sync;

/// Makes the messages.
struct Messages {
    signal: &'static Signal,
    encode: Box<Encode>,
}

impl Messages {
    fn of(&self, batch: &Batch, secrets: &Secrets) -> Result<Bytes, Failure> {
        (self.encode)(batch)
            .map_err(|error| Failure::refused(RefusedClass::Unsendable, secrets.reason(error)))
    }
}

/// The outcome that a successful answer to `sent` records states.
fn taken(response: ExportLogsServiceResponse, sent: u64, secrets: &Secrets) -> Outcome {
    let Some(partial) = response.partial_success else { return Outcome::Delivered };
    let words = secrets.reason(&partial.error_message);
    match u64::try_from(partial.rejected_log_records).unwrap_or(0).min(sent) {
        0 if words.is_empty() => Outcome::Delivered,
        rejected => Outcome::Partial {
            rejected,
            reason: match &*words {
                "" => secrets.reason("the receiver gave no reason"),
                _ => words,
            },
        },
    }
}
