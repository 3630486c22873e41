//! Collectors that are away, push back, drop a part, or take no more than so much: the real one, and
//! one of the drill's own for what the real one cannot be made to.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::accounts::{SETTLES_WITHIN, number};
use crate::frame::{Company, Drill, Page, Row, Run};
use crate::nasty::{Collects, NastyCollector};
use crate::parts::{Collector, Part as _};
use crate::receivers::CollectorReceiver;
use crate::sinks::{Doubts, Over, Stage};
use crate::wait::until_within;

pub(crate) const DRILLS: [Drill; 1] = [Drill {
    name: "collector",
    what: "Collectors that are away, push back, drop a part, take no more than so much, over gRPC \
           and HTTP: nothing is lost but what they refuse, and that is counted",
    full: "a real Collector stopped for 60 s, the other faults meanwhile, at 40/s",
    short: Some("a real Collector stopped for 8 s, the other faults meanwhile, at 20/s"),
    company: Company::Any,
    long: false,
    run: |run| Box::pin(collector(run)),
}];

const MIB: usize = 1 << 20;

/// The protocols that OTLP is spoken over.
const PROTOCOLS: [&str; 2] = ["grpc", "http"];

/// A receiver of the drill's own, and what is wrong with it.
struct Case {
    name: String,
    fault: &'static str,
    collects: Collects,
    state: &'static str,
    says: &'static str,
    receiver: NastyCollector,
}

async fn cases(run: Run) -> Vec<Case> {
    let wait = Duration::from_secs(run.size(15, 3));
    let mut cases = Vec::new();
    for protocol in PROTOCOLS {
        let [exhausted, waits] = match protocol {
            "grpc" => ["RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED with RetryInfo"],
            _ => ["429", "429 with Retry-After"],
        };
        let says = match protocol {
            "grpc" => "gRPC ResourceExhausted: the quota is used up",
            _ => "HTTP 429 Too Many Requests: the quota is used up",
        };
        for (name, fault, collects, state, says) in [
            ("quota", exhausted, Collects::Nothing { retry_after: None }, "retrying", says),
            ("asks", waits, Collects::Nothing { retry_after: Some(wait) }, "retrying", says),
            ("partial", "partial success", Collects::AllBut(2), "healthy", ""),
        ] {
            let name = format!("{name}-{protocol}");
            let receiver = NastyCollector::start().await;
            cases.push(Case { name, fault, collects, state, says, receiver });
        }
    }
    cases
}

/// A sink of a Collector, in batches that are worth dropping a part of.
fn sink(endpoint: &str, protocol: &str) -> Value {
    json!({
        "otlp": {"endpoint": endpoint, "protocol": protocol},
        "batch": {"linger": "500ms", "size": "4MiB"},
    })
}

/// All sinks: one of each case, and for each protocol one of a stopped and one of a limited Collector.
fn sinks(cases: &[Case], stopped: &[Collector; 2], limited: &[Collector; 2]) -> Value {
    let mut sinks = json!({});
    for case in cases {
        let protocol = if case.name.ends_with("grpc") { "grpc" } else { "http" };
        let url =
            if protocol == "grpc" { case.receiver.grpc_url() } else { case.receiver.http_url() };
        sinks[&case.name] = sink(&url, protocol);
    }
    let endpoint = |collector: &Collector, protocol: &str| match protocol {
        "grpc" => collector.grpc_url().to_owned(),
        _ => collector.http_url().to_owned(),
    };
    for (at, protocol) in PROTOCOLS.into_iter().enumerate() {
        sinks[format!("stopped-{protocol}")] = sink(&endpoint(&stopped[at], protocol), protocol);
        sinks[format!("limited-{protocol}")] = sink(&endpoint(&limited[at], protocol), protocol);
    }
    sinks
}

impl Case {
    /// The row of its sink, which `said` this during the fault.
    async fn row(&self, stage: &Stage, said: &str, requests: usize, over: Over) -> Row {
        let (name, ledger) = (&*self.name, &self.receiver.ledger);
        // Where it took nothing of a request, the same comes again, and is taken in the end.
        let rejected = {
            let ledger = ledger.lock();
            self.receiver.rejected().iter().filter(|id| !ledger.ids.contains(*id)).count()
        };
        assert_eq!(rejected > 0, matches!(self.collects, Collects::AllBut(_)), "{name}");
        let doubts = Doubts { refused: rejected as u64, unanswered: 0 };
        let verdict = stage.judge(name, ledger, doubts).await;
        let notes = match rejected {
            0 => format!("{}: “{said}”; {requests} requests during the fault", self.state),
            _ => format!("{}; {rejected} dropped by the receiver, dead-lettered", self.state),
        };
        let caught_up = stage.caught_up(ledger, over);
        Row { caught_up, notes, lost: Some(0), ..verdict.row(self.fault, name) }
    }
}

