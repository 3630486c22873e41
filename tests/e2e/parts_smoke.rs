//! The parts themselves: that each starts, keeps its data, and behaves as other tests rely on.

use std::sync::mpsc;
use std::time::Duration;

use futures_util::TryStreamExt;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams, PostParams, WatchEvent, WatchParams};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::common::v1::{AnyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseRecord, DeliveryResult, ProducerContext, ThreadedProducer};
use rdkafka::{ClientConfig, ClientContext, Message, Offset, TopicPartitionList};
use serde_json::json;

use crate::parts::{ApiServer, ApiServerOptions, Collector, Etcd, Kafka, Part, kubectl};
use crate::wait::until;

#[tokio::test]
async fn etcd_and_api_server_keep_events_over_restarts() {
    let mut etcd = Etcd::start().await;
    let mut server = ApiServer::start(&etcd, ApiServerOptions::default()).await;
    let events = events(&server, "admin").await;

    let created = create(&events, "first").await;
    server.restart().await;
    etcd.kill9();
    etcd.launch().await;
    until("the API server has found its etcd again", async || {
        events.get("first").await.is_ok_and(|found| found == created)
    })
    .await;

    let version = kubectl(&server.kubeconfig("admin")).args(["get", "--raw=/version"]).output();
    let version = String::from_utf8(version.unwrap().stdout).unwrap();
    assert!(version.contains(r#""gitVersion": "v1.34."#), "{version}");
}

#[tokio::test]
async fn users_may_do_only_what_they_are_granted() {
    let etcd = Etcd::start().await;
    let options = ApiServerOptions { users: vec!["nobody".to_owned()], ..Default::default() };
    let server = ApiServer::start(&etcd, options).await;
    let refused = events(&server, "nobody").await.list(&ListParams::default()).await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 403));
}

#[tokio::test]
async fn a_short_ttl_takes_events_away() {
    let etcd = Etcd::start().await;
    let options = ApiServerOptions {
        event_ttl: Some(Duration::from_secs(2)),
        flags: vec!["--min-request-timeout=60".to_owned()],
        ..Default::default()
    };
    let server = ApiServer::start(&etcd, options).await;
    let events = events(&server, "admin").await;
    create(&events, "short").await;
    until("the Event is gone", async || events.get_opt("short").await.is_ok_and(|e| e.is_none()))
        .await;
}

#[tokio::test]
async fn a_watch_cannot_go_back_behind_a_compaction() {
    let etcd = Etcd::start().await;
    let server = ApiServer::start(&etcd, ApiServerOptions::default()).await;
    let events = events(&server, "admin").await;
    let before = resource_version(&create(&events, "first").await);
    create(&events, "second").await;
    create(&events, "third").await;

    let seen = watch_first(&events, &before).await;
    assert!(matches!(&seen, Some(WatchEvent::Added(event)) if name(event) == "second"), "{seen:?}");
    etcd.compact(etcd.current_revision());
    let seen = watch_first(&events, &before).await;
    assert!(matches!(&seen, Some(WatchEvent::Error(status)) if status.code == 410), "{seen:?}");
}

#[tokio::test]
async fn a_restored_etcd_is_silent() {
    let mut etcd = Etcd::start().await;
    let server = ApiServer::start(&etcd, ApiServerOptions::default()).await;
    let events = events(&server, "admin").await;
    create(&events, "kept").await;
    let backups = tempfile::tempdir().unwrap();
    let snapshot = backups.path().join("snapshot.db");
    etcd.snapshot_save(&snapshot);
    // Far enough that what the server itself writes after the restore does not catch up.
    for number in 0..100 {
        create(&events, &format!("undone-{number}")).await;
    }
    let future = resource_version(&create(&events, "last").await);
    let open = events.watch(&WatchParams::default(), &future).await.unwrap();
    let mut open = std::pin::pin!(open);

    etcd.restore_from(&snapshot).await;
    until("the API server has found its etcd again", async || {
        events.list(&ListParams::default()).await.is_ok()
    })
    .await;
    create(&events, "new").await;
    let list = events.list(&ListParams::default()).await.unwrap();
    assert_eq!(list.items.iter().map(name).collect::<Vec<_>>(), ["kept", "new"]);

    // No watch tells: neither one that was open, nor a new one from where that one stood.
    let silence = Duration::from_secs(2);
    let seen = tokio::time::timeout(silence, open.try_next()).await;
    assert!(seen.is_err(), "{seen:?}");
    let seen = tokio::time::timeout(silence, watch_first(&events, &future)).await;
    assert!(seen.is_err(), "{seen:?}");
    // A list that asks for a state as new as that does.
    let probe = ListParams { resource_version: Some(future), limit: Some(1), ..Default::default() };
    let answer = events.list(&probe).await;
    assert!(matches!(&answer, Err(kube::Error::Api(status)) if status.code == 504), "{answer:?}");
}

