//! A bridge that is stopped, as Kubernetes stops it.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::sleep;

use crate::frame::{Company, Drill, Page, Run};
use crate::receiver::Mode;
use crate::scripted::{Stage, three_sinks};

pub(crate) const DRILLS: [Drill; 1] = [Drill {
    name: "stop",
    what: "SIGTERM under load, again and again, at last with a sink that hangs: nothing is lost, \
           nothing comes twice, and it ends in time",
    full: "10 stops in 60 s at 1 000/s",
    short: Some("3 stops in 10 s at 300/s"),
    company: Company::InShort,
    long: false,
    run: |run| Box::pin(stop(run)),
}];

/// The bridge delivers what it has read for so long; then it ends, whatever is left.
const DEADLINE: Duration = Duration::from_secs(10);
/// For so long it may let go of connections after that, and save where it stands.
const CLOSES_WITHIN: Duration = Duration::from_secs(3);

async fn stop(run: Run) -> Page {
    let (stops, rate, between) =
        run.size((10, 1_000, Duration::from_secs(5)), (3, 300, Duration::from_secs(2)));
    let mut stage = Stage::set(three_sinks().await, run.seed, |config| {
        // A request that hangs outlasts the deadline.
        config["sinks"]["spare"]["timeout"] = json!("1m");
    });
    stage.open().await;
    let writing = stage.write(rate);
    let mut slowest = Duration::ZERO;
    for _ in 1..stops {
        sleep(between).await;
        slowest = slowest.max(stop_in_time(&mut stage, DEADLINE).await);
        stage.open().await;
    }
    sleep(between).await;
    // "spare" answers no more.
    stage.sinks[2].receiver.set(Mode::Hang).await;
    sleep(between).await;
    let hanging = stop_in_time(&mut stage, DEADLINE + CLOSES_WITHIN).await;
    stage.sinks[2].receiver.set(Mode::Take).await;
    stage.open().await;
    sleep(between).await;
    writing.stop().await;
    let fault = format!("{stops} × SIGTERM at {rate}/s");
    let rows = stage.finish().await.into_iter().map(|(sink, verdict)| {
        let row = sink.has_all(&verdict, &fault);
        assert_eq!(verdict.repeated, 0, "{}: {verdict}", sink.name);
        row.note(&format!(
            "slowest exit {:.2} s, {:.2} s beside a sink that hangs",
            slowest.as_secs_f64(),
            hanging.as_secs_f64()
        ))
    });
    Page::Rows(rows.collect())
}

/// Stops the bridge, which is to end of itself within this time. Answers how long it took.
async fn stop_in_time(stage: &mut Stage, within: Duration) -> Duration {
    let started = Instant::now();
    stage.bridge.stop_in_order().await;
    let took = started.elapsed();
    assert!(took <= within, "it ended after {took:.2?}, not within {within:?}");
    took
}
