//! Kafka: one message for each event, to one topic.

mod keys;
#[cfg(feature = "kafka")]
mod sink;

pub(super) use self::keys::KafkaModel;
pub use self::keys::{KafkaKey, KafkaOptions, SaslMechanism, SaslOptions};
#[cfg(feature = "kafka")]
use self::sink::KafkaSink;
