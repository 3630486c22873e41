//! OTLP logs over gRPC or HTTP; what is sent is [`encode::otlp`](crate::encode::otlp)'s.
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

use std::sync::{Mutex, PoisonError};

use futures_util::future::BoxFuture;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;

use self::{grpc::GrpcExporter, http::HttpExporter};
use super::{OtlpOptions, OtlpProtocol};
use crate::{
    bridge::{Failure, Outcome, RefusedClass, Secrets, Sink},
    encode::otlp::LogsEncoder,
    event::Batch,
    sinks::SinkBuildError,
};

/// Exports batches to one OTLP receiver.
#[derive(Debug)]
pub struct OtlpSink {
    /// Which has buffers that it uses again.
    encoder: Mutex<LogsEncoder>,
    exporter: Exporter,
    secrets: Secrets,
}

#[derive(Debug)]
enum Exporter {
    Grpc(Box<GrpcExporter>),
    Http(Box<HttpExporter>),
}

impl OtlpSink {
    /// Checks the options and sets up the client; nothing is connected yet.
    pub fn new(options: &OtlpOptions) -> Result<Self, SinkBuildError> {
        let secrets = Secrets::of(options.http.secrets());
        let exporter = match options.protocol {
            OtlpProtocol::Grpc => {
                Exporter::Grpc(Box::new(GrpcExporter::new(&options.http, secrets.clone())?))
            }
            OtlpProtocol::Http => {
                Exporter::Http(Box::new(HttpExporter::new(&options.http, secrets.clone())?))
            }
        };
        Ok(Self { encoder: Mutex::default(), exporter, secrets })
    }

    async fn export(&self, batch: &Batch) -> Outcome {
        let encoded = self.encoder.lock().unwrap_or_else(PoisonError::into_inner).encode(batch);
        let request = match encoded {
            Ok(request) => request.into(),
            Err(error) => {
                let reason = self.secrets.reason(error);
                return Outcome::Failed(Failure::refused(RefusedClass::Invalid, reason));
            }
        };
        let answer = match &self.exporter {
            Exporter::Grpc(grpc) => grpc.export(request, batch).await,
            Exporter::Http(http) => http.export(request, batch).await,
        };
        match answer {
            Ok(response) => taken(response, batch.records.len() as u64, &self.secrets),
            Err(failure) => Outcome::Failed(failure),
        }
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

impl Sink for OtlpSink {
    fn send<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Outcome> {
        Box::pin(self.export(batch))
    }
}
