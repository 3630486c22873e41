//! A bridge that is stopped, as Kubernetes stops it.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::frame::{Drill, Page, Run};
use crate::scripted::{Stage, three_sinks};

pub(crate) const DRILLS: [Drill; 1] = [Drill {
    name: "stop",
    what: "SIGTERM under load, again and again: nothing is lost, nothing comes twice",
    full: "10 stops in 60 s at 1 000/s",
    short: Some("3 stops in 10 s at 300/s"),
    alone: true,
    long: false,
    run: |run| Box::pin(stop(run)),
}];

/// The bridge delivers what it has read for so long; then it ends, whatever is left.
const DEADLINE: Duration = Duration::from_secs(10);

async fn stop(run: Run) -> Page {
    let (stops, rate, between) =
        run.size((10, 1_000, Duration::from_secs(5)), (3, 300, Duration::from_secs(2)));
    let mut stage = Stage::set(three_sinks().await, run.seed, |_| {});
    stage.open().await;
    let writing = stage.write(rate);
    let mut slowest = Duration::ZERO;
    for _ in 0..stops {
        sleep(between).await;
        let started = Instant::now();
        stage.bridge.stop_in_order().await;
        slowest = slowest.max(started.elapsed());
        stage.open().await;
    }
    sleep(between).await;
    writing.stop().await;
    let fault = format!("{stops} × SIGTERM at {rate}/s");
    let rows = stage.finish().await.into_iter().map(|(sink, verdict)| {
        let row = sink.has_all(&verdict, &fault);
        assert_eq!(verdict.repeated, 0, "{}: {verdict}", sink.name);
        let in_time = if slowest <= DEADLINE { "within" } else { "BEYOND" };
        row.note(&format!("slowest exit {:.2} s, {in_time} {DEADLINE:?}", slowest.as_secs_f64()))
    });
    Page::Rows(rows.collect())
}
