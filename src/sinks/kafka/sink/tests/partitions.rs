//! A partition that takes nothing, and the others.

use super::*;

/// The partition of the records of the pod `p0`, by the hash of their key; those of the other two pods
/// have others.
const STUCK: i32 = 3;

fn partition_of(sink: &KafkaSink, seq: u64) -> i32 {
    i32::try_from(destination(sink, seq)).unwrap() - 1
}

fn destination(sink: &KafkaSink, seq: u64) -> u64 {
    sink.destination(&Origin::of(&fixtures::record(seq, "m").envelope).unwrap())
}

fn is_of_p0(record: &Record) -> bool {
    record.seq.is_multiple_of(3)
}

/// The records of a batch that are to be sent again: those of `p0`, and every one of them.
fn stuck_of(batch: &Batch, outcome: Outcome) -> Batch {
    let Outcome::PerEvent(fates) = outcome else { panic!("{outcome:?}") };
    let mut stuck = Vec::new();
    for (record, fate) in batch.records.iter().zip(&fates) {
        if is_of_p0(record) {
            let EventFate::Failed(failure) = fate else { panic!("{}: {fate:?}", record.seq) };
            assert_eq!((failure.fault, failure.class), (Fault::Sink, FailureClass::Unavailable));
            let said = format!("partition {STUCK} of \"{TOPIC}\" takes nothing: it has no leader");
            assert_eq!(&*failure.reason, said);
            stuck.push(record.clone());
        } else {
            assert_eq!(*fate, EventFate::Delivered, "{}", record.seq);
        }
    }
    Batch { records: stuck }
}

async fn warm(timeout: Duration) -> (Cluster, KafkaSink) {
    let cluster = cluster();
    // Later versions name the leader in their answers, and the mock then reads one that is not there.
    cluster.apiversion(RDKafkaApiKey::Produce, Some(0), Some(9)).unwrap();
    cluster.apiversion(RDKafkaApiKey::Fetch, Some(0), Some(11)).unwrap();
    let sink = sink(&cluster, timeout);
    assert_eq!(destination(&sink, 1), 0, "nothing is known yet");
    assert!(sink.survey().await && !sink.survey().await, "it is told once");
    assert_eq!(partition_of(&sink, 3), STUCK);
    send_to_the_end(&sink, fixtures::batch(1..=3)).await;
    assert!(partition_of(&sink, 1) != STUCK && partition_of(&sink, 2) != STUCK);
    (cluster, sink)
}

#[tokio::test]
async fn a_partition_without_a_leader_fails_by_itself() {
    let (cluster, sink) = warm(Duration::from_secs(4)).await;
    cluster.partition_leader(TOPIC, STUCK, None).unwrap();
    let batch = fixtures::batch(4..=33);
    let first = stuck_of(&batch, sink.send(&batch).await);

    // It is known from then on, so that others are not kept waiting for it.
    let batch = fixtures::batch(34..=63);
    let second = stuck_of(&batch, sink.send(&batch).await);
    let others = Batch { records: vec![fixtures::record(64, "m"), fixtures::record(65, "m")] };
    assert_eq!(sink.send(&others).await, Outcome::Delivered);
    failure_of(sink.send(&first).await);
    let consumed = consume(&cluster);
    assert_eq!(consumed.len(), 44, "all but that of the partition without a leader");

    cluster.partition_leader(TOPIC, STUCK, Some(1)).unwrap();
    send_to_the_end(&sink, first).await;
    send_to_the_end(&sink, second).await;
    let consumed = consume(&cluster);
    assert_eq!(consumed.len(), 65, "nothing was queued twice");
    assert_all_in_order(&consumed, 65, Arrival::First);
}

#[tokio::test]
async fn the_queue_keeps_room_for_the_others() {
    let (cluster, sink) = warm(Duration::from_secs(4)).await;
    cluster.partition_leader(TOPIC, STUCK, None).unwrap();
    let records = |seqs: std::ops::Range<u64>| seqs.map(|seq| fixtures::record(seq, "m"));
    // More than the queue has room for, twice.
    let stuck = Batch { records: records(4..15_001).filter(is_of_p0).collect() };
    let others = Batch { records: records(4..601).filter(|record| !is_of_p0(record)).collect() };
    let (outcome, taken) = tokio::join!(sink.send(&stuck), sink.send(&others));
    failure_of(outcome);
    assert_eq!(taken, Outcome::Delivered);
    cluster.partition_leader(TOPIC, STUCK, Some(1)).unwrap();
    send_to_the_end(&sink, stuck).await;
    assert_eq!(consume(&cluster).len(), 3 + 4_999 + 398);
}

#[tokio::test]
async fn one_refused_event_is_refused_alone() {
    let cluster = cluster();
    let sink = careful(&cluster);
    send_to_the_end(&sink, fixtures::batch(1..=3)).await;
    // The message set that comes first is refused, and then the first of its messages alone.
    let batch = Batch { records: [6, 9, 12].map(|seq| fixtures::record(seq, "m")).into() };
    for code in [
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_RECORD,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
    ] {
        cluster.request_errors(RDKafkaApiKey::Produce, &[code, code]);
        let outcome = sink.send(&batch).await;
        let Outcome::PerEvent(fates) = outcome else { panic!("{outcome:?}") };
        let EventFate::Failed(failure) = &fates[0] else { panic!("{fates:?}") };
        assert_eq!(failure.fault, Fault::RecordForGood);
        assert!(matches!(failure.class, FailureClass::Refused(_)), "{failure:?}");
        assert!(fates[1..].iter().all(|fate| *fate == EventFate::Delivered), "{fates:?}");
    }
    assert_eq!(sink.send(&batch).await, Outcome::Delivered);
    assert_eq!(consume(&cluster).len(), 3 + 2 * 3 + 3);
}

/// A message that no batch has room for travels by itself: what is said of it is said of no other one.
#[tokio::test]
async fn a_large_event_is_refused_at_once_and_its_neighbours_are_taken_once() {
    let cluster = cluster();
    let sink = careful(&cluster);
    send_to_the_end(&sink, fixtures::batch(1..=3)).await;
    let large = fixtures::record(9, &"x".repeat(70_000));
    let records = vec![fixtures::record(6, "m"), large, fixtures::record(12, "m")];
    let too_large = RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
    let taken = RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR;
    cluster.request_errors(RDKafkaApiKey::Produce, &[taken, too_large]);
    let outcome = sink.send(&Batch { records }).await;
    let Outcome::PerEvent(fates) = outcome else { panic!("{outcome:?}") };
    let [EventFate::Delivered, EventFate::Failed(failure), EventFate::Delivered] = &fates[..]
    else {
        panic!("{fates:?}")
    };
    assert_eq!(failure.class, FailureClass::Refused(RefusedClass::TooLarge));
    assert_eq!(failure.fault, Fault::RecordForGood);
    assert_eq!(consume(&cluster).len(), 3 + 2);
}
