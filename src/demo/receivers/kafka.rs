//! A Kafka broker, librdkafka's mock cluster, with a consumer that reads a topic from its start.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver as Orders, Sender, channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use futures_util::future::BoxFuture;
use rdkafka::{
    ClientConfig, Message as _, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
    error::KafkaResult,
    mocking::MockCluster,
};
use tokio::sync::oneshot;

use super::{Ledger, Outage, Receiver};

const PARTITIONS: i32 = 3;
const ALL_BROKERS: i32 = -1;

/// A broker whose topic is read into a [`Ledger`].
#[derive(Debug)]
pub struct KafkaReceiver {
    ledger: Arc<Ledger>,
    brokers: String,
    topic: String,
    /// Dropping it ends the broker.
    orders: Option<Sender<Order>>,
    reading: Arc<AtomicBool>,
    broker: Option<JoinHandle<()>>,
    reader: Option<JoinHandle<()>>,
}

/// An order to the thread that owns the cluster.
enum Order {
    Down(oneshot::Sender<()>),
    Up(oneshot::Sender<()>),
}

impl KafkaReceiver {
    /// Starts a broker with one topic, and its reader. Blocks for the few milliseconds that takes.
    ///
    /// # Errors
    /// librdkafka cannot start the broker, or a thread cannot be started.
    pub fn start(topic: &str) -> io::Result<Self> {
        let (orders, inbox) = channel();
        let (tell, told) = channel();
        let of_cluster = topic.to_owned();
        let broker = thread("demo-kafka", move || match cluster(&of_cluster) {
            Ok(cluster) => {
                let _ = tell.send(Ok(cluster.bootstrap_servers()));
                obey(&cluster, &inbox);
            }
            Err(error) => {
                let _ = tell.send(Err(error));
            }
        })?;
        let brokers = told.recv().map_err(io::Error::other)?.map_err(io::Error::other)?;
        let ledger = Arc::new(Ledger::default());
        let reading = Arc::new(AtomicBool::new(true));
        let consumer = consumer(&brokers, topic).map_err(io::Error::other)?;
        let (book, go_on) = (Arc::clone(&ledger), Arc::clone(&reading));
        let reader = thread("demo-kafka-reader", move || {
            while go_on.load(Ordering::Relaxed) {
                read(&consumer, &book);
            }
        })?;
        Ok(Self {
            ledger,
            brokers,
            topic: topic.to_owned(),
            orders: Some(orders),
            reading,
            broker: Some(broker),
            reader: Some(reader),
        })
    }

    /// `host:port`, separated by commas.
    pub fn brokers(&self) -> &str {
        &self.brokers
    }

    /// The topic.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    async fn order(&self, order: impl FnOnce(oneshot::Sender<()>) -> Order) {
        let (done, wait) = oneshot::channel();
        if self.orders.as_ref().is_some_and(|orders| orders.send(order(done)).is_ok()) {
            let _ = wait.await;
        }
    }
}

impl Drop for KafkaReceiver {
    fn drop(&mut self) {
        // The reader first: it is a client of the broker.
        self.reading.store(false, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        self.orders = None;
        if let Some(broker) = self.broker.take() {
            let _ = broker.join();
        }
    }
}

fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run)
}

/// The cluster is bound to the thread that made it.
fn cluster(topic: &str) -> KafkaResult<MockCluster<'static, impl rdkafka::ClientContext + use<>>> {
    let cluster = MockCluster::new(1)?;
    cluster.create_topic(topic, PARTITIONS, 1)?;
    Ok(cluster)
}

/// Does as it is told until the receiver is dropped.
fn obey<C: rdkafka::ClientContext>(cluster: &MockCluster<'_, C>, inbox: &Orders<Order>) {
    while let Ok(order) = inbox.recv() {
        let (result, done) = match order {
            Order::Down(done) => (cluster.broker_down(ALL_BROKERS), done),
            Order::Up(done) => (cluster.broker_up(ALL_BROKERS), done),
        };
        if let Err(error) = result {
            tracing::warn!(%error, "demo broker");
        }
        let _ = done.send(());
    }
}

/// A consumer of every partition from its start; with no group there is nothing to wait for.
fn consumer(brokers: &str, topic: &str) -> KafkaResult<BaseConsumer> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", "tidings-demo")
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .set("fetch.wait.max.ms", "50")
        .set("reconnect.backoff.ms", "50")
        .set("reconnect.backoff.max.ms", "500")
        .create()?;
    let mut partitions = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        partitions.add_partition_offset(topic, partition, Offset::Beginning)?;
    }
    consumer.assign(&partitions)?;
    Ok(consumer)
}

fn read(consumer: &BaseConsumer, ledger: &Ledger) {
    match consumer.poll(Duration::from_millis(50)) {
        Some(Ok(message)) => {
            ledger.note_envelope(message.payload().unwrap_or_default());
        }
        // Expected while the broker is away; the consumer reconnects by itself.
        Some(Err(error)) => tracing::debug!(%error, "demo Kafka reader"),
        None => {}
    }
}

impl Receiver for KafkaReceiver {
    fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn take_down(&self, _how: Outage) -> BoxFuture<'_, ()> {
        Box::pin(self.order(Order::Down))
    }

    fn bring_back(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            self.order(Order::Up).await;
            Ok(())
        })
    }
}
