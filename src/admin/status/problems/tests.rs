use super::*;
use crate::{
    admin::status::{DamageEntry, DamageStatus, HeadStatus},
    journal::LetterCounts,
};

/// The status of a bridge that is well.
fn well() -> Status {
    serde_json::from_str(include_str!("../example.json")).unwrap()
}

/// The problems of a bridge to which something was done.
fn after(change: impl FnOnce(&mut Status)) -> Vec<Problem> {
    let mut status = well();
    change(&mut status);
    of(&status, None)
}

/// Everything that can be wrong at once.
fn bad(status: &mut Status) {
    let damage = DamageEntry {
        kind: "file".into(),
        file: "state.redb".to_owned(),
        offset: 0,
        from: None,
        to: "2026-11-21T14:57:27Z".to_owned(),
        records: 0,
        message: "state.redb: it was set aside".to_owned(),
    };
    status.journal.damage = Some(DamageStatus { places: 1, records: 3, newest: vec![damage] });
    status.dead_letters.insert("gone".to_owned(), LetterCounts::default());
    let counts = LetterCounts { letters: 2, ..LetterCounts::default() };
    status.dead_letters.insert("old".to_owned(), counts);
    let mut sinks = Vec::new();
    for (name, state, overrun) in [
        ("a", SinkCondition::Retrying, 7),
        ("b", SinkCondition::Stopped, 0),
        ("c", SinkCondition::Misconfigured, 0),
    ] {
        let sink = well().sinks.remove(0);
        let last_error = Some(format!("{name} is down"));
        let (name, pending, lag_seconds) = (name.to_owned(), 9, 192.6);
        sinks.push(SinkStatus { name, state, pending, overrun, lag_seconds, last_error, ..sink });
    }
    sinks[0].parked = 3;
    sinks[0].head = Some(HeadStatus {
        id: "c0ffee-42".to_owned(),
        object: "Pod shop/web-7d9f".to_owned(),
        namespace: "shop".to_owned(),
        since: "2026-11-21T14:57:27.000Z".to_owned(),
        last_error: "HTTP 403".to_owned(),
    });
    sinks[1].parking_full = true;
    status.dead_letters.insert("a".to_owned(), LetterCounts { letters: 3, ..counts });
    status.sinks = sinks;
    status.sources[0].stream_closed_seconds = None;
    status.sources[0].last_error = Some("connection refused".to_owned());
    status.journal.blocked_by = vec![BlockedBy { sink: "b".to_owned(), bytes: 4711 }];
    status.journal.error =
        Some("No space left on device\nhint: lower journal.retention.size".to_owned());
    status.journal.state_error = Some("Input/output error".to_owned());
    status.parts[1].doing = Some("saving the state".into());
    status.parts[1].stuck_seconds = Some(12.3);
}

#[test]
fn a_bridge_that_is_well_has_no_problems() {
    assert_eq!(after(|_| ()), []);
}

#[test]
fn problems_stand_by_urgency_whatever_the_order_of_the_parts() {
    let problems = after(bad);
    let told =
        problems.iter().map(|Problem { part, what, hint }| format!("{part}\n  {what}\n  {hint}"));
    insta::assert_snapshot!(told.collect::<Vec<_>>().join("\n"));
}

#[test]
fn facts_that_nobody_can_mend_are_no_problems() {
    let problems = after(|status| {
        status.sinks[0].lost = 12;
        status.sinks[0].dead_lettered = 3;
        (status.ingest.gaps, status.ingest.gap_seconds, status.ingest.epochs) = (2, 90.0, 1);
    });
    assert_eq!(problems, []);
}

#[test]
fn a_watch_is_a_problem_when_it_has_been_closed_for_more_than_a_minute() {
    for (closed, expected) in [(Some(0.0), 0), (Some(60.0), 0), (Some(60.5), 1), (None, 1)] {
        let problems = after(|status| status.sources[0].stream_closed_seconds = closed);
        assert_eq!(problems.len(), expected, "{closed:?}: {problems:?}");
    }
}

#[test]
fn an_open_watch_is_a_problem_when_the_api_server_has_been_silent_for_three_probes() {
    for (age, open, expected) in [(50.0, true, 0), (51.0, true, 1), (51.0, false, 0)] {
        let problems = after(|status| {
            status.sources[0].watch_age_seconds = Some(age);
            status.sources[0].stream_open = open;
        });
        assert_eq!(problems.len(), expected, "{age} {open}: {problems:?}");
    }
}

#[test]
fn a_bridge_without_sources_has_not_identified_its_cluster() {
    let mut status = well();
    status.sources.clear();
    for (why, expected) in [(None, "not connected yet"), (Some("403 Forbidden"), "403 Forbidden")] {
        let problems = of(&status, why);
        let what = format!("the cluster has not been identified: {expected}");
        assert_eq!((&*problems[0].part, &*problems[0].what), ("cluster", &*what));
    }
}

#[test]
fn times_are_written_for_people() {
    let times = [0.0, 0.9, 59.9, 192.0, 3_600.0, 200_000.0].map(humane);
    assert_eq!(times, ["0s", "0s", "59s", "3m12s", "1h", "55h33m20s"]);
}
