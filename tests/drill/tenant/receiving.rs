//! Receivers that fail at what the culprit writes, each of its kind, and take all else.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tidings::demo::api_server::{EventObject, seconds};

use super::scenes::{Fault, Scene};
use crate::judge::Arrival;
use crate::ledger::SharedLedger;
use crate::load::next_number;
use crate::nasty::{Collects, NastyCollector};
use crate::parts::Kafka;
use crate::poison::POISON;
use crate::receiver::{Mode, Receiver};
use crate::receivers::{KafkaReceiver, make_topic};

/// The culprit's namespace.
pub(super) const CULPRIT: &str = "mallory";
/// Of how many objects it writes.
const OBJECTS: u64 = 40;

/// The size that a topic takes in a message set, and one that is more than that.
const TAKES: &str = "100000";
const TOO_LARGE: usize = 110_000;
/// How old a record of a topic may be, and what is older. Nothing is taken to be older than an hour
/// before its creation.
const YOUNG: &str = "1800000";
const OLD: SignedDuration = SignedDuration::from_mins(50);

/// See the [module](self).
pub(super) enum Receiving {
    Webhook(Receiver),
    Collector(NastyCollector),
    Topic { broker: String, topic: String, reader: KafkaReceiver },
}

impl Receiving {
    /// Starts what fails as the scene says.
    pub(super) async fn start(scene: &Scene, kafka: Option<&Kafka>) -> Self {
        let webhook = async |mode| {
            let receiver = Receiver::start().await;
            receiver.set(mode).await;
            Self::Webhook(receiver)
        };
        match scene.fault {
            Fault::Status(status) => webhook(Mode::refuse(status, &[POISON])).await,
            Fault::Reset => webhook(Mode::Where(&[POISON], Box::new(Mode::ResetWhenRead))).await,
            Fault::Hang => webhook(Mode::Where(&[POISON], Box::new(Mode::Hang))).await,
            Fault::Code(code) => {
                let receiver = NastyCollector::start().await;
                receiver.set(Collects::Refuses(code, POISON));
                Self::Collector(receiver)
            }
            Fault::InvalidTimestamp => {
                Self::topic(kafka, &[("message.timestamp.before.max.ms", YOUNG)]).await
            }
            Fault::TooLarge => Self::topic(kafka, &[("max.message.bytes", TAKES)]).await,
        }
    }

    async fn topic(kafka: Option<&Kafka>, settings: &[(&str, &str)]) -> Self {
        let broker = kafka.expect("a broker").bootstrap().to_owned();
        let topic = format!("tenant-{}", next_number());
        make_topic(&broker, &topic, settings).await;
        let reader = KafkaReceiver::read(&broker, &topic, SharedLedger::default());
        Self::Topic { broker, topic, reader }
    }

    /// The sink's kind, as it is configured.
    pub(super) fn config(&self) -> Value {
        match self {
            Self::Webhook(receiver) => json!({"webhook": {"url": receiver.url()}}),
            Self::Collector(receiver) => {
                json!({"otlp": {"endpoint": receiver.grpc_url(), "protocol": "grpc"}})
            }
            Self::Topic { broker, topic, .. } => {
                json!({"kafka": {"brokers": [broker], "topic": topic}})
            }
        }
    }

    /// Has it take what it did not, if it can learn that.
    pub(super) async fn mend(&self) -> bool {
        match self {
            Self::Webhook(receiver) => receiver.set(Mode::Take).await,
            Self::Collector(receiver) => receiver.set(Collects::All),
            Self::Topic { .. } => return false,
        }
        true
    }

    /// How many Events have arrived; what came twice may be counted twice.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Webhook(receiver) => receiver.arrivals().len(),
            Self::Collector(receiver) => receiver.ledger.distinct(),
            Self::Topic { reader, .. } => reader.ledger.distinct(),
        }
    }

    /// All that has arrived, in its order.
    pub(super) fn arrivals(&self) -> Vec<Arrival> {
        let ledger = match self {
            Self::Webhook(receiver) => return receiver.arrivals().clone(),
            Self::Collector(receiver) => &receiver.ledger,
            Self::Topic { reader, .. } => &reader.ledger,
        };
        let ledger = ledger.lock();
        assert!(ledger.complaints.is_empty(), "{:?}", ledger.complaints);
        ledger.deliveries.iter().map(Arrival::from).collect()
    }
}

/// An Event of the culprit, at which the receiver of this fault fails.
pub(super) fn made_by_the_culprit(fault: Fault, number: usize) -> EventObject {
    let pod = format!("pod-{}", number as u64 % OBJECTS);
    let message = match fault {
        Fault::TooLarge => "x".repeat(TOO_LARGE),
        _ => POISON.to_owned(),
    };
    let mut event = EventObject::about_pod(CULPRIT, &pod, "Poison", &message);
    event.metadata.name = format!("{pod}.{:x}", next_number());
    if fault == Fault::InvalidTimestamp {
        let old = seconds(Timestamp::now() - OLD);
        (event.first_timestamp, event.last_timestamp) = (Some(old.clone()), Some(old));
    }
    event
}
