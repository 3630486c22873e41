use std::time::Duration;

use opentelemetry_proto::tonic::{
    collector::logs::v1::{ExportLogsServiceRequest, logs_service_client::LogsServiceClient},
    common::v1::{AnyValue, KeyValue, any_value::Value},
    logs::v1::{LogRecord, ResourceLogs, ScopeLogs},
    resource::v1::Resource,
};
use rdkafka::{
    ClientConfig,
    producer::{BaseProducer, BaseRecord, Producer as _},
};

use super::*;

fn envelope(id: &str, delta: u64) -> String {
    let (uid, version) = id.rsplit_once('-').unwrap();
    format!(
        r#"{{"id":"{id}","cluster":{{}},"change":"created","time":"2026-01-01T00:00:00Z","observedTime":"2026-01-01T00:00:00Z","occurrences":{delta},"delta":{delta},"replayed":false,"event":{{"metadata":{{"uid":"{uid}","resourceVersion":"{version}"}},"involvedObject":{{"uid":"pod-1"}}}}}}"#
    )
}

async fn until(what: impl Fn() -> bool) {
    let wait = async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait).await.expect("it happens in time");
}

#[tokio::test]
async fn a_webhook_notes_objects_and_arrays() {
    let receiver = WebhookReceiver::start().unwrap();
    let client = reqwest::Client::new();
    let send = async |body: String| {
        client.post(receiver.url()).body(body).send().await.map(|answer| answer.status().as_u16())
    };
    assert_eq!(send(envelope("a-1", 1)).await.unwrap(), 204);
    let array = format!("[{},{}]", envelope("a-1", 1), envelope("b-2", 4));
    assert_eq!(send(array).await.unwrap(), 204);
    assert_eq!(send("{}".to_owned()).await.unwrap(), 400);
    let tally = receiver.ledger().tally();
    assert_eq!((tally.distinct, tally.repeated, tally.delta, tally.unreadable), (2, 1, 5, 1));

    receiver.take_down(Outage::Refusing).await;
    assert_eq!(send(envelope("c-3", 1)).await.unwrap(), 503);
    receiver.bring_back().await.unwrap();
    receiver.take_down(Outage::Closed).await;
    assert!(send(envelope("c-3", 1)).await.unwrap_err().is_connect());
    receiver.bring_back().await.unwrap();
    assert_eq!(send(envelope("c-3", 1)).await.unwrap(), 204);
    assert_eq!((receiver.ledger().times("c-3"), receiver.requests()), (1, 5));
}

fn attribute(key: &str, value: Value) -> KeyValue {
    let value = Some(AnyValue { value: Some(value) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

fn record(id: &str, delta: i64) -> LogRecord {
    LogRecord {
        attributes: vec![
            attribute("log.record.uid", Value::StringValue(id.to_owned())),
            attribute("k8s.event.count_delta", Value::IntValue(delta)),
        ],
        ..LogRecord::default()
    }
}

fn group(object: &str, records: Vec<LogRecord>) -> ResourceLogs {
    let attributes = vec![attribute("k8s.object.uid", Value::StringValue(object.to_owned()))];
    ResourceLogs {
        resource: Some(Resource { attributes, ..Resource::default() }),
        scope_logs: vec![ScopeLogs { log_records: records, ..ScopeLogs::default() }],
        ..ResourceLogs::default()
    }
}

#[tokio::test]
async fn a_collector_notes_records() {
    let receiver = OtlpReceiver::start().unwrap();
    let send = async |resource_logs| {
        let mut client = LogsServiceClient::connect(receiver.endpoint()).await.unwrap();
        client.export(ExportLogsServiceRequest { resource_logs }).await
    };
    // One object under two resources: their order within a request means nothing.
    let groups = vec![
        group("x", vec![record("a-1", 1), record("b-5", 2)]),
        group("x", vec![record("c-3", 1), LogRecord::default()]),
    ];
    send(groups).await.unwrap();
    send(vec![group("x", vec![record("b-5", 2), record("d-4", 1)])]).await.unwrap();
    let tally = receiver.ledger().tally();
    assert_eq!((tally.distinct, tally.repeated, tally.delta), (4, 1, 5));
    assert_eq!((tally.out_of_order, tally.unreadable), (1, 1));

    receiver.take_down(Outage::Refusing).await;
    let refused = send(vec![group("x", vec![record("e-6", 1)])]).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unavailable);
    receiver.take_down(Outage::Closed).await;
    assert!(LogsServiceClient::connect(receiver.endpoint()).await.is_err());
    receiver.bring_back().await.unwrap();
    send(vec![group("x", vec![record("e-6", 1)])]).await.unwrap();
    assert_eq!(receiver.ledger().times("e-6"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_is_read_and_goes_away_and_comes_back() {
    let receiver = KafkaReceiver::start("k8s-events").unwrap();
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", receiver.brokers())
        .set("enable.idempotence", "true")
        .set("reconnect.backoff.ms", "50")
        .set("reconnect.backoff.max.ms", "200")
        .create()
        .unwrap();
    let send = |id: &str, wait| {
        let payload = envelope(id, 2);
        producer.send(BaseRecord::to(receiver.topic()).key("pod-1").payload(&payload)).unwrap();
        producer.flush(wait)
    };
    for id in ["a-1", "b-2", "a-1"] {
        send(id, Duration::from_secs(20)).unwrap();
    }
    until(|| receiver.ledger().tally().repeated == 1).await;
    receiver.take_down(Outage::Closed).await;
    assert!(send("c-3", Duration::from_millis(300)).is_err());
    receiver.bring_back().await.unwrap();
    producer.flush(Duration::from_secs(20)).unwrap();
    until(|| receiver.ledger().times("c-3") > 0).await;
    let tally = receiver.ledger().tally();
    assert_eq!((tally.distinct, tally.delta, tally.out_of_order), (3, 6, 0));
}
