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

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;

use self::grpc::GrpcSink;
use super::{OtlpOptions, OtlpProtocol};
use crate::{
    bridge::{Failure, Outcome, RefusedClass, Secrets, Sink},
    encode::otlp::LogsEncoder,
    event::Batch,
    sinks::SinkBuildError,
};

/// Checks the options and sets up the client; nothing is connected yet.
pub(super) fn build(options: &OtlpOptions) -> Result<Arc<dyn Sink>, SinkBuildError> {
    let secrets = options.http.secrets();
    let messages = Messages::new(&options.resource);
    Ok(match options.protocol {
        OtlpProtocol::Grpc => {
            Arc::new(GrpcSink::new(&options.http, messages, Secrets::of(secrets))?)
        }
        OtlpProtocol::Http => Arc::new(http::sink(&options.http, messages, secrets)?),
    })
}

/// Makes the messages; it has buffers that it uses again.
struct Messages(Mutex<LogsEncoder>);

impl Messages {
    fn new(resource: &BTreeMap<String, String>) -> Self {
        let own = resource.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        Self(Mutex::new(LogsEncoder::new(own)))
    }

    fn of(&self, batch: &Batch, secrets: &Secrets) -> Result<Bytes, Failure> {
        let encoded = self.0.lock().unwrap_or_else(PoisonError::into_inner).encode(batch);
        encoded
            .map(Bytes::from)
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
