//! librdkafka's mock of a broker, which goes away and answers what is produced as it is told.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

type Cluster = MockCluster<'static, DefaultProducerContext>;
/// An order to the thread that owns the cluster.
type Order = Box<dyn FnOnce(&Cluster) + Send>;

const ALL_BROKERS: i32 = -1;
/// More requests than are sent while it refuses them.
const MANY: usize = 10_000;

/// The way of the broker with what is produced.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Produces {
    /// Takes it.
    All,
    /// Refuses it with this error.
    Nothing(RDKafkaRespErr),
    /// Nobody listens.
    Down,
}

/// See the [module](self). Dropping it ends the broker.
pub(crate) struct Broker {
    bootstrap: String,
    orders: Sender<Order>,
}

impl Broker {
    /// Starts one with a topic that takes everything.
    pub(crate) fn start(topic: &str, partitions: i32) -> Self {
        let (orders, inbox) = channel();
        let (tell, told) = channel();
        let topic = topic.to_owned();
        // The cluster is bound to the thread that made it.
        thread::spawn(move || {
            let cluster = Cluster::new(1).expect("a mock");
            cluster.create_topic(&topic, partitions, 1).expect("a topic");
            tell.send(cluster.bootstrap_servers()).expect("somebody waits for it");
            obey(&cluster, &inbox);
        });
        Self { bootstrap: told.recv().expect("it has started"), orders }
    }

    pub(crate) fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// From now on. Answers when it is so.
    pub(crate) fn set(&self, produces: Produces) {
        let (done, wait) = channel();
        let order = move |cluster: &Cluster| {
            cluster.clear_request_errors(RDKafkaApiKey::Produce);
            match produces {
                Produces::All => cluster.broker_up(ALL_BROKERS).expect("a broker"),
                Produces::Nothing(error) => {
                    cluster.request_errors(RDKafkaApiKey::Produce, &vec![error; MANY]);
                }
                Produces::Down => cluster.broker_down(ALL_BROKERS).expect("a broker"),
            }
            done.send(()).expect("somebody waits for it");
        };
        self.orders.send(Box::new(order)).expect("the cluster lives as long as this");
        wait.recv().expect("it is done");
    }
}

/// Does as it is told until nobody can tell it any more.
fn obey(cluster: &Cluster, orders: &Receiver<Order>) {
    for order in orders {
        order(cluster);
    }
}
