//! Faults of the sink itself: nobody's Event is to blame, so none is given up.
//!
//! A part of a receiver that forbids all of its own, such as an index, is no scene of it: of the program's
//! sinks only Kafka tells parts from each other, and its partitions have no rights of their own. It is
//! played in `tests/bridge/lanes.rs`, and in the model of delivery.

use std::fmt;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::accounts::number;
use crate::frame::{Company, Drill, Page, Row, Run};
use crate::judge::{self, Arrival};
use crate::ledger::SharedLedger;
use crate::load::next_number;
use crate::parts::{ACCOUNT, Kafka};
use crate::poison::POISON;
use crate::receiver::{Mode, Receiver};
use crate::receivers::{KafkaReceiver, make_topic};
use crate::scripted::Stage;
use crate::several::play_all;
use crate::tenant::stated;
use crate::wait::{until, until_within};

pub(crate) const DRILLS: [Drill; 1] = [Drill {
    name: "own-faults",
    what: "everything refused, credentials expired, a wrong topic, a right taken away, half of the \
           namespaces failing, a random third pushed back, rolling restarts: nothing is given up",
    full: "ten faults of 10 min at 40/s, each by one lane of batches and by eight lanes one by one",
    short: Some("nine faults of 20 s at 30/s"),
    company: Company::InShort,
    long: true,
    run: |run| Box::pin(own_faults(run)),
}];

const SINK: &str = "siem";
/// In it nothing is to be set aside any more.
const MENDED_FOR: Duration = Duration::from_mins(1);
const PATIENCE: Duration = Duration::from_mins(10);

/// Half of the namespaces that write.
const HALF: &[&str] = &[
    r#""namespace":"team-0""#,
    r#""namespace":"team-1""#,
    r#""namespace":"team-2""#,
    r#""namespace":"team-3""#,
    r#""namespace":"team-4""#,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// A webhook answers this to all.
    All(u16),
    /// A webhook answers this to half of the namespaces.
    Half(u16),
    /// A webhook answers this to three of ten, at random.
    Some(u16),
    /// A webhook refuses an Event, and is judged by it; then it refuses all.
    OneThenAll(u16),
    /// A webhook goes and comes back, again and again.
    Restarts,
    /// A topic that is not there.
    WrongTopic,
    /// The right to write to a topic is taken away.
    NoRight,
}

const FAULTS: [Fault; 10] = [
    Fault::All(400),
    Fault::All(403),
    Fault::All(401),
    Fault::Half(500),
    Fault::Some(429),
    Fault::Some(503),
    Fault::Restarts,
    Fault::WrongTopic,
    Fault::NoRight,
    Fault::OneThenAll(403),
];

/// A fault, how long it lasts, and by which way it is met.
#[derive(Clone, Copy)]
struct Scene {
    fault: Fault,
    lasts: Duration,
    batch: usize,
    lanes: usize,
}

impl fmt::Display for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fault {
            Fault::All(401) => write!(f, "401 for all, then the token is right again")?,
            Fault::All(status) => write!(f, "{status} for all")?,
            Fault::Half(status) => write!(f, "{status} for half of the namespaces")?,
            Fault::Some(status) => write!(f, "{status} for 30 % at random")?,
            Fault::OneThenAll(status) => write!(f, "{status} for one event, then for all")?,
            Fault::Restarts => write!(f, "a restart every 8 s, 3 s away")?,
            Fault::WrongTopic => write!(f, "a topic that is not there, then made")?,
            Fault::NoRight => write!(f, "authorization taken away")?,
        }
        write!(f, ", {} s, batch {}, lanes {}", self.lasts.as_secs(), self.batch, self.lanes)
    }
}

async fn own_faults(run: Run) -> Page {
    let kafka = Kafka::with_account(&[("auto.create.topics.enable", "false")]).await;
    let lasts = run.size(Duration::from_mins(10), Duration::from_secs(20));
    let ways = [(500, 1), (1, 8)];
    let mut scenes = Vec::new();
    for (at, fault) in FAULTS.into_iter().enumerate() {
        // A verdict takes longer than a short run has.
        if run.short && matches!(fault, Fault::OneThenAll(_)) {
            continue;
        }
        for (way, (batch, lanes)) in ways.into_iter().enumerate() {
            if !run.short || at % ways.len() == way {
                scenes.push(Scene { fault, lasts, batch, lanes });
            }
        }
    }
    let all = scenes.len();
    let mut played = play_all(scenes, all, async |scene| play(scene, run, &kafka).await).await;
    played.sort_by(|one, other| one.fault.cmp(&other.fault));
    Page::Rows(played)
}

/// The receiver that the events go to.
enum Receiving<'a> {
    Webhook(Receiver),
    Topic { kafka: &'a Kafka, topic: String, reader: Option<KafkaReceiver> },
}

impl<'a> Receiving<'a> {
    async fn start(fault: Fault, kafka: &'a Kafka) -> Self {
        match fault {
            Fault::WrongTopic | Fault::NoRight => {
                let topic = format!("own-{}", next_number());
                let mut topic = Self::Topic { kafka, topic, reader: None };
                if fault == Fault::NoRight {
                    topic.make().await;
                }
                topic
            }
            _ => Self::Webhook(Receiver::start().await),
        }
    }

