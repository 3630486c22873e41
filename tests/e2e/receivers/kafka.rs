//! A consumer of one topic.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaResult;
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use crate::ledger::{Delivery, SharedLedger};
use crate::parts::Kafka;

/// More than one, so that only the key keeps an object's events in order.
pub(crate) const KAFKA_PARTITIONS: i32 = 3;
const POLL: Duration = Duration::from_millis(100);

/// Reads a topic from its beginning on, over outages of the broker.
pub(crate) struct KafkaReceiver {
    pub(crate) ledger: SharedLedger,
    reader: Option<JoinHandle<()>>,
    /// Shared with the reader: it ends when it has read everything, or at once.
    finish: Arc<AtomicBool>,
    abandon: Arc<AtomicBool>,
}

impl KafkaReceiver {
    /// Makes the topic and starts to read it.
    pub(crate) async fn start(kafka: &Kafka, topic: &str) -> Self {
        make_topic(kafka.bootstrap(), topic, &[]).await;
        Self::read(kafka.bootstrap(), topic, SharedLedger::default())
    }

    /// Starts to read a topic that there is, made by [`make_topic`] or with as many partitions.
    pub(crate) fn read(bootstrap: &str, topic: &str, ledger: SharedLedger) -> Self {
        let (finish, abandon) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let reader = Reader {
            // Made here, so that what is wrong with it fails the test.
            consumer: consumer(&client(bootstrap), topic).expect("a consumer"),
            topic: topic.to_owned(),
            ledger: ledger.clone(),
            finish: Arc::clone(&finish),
            abandon: Arc::clone(&abandon),
        };
        let reader = Some(thread::spawn(move || reader.run()));
        Self { ledger, reader, finish, abandon }
    }

    /// Reads on to what is the end now.
    pub(crate) async fn finish(mut self) -> SharedLedger {
        self.finish.store(true, Ordering::Relaxed);
        let reader = self.reader.take().expect("taken only here");
        let joined = tokio::task::spawn_blocking(|| reader.join()).await;
        joined.expect("a task that does not panic").expect("a reader that does not panic");
        self.ledger.clone()
    }
}

impl Drop for KafkaReceiver {
    fn drop(&mut self) {
        self.abandon.store(true, Ordering::Relaxed);
    }
}

fn client(bootstrap: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "e2e")
        .set("reconnect.backoff.max.ms", "500")
        // Tests stop the broker; that is not worth a line each time.
        .set("log_level", "0");
    config
}

fn admin(bootstrap: &str) -> AdminClient<DefaultClientContext> {
    client(bootstrap).create().expect("an admin client")
}

/// Makes a topic, with these settings of its own.
pub(crate) async fn make_topic(bootstrap: &str, topic: &str, settings: &[(&str, &str)]) {
    let mut new = NewTopic::new(topic, KAFKA_PARTITIONS, TopicReplication::Fixed(1));
    for (name, value) in settings {
        new = new.set(name, value);
    }
    let made = admin(bootstrap).create_topics([&new], &AdminOptions::new()).await;
    made.expect("an answer of the broker").remove(0).expect("a new topic");
}

/// Deletes a topic with all that is in it.
pub(crate) async fn delete_topic(bootstrap: &str, topic: &str) {
    let gone = admin(bootstrap).delete_topics(&[topic], &AdminOptions::new()).await;
    gone.expect("an answer of the broker").remove(0).expect("a topic that was there");
}

fn consumer(config: &ClientConfig, topic: &str) -> KafkaResult<BaseConsumer> {
    let consumer: BaseConsumer = config.create()?;
    let mut partitions = TopicPartitionList::new();
    for partition in 0..KAFKA_PARTITIONS {
        partitions.add_partition_offset(topic, partition, Offset::Beginning)?;
    }
    // Not `subscribe`: a group takes seconds to form, and more after an outage.
    consumer.assign(&partitions)?;
    Ok(consumer)
}

struct Reader {
    consumer: BaseConsumer,
    topic: String,
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
            let end = self.consumer.fetch_watermarks(&self.topic, element.partition(), POLL * 50);
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
                ledger.complain(format!("key, id and content-type are {told:?}, not {wanted:?}"));
            }
            ledger.record(delivery);
        }
    }
}
