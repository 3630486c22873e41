//! The systems behind the sinks of a SIEM: OpenSearch, Loki, rsyslog, and a Collector that takes Splunk's HEC or syslog.

use std::fs;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::collector::otlp_items;
use super::process::{Part, Process, Scratch};
use super::{free_port, http_client, installed};

/// Enough for ten thousand events on a busy machine.
const QUERY_WITHIN: Duration = Duration::from_mins(1);
/// The file that the Collector or rsyslog writes.
const OUTPUT: &str = "received.jsonl";

/// One of these systems.
pub(crate) struct Siem {
    process: Process,
    http: reqwest::Client,
    /// Host and port.
    address: String,
    /// The path that answers when it serves; none: it serves when its port is open.
    health: Option<&'static str>,
    // Last, so that it goes after the process that writes to it.
    scratch: Scratch,
}

impl Siem {
    pub(crate) async fn opensearch() -> Self {
        let scratch = Scratch::new("opensearch");
        let (port, transport) = (free_port(), free_port());
        let classes = installed("opensearch", "classes");
        let jars = installed("opensearch", "lib").join("*");
        let path = format!("{}:{}", classes.display(), jars.display());
        let mut arguments: Vec<_> =
            ["-Xms300m", "-Xmx700m", "-XX:+UseSerialGC", "-cp", &path, "Node"]
                .map(String::from)
                .into();
        arguments.extend([port.to_string(), transport.to_string(), scratch.file("node")]);
        let health = "/_cluster/health?wait_for_status=yellow&timeout=1s";
        let process = Process::new("opensearch", "java".into(), arguments, scratch.path());
        Self::start(process, port, Some(health), scratch).await
    }

    /// A Loki that answers queries of many entries, of any age.
    pub(crate) async fn loki() -> Self {
        let scratch = Scratch::new("loki");
        let port = free_port();
        let local = "127.0.0.1";
        let config = json!({
            "auth_enabled": false,
            "server": {
                "http_listen_address": local, "http_listen_port": port,
                "grpc_listen_address": local, "grpc_listen_port": free_port(),
            },
            "common": {
                "instance_addr": local,
                "path_prefix": scratch.file("data"),
                "storage": {"filesystem": {
                    "chunks_directory": scratch.file("data/chunks"),
                    "rules_directory": scratch.file("data/rules"),
                }},
                "replication_factor": 1,
                "ring": {"instance_addr": local, "kvstore": {"store": "inmemory"}},
            },
            "schema_config": {"configs": [{
                "from": "2020-10-24", "store": "tsdb", "object_store": "filesystem", "schema": "v13",
                "index": {"prefix": "index_", "period": "24h"},
            }]},
            "limits_config": {"max_entries_limit_per_query": 1_000_000},
            "ingester": {"query_store_max_look_back_period": "-1ns"},
            "analytics": {"reporting_enabled": false},
        });
        let file = scratch.file("config.yaml");
        // JSON is YAML.
        fs::write(&file, config.to_string()).expect("the configuration of Loki");
        let arguments =
            vec![format!("-config.file={file}"), "-ingester.min-ready-duration=0s".to_owned()];
        let program = installed("loki", "bin/loki");
        let process = Process::new("loki", program, arguments, scratch.path());
        Self::start(process, port, Some("/ready"), scratch).await
    }

    /// A Collector that takes events for Splunk, and acknowledges them.
    pub(crate) async fn hec() -> Self {
        let receiver = |address: &str| json!({"splunk_hec": {"endpoint": address, "ack": {"extension": "ack"}}});
        Self::collector("hec", receiver).await
    }

    /// A Collector that takes messages of syslog over TCP.
    pub(crate) async fn syslog() -> Self {
        let receiver = |address: &str| {
            let tcp = json!({"listen_address": address});
            json!({"syslog": {"tcp": tcp, "protocol": "rfc5424", "enable_octet_counting": true}})
        };
        Self::collector("syslog", receiver).await
    }

