//! A bridge that is killed, at any point: while it works, and while it starts.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::sleep;

use crate::accounts::{settle, sink_of};
use crate::bridge::Bridge;
use crate::frame::{Drill, Page, Run};
use crate::judge::{self, Arrival, Key, Produced, Verdict};
use crate::parts::Part as _;
use crate::scripted::{self, Judged};
use crate::stage::Stage;
use crate::truth::Version;
use crate::writers::Load;
use tidings_testkit::ledger::Ledger;

pub(crate) const DRILLS: [Drill; 2] = [
    Drill {
        name: "crash",
        what: "kill -9 at random points of a load and of starts, one sink of three with suppress",
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

/// A start is killed so soon after it began, at most: it opens the journal, or has just done so.
pub(crate) const STARTS_WITHIN: Duration = Duration::from_millis(200);

/// One kill of a bridge that works.
struct Point {
    at: Duration,
    /// The start that follows is killed after so long; then it is started again.
    again: Option<Duration>,
}

/// So many kills at random points in time, in their order; every third is one of a start.
fn points(run: Run, kills: u32, within: Duration) -> Vec<Point> {
    let mut random = fastrand::Rng::with_seed(run.seed);
    let of_starts = kills / 3;
    let mut again: Vec<bool> = (0..kills - of_starts).map(|point| point < of_starts).collect();
    random.shuffle(&mut again);
    let mut times: Vec<_> = again.iter().map(|_| within.mul_f64(random.f64())).collect();
    times.sort();
    let point = |(at, again)| {
        let soon = STARTS_WITHIN.mul_f64(random.f64());
        Point { at, again: Option::from(soon).filter(|_| again) }
    };
    times.into_iter().zip(again).map(point).collect()
}

/// Kills it at each of these points from now on. Answers when it was dead, each time.
async fn kill_at(points: Vec<Point>, bridge: &mut Bridge) -> Vec<Instant> {
    let (started, mut killed) = (Instant::now(), Vec::new());
    for Point { at, again } in points {
        sleep(at.saturating_sub(started.elapsed())).await;
        bridge.kill9();
        killed.push(Instant::now());
        if let Some(soon) = again {
            kill_start(bridge, soon).await;
            killed.push(Instant::now());
        }
        // Its watch is not waited for: the next kill may come before it is open.
        bridge.launch().await;
    }
    killed
}

/// Starts a bridge that does not run, and kills it so soon.
pub(crate) async fn kill_start(bridge: &mut Bridge, soon: Duration) {
    bridge.process().spawn();
    sleep(soon).await;
    bridge.kill9();
}

async fn crash(run: Run) -> Page {
    let (kills, rate, length) =
        run.size((20, 1_000, Duration::from_mins(1)), (3, 300, Duration::from_secs(10)));
    let mut stage = scripted::Stage::set(scripted::three_sinks().await, run.seed, |_| {});
    stage.open().await;
    let (writing, started) = (stage.write(rate), Instant::now());
    let killed = kill_at(points(run, kills, length), &mut stage.bridge).await;
    sleep(length.saturating_sub(started.elapsed())).await;
    writing.stop().await;
    let fault = format!("{kills} × kill -9 at {rate}/s");
    let rows = stage.finish().await.into_iter().map(|(sink, verdict)| {
        let repeats = repeats(sink.name, &verdict, &killed, rate.into());
        sink.has_all(&verdict, &fault).note(&repeats)
    });
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
    let killed = kill_at(points(run, kills, length), &mut stage.bridge).await;
    writing.finish(&stage.truth).await;
    let wrote_for = started.elapsed();
    let produced = produced(&stage.truth.versions());
    // What a second is worth: a slow machine does not reach the rate.
    let rate = (produced.len() as u64 * 1_000).div_ceil(wrote_for.as_millis() as u64);
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
        let sink = Judged {
            name,
            suppress: name == "pager",
            status: sink_of(&status, name).clone(),
            caught_up,
        };
        let repeats = repeats(name, &verdict, &killed, rate);
        sink.has_all(&verdict, &fault).note(&format!("written at {rate}/s")).note(&repeats)
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
    ledger.deliveries.iter().map(Arrival::from).collect()
}

/// What came again because of the kills: no more than a second's worth of the load for each. Says
/// how much that was, and how long before a kill it had come already, not saved yet. What has no
/// kill in between was on its way when the kill before came.
fn repeats(sink: &str, verdict: &Verdict, killed: &[Instant], rate: u64) -> String {
    let may = killed.len() as u64 * rate;
    assert!(verdict.repeated <= may, "{sink}: at most {may} may come again: {verdict}");
    if verdict.repeated == 0 {
        return "no repeats".to_owned();
    }
    let (mut reach, mut by_kill) = (Duration::ZERO, vec![0_u64; killed.len()]);
    for (before, again) in &verdict.repeated_at {
        if let Some(kill) = killed.iter().position(|kill| (before..again).contains(&kill)) {
            reach = reach.max(killed[kill].duration_since(*before));
            by_kill[kill] += 1;
        }
    }
    let average = verdict.repeated as f64 / killed.len() as f64;
    let most = by_kill.into_iter().max().unwrap_or_default();
    format!(
        "{average:.0} repeats a kill on average, of at most {rate} as asked; {most} after one; they \
         reach back {:.2} s before it",
        reach.as_secs_f64()
    )
}
