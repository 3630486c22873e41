//! A consumer of a topic of envelopes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
    error::KafkaResult,
    message::{BorrowedMessage, Headers, Message as _},
};

use super::PARTITIONS;
use crate::ledger::{Delivery, SharedLedger};

const POLL: Duration = Duration::from_millis(100);

/// Reads a topic from its beginning, over outages of the broker, until it is dropped, which waits for its thread.
#[derive(Debug)]
pub struct KafkaReceiver {
    /// The messages. A message is complained of whose key or headers are not those of its envelope.
    pub ledger: SharedLedger,
    reader: Option<JoinHandle<()>>,
    /// Shared with the reader: it ends when it has read everything, or at once.
    finish: Arc<AtomicBool>,
    abandon: Arc<AtomicBool>,
}

impl KafkaReceiver {
    /// Starts to read a topic of [`PARTITIONS`] partitions into a ledger.
    ///
    /// # Errors
    /// librdkafka makes no consumer.
    pub fn read(brokers: &str, topic: &'static str, ledger: SharedLedger) -> KafkaResult<Self> {
        let (finish, abandon) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let reader = Reader {
            consumer: consumer(brokers, topic)?,
            topic,
            ledger: ledger.clone(),
            finish: Arc::clone(&finish),
            abandon: Arc::clone(&abandon),
        };
        let reader = Some(thread::spawn(move || reader.run()));
        Ok(Self { ledger, reader, finish, abandon })
    }

    /// Reads on to what is the end now.
    pub async fn finish(mut self) -> SharedLedger {
        self.finish.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            let joined = tokio::task::spawn_blocking(|| reader.join()).await;
            joined.expect("a task that does not panic").expect("a reader that does not panic");
        }
        self.ledger.clone()
    }
}

impl Drop for KafkaReceiver {
    fn drop(&mut self) {
        self.abandon.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

fn consumer(brokers: &str, topic: &str) -> KafkaResult<BaseConsumer> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", "tidings-testkit")
        .set("enable.auto.commit", "false")
        .set("fetch.wait.max.ms", "50")
        .set("reconnect.backoff.max.ms", "500")
        // Brokers are stopped here; that is not worth a line each time.
        .set("log_level", "0")
        .create()?;
    let mut partitions = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        partitions.add_partition_offset(topic, partition, Offset::Beginning)?;
    }
    // Not `subscribe`: a group takes seconds to form, and more after an outage.
    consumer.assign(&partitions)?;
    Ok(consumer)
}

struct Reader {
    consumer: BaseConsumer,
    topic: &'static str,
    ledger: SharedLedger,
    finish: Arc<AtomicBool>,
    abandon: Arc<AtomicBool>,
}

impl Reader {
    fn run(self) {
        while !self.abandon.load(Ordering::Relaxed) {
            match self.consumer.poll(POLL) {
                Some(Ok(message)) => record(&message, &self.ledger),
                None if self.finish.load(Ordering::Relaxed) && self.has_read_all() => return,
                // Nothing new, or an outage, which the consumer gets over by itself.
                None | Some(Err(_)) => {}
            }
        }
    }

    /// Whether there is nothing beyond what was read. Asked again if the broker does not answer.
    fn has_read_all(&self) -> bool {
        let Ok(positions) = self.consumer.position() else { return false };
        positions.elements().iter().all(|element| {
            let end = self.consumer.fetch_watermarks(self.topic, element.partition(), POLL * 50);
            match (end, element.offset()) {
                (Ok((_, end)), Offset::Offset(next)) => next >= end,
                // Nothing of this partition has been read.
                (Ok((_, end)), _) => end == 0,
                (Err(_), _) => false,
            }
        })
    }
}

/// The key that the message of an envelope has to have.
fn kafka_key(envelope: &str) -> String {
    let envelope: serde_json::Value = serde_json::from_str(envelope).unwrap_or_default();
    let text = |path: &str| envelope.pointer(path).and_then(|it| it.as_str()).unwrap_or_default();
    let object = match text("/event/involvedObject/uid") {
        "" => {
            format!("{}/{}", text("/event/involvedObject/kind"), text("/event/involvedObject/name"))
        }
        uid => uid.to_owned(),
    };
    format!("{}/{}/{object}", text("/cluster/uid"), text("/event/metadata/namespace"))
}

/// Writes down a message, and what is wrong with it.
fn record(message: &BorrowedMessage<'_>, ledger: &SharedLedger) {
    let text =
        |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
    let header = |name: &str| {
        let mut headers = message.headers().into_iter().flat_map(Headers::iter);
        text(headers.find(|header| header.key == name).and_then(|header| header.value))
    };
    match Delivery::of_envelope(text(message.payload())) {
        Err(complaint) => ledger.complain(complaint),
        Ok(delivery) => {
            let told = (text(message.key()), header("id"), header("content-type"));
            let wanted =
                (kafka_key(&delivery.body), delivery.id.clone(), "application/json".to_owned());
            if told != wanted {
                ledger.complain(format!(
                    "expected key, id and content-type {wanted:?}, found {told:?}"
                ));
            }
            ledger.record(delivery);
        }
    }
}
