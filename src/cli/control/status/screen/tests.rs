use serde_json::{Value, json};
use tidings_log::{LogOptions, Sync};

use super::*;
use crate::bridge::SinkCondition;

fn document() -> Value {
    serde_json::from_str(include_str!("../../../../admin/status/example.json")).unwrap()
}

fn read(document: Value) -> Status {
    serde_json::from_value(document).unwrap()
}

/// The screen of a status, and of one 2 s before it.
fn shown(now: &Status, before: &Status) -> String {
    let log = LogOptions {
        retention_size: 1 << 30,
        retention_age: Duration::from_hours(24),
        sync: Sync::Always,
    };
    let path = "/journal".into();
    let journal = JournalOptions { path, log, dead_letters: 1, max_event: 1 };
    screen(now, before, Duration::from_secs(2), &journal)
}

#[test]
fn a_screen_that_is_too_long_is_cut_at_its_end() {
    assert_eq!(fitting("a\nb\nc\n", 5), "a\nb\nc\n");
    assert_eq!(fitting("a\nb\nc\n", 3), "a\n… and 2 lines more\n");
}

#[test]
fn a_bridge_that_is_well_is_shown_with_its_rates() {
    let (mut before, now) = (read(document()), read(document()));
    before.sinks[1].delivered -= 3;
    insta::assert_snapshot!(shown(&now, &before));
}

#[test]
fn problems_come_first_and_words_from_outside_stay_in_their_place() {
    let mut document = document();
    let error = "HTTP 503: \u{1b}[2J\u{202e}down for\r\nmaintenance, which takes longer than anybody thought";
    document["problems"] = json!([
        {"part": "journal", "what": "the journal cannot be written: No space left on device", "hint": "free space"},
        {"part": "sink pager", "what": format!("attempts fail: {error}"), "hint": "check \u{9b}31m the receiver"},
    ]);
    document["journal"]["error"] = "No space left on device".into();
    document["ingest"]["recentGaps"] = json!([{
        "source": "*", "from": "2026-11-21T14:57:27Z", "to": "2026-11-21T14:59:27Z", "replayed": 12,
        "skippedIncrements": 3, "epoch": false,
    }]);
    document["sources"][0] = json!({
        "source": "shop", "streamOpen": false, "streamClosedSeconds": 3725.0, "watchAgeSeconds": 3725.0,
        "lists": 1, "watches": 1, "lastError": error,
    });
    let mut now = read(document);
    let pager = &mut now.sinks[1];
    (pager.state, pager.pending, pager.lag_seconds) = (SinkCondition::Retrying, 1_234, 192.0);
    pager.last_error = Some(error.to_owned());
    let text = shown(&now, &now);
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    insta::assert_snapshot!(text);
}

/// [`document`] has members that this version does not know.
#[test]
fn a_document_without_a_member_is_of_another_version() {
    let mut document = document();
    document.as_object_mut().unwrap().remove("problems");
    let error = serde_json::from_value::<Status>(document).unwrap_err().to_string();
    assert!(error.contains("missing field `problems`"), "{error}");
}

#[test]
fn sizes_are_written_for_people() {
    let sizes = [0, 1_023, 1_024, 1_258_291, 1 << 30, u64::MAX].map(bytes);
    assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "1.2 MiB", "1.0 GiB", "16777216.0 TiB"]);
}
