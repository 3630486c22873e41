//! The metrics of the program itself, sent by OTLP.

use std::{
    process::Command,
    sync::{Arc, Mutex},
};

use axum::{Router, body::Bytes, extract::State, routing::post};
use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    metrics::v1::{Metric, metric::Data, number_data_point::Value},
};
use prost::Message as _;
use tidings::demo::api_server::EventObject;

use super::{
    process::Process,
    support::{server, until},
};

type Received = Arc<Mutex<Vec<ExportMetricsServiceRequest>>>;

async fn take(State(received): State<Received>, body: Bytes) {
    received.lock().unwrap().push(ExportMetricsServiceRequest::decode(body).unwrap());
}

fn metric(request: &ExportMetricsServiceRequest, name: &str) -> Metric {
    let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
    metrics.iter().find(|metric| metric.name == name).unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_sent_at_the_start_and_at_the_end() {
    let (server, dir, received) = (server(), tempfile::tempdir().unwrap(), Received::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/v1/metrics", post(take)).with_state(received.clone());
    tokio::spawn(axum::serve(listener, router).into_future());
    std::fs::write(dir.path().join("kubeconfig"), server.kubeconfig()).unwrap();
    let config = format!(
        "source: {{kubeconfig: {0}/kubeconfig}}\njournal: {{path: {0}/journal}}\n\
         server: {{listen: \"127.0.0.1:0\"}}\n\
         telemetry: {{otlp: {{endpoint: \"http://{address}\", protocol: http, resource: {{site: a}}}}}}\n\
         sinks: {{out: {{file: {{path: {0}/out}}}}}}\n",
        dir.path().display()
    );
    std::fs::write(dir.path().join("tidings.yaml"), config).unwrap();
    server.create(EventObject::about_pod("shop", "web-0", "BackOff", "try")).unwrap();
    let mut process = Process::spawn(dir.path(), &[]).await;
    until("metrics come", || !received.lock().unwrap().is_empty()).await;
    let out = dir.path().join("out");
    until("the event comes", || std::fs::metadata(&out).is_ok_and(|file| file.len() > 0)).await;

    let pid = process.child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(process.child.wait().await.unwrap().success());
    let last = received.lock().unwrap().pop().unwrap();
    let attributes = &last.resource_metrics[0].resource.as_ref().unwrap().attributes;
    let keys: Vec<_> = attributes.iter().map(|attribute| &*attribute.key).collect();
    let expected =
        ["k8s.cluster.uid", "service.instance.id", "service.name", "service.version", "site"];
    assert_eq!(keys, expected);
    let Some(Data::Sum(events)) = metric(&last, "tidings_source_events").data else { panic!() };
    assert_eq!(events.data_points[0].value, Some(Value::AsInt(1)));
    let Some(Data::Histogram(delivery)) = metric(&last, "tidings_sink_delivery_seconds").data
    else {
        panic!()
    };
    assert_eq!(
        (delivery.data_points[0].count, &*metric(&last, "tidings_sink_lag_seconds").unit),
        (1, "s")
    );
}
