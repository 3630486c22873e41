use std::collections::BTreeSet;

use prometheus_client::encoding::text::encode;

use super::*;
use crate::{
    admin::{status::DamageStatus, text_format::of_openmetrics},
    bridge::EventCounter,
    journal::LetterCounts,
};

/// Every metric that there can be.
#[derive(Debug)]
struct Everything;

impl Collector for Everything {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let example = include_str!("../status/example.json");
        let mut status: Status = serde_json::from_str(example).unwrap();
        status.sinks[0].overflow = Overflow::Block;
        status.sinks[0].enrichments = Some([("known".into(), 1)].into());
        status.dead_letters.insert("pager".to_owned(), LetterCounts::default());
        status.ingest.object_requests = Some(1);
        status.ingest.last_gaps = vec![GapStatus {
            source: "*".to_owned(),
            from: String::new(),
            to: String::new(),
            replayed: 0,
            skipped_increments: 0,
            epoch: false,
            from_seconds: 1.0,
            to_seconds: 2.0,
        }];
        status.journal.damage = Some(DamageStatus { places: 1, records: 1, newest: Vec::new() });
        let counter =
            EventCounter { name: "all".to_owned(), filter: None, labels: Vec::new(), max: 1 };
        of_status(&mut encoder, &status)?;
        events(&mut encoder, &EventCounters::new(vec![counter]), 0)?;
        tasks(&mut encoder, &Handle::current())
    }
}

fn scraped() -> String {
    let mut text = String::new();
    encode(&mut text, &registry_of(Box::new(Everything))).unwrap();
    of_openmetrics(&text)
}

#[tokio::test]
async fn the_catalogue_of_the_manual_is_that_of_a_scrape() {
    let manual = include_str!("../../../docs/metrics.md");
    let rows = manual.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    let ours = |name: &&str| name.starts_with("tidings_") || name.starts_with("process_");
    let listed: BTreeSet<_> = rows.map(|(name, _)| name).filter(ours).collect();
    let text = scraped();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    assert_eq!(types.collect::<BTreeSet<_>>(), listed);
    assert!(text.contains("tidings_sink_delivery_seconds_bucket{le=\"+Inf\""), "{text}");
}

/// `promtool check metrics`, where it is installed.
#[tokio::test]
async fn promtool_finds_no_fault() {
    use std::{io::Write as _, process::*};
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut promtool) = promtool else { return };
    promtool.stdin.take().unwrap().write_all(scraped().as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
}