#[tokio::test]
async fn kafka_keeps_messages_over_restarts() {
    let mut kafka = Kafka::start(&[("message.max.bytes", "2000000")]).await;
    produce(&kafka, "before").await;
    kafka.restart().await;
    produce(&kafka, "between").await;
    kafka.kill9();
    kafka.launch().await;
    produce(&kafka, "after").await;
    assert_eq!(consume(&kafka, 3).await, ["before", "between", "after"]);
}

#[tokio::test]
async fn collector_writes_what_it_receives() {
    let mut collector = Collector::start().await;
    let request = json!({"resourceLogs": [{"scopeLogs": [{"logRecords": [
        {"body": {"stringValue": "over HTTP"}},
    ]}]}]});
    let response = reqwest::Client::new()
        .post(format!("{}/v1/logs", collector.http_url()))
        .header("content-type", "application/json")
        .body(request.to_string())
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    collector.restart().await;

    let mut client = LogsServiceClient::connect(collector.grpc_url().to_owned()).await.unwrap();
    let body = AnyValue { value: Some(any_value::Value::StringValue("over gRPC".to_owned())) };
    let record = LogRecord { body: Some(body), ..Default::default() };
    let scope = ScopeLogs { log_records: vec![record], ..Default::default() };
    let resource = ResourceLogs { scope_logs: vec![scope], ..Default::default() };
    client.export(ExportLogsServiceRequest { resource_logs: vec![resource] }).await.unwrap();

    until("both records are in the file", async || collector.log_records().len() == 2).await;
    let bodies: Vec<_> = collector
        .log_records()
        .iter()
        .map(|record| record["body"]["stringValue"].clone())
        .collect();
    assert_eq!(bodies, ["over HTTP", "over gRPC"]);
}

async fn events(server: &ApiServer, user: &str) -> Api<Event> {
    Api::namespaced(server.client(user).await, "default")
}

async fn create(events: &Api<Event>, name: &str) -> Event {
    let event = json!({
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "web"},
        "reason": "Smoke",
        "message": "the parts work",
        "type": "Normal",
    });
    let event = serde_json::from_value(event).expect("an Event");
    events.create(&PostParams::default(), &event).await.expect("the Event as created")
}

fn name(event: &Event) -> &str {
    event.metadata.name.as_deref().unwrap_or_default()
}

fn resource_version(event: &Event) -> String {
    event.metadata.resource_version.clone().expect("every object has one")
}

/// The first thing that a watch from `resource_version` says.
async fn watch_first(events: &Api<Event>, resource_version: &str) -> Option<WatchEvent<Event>> {
    let stream = events.watch(&WatchParams::default(), resource_version).await.expect("a stream");
    std::pin::pin!(stream).try_next().await.expect("a readable stream")
}

const TOPIC: &str = "smoke";

/// Passes on what became of each message.
struct Reports(mpsc::Sender<Result<(), KafkaError>>);

impl ClientContext for Reports {}

impl ProducerContext for Reports {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let report = result.as_ref().map(|_| ()).map_err(|(error, _)| error.clone());
        self.0.send(report).expect("somebody waits for the report");
    }
}

/// Produces a message with this payload; returns when the broker has acknowledged it.
async fn produce(kafka: &Kafka, payload: &'static str) {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", kafka.bootstrap()).set("acks", "all");
    let produced = tokio::task::spawn_blocking(move || {
        let (sender, reports) = mpsc::channel();
        let producer: ThreadedProducer<Reports> =
            config.create_with_context(Reports(sender)).expect("a producer");
        let record = BaseRecord::<(), str>::to(TOPIC).payload(payload);
        producer.send(record).map_err(|(error, _)| error).expect("room in the queue");
        reports.recv_timeout(Duration::from_secs(30)).expect("a report").expect("acknowledged");
    });
    produced.await.expect("a task that does not panic");
}

/// The payloads of the first `count` messages.
async fn consume(kafka: &Kafka, count: usize) -> Vec<String> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", kafka.bootstrap()).set("group.id", "smoke");
    let consumed = tokio::task::spawn_blocking(move || {
        let consumer: BaseConsumer = config.create().expect("a consumer");
        let mut partitions = TopicPartitionList::new();
        partitions.add_partition_offset(TOPIC, 0, Offset::Beginning).expect("an offset");
        consumer.assign(&partitions).expect("an assignment");
        let mut payloads = Vec::new();
        while payloads.len() < count {
            let message = consumer.poll(Duration::from_secs(30)).expect("a message in time");
            let message = message.expect("a message");
            payloads.push(String::from_utf8(message.payload().unwrap_or_default().to_vec()));
        }
        payloads.into_iter().collect::<Result<_, _>>().expect("text")
    });
    consumed.await.expect("a task that does not panic")
}