/// The row of a sink whose Collector took no large message.
async fn limited_row(stage: &Stage, receiver: &CollectorReceiver, protocol: &str) -> Row {
    let name = format!("limited-{protocol}");
    let doubts = Doubts { refused: 2, unanswered: 0 };
    let verdict = stage.judge(&name, &receiver.ledger, doubts).await;
    let said = stage.bridge.log().into_iter().rfind(|line| {
        line["sink"] == *name && line["message"].as_str().is_some_and(|m| m.contains("refuses"))
    });
    let said = said.expect("a dead letter is said aloud")["reason"].clone();
    let notes = format!("2 refused, dead-lettered: {said}");
    Row { notes, lost: Some(0), ..verdict.row("message over its size limit", &name) }
}

async fn collector(run: Run) -> Page {
    // One that is stopped, and one for each protocol that takes a mebibyte at most.
    let limit = |config: &mut Value| {
        let protocols = &mut config["receivers"]["otlp"]["protocols"];
        protocols["grpc"]["max_recv_msg_size_mib"] = 1.into();
        protocols["http"]["max_request_body_size"] = MIB.into();
    };
    let mut stopped = [Collector::start().await, Collector::start().await];
    let limited = [Collector::configured(limit).await, Collector::configured(limit).await];
    let cases = cases(run).await;
    let sinks = sinks(&cases, &stopped, &limited);
    let behind_stopped = [0, 1].map(|at: usize| CollectorReceiver::start(&stopped[at]));
    let behind_limited = [0, 1].map(|at: usize| CollectorReceiver::start(&limited[at]));
    let mut stage = Stage::set(sinks, run).await;
    // Or no Event would be too large for the limited ones.
    stage.bridge.reconfigure(|config| config["journal"]["maxEvent"] = "2MiB".into());
    let mut ledgers: Vec<_> = cases.iter().map(|case| &case.receiver.ledger).collect();
    ledgers.extend(behind_stopped.iter().chain(&behind_limited).map(|receiver| &receiver.ledger));
    let writing = stage.open(run.size(40, 20), &ledgers).await;

    let began = Instant::now();
    for case in &cases {
        case.receiver.set(case.collects);
    }
    for collector in &mut stopped {
        collector.stop().await;
    }
    // Two that no limited one takes, and some that it takes, but not together.
    stage.write_large(&[MIB * 5 / 4; 2]);
    stage.write_large(&[MIB * 2 / 5; 8]);
    let mut said = Vec::new();
    for case in &cases {
        said.push(stage.shows(&case.name, case.state, case.says).await);
    }
    let mut said_of_stopped = Vec::new();
    for protocol in PROTOCOLS {
        let name = format!("stopped-{protocol}");
        said_of_stopped.push(stage.shows(&name, "retrying", "connection refused by").await);
    }
    stage.the_well_goes_on(run.size(Duration::from_secs(60), Duration::from_secs(8))).await;
    let requests: Vec<usize> = cases.iter().map(|case| case.receiver.requests()).collect();
    for case in &cases {
        case.receiver.set(Collects::All);
    }
    for collector in &mut stopped {
        collector.launch().await;
    }
    let over = stage.over();
    sleep(run.size(Duration::from_secs(10), Duration::from_secs(1))).await;
    // A limited one may cut the connection before it has answered. Such an Event is set aside, and is judged
    // as long as others are taken.
    until_within(SETTLES_WITHIN, "what is too large is given up", async || {
        let (grpc, http) = (stage.bridge.sink("limited-grpc"), stage.bridge.sink("limited-http"));
        number(&grpc.await, "deadLettered") == 2 && number(&http.await, "deadLettered") == 2
    })
    .await;
    writing.stop().await;
    stage.settle().await;

    let mut rows = vec![stage.well_row(began, over).await];
    for ((case, said), requests) in cases.iter().zip(said).zip(requests) {
        rows.push(case.row(&stage, &said, requests, over).await);
    }
    for ((receiver, said), protocol) in behind_stopped.iter().zip(said_of_stopped).zip(PROTOCOLS) {
        let name = format!("stopped-{protocol}");
        // A Collector that ends may take what it does not answer any more.
        let doubts = Doubts { refused: 0, unanswered: usize::MAX };
        let verdict = stage.judge(&name, &receiver.ledger, doubts).await;
        let caught_up = stage.caught_up(&receiver.ledger, over);
        let notes = format!("retrying: “{said}”");
        rows.push(Row { caught_up, notes, ..verdict.row("stopped and started", &name) });
    }
    for (receiver, protocol) in behind_limited.iter().zip(PROTOCOLS) {
        rows.push(limited_row(&stage, receiver, protocol).await);
    }
    stage.bridge.stop_in_order().await;
    Page::Rows(rows)
}
