//! Those who receive what the bridge delivers, each writing a [ledger](crate::ledger): a consumer of
//! Kafka, a reader of what the Collector exports to its file, and a webhook of our own.

mod collector;
mod kafka;
mod webhook;

pub(crate) use collector::CollectorReceiver;
pub(crate) use kafka::{KAFKA_PARTITIONS, KafkaReceiver, delete_topic, make_topic};
pub(crate) use webhook::{Mode, SECRET, WebhookReceiver};
