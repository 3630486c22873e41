//! The OpenTelemetry Collector, as a receiver of OTLP logs.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::process::{Part, Process, Scratch};
use super::{free_port, http_client, installed};

/// A Collector that writes the logs it receives to a file.
///
/// The Collector answers before the file is flushed, a tenth of a second later, so [`Part::kill9`] loses what
/// it had accepted shortly before; [`Part::stop`] does not.
pub(crate) struct Collector {
    process: Process,
    http: reqwest::Client,
    grpc_url: String,
    http_url: String,
    // Last, so that it goes after the process that writes to it.
    scratch: Scratch,
}

impl Collector {
    pub(crate) async fn start() -> Self {
        Self::configured(|_| {}).await
    }

    /// The same, with a configuration that `change` has the last word on.
    pub(crate) async fn configured(change: impl FnOnce(&mut Value)) -> Self {
        let scratch = Scratch::new("collector");
        let grpc = format!("127.0.0.1:{}", free_port());
        let http = format!("127.0.0.1:{}", free_port());
        let mut config = json!({
            "receivers": {
                "otlp": {"protocols": {"grpc": {"endpoint": grpc}, "http": {"endpoint": http}}},
            },
            "exporters": {
                // Without `append` a restart would begin the file anew.
                "file": {"path": scratch.file(OUTPUT), "append": true, "flush_interval": "100ms"},
            },
            "service": {
                "pipelines": {"logs": {"receivers": ["otlp"], "exporters": ["file"]}},
                // Its own metrics would be served on a fixed port.
                "telemetry": {"metrics": {"level": "none"}},
            },
        });
        change(&mut config);
        let file = scratch.file("config.yaml");
        // JSON is YAML.
        fs::write(&file, config.to_string()).expect("the configuration of the Collector");
        let program = installed("collector", "bin/otelcol");
        let arguments = vec!["--config".to_owned(), file];
        let process = Process::new("collector", program, arguments, scratch.path());
        let mut collector = Self {
            process,
            http: http_client(),
            grpc_url: format!("http://{grpc}"),
            http_url: format!("http://{http}"),
            scratch,
        };
        collector.launch().await;
        collector
    }

    /// The endpoint of OTLP over gRPC.
    pub(crate) fn grpc_url(&self) -> &str {
        &self.grpc_url
    }

    /// The endpoint of OTLP over HTTP, to which `/v1/logs` is appended.
    pub(crate) fn http_url(&self) -> &str {
        &self.http_url
    }

    /// The file of what was received: OTLP in JSON, a line for each request.
    pub(crate) fn output(&self) -> PathBuf {
        self.scratch.path().join(OUTPUT)
    }

    /// All log records received until now, in order, without their resource and scope.
    pub(crate) fn log_records(&self) -> Vec<Value> {
        log_records(&self.output())
    }
}

/// The name of the file of what was received.
const OUTPUT: &str = "received.jsonl";

fn log_records(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).expect("the file of what was received");
    // A line without its end is still being written.
    let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let mut records = Vec::new();
    for line in lines {
        let request: Value = serde_json::from_str(line).expect("a line of JSON");
        for resource in otlp_items(&request, "resourceLogs") {
            for scope in otlp_items(resource, "scopeLogs") {
                records.extend(otlp_items(scope, "logRecords").iter().cloned());
            }
        }
    }
    records
}

/// The list `name` of `value`; OTLP leaves out empty ones.
pub(crate) fn otlp_items<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

impl Part for Collector {
    fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Takes an empty request, which leaves no trace in the file.
    async fn is_ready(&self) -> bool {
        let request = self.http.post(format!("{}/v1/logs", self.http_url));
        let request = request.header("content-type", "application/json").body("{}");
        request.send().await.is_ok_and(|response| response.status().is_success())
    }
}
