//! OTLP logs: a log record for each event, over gRPC or HTTP.

mod keys;
#[cfg(feature = "otlp")]
mod sink;

pub(crate) use self::keys::OtlpModel;
pub use self::keys::{OtlpOptions, OtlpProtocol};
#[cfg(all(fuzzing, feature = "otlp"))]
pub(super) use self::sink::fuzzing;
