//! The alerts and the dashboard: their metrics exist, each alert is explained, and promtool's tests of them pass.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use regex::Regex;
use serde_json::Value;

use super::manifests::in_deploy;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The names of our metrics in a text, without what a histogram appends.
fn metrics(text: &str) -> BTreeSet<String> {
    let name = Regex::new(r"\b(?:tidings|process)_[a-z_]+").unwrap();
    let names = name.find_iter(text).map(|name| name.as_str().trim_end_matches("_bucket"));
    names.map(str::to_owned).collect()
}

#[test]
fn alerts_and_dashboard_ask_for_metrics_that_exist() {
    let manual = read("docs/metrics.md");
    let rows = manual.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    let listed: BTreeSet<_> = rows.map(|(name, _)| name.to_owned()).collect();
    let dashboard: Value =
        serde_json::from_str(&read("deploy/chart/files/dashboard.json")).unwrap();
    for text in [read("deploy/chart/files/alerts.yaml"), dashboard.to_string()] {
        let asked = metrics(&text);
        assert!(asked.len() > 5, "{asked:?}");
        let unknown: Vec<_> = asked.difference(&listed).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}

#[test]
fn each_alert_has_a_section_in_the_manual() {
    let rules: Value = serde_saphyr::from_str(&read("deploy/chart/files/alerts.yaml")).unwrap();
    let rules = rules["groups"][0]["rules"].as_array().unwrap().iter();
    let alerts: BTreeSet<_> =
        rules.map(|rule| rule["alert"].as_str().unwrap().to_owned()).collect();
    let manual = read("docs/alerts.md");
    let sections = manual.lines().filter_map(|line| line.strip_prefix("## "));
    assert_eq!(alerts, sections.map(str::to_owned).collect());
}

/// Where promtool is installed.
#[test]
fn each_alert_fires_when_it_should_and_not_otherwise() {
    let tests =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/program/deploy/alerts/tests.yaml");
    let mut promtool = Command::new("promtool");
    let Ok(output) = promtool.args(["test", "rules"]).arg(tests).output() else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let alerts = in_deploy("chart/files/alerts.yaml");
    let output = Command::new("promtool").args(["check", "rules"]).arg(alerts).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