    async fn collector(name: &'static str, receiver: impl Fn(&str) -> Value) -> Self {
        let scratch = Scratch::new(name);
        let port = free_port();
        let receivers = receiver(&format!("127.0.0.1:{port}"));
        let names: Vec<_> =
            receivers.as_object().into_iter().flatten().map(|(name, _)| name).collect();
        let config = json!({
            "extensions": {"ack": {}},
            "receivers": receivers,
            "exporters": {
                "file": {"path": scratch.file(OUTPUT), "append": true, "flush_interval": "100ms"},
            },
            "service": {
                "extensions": ["ack"],
                "pipelines": {"logs": {"receivers": names, "exporters": ["file"]}},
                "telemetry": {"metrics": {"level": "none"}},
            },
        });
        let file = scratch.file("config.yaml");
        fs::write(&file, config.to_string()).expect("the configuration of the Collector");
        let program = installed("siem-collector", "bin/otelcol");
        let arguments = vec!["--config".to_owned(), file];
        let process = Process::new(name, program, arguments, scratch.path());
        Self::start(process, port, None, scratch).await
    }

    /// An rsyslog that takes messages over TLS.
    pub(crate) async fn rsyslog() -> Self {
        let scratch = Scratch::new("rsyslog");
        let port = free_port();
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]);
        let made = made.expect("a certificate");
        fs::write(scratch.file(CERTIFICATE), made.cert.pem()).expect("its certificate");
        fs::write(scratch.file("key.pem"), made.signing_key.serialize_pem()).expect("its key");
        let root = installed("rsyslog", "usr");
        let libraries = fs::read_dir(root.join("lib")).expect("the libraries of rsyslog");
        let libraries = libraries.map(|entry| entry.expect("an entry").path());
        let libraries = libraries.filter(|path| path.join("rsyslog").is_dir());
        let libraries = libraries.last().expect("the modules of rsyslog").display().to_string();
        let config = format!(
            r#"global(
  workDirectory="{folder}"
  defaultNetstreamDriverCAFile="{folder}/{CERTIFICATE}"
  defaultNetstreamDriverCertFile="{folder}/{CERTIFICATE}"
  defaultNetstreamDriverKeyFile="{folder}/key.pem"
)
module(load="imtcp" streamDriver.name="ossl" streamDriver.mode="1" streamDriver.authMode="anon")
template(name="line" type="list" option.jsonf="on") {{
  property(outname="sd" name="structured-data" format="jsonf")
}}
ruleset(name="received") {{
  action(type="omfile" file="{folder}/{OUTPUT}" template="line" asyncWriting="off" flushOnTXEnd="on")
}}
input(type="imtcp" port="{port}" address="127.0.0.1" ruleset="received")
action(type="omfile" file="{folder}/own.log")
"#,
            folder = scratch.path().display(),
        );
        let file = scratch.file("rsyslog.conf");
        fs::write(&file, config).expect("the configuration of rsyslog");
        let modules = format!("{libraries}/rsyslog");
        let mut arguments: Vec<_> =
            ["-n", "-f", &file, "-M", &modules, "-i"].map(String::from).into();
        arguments.push(scratch.file("pid"));
        let program = root.join("sbin/rsyslogd");
        let mut process = Process::new("rsyslog", program, arguments, scratch.path());
        process.set_variable("LD_LIBRARY_PATH", &libraries);
        Self::start(process, port, None, scratch).await
    }

    async fn start(
        process: Process,
        port: u16,
        health: Option<&'static str>,
        scratch: Scratch,
    ) -> Self {
        let address = format!("127.0.0.1:{port}");
        let mut siem = Self { process, http: http_client(), address, health, scratch };
        siem.launch().await;
        siem
    }

    /// Host and port.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Its address as a server of HTTP.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The certificate of rsyslog.
    pub(crate) fn certificate(&self) -> String {
        self.scratch.file(CERTIFICATE)
    }

    /// The ids of all documents of OpenSearch in these indices.
    pub(crate) async fn documents(&self, indices: &str) -> Vec<String> {
        self.ask(&format!("/{indices}/_refresh"), None).await;
        let mut page =
            self.ask(&format!("/{indices}/_search?scroll=1m&size=5000&_source=false"), None).await;
        let mut ids = Vec::new();
        while let Some(hits) = page["hits"]["hits"].as_array().filter(|hits| !hits.is_empty()) {
            ids.extend(hits.iter().map(|hit| text(&hit["_id"])));
            let next = json!({"scroll": "1m", "scroll_id": page["_scroll_id"]});
            page = self.ask("/_search/scroll", Some(&next)).await;
        }
        ids
    }

    /// The ids of all entries that Loki shows of events since then.
    pub(crate) async fn entries(&self, since: Timestamp) -> Vec<String> {
        let end = Timestamp::now().as_second();
        let mut ids = Vec::new();
        // It takes minutes for all of them at once: each has labels of its own.
        for start in (since.as_second()..=end).step_by(10) {
            let range = format!("start={start}&end={}&limit=1000000", start + 10);
            let query = "/loki/api/v1/query_range?query=%7Bcluster%3D%22e2e%22%7D";
            let answer = self.ask(&format!("{query}&{range}"), None).await;
            for stream in answer["data"]["result"].as_array().expect("streams") {
                let entries = stream["values"].as_array().map_or(0, Vec::len);
                ids.extend(std::iter::repeat_n(text(&stream["stream"]["event_id"]), entries));
            }
        }
        ids
    }

    /// The ids of all records that the Collector or rsyslog has written.
    pub(crate) fn records(&self) -> Vec<String> {
        let lines = fs::read_to_string(self.scratch.path().join(OUTPUT)).unwrap_or_default();
        // A line without its end is still being written.
        let lines = lines.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let lines = lines.map(|line| serde_json::from_str(line).expect("a line of JSON"));
        lines.flat_map(|line: Value| ids_of(&line)).collect()
    }

    async fn ask(&self, path: &str, body: Option<&Value>) -> Value {
        let url = format!("{}{path}", self.url());
        let request = match body {
            None => self.http.get(url),
            Some(body) => {
                let request = self.http.post(url).header("content-type", "application/json");
                request.body(body.to_string())
            }
        };
        let answer = request.timeout(QUERY_WITHIN).send().await.expect("an answer");
        let status = answer.status();
        let text = answer.text().await.expect("the body of an answer");
        assert!(status.is_success(), "{path}: {status}: {text}");
        serde_json::from_str(&text).expect("JSON")
    }
}

