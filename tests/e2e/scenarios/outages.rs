//! Parts that are away for a while. The bridge runs on.

use std::time::Duration;

use tokio::time::sleep;

use crate::oracle::Expected;
use crate::parts::Part as _;
use crate::receivers::Mode;
use crate::stage::{ARRIVES_WITHIN, Stage};
use crate::wait::{until, until_within};
use crate::writers::Load;
use tidings_testkit::ledger::SharedLedger;

/// How long a sink is away.
const OUTAGE: Duration = Duration::from_secs(20);
/// How long connections are cut. Each attempt takes its event again, so this need not be long.
const CUTS: Duration = Duration::from_secs(8);

/// Steady writing, for so many seconds.
fn steady(seconds: usize) -> Load {
    const RATE: usize = 80;
    // Of 8 writes 5 create an Event and 3 patch one.
    let events = RATE * seconds * 5 / 8;
    Load { events, repeated: events / 5, rate: RATE, ..Load::default() }
}

/// While one sink is away, the others receive all that the API server has shown until now.
async fn the_others_go_on(stage: &Stage, others: [&SharedLedger; 2]) {
    let shown = Expected::every(&stage.truth.versions());
    until_within(ARRIVES_WITHIN, "the other sinks have what was shown", async || {
        others.iter().all(|ledger| shown.arrived(&ledger.lock()))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_fails_and_cuts_connections_holds_up_nobody_else() {
    let mut stage = Stage::set().await;
    stage.bridge.launch().await;
    let writing = steady(35).start(&stage.cluster.admin().await).await;
    until("events arrive at the webhook", async || stage.pager.ledger.distinct() > 100).await;

    stage.pager.set(Mode::Answer("503 Service Unavailable"));
    until("the webhook is noticed to fail", async || {
        stage.bridge.sink("pager").await["state"] == "retrying"
    })
    .await;
    let before = stage.pager.ledger.distinct();
    sleep(OUTAGE).await;
    assert_eq!(stage.pager.ledger.distinct(), before, "nothing is taken during the outage");
    the_others_go_on(&stage, [&stage.audit.ledger, &stage.otel.ledger]).await;
    let reason = stage.bridge.sink("pager").await["lastError"].to_string();
    assert!(reason.contains("503"), "{reason}");
    stage.pager.set(Mode::Cut);
    sleep(CUTS).await;
    stage.pager.set(Mode::Take);

    writing.finish(&stage.truth).await;
    stage.all_has_arrived().await;
    let turned_away = stage.pager.requests().turned_away;
    eprintln!("  the webhook turned away {turned_away} requests");
    let scores = stage.finish().await;
    assert!(scores.pager.repeated > 0, "what was taken before a cut is sent again");
    assert_eq!((scores.audit.repeated, scores.otel.repeated), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: make e2e ARGS=--all"]
async fn a_kafka_that_is_down_holds_up_nobody_else() {
    let mut stage = Stage::set().await;
    stage.bridge.launch().await;
    let writing = steady(40).start(&stage.cluster.admin().await).await;
    until("events arrive at Kafka", async || stage.audit.ledger.distinct() > 100).await;

    stage.kafka.stop().await;
    sleep(OUTAGE).await;
    assert_eq!(stage.bridge.sink("audit").await["state"], "retrying");
    the_others_go_on(&stage, [&stage.otel.ledger, &stage.pager.ledger]).await;
    stage.kafka.launch().await;
    let at = stage.audit.ledger.distinct();
    until("events arrive again", async || stage.audit.ledger.distinct() > at + 100).await;
    // Once more without a farewell, with messages on their way.
    stage.kafka.kill9();
    stage.kafka.launch().await;

    writing.finish(&stage.truth).await;
    stage.all_has_arrived().await;
    stage.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: make e2e ARGS=--all"]
async fn a_collector_that_is_down_holds_up_nobody_else() {
    let mut stage = Stage::set().await;
    stage.bridge.launch().await;
    let writing = steady(15).start(&stage.cluster.admin().await).await;
    until("events arrive", async || stage.otel.ledger.distinct() > 100).await;

    stage.collector.stop().await;
    sleep(OUTAGE / 2).await;
    assert_eq!(stage.bridge.sink("otel").await["state"], "retrying");
    the_others_go_on(&stage, [&stage.audit.ledger, &stage.pager.ledger]).await;
    stage.collector.launch().await;

    writing.finish(&stage.truth).await;
    stage.all_has_arrived().await;
    stage.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_restarts_costs_nothing() {
    let mut stage = Stage::set().await;
    stage.bridge.launch().await;
    let writing = steady(20).start(&stage.cluster.admin().await).await;
    until("events arrive", async || stage.pager.ledger.distinct() > 100).await;
    stage.cluster.server.restart().await;
    let at = stage.pager.ledger.distinct();
    until("events arrive again", async || stage.pager.ledger.distinct() > at + 100).await;
    stage.cluster.server.kill9();
    stage.cluster.server.launch().await;
    writing.finish(&stage.truth).await;
    let scores = stage.finish().await;
    // The history was there all the time.
    assert_eq!(scores.status["ingest"]["gaps"], 0, "{}", scores.status);
    assert_eq!(scores.status["ingest"]["epochs"], 0, "{}", scores.status);
}
