use std::time::Duration;

use opentelemetry_proto::tonic::{
    collector::logs::v1::ExportLogsServiceRequest,
    common::v1::{AnyValue, KeyValue, any_value::Value},
    logs::v1::{LogRecord, ResourceLogs, ScopeLogs},
    resource::v1::Resource,
};
use rdkafka::{
    ClientConfig,
    message::{Header, OwnedHeaders},
    producer::{BaseProducer, BaseRecord, Producer as _},
};

use super::*;
use crate::ledger::SharedLedger;

async fn until(what: impl Fn() -> bool) {
    let wait = async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait).await.expect("it happens in time");
}

fn attribute(key: &str, value: Value) -> KeyValue {
    let value = Some(AnyValue { value: Some(value) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

fn record(id: &str, delta: i64) -> LogRecord {
    LogRecord {
        attributes: vec![
            attribute("log.record.uid", Value::StringValue(id.to_owned())),
            attribute("k8s.event.count", Value::IntValue(9)),
            attribute("k8s.event.count_delta", Value::IntValue(delta)),
        ],
        ..LogRecord::default()
    }
}

fn group(log_records: Vec<LogRecord>) -> ResourceLogs {
    let attributes = vec![attribute("k8s.object.uid", Value::StringValue("x".to_owned()))];
    ResourceLogs {
        resource: Some(Resource { attributes, ..Resource::default() }),
        scope_logs: vec![ScopeLogs { log_records, ..ScopeLogs::default() }],
        ..ResourceLogs::default()
    }
}

#[test]
fn records_of_logs_are_read_in_the_order_of_their_versions() {
    // One object under two resources: their order within a request means nothing.
    let resource_logs = vec![
        group(vec![record("a-1", 1), record("b-5", 2)]),
        group(vec![record("c-3", 1), LogRecord::default()]),
    ];
    let (complaints, deliveries): (Vec<_>, Vec<_>) =
        deliveries(&ExportLogsServiceRequest { resource_logs })
            .into_iter()
            .partition(Result::is_err);
    assert_eq!(complaints.len(), 1);
    let read: Vec<_> = deliveries.into_iter().map(|one| one.unwrap()).collect();
    let read: Vec<_> = read.iter().map(|one| (&*one.id, &*one.object, one.delta)).collect();
    assert_eq!(read, [("a-1", "x", 1), ("c-3", "x", 1), ("b-5", "x", 2)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_is_read_and_goes_away_and_comes_back() {
    const TOPIC: &str = "k8s-events";
    let broker = MockKafka::start(TOPIC).unwrap();
    let reader = KafkaReceiver::read(broker.brokers(), TOPIC, SharedLedger::default()).unwrap();
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", broker.brokers())
        .set("enable.idempotence", "true")
        .set("reconnect.backoff.ms", "50")
        .set("reconnect.backoff.max.ms", "200")
        .create()
        .unwrap();
    let send = |id: &str, key: &str, wait| {
        let payload = format!(
            r#"{{"id":"{id}","cluster":{{"uid":"c"}},"occurrences":2,"delta":2,"event":{{"metadata":{{"namespace":"shop"}},"involvedObject":{{"uid":"pod-1"}}}}}}"#
        );
        let header = |key, value| Header { key, value: Some(value) };
        let headers = OwnedHeaders::new()
            .insert(header("id", id))
            .insert(header("content-type", "application/json"));
        producer.send(BaseRecord::to(TOPIC).key(key).payload(&payload).headers(headers)).unwrap();
        producer.flush(wait)
    };
    for id in ["a-1", "b-2", "a-1"] {
        send(id, "c/shop/pod-1", Duration::from_secs(20)).unwrap();
    }
    until(|| reader.ledger.lock().tally().repeated == 1).await;
    assert!(reader.ledger.lock().complaints.is_empty());
    broker.take_down().await;
    assert!(send("c-3", "another key", Duration::from_millis(300)).is_err());
    broker.bring_back().await;
    producer.flush(Duration::from_secs(20)).unwrap();
    until(|| reader.ledger.distinct() == 3).await;
    let ledger = reader.finish().await;
    let ledger = ledger.lock();
    assert_eq!(ledger.complaints.len(), 1);
    assert_eq!((ledger.tally().delta, ledger.tally().out_of_order), (6, 0));
}