/// The file of rsyslog's certificate.
const CERTIFICATE: &str = "certificate.pem";

/// The ids in a line: of the structured data of a message, or of the attributes of log records.
fn ids_of(line: &Value) -> Vec<String> {
    if let Some(data) = line["sd"].as_str() {
        let id =
            data.strip_prefix("[tidings@32473 id=\"").and_then(|rest| rest.strip_suffix("\"]"));
        return vec![id.unwrap_or_else(|| panic!("no id in {data}")).to_owned()];
    }
    let scopes =
        otlp_items(line, "resourceLogs").iter().flat_map(|logs| otlp_items(logs, "scopeLogs"));
    scopes.flat_map(|scope| otlp_items(scope, "logRecords")).map(id_of_record).collect()
}

fn id_of_record(record: &Value) -> String {
    let member = |of: &Value, list: &str, name: &str| {
        let members = otlp_items(of, list).iter();
        members.clone().find(|member| member["key"] == name).map(|member| member["value"].clone())
    };
    let id = member(record, "attributes", "event_id").or_else(|| {
        let data = member(record, "attributes", "structured_data")?;
        let ours = member(&data["kvlistValue"], "values", "tidings@32473")?;
        member(&ours["kvlistValue"], "values", "id")
    });
    id.and_then(|id| Some(id["stringValue"].as_str()?.to_owned()))
        .unwrap_or_else(|| panic!("no id in {record}"))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

impl Part for Siem {
    fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    async fn is_ready(&self) -> bool {
        match self.health {
            None => TcpStream::connect(&self.address).await.is_ok(),
            Some(path) => {
                let answer = self.http.get(format!("{}{path}", self.url())).send().await;
                answer.is_ok_and(|answer| answer.status().is_success())
            }
        }
    }
}
