mod at_once;

use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use super::{
    super::{KafkaKey, SaslMechanism, SaslOptions},
    test_cluster::{Arrival, Cluster, TOPIC, assert_all_in_order, cluster, cluster_with, consume},
    *,
};
use crate::{
    bridge::RefusedClass,
    event::Record,
    sinks::{Compression, Format, Secret, TlsOptions, fixtures},
};

type Change = fn(&mut KafkaOptions);

fn options(brokers: &str) -> KafkaOptions {
    KafkaOptions::new("audit", vec![brokers.into()], TOPIC)
}

fn sink(cluster: &Cluster, timeout: Duration) -> KafkaSink {
    let options = KafkaOptions { timeout, ..options(&cluster.bootstrap_servers()) };
    KafkaSink::new(&options).unwrap()
}

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_secs(1);

fn failure_of(outcome: Outcome) -> (FailureClass, String) {
    match outcome {
        Outcome::Failed(Failure { class, reason, .. }) => (class, reason.into()),
        other => panic!("{other:?}"),
    }
}

/// Sends a batch until it is settled, as the bridge does, and answers how many attempts it took.
async fn send_to_the_end(sink: &KafkaSink, batch: Batch) -> usize {
    let mut records = batch.records;
    for attempt in 1.. {
        match sink.send(&Batch { records: records.clone() }).await {
            Outcome::Delivered => return attempt,
            Outcome::Failed(_) => {}
            Outcome::PerEvent(fates) => {
                assert_eq!(fates.len(), records.len());
                let settled = fates.iter().take_while(|f| **f == EventFate::Delivered).count();
                assert!(fates[settled..].iter().all(|fate| matches!(fate, EventFate::Failed(_))));
                records.drain(..settled);
            }
            other @ Outcome::Partial { .. } => panic!("{other:?}"),
        }
        assert!(attempt < 200);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    0
}

#[tokio::test]
async fn messages_are_what_the_contract_says() {
    let cluster = cluster();
    let sink = sink(&cluster, LONG);
    let nameless = Record {
        seq: 601,
        envelope: r#"{"id":"n-1","cluster":{"name":"prod","uid":"c1"},"time":"","event":{"metadata":{"namespace":"default"},"involvedObject":{"kind":"Node","name":"a"}}}"#
            .into(),
    };
    let batch = fixtures::batch(1..=600);
    assert_eq!(sink.send(&batch).await, Outcome::Delivered);
    let one = Batch { records: vec![nameless.clone()] };
    assert_eq!(sink.send(&one).await, Outcome::Delivered);
    sink.close().await;

    let mut consumed = consume(&cluster);
    let odd = consumed.iter().position(|message| message.id == "n-1").unwrap();
    let odd = consumed.remove(odd);
    assert_eq!(
        (&*odd.key, odd.payload.as_slice()),
        ("c1/default/Node/a", nameless.envelope.as_ref())
    );
    assert_eq!(consumed.len(), 600);
    assert_all_in_order(&consumed, 600, Arrival::First);
    for message in &consumed {
        assert_eq!(message.content_type, "application/json");
        assert_eq!(message.timestamp, Some(1_795_255_200_000));
        let seq: usize = message.id.split_once('-').unwrap().1.parse().unwrap();
        assert_eq!(message.payload, batch.records[seq - 1].envelope);
    }
}

#[tokio::test]
async fn a_format_shapes_the_value_and_its_type() {
    let cluster = cluster();
    let options =
        KafkaOptions { format: Format::CloudEvents, ..options(&cluster.bootstrap_servers()) };
    let sink = KafkaSink::new(&options).unwrap();
    let batch = fixtures::batch(1..=1);
    assert_eq!(sink.send(&batch).await, Outcome::Delivered);
    sink.close().await;
    let [message] = consume(&cluster).try_into().unwrap_or_else(|_| panic!("one message"));
    assert_eq!(message.payload, Format::CloudEvents.encode(&batch.records[0]).unwrap());
    assert_eq!(message.content_type, "application/cloudevents+json; charset=UTF-8");
    assert_eq!(message.id, "e1-1");
}

/// The reporter's claims: the object's uid, and when it was.
#[tokio::test]
async fn claims_of_one_namespace_do_not_steer_the_messages_of_another() {
    let cluster = cluster();
    let options = options(&cluster.bootstrap_servers());
    let claim = |seq: u64, namespace: &str, time: &str| {
        let envelope = format!(
            r#"{{"id":"e{seq}-1","cluster":{{"name":"prod","uid":"c1"}},"time":"{time}","observedTime":"2026-11-21T10:00:00Z","event":{{"metadata":{{"namespace":"{namespace}","creationTimestamp":"2026-11-21T09:00:00Z"}},"involvedObject":{{"kind":"Pod","namespace":"{namespace}","name":"a","uid":"p1"}}}}}}"#
        );
        Record { seq, envelope: envelope.into() }
    };
    let records = vec![
        claim(1, "shop", "2026-11-21T09:30:00Z"),
        claim(2, "evil", "2036-11-21T12:00:00Z"),
        claim(3, "evil", "1970-01-01T00:00:00Z"),
    ];
    let (day, hour) = (1_795_219_200_000, 3_600_000);
    for (kafka_key, keys) in [
        (KafkaKey::Qualified, ["c1/shop/p1", "c1/evil/p1", "c1/evil/p1"]),
        (KafkaKey::Object, ["p1", "p1", "p1"]),
    ] {
        let sink = KafkaSink::new(&KafkaOptions { key: kafka_key, ..options.clone() }).unwrap();
        let before = consume(&cluster).len();
        let batch = Batch { records: records.clone() };
        assert_eq!(sink.send(&batch).await, Outcome::Delivered);
        sink.close().await;
        let consumed = consume(&cluster);
        assert_eq!(consumed.len(), before + 3);
        for (record, key) in records.iter().zip(keys) {
            let message = consumed.iter().find(|m| m.id == record.id() && m.key == key).unwrap();
            let time = match record.seq {
                1 => day + 9 * hour + hour / 2,
                2 => day + 10 * hour,
                _ => day + 8 * hour,
            };
            assert_eq!(message.timestamp, Some(time));
            assert_eq!(message.payload, record.envelope);
        }
    }
}

#[tokio::test]
async fn a_batch_larger_than_the_queue() {
    let cluster = cluster();
    let sink = sink(&cluster, LONG);
    assert_eq!(sink.send(&fixtures::batch(1..=10_000)).await, Outcome::Delivered);
    let consumed = consume(&cluster);
    assert_eq!(consumed.len(), 10_000);
}

#[tokio::test]
async fn a_dropped_attempt_is_not_queued_twice() {
    let cluster = cluster();
    let sink = sink(&cluster, LONG);
    assert_eq!(sink.send(&fixtures::batch(1..=3)).await, Outcome::Delivered);
    cluster.broker_down(1).unwrap();
    for _ in 0..3 {
        let batch = fixtures::batch(4..=30);
        let dropped = tokio::time::timeout(Duration::from_millis(100), sink.send(&batch)).await;
        assert!(dropped.is_err());
    }
    cluster.broker_up(1).unwrap();
    // Brought again in parts, as a bridge that halves does.
    assert_eq!(sink.send(&fixtures::batch(4..=9)).await, Outcome::Delivered);
    assert_eq!(sink.send(&fixtures::batch(10..=31)).await, Outcome::Delivered);
    let consumed = consume(&cluster);
    assert_eq!(consumed.len(), 31);
    assert_all_in_order(&consumed, 31, Arrival::First);
}

#[tokio::test]
async fn what_an_errand_leaves_behind_is_taken_for_no_live_event() {
    let cluster = cluster();
    let sink = sink(&cluster, LONG);
    let mut errand = fixtures::batch(1..=3);
    for record in &mut errand.records {
        record.seq += Record::FIRST_ERRAND;
    }
    cluster.broker_down(1).unwrap();
    let dropped = tokio::time::timeout(Duration::from_millis(100), sink.send(&errand)).await;
    assert!(dropped.is_err());
    cluster.broker_up(1).unwrap();
    assert_eq!(sink.send(&fixtures::batch(1..=9)).await, Outcome::Delivered);
    assert_eq!(sink.send(&errand).await, Outcome::Delivered);
    let consumed = consume(&cluster);
    assert!((9 + 3..=9 + 6).contains(&consumed.len()), "{}", consumed.len());
    assert_all_in_order(&consumed, 9, Arrival::First);
}

#[tokio::test]
async fn a_broker_that_is_down_is_the_reason() {
    let cluster = cluster();
    let sink = sink(&cluster, Duration::from_secs(4));
    cluster.broker_down(1).unwrap();
    for _ in 0..2 {
        let (class, reason) = failure_of(sink.send(&fixtures::batch(1..=3)).await);
        assert_eq!(class, FailureClass::Unavailable);
        assert!(reason.contains("Connection refused") || reason.contains("down"), "{reason}");
    }
    cluster.broker_up(1).unwrap();
    send_to_the_end(&sink, fixtures::batch(1..=3)).await;
    assert_eq!(consume(&cluster).len(), 3);
}

/// The clock of the sink and its bridge; librdkafka has its own, and finds nobody all the while.
#[tokio::test]
async fn ten_minutes_without_a_broker_cost_neither_loss_nor_order() {
    let cluster = cluster();
    let sink = sink(&cluster, LONG);
    send_to_the_end(&sink, fixtures::batch(1..=30)).await;
    cluster.broker_down(1).unwrap();
    tokio::time::pause();
    let began = Instant::now();
    while began.elapsed() < Duration::from_mins(10) {
        let (class, reason) = failure_of(sink.send(&fixtures::batch(31..=530)).await);
        assert!(matches!(class, FailureClass::Unavailable | FailureClass::Timeout), "{reason}");
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
    tokio::time::resume();
    cluster.broker_up(1).unwrap();
    send_to_the_end(&sink, fixtures::batch(31..=530)).await;
    send_to_the_end(&sink, fixtures::batch(531..=600)).await;
    let consumed = consume(&cluster);
    assert_all_in_order(&consumed, 600, Arrival::First);
    assert_eq!(consumed.len(), 600, "no attempt has queued anything twice");
}

#[tokio::test]
async fn a_slow_broker_is_a_timeout() {
    let cluster = cluster();
    let sink = sink(&cluster, SHORT);
    // On a busy machine the first connection alone may take that long.
    send_to_the_end(&sink, fixtures::batch(1..=3)).await;
    cluster.broker_round_trip_time(1, Duration::from_millis(1500)).unwrap();
    // So that the time is up before the answer, however late this thread is.
    tokio::time::pause();
    let (class, reason) = failure_of(sink.send(&fixtures::batch(4..=6)).await);
    tokio::time::resume();
    assert_eq!((class, &*reason), (FailureClass::Timeout, "no acknowledgement within 900ms"));
    send_to_the_end(&sink, fixtures::batch(4..=6)).await;
    cluster.broker_round_trip_time(1, Duration::ZERO).unwrap();
    assert_eq!(consume(&cluster).len(), 6);
}

#[tokio::test]
async fn what_librdkafka_can_mend_is_not_reported() {
    let cluster = cluster();
    let sink = sink(&cluster, LONG);
    let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS;
    cluster.request_errors(RDKafkaApiKey::Produce, &[error, error]);
    assert_eq!(sink.send(&fixtures::batch(1..=3)).await, Outcome::Delivered);
}

#[tokio::test]
async fn an_acl_is_for_a_person_to_mend() {
    let cluster = cluster();
    let sink = sink(&cluster, LONG);
    let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    cluster.request_errors(RDKafkaApiKey::Produce, &[error; 4]);
    let (class, reason) = failure_of(sink.send(&fixtures::batch(1..=6)).await);
    assert_eq!(class, FailureClass::Misconfigured);
    assert!(reason.contains("authorization"), "{reason}");
    cluster.clear_request_errors(RDKafkaApiKey::Produce);
    send_to_the_end(&sink, fixtures::batch(1..=6)).await;
    assert_all_in_order(&consume(&cluster), 6, Arrival::Last);
}

#[tokio::test]
async fn an_unknown_topic_is_for_a_person_to_mend() {
    let cluster = cluster();
    let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
    cluster.topic_error(TOPIC, error).unwrap();
    let sink = sink(&cluster, LONG);
    let (class, reason) = failure_of(sink.send(&fixtures::batch(1..=2)).await);
    assert_eq!(class, FailureClass::Misconfigured, "{reason}");
    assert!(reason.contains("topic"), "{reason}");
}

#[tokio::test]
async fn a_set_too_large_is_refused_until_the_culprit_stands_alone() {
    let cluster = cluster();
    let sink = sink(&cluster, LONG);
    assert_eq!(sink.send(&fixtures::batch(1..=3)).await, Outcome::Delivered);
    let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
    cluster.request_errors(RDKafkaApiKey::Produce, &[error]);
    let outcome = sink.send(&fixtures::batch(4..=6)).await;
    assert_eq!(failure_of(outcome).0, FailureClass::Refused(RefusedClass::TooLarge));
    assert_eq!(sink.send(&fixtures::batch(4..=5)).await, Outcome::Delivered);
    cluster.request_errors(RDKafkaApiKey::Produce, &[error]);
    let outcome = sink.send(&fixtures::batch(6..=6)).await;
    assert_eq!(failure_of(outcome).0, FailureClass::Refused(RefusedClass::TooLarge));
    assert_eq!(sink.send(&fixtures::batch(7..=7)).await, Outcome::Delivered);
}

#[tokio::test]
async fn one_refused_in_company_is_asked_again_alone() {
    let cluster = cluster_with(1);
    let sink = sink(&cluster, LONG);
    cluster.broker_down(1).unwrap();
    let batch = fixtures::batch(1..=6);
    let dropped = tokio::time::timeout(Duration::from_millis(100), sink.send(&batch)).await;
    assert!(dropped.is_err());
    let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
    cluster.request_errors(RDKafkaApiKey::Produce, &[error]);
    cluster.broker_up(1).unwrap();
    // The set of six was refused, and this one with it.
    let mut outcome = sink.send(&fixtures::batch(1..=1)).await;
    while let Outcome::Failed(_) = outcome {
        outcome = sink.send(&fixtures::batch(1..=1)).await;
    }
    assert_eq!(outcome, Outcome::Delivered);
}

#[tokio::test]
async fn what_cannot_be_queued_does_not_hold_up_the_rest() {
    let cluster = cluster();
    let sink = sink(&cluster, LONG);
    let large = fixtures::record(2, &"x".repeat(8_000_000));
    let malformed = Record { seq: 3, envelope: "nonsense".into() };
    let records = vec![fixtures::record(1, "m"), large, malformed, fixtures::record(4, "m")];
    let outcome = sink.send(&Batch { records }).await;
    let Outcome::PerEvent(fates) = outcome else { panic!("{outcome:?}") };
    assert_eq!((&fates[0], &fates[3]), (&EventFate::Delivered, &EventFate::Delivered));
    for (fate, class) in
        [(&fates[1], RefusedClass::TooLarge), (&fates[2], RefusedClass::Unsendable)]
    {
        let EventFate::Failed(failure) = fate else { panic!("{fate:?}") };
        assert_eq!(failure.class, FailureClass::Refused(class));
    }
    let consumed = consume(&cluster);
    assert_eq!(consumed.len(), 2);
}

#[tokio::test]
async fn a_fatal_error_ends_the_producer_and_nothing_else() {
    let cluster = cluster();
    let sink = sink(&cluster, LONG);
    // Refused a producer id, librdkafka declares itself dead.
    let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED;
    cluster.request_errors(RDKafkaApiKey::InitProducerId, &[error]);
    let (class, reason) = failure_of(sink.send(&fixtures::batch(1..=3)).await);
    assert_eq!(class, FailureClass::Misconfigured, "{reason}");
    let dead = sink.current.lock().await.producer.clone().unwrap();
    assert!(dead.ledger.is_dead());
    assert_eq!(sink.send(&fixtures::batch(1..=3)).await, Outcome::Delivered);
    assert_eq!(consume(&cluster).len(), 3);
}

/// A sink for errors. A broker accepts a later message set only after the earlier one, by its sequence
/// number. The mock does not look at that, so it is given one at a time.
fn careful(cluster: &Cluster) -> KafkaSink {
    let mut sink = sink(cluster, LONG);
    sink.config.set("max.in.flight.requests.per.connection", "1");
    sink
}

/// Batches under random errors, dropped attempts and restarts; answers the last record's place.
async fn rough_ride(cluster: &Cluster, seed: u64, errors: &[RDKafkaRespErr]) -> u64 {
    let fresh = || careful(cluster);
    let mut sink = fresh();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut first = 1;
    for round in 0..12 {
        let last = first + random.u64(0..200);
        let injected: Vec<_> = (0..3).map(|_| errors[random.usize(0..errors.len())]).collect();
        cluster.request_errors(RDKafkaApiKey::Produce, &injected);
        if random.bool() {
            let patience = Duration::from_millis(random.u64(0..20));
            let batch = fixtures::batch(first..=last);
            // Settled or not, it is sent again: to a bridge that lost its answer they are one.
            let _ = tokio::time::timeout(patience, sink.send(&batch)).await;
        }
        if round % 4 == 3 {
            sink.close().await;
            sink = fresh();
        }
        send_to_the_end(&sink, fixtures::batch(first..=last)).await;
        first = last + 1;
    }
    first - 1
}

#[tokio::test]
async fn order_per_key_survives_errors_drops_and_restarts() {
    let cluster = cluster();
    let errors = [
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR__TRANSPORT,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR,
    ];
    let last = rough_ride(&cluster, 7, &errors).await;
    assert_all_in_order(&consume(&cluster), last, Arrival::First);
}

#[tokio::test]
async fn what_comes_after_a_failed_message_comes_again_behind_it() {
    let cluster = cluster();
    let errors = [
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR,
    ];
    let last = rough_ride(&cluster, 11, &errors).await;
    assert_all_in_order(&consume(&cluster), last, Arrival::Last);
}

#[test]
fn options_are_checked_without_a_network() {
    let error = |change: Change| {
        let mut options = options("kafka.invalid:9092");
        change(&mut options);
        KafkaSink::new(&options).map(|_| ()).map_err(|e| e.to_string())
    };
    let tls = |o: &mut KafkaOptions| o.tls = Some(TlsOptions::default());
    assert_eq!(error(tls), Ok(()));
    assert_eq!(
        error(|o| {
            o.compression = Compression::Zstd;
            o.tls = Some(TlsOptions::default());
            o.sasl = Some(SaslOptions {
                mechanism: SaslMechanism::ScramSha512,
                username: Secret::new("u"),
                password: Secret::new("p"),
            });
        }),
        Ok(())
    );
    let bad: [(Change, &str); 6] = [
        (|o| o.brokers.clear(), "brokers: expected brokers, found none"),
        (
            |o| o.brokers[0] = "kafka".into(),
            "brokers: expected `host:port`, found `kafka`, which has no port",
        ),
        (|o| o.topic = "a topic".into(), "topic: expected the name of a topic, found `a topic`"),
        (
            |o| o.tls = Some(TlsOptions { cert: Some(vec![]), ..Default::default() }),
            "tls.key: expected `key` beside `cert`, found none",
        ),
        (
            |o| o.tls = Some(TlsOptions { server_name: Some("x".into()), ..Default::default() }),
            "tls.serverName: librdkafka checks each broker's own name",
        ),
        (
            |o| o.tls = Some(TlsOptions { ca: Some(b"nonsense".to_vec()), ..Default::default() }),
            "librdkafka refuses the configuration: ",
        ),
    ];
    for (change, message) in bad {
        let error = error(change).unwrap_err();
        assert!(error.starts_with(message), "{error}");
    }
}
