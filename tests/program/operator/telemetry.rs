//! The metrics of the program itself, sent by OTLP.

use std::{process::Command, time::Duration};

use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    metrics::v1::{Metric, metric::Data, number_data_point::Value},
};
use prost::Message as _;
use tidings_testkit::{
    api_server::EventObject,
    receiver::{HttpReceiver, Received},
};
use tokio::time::sleep;

use super::{
    commands::tidings,
    process::{Process, port},
    support::{server, until},
};

fn metric(request: &ExportMetricsServiceRequest, name: &str) -> Metric {
    let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
    metrics.iter().find(|metric| metric.name == name).unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_sent_at_the_start_and_at_the_end() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let receiver = HttpReceiver::always("200 OK", "", "").unwrap();
    let address = receiver.address;
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
    until("metrics come", || !receiver.received().is_empty()).await;
    let out = dir.path().join("out");
    until("the event comes", || std::fs::metadata(&out).is_ok_and(|file| file.len() > 0)).await;

    let pid = process.child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(process.child.wait().await.unwrap().success());
    assert!(receiver.received().iter().all(|one| one.line() == "POST /v1/metrics HTTP/1.1"));
    let read = |one: &Received| ExportMetricsServiceRequest::decode(&*one.body).unwrap();
    let last = receiver.received().iter().map(read).collect::<Vec<_>>().pop().unwrap();
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

#[tokio::test(flavor = "multi_thread")]
async fn the_receiver_of_metrics_and_the_counters_change_without_a_restart() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let receiver = HttpReceiver::always("200 OK", "", "").unwrap();
    let address = receiver.address;
    std::fs::write(dir.path().join("kubeconfig"), server.kubeconfig()).unwrap();
    let token = dir.path().join("token");
    let (path, config) = (dir.path().display(), dir.path().join("tidings.yaml"));
    let bare = format!(
        "source: {{kubeconfig: {path}/kubeconfig}}\njournal: {{path: {path}/journal}}\n\
         server: {{listen: \"127.0.0.1:0\"}}\nsinks: {{out: {{file: {{path: {path}/out}}}}}}\n"
    );
    std::fs::write(&config, &bare).unwrap();
    let bridge = Process::spawn(dir.path(), &[]).await;

    std::fs::write(&token, "one").unwrap();
    let more = format!(
        "metrics: [{{name: all}}]\ntelemetry: {{otlp: {{endpoint: \"http://{address}\", protocol: http, \
         headers: {{x-token: {{file: {}}}}}}}}}\n",
        token.display()
    );
    std::fs::write(&config, format!("{bare}{more}")).unwrap();
    tidings(&config, &["reload"]).await.ok();
    let is_last = |token| {
        receiver.received().last().is_some_and(|last| last.header("x-token") == Some(token))
    };
    until("metrics come", || is_last("one")).await;
    server.create(EventObject::about_pod("shop", "web-0", "BackOff", "try")).unwrap();
    let metrics = format!("http://127.0.0.1:{}/metrics", port(&bridge.log()));
    let counted = "tidings_events_total{metric=\"all\"} 1\n";
    while !reqwest::get(&metrics).await.unwrap().text().await.unwrap().contains(counted) {
        sleep(Duration::from_millis(10)).await;
    }

    std::fs::write(&token, "two").unwrap();
    until("metrics come with the new secret", || is_last("two")).await;
    let changed = ["changed=\"metrics, telemetry\"", "changed=\"telemetry\""];
    let is_said = || changed.iter().all(|changed| bridge.log().contains(changed));
    until("both changes are said", is_said).await;
}