    /// Makes the topic, and has it read.
    async fn make(&mut self) {
        let Self::Topic { kafka, topic, reader } = self else { return };
        make_topic(kafka.bootstrap(), topic, &[]).await;
        kafka.grant(topic).await;
        *reader = Some(KafkaReceiver::read(kafka.bootstrap(), topic, SharedLedger::default()));
    }

    fn config(&self) -> Value {
        let (username, password) = ACCOUNT;
        match self {
            Self::Webhook(receiver) => json!({"webhook": {"url": receiver.url()}}),
            Self::Topic { kafka, topic, .. } => json!({
                "kafka": {
                    "brokers": [kafka.account_bootstrap()],
                    "topic": topic,
                    "sasl": {"mechanism": "plain", "username": username, "password": password},
                },
                "allowPlaintext": true,
            }),
        }
    }

    fn arrivals(&self) -> Vec<Arrival> {
        match self {
            Self::Webhook(receiver) => receiver.arrivals().clone(),
            Self::Topic { reader: None, .. } => Vec::new(),
            Self::Topic { reader: Some(reader), .. } => {
                reader.ledger.lock().deliveries.iter().map(Arrival::from).collect()
            }
        }
    }

    /// Has the fault for so long.
    async fn suffer(&mut self, fault: Fault, lasts: Duration) {
        let receiver = match self {
            Self::Webhook(receiver) if fault == Fault::Restarts => {
                return restart(receiver, lasts).await;
            }
            Self::Webhook(receiver) => receiver,
            Self::Topic { kafka, topic, .. } if fault == Fault::NoRight => {
                kafka.revoke(topic).await;
                sleep(lasts).await;
                return kafka.grant(topic).await;
            }
            Self::Topic { .. } => {
                sleep(lasts).await;
                return self.make().await;
            }
        };
        let mode = match fault {
            Fault::All(status) | Fault::OneThenAll(status) => Mode::Answer(status),
            Fault::Half(status) => Mode::refuse(status, HALF),
            Fault::Some(status) => Mode::Sometimes(30, Box::new(Mode::Answer(status))),
            Fault::Restarts | Fault::WrongTopic | Fault::NoRight => Mode::Down,
        };
        receiver.set(mode).await;
        sleep(lasts).await;
        receiver.set(Mode::Take).await;
    }
}

/// Goes and comes back, again and again.
async fn restart(receiver: &Receiver, lasts: Duration) {
    let began = Instant::now();
    while began.elapsed() < lasts {
        receiver.set(Mode::Down).await;
        sleep(Duration::from_secs(3)).await;
        receiver.set(Mode::Take).await;
        sleep(Duration::from_secs(5)).await;
    }
}

async fn play(scene: Scene, run: Run, kafka: &Kafka) -> Row {
    let Scene { fault, lasts, batch, lanes } = scene;
    let mut receiver = Receiving::start(fault, kafka).await;
    let mut stage = Stage::set(Vec::new(), run.seed, |config| {
        let mut sink = receiver.config();
        sink["batch"] = json!({"events": batch});
        sink["concurrency"] = json!(lanes);
        sink["correlate"] = json!({"mode": "annotate"});
        config["sinks"][SINK] = sink;
    });
    stage.open().await;
    let sink = async || stage.bridge.sink(SINK).await;
    let writing = stage.write(run.size(40, 30));
    if fault != Fault::WrongTopic {
        until("events arrive", async || number(&sink().await, "delivered") > 0).await;
    }
    let mut guilty = 0;
    if let (Fault::OneThenAll(status), Receiving::Webhook(receiver)) = (fault, &receiver) {
        receiver.set(Mode::refuse(status, &[POISON])).await;
        stage.writer().write_alone("Poison", POISON);
        until_within(PATIENCE, "it is judged", async || number(&sink().await, "deadLettered") == 1)
            .await;
        guilty = 1;
    }
    receiver.suffer(fault, lasts).await;

    let over = Instant::now();
    until_within(MENDED_FOR, "nothing is set aside any more", async || {
        stated(&sink().await, "setAside") == 0
    })
    .await;
    writing.stop().await;
    let produced = stage.record.len() as u64;
    until_within(PATIENCE, "all has arrived", async || {
        let sink = sink().await;
        number(&sink, "seen") == produced && number(&sink, "pending") == 0
    })
    .await;
    let caught_up = Some(over.elapsed());
    let status = sink().await;
    assert_eq!(number(&status, "deadLettered"), guilty, "nothing is given up: {status}");
    assert_eq!(number(&status, "lost"), 0, "{status}");
    until("what was acknowledged is read", async || {
        receiver.arrivals().len() as u64 >= produced - guilty
    })
    .await;
    let verdict = judge::judge(&stage.record.lock(), &receiver.arrivals());
    verdict.is_honest(SINK);
    assert_eq!(verdict.missing, guilty, "{verdict}");
    stage.bridge.stop_in_order().await;
    let notes = format!("{guilty} dead letters");
    let row = verdict.row(&scene.to_string(), SINK);
    Row { caught_up, notes, lost: Some(0), ..row }
}
