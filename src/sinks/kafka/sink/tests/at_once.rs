//! Several attempts under way at one producer.

use futures_util::{FutureExt as _, future::join_all};

use super::{super::test_cluster::Consumed, *};

/// So many of the records of one of the three keys, from the first of them on that is not before a place.
fn of_one_key(from: u64, count: usize) -> Batch {
    let records = (from..).step_by(3).take(count).map(|seq| fixtures::record(seq, "m"));
    Batch { records: records.collect() }
}

#[tokio::test]
async fn attempts_at_once_are_under_way_together() {
    let cluster = cluster();
    let sink = sink(&cluster, LONG);
    assert_eq!(sink.send(&fixtures::batch(1..=3)).await, Outcome::Delivered);
    cluster.broker_down(1).unwrap();
    let batches = [4, 5, 6].map(|from| of_one_key(from, 20));
    let mut sends: Vec<_> = batches.iter().map(|batch| sink.send(batch)).collect();
    assert!(sends.iter_mut().all(|send| send.now_or_never().is_none()));
    let producer = sink.current.lock().await.producer.clone().unwrap();
    assert_eq!(producer.ledger.outstanding(), 60);
    // One of them is dropped, and made again at once.
    drop(sends.pop());
    sends.push(sink.send(&batches[2]));
    assert!(sends[2].as_mut().now_or_never().is_none());
    assert_eq!(producer.ledger.outstanding(), 60);
    cluster.broker_up(1).unwrap();
    let outcomes = join_all(sends).await;
    assert_eq!(outcomes, [Outcome::Delivered, Outcome::Delivered, Outcome::Delivered]);
    let consumed = consume(&cluster);
    assert_eq!(consumed.len(), 63);
    assert_all_in_order(&consumed, 63, Arrival::First);
}

#[tokio::test]
async fn attempts_at_once_share_a_queue_that_is_too_small_for_them() {
    let cluster = cluster();
    let sink = sink(&cluster, LONG);
    let batches = [1, 2, 3].map(|from| of_one_key(from, 3000));
    let sends = batches.iter().map(|batch| sink.send(batch));
    let outcomes = join_all(sends).await;
    assert_eq!(outcomes, [Outcome::Delivered, Outcome::Delivered, Outcome::Delivered]);
    let consumed = consume(&cluster);
    assert_eq!(consumed.len(), 9000);
    assert_all_in_order(&consumed, 9000, Arrival::First);
}

#[tokio::test]
async fn an_attempt_that_fails_is_no_failure_of_another() {
    let cluster = cluster_with(1);
    let sink = sink(&cluster, LONG);
    let small = of_one_key(1, 3);
    let malformed = Batch { records: vec![Record { seq: 2, envelope: "nonsense".into() }] };
    let large = Batch { records: vec![fixtures::record(3, &"x".repeat(8_000_000))] };
    let sends = [&small, &malformed, &large].map(|batch| sink.send(batch));
    let [small, malformed, large] = join_all(sends).await.try_into().unwrap();
    assert_eq!(small, Outcome::Delivered);
    for (outcome, class) in [(malformed, RefusedClass::Unsendable), (large, RefusedClass::TooLarge)]
    {
        let Outcome::PerEvent(fates) = outcome else { panic!("{outcome:?}") };
        let [EventFate::Failed(failure)] = &fates[..] else { panic!("{fates:?}") };
        assert_eq!(failure.class, FailureClass::Refused(class));
    }
}

#[tokio::test]
async fn events_refused_in_the_company_of_others_are_asked_again_alone() {
    let cluster = cluster_with(1);
    let sink = sink(&cluster, LONG);
    assert_eq!(sink.send(&of_one_key(1, 1)).await, Outcome::Delivered);
    cluster.broker_down(1).unwrap();
    let batches = [2, 3, 4].map(|from| of_one_key(from, 1));
    let mut sends: Vec<_> = batches.iter().map(|batch| sink.send(batch)).collect();
    assert!(sends.iter_mut().all(|send| send.now_or_never().is_none()));
    // The set of the three is refused, and then one of them alone.
    let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
    cluster.request_errors(RDKafkaApiKey::Produce, &[error, error]);
    cluster.broker_up(1).unwrap();
    let outcomes = join_all(sends).await;
    let refused = |outcome: &&Outcome| **outcome != Outcome::Delivered;
    let [refused] = outcomes.iter().filter(refused).collect::<Vec<_>>()[..] else {
        panic!("{outcomes:?}")
    };
    let class = FailureClass::Refused(RefusedClass::TooLarge);
    assert_eq!(failure_of(refused.clone()).0, class);
    assert_eq!(consume(&cluster).len(), 3);
}

#[tokio::test]
async fn a_fatal_error_ends_all_attempts_and_the_next_ones_share_another_producer() {
    let cluster = cluster();
    let sink = sink(&cluster, LONG);
    let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED;
    cluster.request_errors(RDKafkaApiKey::InitProducerId, &[error]);
    let batches = [1, 2, 3].map(|from| of_one_key(from, 10));
    let sends = async || {
        let sends = batches.iter().map(|batch| sink.send(batch));
        join_all(sends).await
    };
    for outcome in sends().await {
        assert_eq!(failure_of(outcome).0, FailureClass::Misconfigured);
    }
    assert_eq!(sends().await, [Outcome::Delivered, Outcome::Delivered, Outcome::Delivered]);
    let consumed = consume(&cluster);
    assert_eq!(consumed.len(), 30);
    assert_all_in_order(&consumed, 30, Arrival::First);
}

#[tokio::test]
async fn order_per_key_survives_errors_and_drops_of_attempts_at_once() {
    let cluster = cluster();
    let sink = careful(&cluster);
    let errors = [
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR,
    ];
    let lane = async |key: u64| {
        let mut random = fastrand::Rng::with_seed(key);
        let mut first = key;
        while first < 900 {
            let batch = of_one_key(first, random.usize(1..60));
            let injected: Vec<_> = (0..2).map(|_| errors[random.usize(0..errors.len())]).collect();
            cluster.request_errors(RDKafkaApiKey::Produce, &injected);
            if random.bool() {
                let patience = Duration::from_millis(random.u64(0..20));
                let _ = tokio::time::timeout(patience, sink.send(&batch)).await;
            }
            first = batch.records.last().unwrap().seq + 3;
            send_to_the_end(&sink, batch).await;
        }
        first
    };
    let ends = tokio::join!(lane(1), lane(2), lane(3));
    let mut consumed = consume(&cluster);
    let place = |m: &Consumed| m.id.split_once('-').unwrap().1.parse::<u64>().unwrap();
    let last = ends.0.min(ends.1).min(ends.2) - 1;
    consumed.retain(|message| place(message) <= last);
    assert_all_in_order(&consumed, last, Arrival::Last);
}
