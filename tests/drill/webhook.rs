//! Webhooks that misbehave in every way.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::sleep;

use crate::frame::{Company, Drill, Page, Row, Run};
use crate::nasty::{Authority, Manner, NastyWebhook};
use crate::sinks::{Doubts, Stage};

pub(crate) const DRILLS: [Drill; 1] = [Drill {
    name: "webhook",
    what: "webhooks that fail, cut, hang, drip, push back, move, expire: nothing is lost",
    full: "eleven faults at once for 60 s, at 25/s",
    short: Some("eleven faults at once for 8 s, at 20/s"),
    company: Company::Any,
    long: false,
    run: |run| Box::pin(webhook(run)),
}];

/// A webhook, what is wrong with it, and what the bridge has to make of that.
struct Case {
    name: &'static str,
    fault: &'static str,
    manner: Manner,
    state: &'static str,
    says: &'static str,
    receiver: NastyWebhook,
}

/// The fault of a webhook by its certificate, which is no manner of answering.
const EXPIRED: &str = "expired";

/// The faults: name, fault, manner, state of the sink, what the bridge has to say.
fn faults(
    run: Run,
    elsewhere: &str,
) -> Vec<(&'static str, &'static str, Manner, &'static str, &'static str)> {
    let seconds = run.size(15, 3);
    let answer = |status, headers: &str, words| Manner::Answer(status, headers.to_owned(), words);
    let location = format!("location: {elsewhere}\r\n");
    vec![
        (
            "unavailable",
            "503",
            answer("503 Service Unavailable", "", "upstream is down"),
            "retrying",
            "HTTP 503 Service Unavailable: upstream is down",
        ),
        ("reset", "connection resets", Manner::Reset, "retrying", "connection cut by"),
        ("hang", "accepts and hangs", Manner::Hang, "retrying", "no answer from"),
        ("drip", "answers a byte a second", Manner::Drip, "retrying", "no answer from"),
        ("drip-body", "200, then a byte a second", Manner::DripBody, "healthy", ""),
        ("huge", "200 with a body of 1 GiB", Manner::Huge, "healthy", ""),
        (
            "later",
            "429, Retry-After in seconds",
            Manner::Later { seconds, as_date: false },
            "retrying",
            "HTTP 429 Too Many Requests: slower",
        ),
        (
            "later-date",
            "429, Retry-After as a date",
            Manner::Later { seconds, as_date: true },
            "retrying",
            "HTTP 429 Too Many Requests: slower",
        ),
        (
            "moved",
            "301",
            answer("301 Moved Permanently", &location, ""),
            "misconfigured",
            "HTTP 301 Moved Permanently: points to http://127.0.0.1:",
        ),
        (
            "unknown",
            "401, then mended",
            answer("401 Unauthorized", "", "token revoked"),
            "misconfigured",
            "HTTP 401 Unauthorized: token revoked",
        ),
        (
            EXPIRED,
            "certificate expired, then renewed",
            Manner::Take,
            "misconfigured",
            "has expired",
        ),
    ]
}

async fn webhook(run: Run) -> Page {
    let authority = Authority::new();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ca = authority.write(folder.path());
    let elsewhere = NastyWebhook::start(None).await;
    let mut cases = Vec::new();
    let mut sinks = json!({});
    for (name, fault, manner, state, says) in faults(run, &elsewhere.url()) {
        let tls = (name == EXPIRED).then(|| authority.valid());
        let receiver = NastyWebhook::start(tls).await;
        sinks[name] = json!({"webhook": {"url": receiver.url()}});
        if matches!(manner, Manner::Hang | Manner::Drip) {
            // A short run does not wait for as long as usual. The others have that time: an answer
            // that a busy machine is late with would be one that never came.
            sinks[name]["timeout"] = json!(run.size("10s", "2s"));
        }
        if name == EXPIRED {
            sinks[name]["webhook"]["tls"] = json!({"ca": {"file": ca}});
        }
        cases.push(Case { name, fault, manner, state, says, receiver });
    }
    let mut stage = Stage::set(sinks, run).await;
    let ledgers: Vec<_> = cases.iter().map(|case| &case.receiver.ledger).collect();
    let writing = stage.open(run.size(25, 20), &ledgers).await;

    let began = Instant::now();
    for case in &cases {
        case.receiver.set(case.manner.clone());
        if case.name == EXPIRED {
            case.receiver.show(authority.expired());
        }
    }
    let mut said = Vec::new();
    for case in &cases {
        said.push(stage.shows(case.name, case.state, case.says).await);
    }
    stage.the_well_goes_on(run.size(Duration::from_secs(60), Duration::from_secs(8))).await;
    let mut notes = Vec::new();
    for (case, said) in cases.iter().zip(said) {
        // Still, and not just when it began.
        stage.shows(case.name, case.state, case.says).await;
        let said = if said.is_empty() { String::new() } else { format!(": “{said}”") };
        let asked = case.receiver.asked();
        notes.push(format!("{}{said}; {} requests during the fault", case.state, asked.requests));
    }

    let over = stage.over();
    for case in &cases {
        case.receiver.set(Manner::Take);
        if case.name == EXPIRED {
            case.receiver.show(authority.valid());
        }
    }
    sleep(run.size(Duration::from_secs(10), Duration::from_secs(1))).await;
    writing.stop().await;
    stage.settle().await;
    assert_eq!(elsewhere.asked().connections, 0, "a redirect is not followed");
    let mut rows = vec![stage.well_row(began, over).await];
    for (case, notes) in cases.iter().zip(notes) {
        let doubts = Doubts { refused: 0, unanswered: case.receiver.unanswered() };
        let verdict = stage.judge(case.name, &case.receiver.ledger, doubts).await;
        let caught_up = stage.caught_up(&case.receiver.ledger, over);
        rows.push(Row { caught_up, notes, ..verdict.row(case.fault, case.name) });
    }
    stage.bridge.stop_in_order().await;
    Page::Rows(rows)
}
