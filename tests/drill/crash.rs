//! A bridge that is killed, at any point.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::sleep;

use crate::accounts::{add_up, settle, sink_of};
use crate::frame::{Drill, Page, Run};
use crate::judge::{self, Arrival, Key, Produced, Verdict};
use crate::ledger::{Delivery, Ledger};
use crate::parts::Part as _;
use crate::scripted::{self, Judged};
use crate::stage::Stage;
use crate::truth::Version;
use crate::writers::Load;

pub(crate) const DRILLS: [Drill; 2] = [
    Drill {
        name: "crash",
        what: "kill -9 at random points of a load, one sink of three with suppress",
        full: "20 kills in 60 s at 1 000/s",
        short: Some("3 kills in 10 s at 300/s"),
        alone: true,
        long: false,
        run: |run| Box::pin(crash(run)),
    },
    Drill {
        name: "crash-real",
        what: "the same on real parts: Kafka, the Collector, and a webhook with suppress",
        full: "20 kills in 60 s at 300/s",
        short: None,
        alone: true,
        long: false,
        run: |run| Box::pin(crash_of_real_parts(run)),
    },
];

/// So many points in time, at random, in their order.
fn points(run: Run, count: u32, within: Duration) -> Vec<Duration> {
    let mut random = fastrand::Rng::with_seed(run.seed);
    let mut points: Vec<_> = (0..count).map(|_| within.mul_f64(random.f64())).collect();
    points.sort();
    points
}

async fn crash(run: Run) -> Page {
    let (kills, rate, length) =
        run.size((20, 1_000, Duration::from_mins(1)), (3, 300, Duration::from_secs(10)));
    let mut stage = scripted::Stage::set(scripted::three_sinks().await, run.seed, |_| {});
    stage.open().await;
    let (writing, started) = (stage.write(rate), Instant::now());
    let mut killed = Vec::new();
    for point in points(run, kills, length) {
        sleep(point.saturating_sub(started.elapsed())).await;
        killed.push(Instant::now());
        stage.bridge.kill9();
        // Not waited for: the next may come while it starts.
        stage.bridge.launch().await;
    }
    sleep(length.saturating_sub(started.elapsed())).await;
    writing.stop().await;
    let fault = format!("{kills} × kill -9 at {rate}/s");
    let rows = stage
        .finish()
        .await
        .into_iter()
        .map(|(sink, verdict)| sink.has_all(&verdict, &fault).note(&reach(&verdict, &killed)));
    Page::Rows(rows.collect())
}

async fn crash_of_real_parts(run: Run) -> Page {
    const RATE: usize = 300;
    let (kills, length) = (20, Duration::from_mins(1));
    let mut stage = Stage::set_with(|config, _, _| {
        config["sinks"]["pager"]["correlate"] = json!({"mode": "suppress"});
    })
    .await;
    stage.bridge.launch().await;
    // One in four is patched three times, so that is 60 s of writes at this rate.
    let load = Load { events: 10_300, repeated: 2_575, rate: RATE, ..Load::default() };
    let (writing, started) = (load.start(&stage.cluster.admin().await).await, Instant::now());
    let mut killed = Vec::new();
    for point in points(run, kills, length) {
        sleep(point.saturating_sub(started.elapsed())).await;
        killed.push(Instant::now());
        stage.bridge.kill9();
        stage.bridge.launch().await;
    }
    writing.finish(&stage.truth).await;
    let produced = produced(&stage.truth.versions());
    let caught_up = settle(&stage.bridge, produced.len() as u64).await;
    stage.bridge.stop_in_order().await;
    stage.bridge.launch().await;
    let status = stage.bridge.status().await;
    stage.bridge.stop_in_order().await;
    let audit = stage.audit.finish().await;
    let otel = stage.otel.finish(&mut stage.collector).await;
    let fault = format!("{kills} × kill -9 at {RATE}/s, real parts");
    let ledgers = [("audit", audit), ("otel", otel), ("pager", stage.pager.ledger.clone())];
    let rows = ledgers.into_iter().map(|(name, ledger)| {
        let verdict = judge::judge(&produced, &arrivals(&ledger.lock()));
        verdict.is_honest(name);
        add_up(sink_of(&status, name), &verdict);
        let sink = Judged {
            name,
            suppress: name == "pager",
            status: sink_of(&status, name).clone(),
            caught_up,
        };
        sink.has_all(&verdict, &fault).note(&reach(&verdict, &killed))
    });
    Page::Rows(rows.collect())
}

/// The versions that the API server showed.
fn produced(versions: &[Version]) -> Vec<Produced> {
    let produced = versions.iter().filter(|version| !version.deleted).map(|version| Produced {
        id: Key::of(&version.id()),
        event: Key::of(&version.uid),
        object: Key::of(&version.object),
        version: version.resource_version,
        occurrences: version.occurrences,
        at: version.at,
    });
    produced.collect()
}

/// What a receiver of the real parts has written down.
fn arrivals(ledger: &Ledger) -> Vec<Arrival> {
    assert!(ledger.complaints.is_empty(), "{:?}", ledger.complaints);
    let arrival = |delivery: &Delivery| Arrival {
        id: Key::of(&delivery.id),
        delta: delivery.delta,
        summary: delivery.body.contains("\"action\":\"summary\""),
        at: delivery.at,
    };
    ledger.deliveries.iter().map(arrival).collect()
}

/// How long before a kill came what came again after it: what was not saved yet. With no kill in
/// between it was on its way when the kill before came.
fn reach(verdict: &Verdict, killed: &[Instant]) -> String {
    if verdict.repeated == 0 {
        return "no repeats".to_owned();
    }
    let before_its_kill = |(first, again): &(Instant, Instant)| {
        let kill = killed.iter().find(|kill| (first..again).contains(kill));
        kill.map(|kill| kill.duration_since(*first))
    };
    let reach = verdict.repeated_at.iter().filter_map(before_its_kill).max().unwrap_or_default();
    format!("repeats reach back {:.2} s before a kill", reach.as_secs_f64())
}
