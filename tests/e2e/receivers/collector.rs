//! A reader of the file that the Collector exports to.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::task::JoinHandle;

use crate::parts::{Collector, Part as _, otlp_items};
use tidings_testkit::ledger::{Delivery, SharedLedger};

const POLL: Duration = Duration::from_millis(100);

/// Follows what the Collector writes.
pub(crate) struct CollectorReceiver {
    pub(crate) ledger: SharedLedger,
    output: PathBuf,
    tail: JoinHandle<u64>,
    stop: tokio::sync::oneshot::Sender<()>,
}

impl CollectorReceiver {
    pub(crate) fn start(collector: &Collector) -> Self {
        let (ledger, output) = (SharedLedger::default(), collector.output());
        let (stop, mut stopped) = tokio::sync::oneshot::channel();
        let tail = tokio::spawn({
            let (ledger, output) = (ledger.clone(), output.clone());
            async move {
                let mut offset = 0;
                while stopped.try_recv() == Err(tokio::sync::oneshot::error::TryRecvError::Empty) {
                    offset = read_from(&output, offset, &ledger);
                    tokio::time::sleep(POLL).await;
                }
                offset
            }
        });
        Self { ledger, output, tail, stop }
    }

    /// Stops the Collector, which makes it write all that it has, and reads that.
    pub(crate) async fn finish(self, collector: &mut Collector) -> SharedLedger {
        collector.stop().await;
        // Gone only if it panicked, and then the next line says so.
        let _ = self.stop.send(());
        let offset = self.tail.await.expect("a reader that does not panic");
        read_from(&self.output, offset, &self.ledger);
        self.ledger
    }
}

/// Reads the whole lines of a file from an offset on; answers where the next one begins.
fn read_from(file: &Path, offset: u64, ledger: &SharedLedger) -> u64 {
    let mut file = File::open(file).expect("the file of what was received");
    file.seek(SeekFrom::Start(offset)).expect("an offset in it");
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).expect("what was received");
    // The last line may be half written; then it is read the next time.
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    for line in bytes[..whole].split_inclusive(|byte| *byte == b'\n') {
        let request: Value = serde_json::from_slice(line).expect("a line of JSON");
        for logs in otlp_items(&request, "resourceLogs") {
            for scope in otlp_items(logs, "scopeLogs") {
                for record in otlp_items(scope, "logRecords") {
                    match delivery(&logs["resource"], record) {
                        Some(delivery) => ledger.record(delivery),
                        None => ledger.complain(format!("not a record of an event: {record}")),
                    }
                }
            }
        }
    }
    offset + whole as u64
}

fn delivery(resource: &Value, record: &Value) -> Option<Delivery> {
    let number = |name| attribute(record, name)?["intValue"].as_str()?.parse().ok();
    Some(Delivery {
        id: text(record, "log.record.uid")?,
        object: object_key(resource)?,
        occurrences: number("k8s.event.count")?,
        delta: number("k8s.event.count_delta")?,
        body: format!("{resource} {record}"),
        at: Instant::now(),
    })
}

/// The involved object's uid, else `kind/namespace/name`.
fn object_key(resource: &Value) -> Option<String> {
    let member = |name: &str| text(resource, name);
    member("k8s.object.uid").or_else(|| {
        Some(format!(
            "{}/{}/{}",
            member("k8s.object.kind")?,
            member("k8s.namespace.name")?,
            member("k8s.object.name")?
        ))
    })
}

fn text(of: &Value, name: &str) -> Option<String> {
    attribute(of, name)?["stringValue"].as_str().map(str::to_owned)
}

/// The value of an attribute of a resource or a record.
fn attribute<'a>(of: &'a Value, name: &str) -> Option<&'a Value> {
    let attribute =
        otlp_items(of, "attributes").iter().find(|attribute| attribute["key"] == name)?;
    Some(&attribute["value"])
}
