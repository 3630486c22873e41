//! The sinks of a SIEM, against the real systems behind them: `make e2e-sinks`.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::bridge::Bridge;
use crate::parts::{ApiServerOptions, Part as _, Scratch, Siem};
use crate::stage::{Cluster, accounts_for_everything, sinks_of};
use crate::truth::{Truth, Version};
use crate::wait::until_within;
use crate::writers::Load;

/// For ten thousand writes, and for what an outage held up.
const PATIENCE: Duration = Duration::from_mins(5);
/// How long OpenSearch, Loki and the HEC are away.
const OUTAGE: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: make e2e-sinks"]
async fn siem_sinks_miss_nothing_when_the_bridge_is_killed_and_receivers_are_away() {
    let (cluster, mut opensearch, mut loki, mut hec, syslog, rsyslog) = tokio::join!(
        Cluster::start(ApiServerOptions::default()),
        Siem::opensearch(),
        Siem::loki(),
        Siem::hec(),
        Siem::syslog(),
        Siem::rsyslog(),
    );
    let since = Timestamp::now();
    let truth = Truth::start(cluster.admin().await).await;
    let archive = Scratch::new("archive");
    let mut sinks = json!({
        "opensearch": {"elasticsearch": {
            "urls": [opensearch.url()], "index": "k8s-events-{{ day }}",
        }},
        "loki": {"loki": {"url": loki.url()}},
        "splunk": {"splunk": {
            "url": hec.url(), "token": "any", "index": "k8s", "acknowledge": true, "acknowledgeWithin": "10s",
        }},
        "syslog": {"syslog": {"address": syslog.address()}},
        "relay": {"syslog": {
            "address": rsyslog.address(), "transport": "tls", "tls": {"ca": rsyslog.certificate()},
        }},
        "archive": {"file": {
            "path": archive.file("events.ndjson"), "rotate": {"size": "1MiB", "keep": 1000},
        }},
    });
    for sink in sinks.as_object_mut().into_iter().flatten().map(|(_, sink)| sink) {
        // After an outage a test does not wait for half a minute.
        sink["retry"] = json!({"max": "2s"});
    }
    let mut bridge = Bridge::new(&cluster.server.kubeconfig("admin"), &sinks);
    bridge.launch().await;

    // A quarter of the writes are patches.
    let load = Load { events: 7_500, repeated: 833, rate: 150, ..Load::default() };
    let writing = load.start(&cluster.admin().await).await;
    let written = async |part: usize| {
        let at = load.writes() * part / 5;
        until_within(PATIENCE, "a part is written", async || writing.written() >= at).await;
    };
    written(1).await;
    bridge.kill9();
    bridge.launch().await;
    written(2).await;
    for part in [&mut opensearch, &mut loki, &mut hec] {
        part.stop().await;
    }
    sleep(OUTAGE).await;
    for name in ["opensearch", "loki", "splunk"] {
        assert_eq!(bridge.sink(name).await["state"], "retrying", "{name}");
    }
    tokio::join!(opensearch.launch(), loki.launch(), hec.launch());
    written(4).await;
    bridge.kill9();
    bridge.launch().await;
    writing.finish(&truth).await;

    let versions = truth.versions();
    let ids = versions.iter().filter(|version| !version.deleted).map(Version::id);
    let wanted: HashSet<String> = ids.collect();
    until_within(PATIENCE, "every event has a fate", async || {
        let status = bridge.status().await;
        let taken = |sink: &Value| {
            sink["pending"] == 0 && sink["delivered"].as_u64() >= Some(wanted.len() as u64)
        };
        sinks_of(&status).iter().all(taken)
    })
    .await;
    let status = bridge.status().await;
    for sink in sinks_of(&status) {
        accounts_for_everything(sink);
        assert_eq!((&sink["lost"], &sink["deadLettered"]), (&0.into(), &0.into()), "{sink}");
    }
    bridge.stop_in_order().await;
    until_within(PATIENCE, "the receivers have written what they have read", async || {
        [&hec, &syslog, &rsyslog].iter().all(|part| {
            let ids: HashSet<_> = part.records().into_iter().collect();
            wanted.is_subset(&ids)
        })
    })
    .await;

    let once = |sink, ids: &[String]| {
        assert_eq!(judge(sink, &wanted, ids), 0, "{sink} has some ids more than once");
    };
    once("opensearch", &opensearch.documents("k8s-events-*").await);
    once("loki", &loki.entries(since).await);
    judge("splunk", &wanted, &hec.records());
    judge("syslog", &wanted, &syslog.records());
    judge("relay", &wanted, &rsyslog.records());
    judge("archive", &wanted, &lines(archive.path()));
}

/// Fails if something is missing; says, and answers, how many ids are there again.
fn judge(sink: &str, wanted: &HashSet<String>, ids: &[String]) -> usize {
    let distinct: HashSet<&String> = ids.iter().collect();
    let lost = wanted.iter().filter(|id| !distinct.contains(id)).count();
    let repeated = ids.len() - distinct.len();
    eprintln!(
        "  {sink}: wanted {}, received {}, lost {lost}, repeated {repeated}",
        wanted.len(),
        distinct.len()
    );
    assert_eq!(lost, 0, "{sink}");
    repeated
}

/// The ids of the lines of all files.
fn lines(directory: &Path) -> Vec<String> {
    let files =
        directory.read_dir().expect("the archive").map(|entry| entry.expect("a file").path());
    let texts: Vec<_> =
        files.map(|file| fs::read_to_string(file).expect("a file of lines")).collect();
    let lines = texts.iter().flat_map(|text| text.lines());
    let envelopes = lines.map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
    envelopes.map(|envelope| envelope["id"].as_str().expect("an id").to_owned()).collect()
}
