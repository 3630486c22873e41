//! Receivers of what a program delivers, each over its own protocol.
//!
//! - [`HttpReceiver`] answers requests as it is told: with any bytes, pauses and connections that are cut.
//! - `OtlpReceiver` (feature `otlp`) is the same for OTLP logs over gRPC.
//! - `KafkaReceiver` (feature `kafka`) reads a topic from its beginning, and `MockKafka` is a broker in this process.
//!
//! The caller's answer writes what is taken into a [`SharedLedger`](crate::ledger::SharedLedger); `KafkaReceiver` does so by itself.

mod http;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "kafka")]
mod mock_kafka;
#[cfg(feature = "otlp")]
mod otlp;

pub use self::http::{HttpReceiver, Received, Step};
#[cfg(feature = "otlp")]
pub use self::otlp::{OtlpAnswer, OtlpReceiver, deliveries};
#[cfg(feature = "kafka")]
pub use self::{
    kafka::KafkaReceiver,
    mock_kafka::{MockKafka, PARTITIONS},
};

#[cfg(all(test, feature = "kafka", feature = "otlp"))]
mod tests;
