//! Kafka that is away for long, loses a topic, takes no large message, or does not let us write any
//! more: a real broker, and for the longest outage librdkafka's mock, which starts in no time.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::frame::{Drill, Page, Row, Run};
use crate::parts::{ACCOUNT, Kafka, Part as _, delete_topic, make_topic};
use crate::sinks::{Doubts, Stage};
use tidings_testkit::ledger::SharedLedger;
use tidings_testkit::receiver::{KafkaReceiver, MockKafka};

pub(crate) const DRILLS: [Drill; 1] = [Drill {
    name: "kafka",
    what: "brokers that are away, a topic deleted, a message too large, a right taken away: nothing \
           is lost, and each key keeps its order",
    full: "away for 60 s (a real broker) and 10 min (a mock), other faults for 20 s, at 40/s",
    short: Some("away for 8 s (a real broker) and 20 s (a mock), other faults for 3 s, at 20/s"),
    alone: false,
    long: true,
    run: |run| Box::pin(kafka(run)),
}];

/// Sinks of the real broker, each with a topic of its name.
const STOPPED: &str = "stopped";
const LARGE: &str = "large";
const DELETED: &str = "deleted";
const FORBIDDEN: &str = "forbidden";
/// The sink of the mock.
const LONG: &str = "long";

/// More than the topic takes in a message, and less than a broker does.
const TOO_LARGE: usize = 200_000;
const TAKES: &str = "100000";

async fn kafka(run: Run) -> Page {
    let (rate, fault) = run.size((40, Duration::from_secs(20)), (20, Duration::from_secs(3)));
    // A topic that is deleted is not to come back by itself.
    let mut kafka = Kafka::with_account(&[("auto.create.topics.enable", "false")]).await;
    let mock = MockKafka::start(LONG).expect("a mock");
    let bootstrap = kafka.bootstrap().to_owned();
    for topic in [STOPPED, DELETED, FORBIDDEN] {
        make_topic(&bootstrap, topic, &[]).await;
    }
    make_topic(&bootstrap, LARGE, &[("max.message.bytes", TAKES)]).await;
    kafka.grant(FORBIDDEN).await;
    let read_into = |brokers: &str, topic, ledger| {
        KafkaReceiver::read(brokers, topic, ledger).expect("a consumer")
    };
    let read = |topic| read_into(&bootstrap, topic, SharedLedger::default());
    let (stopped, large, forbidden) = (read(STOPPED), read(LARGE), read(FORBIDDEN));
    let mut deleted = read(DELETED);
    let long = read_into(mock.brokers(), LONG, SharedLedger::default());
    let all = [&stopped, &large, &forbidden, &deleted, &long].map(|one| one.ledger.clone());
    let mut stage = Stage::set(sinks(&kafka, &mock), run).await;
    let writing = stage.open(rate, &all.each_ref()).await;

    let began = Instant::now();
    mock.take_down().await;
    kafka.stop().await;
    for sink in [STOPPED, LARGE, FORBIDDEN, DELETED, LONG] {
        stage.shows(sink, "retrying", "").await;
    }
    stage.the_well_goes_on(run.size(Duration::from_secs(60), fault * 2)).await;
    let said_of_stopped = stage.shows(STOPPED, "retrying", "").await;
    kafka.launch().await;
    let stop_over = stage.over();
    for sink in [STOPPED, LARGE, FORBIDDEN, DELETED] {
        stage.shows(sink, "healthy", "").await;
    }

    kafka.revoke(FORBIDDEN).await;
    let said_of_forbidden = stage.shows(FORBIDDEN, "misconfigured", "uthorization").await;
    stage.write_large(&[TOO_LARGE; 3]);
    stage.the_well_goes_on(fault).await;
    stage.shows(FORBIDDEN, "misconfigured", "uthorization").await;
    kafka.grant(FORBIDDEN).await;
    let grant_over = stage.over();
    stage.shows(FORBIDDEN, "healthy", "").await;

    // What is deleted with the topic has to have been read before, so nothing is written meanwhile.
    writing.stop().await;
    let produced = stage.record.len();
    stage.has_arrived(DELETED, &deleted.ledger, produced).await;
    let ledger = deleted.finish().await;
    delete_topic(&bootstrap, DELETED).await;
    // For the long outage fewer: a mock keeps 5 MiB a partition, and forgets what is older, read or
    // not.
    let writing = stage.write(run.size(10, rate));
    let said_of_deleted =
        stage.shows(DELETED, "misconfigured", "create the topic \"deleted\"").await;
    stage.the_well_goes_on(fault).await;
    let delete_over = stage.over();
    make_topic(&bootstrap, DELETED, &[]).await;
    deleted = read_into(&bootstrap, DELETED, ledger);
    stage.shows(DELETED, "healthy", "").await;

    let outage = run.size(Duration::from_mins(10), Duration::from_secs(20));
    stage.the_well_goes_on(outage.saturating_sub(began.elapsed())).await;
    let said_of_long = stage.shows(LONG, "retrying", "").await;
    let long_over = stage.over();
    mock.bring_back().await;
    sleep(fault / 2).await;
    writing.stop().await;
    stage.settle().await;

    let mut rows = vec![stage.well_row(began, long_over).await];
    let refused = stage.bridge.logged("the receiver refuses an event").expect("it is said aloud");
    let outage = format!("broker away for {} s", outage.as_secs());
    let away = format!("broker away for {} s", run.size(60, fault.as_secs() * 2));
    let retrying = |said| format!("retrying: “{said}”");
    let misconfigured = |said| format!("misconfigured: “{said}”");
    let dead = format!("3 refused, dead-lettered: {}", refused["reason"]);
    for (sink, receiver, fault, over, notes, refused) in [
        (STOPPED, &stopped, &*away, Some(stop_over), retrying(said_of_stopped), 0),
        (LONG, &long, &outage, Some(long_over), retrying(said_of_long), 0),
        (
            DELETED,
            &deleted,
            "topic deleted and created again",
            Some(delete_over),
            misconfigured(said_of_deleted),
            0,
        ),
        (LARGE, &large, "messages too large", None, dead, 3),
        (
            FORBIDDEN,
            &forbidden,
            "authorization lost and given back",
            Some(grant_over),
            misconfigured(said_of_forbidden),
            0,
        ),
    ] {
        // After an error what was acknowledged behind it is sent again, for the order's sake.
        let doubts = Doubts { refused, unanswered: usize::MAX };
        let verdict = stage.judge(sink, &receiver.ledger, doubts).await;
        let caught_up = over.and_then(|over| stage.caught_up(&receiver.ledger, over));
        rows.push(Row { caught_up, notes, lost: Some(0), ..verdict.row(fault, sink) });
    }
    stage.bridge.stop_in_order().await;
    Page::Rows(rows)
}

fn sinks(kafka: &Kafka, mock: &MockKafka) -> Value {
    let sink =
        |bootstrap: &str, topic: &str| json!({"kafka": {"brokers": [bootstrap], "topic": topic}});
    let (username, password) = ACCOUNT;
    let mut sinks = json!({LONG: sink(mock.brokers(), LONG)});
    for topic in [STOPPED, LARGE, DELETED] {
        sinks[topic] = sink(kafka.bootstrap(), topic);
    }
    sinks[FORBIDDEN] = sink(kafka.account_bootstrap(), FORBIDDEN);
    sinks[FORBIDDEN]["kafka"]["sasl"] =
        json!({"mechanism": "plain", "username": username, "password": password});
    sinks[FORBIDDEN]["allowPlaintext"] = json!(true);
    sinks
}
