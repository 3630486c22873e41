//! A Kafka broker: librdkafka's mock of a cluster, in this process.

use std::{
    io,
    sync::mpsc::{Receiver as Orders, Sender, channel},
    thread::JoinHandle,
};

use rdkafka::{ClientContext, error::KafkaResult, mocking::MockCluster};
use tokio::sync::oneshot;

/// The partitions of the topic: more than one, so that only the key keeps an object's events in order.
pub const PARTITIONS: i32 = 3;
const ALL_BROKERS: i32 = -1;

/// A broker with one topic. It ends when it is dropped.
#[derive(Debug)]
pub struct MockKafka {
    brokers: String,
    /// Dropping it ends the broker.
    orders: Option<Sender<Order>>,
    broker: Option<JoinHandle<()>>,
}

/// Orders to the thread that owns the cluster.
enum Order {
    Down(oneshot::Sender<()>),
    Up(oneshot::Sender<()>),
}

impl MockKafka {
    /// Starts a broker with one topic. Blocks for the few milliseconds that this takes.
    ///
    /// # Errors
    /// librdkafka cannot start the broker, or a thread cannot be started.
    pub fn start(topic: &str) -> io::Result<Self> {
        let (orders, inbox) = channel();
        let (tell, told) = channel();
        let topic = topic.to_owned();
        let run = move || match cluster(&topic) {
            Ok(cluster) => {
                let _ = tell.send(Ok(cluster.bootstrap_servers()));
                obey(&cluster, &inbox);
            }
            Err(error) => {
                let _ = tell.send(Err(error));
            }
        };
        let broker = std::thread::Builder::new().name("mock-kafka".to_owned()).spawn(run)?;
        let brokers = told.recv().map_err(io::Error::other)?.map_err(io::Error::other)?;
        Ok(Self { brokers, orders: Some(orders), broker: Some(broker) })
    }

    /// `host:port`, separated by commas.
    pub fn brokers(&self) -> &str {
        &self.brokers
    }

    /// Closes its connections and refuses new ones.
    pub async fn take_down(&self) {
        self.order(Order::Down).await;
    }

    /// Listens again, at the same address and with the same messages.
    pub async fn bring_back(&self) {
        self.order(Order::Up).await;
    }

    async fn order(&self, order: impl FnOnce(oneshot::Sender<()>) -> Order) {
        let (done, wait) = oneshot::channel();
        if self.orders.as_ref().is_some_and(|orders| orders.send(order(done)).is_ok()) {
            let _ = wait.await;
        }
    }
}

impl Drop for MockKafka {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(broker) = self.broker.take() {
            let _ = broker.join();
        }
    }
}

/// The cluster is bound to the thread that made it.
fn cluster(topic: &str) -> KafkaResult<MockCluster<'static, impl ClientContext + use<>>> {
    let cluster = MockCluster::new(1)?;
    cluster.create_topic(topic, PARTITIONS, 1)?;
    Ok(cluster)
}

/// Does as it is told until the [`MockKafka`] is dropped.
fn obey<C: ClientContext>(cluster: &MockCluster<'_, C>, inbox: &Orders<Order>) {
    while let Ok(order) = inbox.recv() {
        let (result, done) = match order {
            Order::Down(done) => (cluster.broker_down(ALL_BROKERS), done),
            Order::Up(done) => (cluster.broker_up(ALL_BROKERS), done),
        };
        if let Err(error) = result {
            tracing::warn!(%error, "mock of Kafka");
        }
        let _ = done.send(());
    }
}
