//! A sink that is away for long, with everything that was written meanwhile to catch up with.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::sleep;

use crate::frame::{Company, Drill, Page, Row, Run};
use crate::judge::{Arrival, Produced, delays};
use crate::receiver::Mode;
use crate::sampler::Sampler;
use crate::scripted::{Sink, Stage};
use crate::wait::until_within;

pub(crate) const DRILLS: [Drill; 1] = [Drill {
    name: "outage",
    what: "a sink is away for an hour's worth of events; it catches up while new ones come",
    full: "1 800 000 events behind it, 500/s new ones",
    short: Some("20 000 events behind it, 200/s new ones"),
    company: Company::InShort,
    long: false,
    run: |run| Box::pin(outage(run)),
}];

/// How many are written before it is waited until they are in the journal, and the API server
/// forgets what it needs no more.
const SLICE: usize = 20_000;
/// The figures that the page judges by: events a second, and MiB.
const FAST_ENOUGH: f64 = 50_000.0;
const SMALL_ENOUGH: f64 = 96.0;

async fn outage(run: Run) -> Page {
    let (backlog, rate) = run.size((1_800_000, 500), (20_000, 200));
    let sinks = vec![Sink::new("audit").await, Sink::new("pager").await];
    let mut stage = Stage::set(sinks, run.seed, |config| {
        config["journal"]["retention"] = json!({"size": "8GiB"});
        for sink in ["audit", "pager"] {
            config["sinks"][sink]["batch"] = json!({"events": 500});
        }
    });
    stage.open().await;
    let sampler = Sampler::start(stage.bridge.id());
    stage.sinks[1].receiver.set(Mode::Down).await;
    let mut writer = stage.writer().without_end();
    while stage.record.len() < backlog {
        writer = writer.burst(SLICE.min(backlog - stage.record.len())).await;
        stage.journalled().await;
        stage.server.compact(stage.server.revision());
    }
    drop(writer);
    let pager = |stage: &Stage| stage.sinks[1].receiver.arrivals().len();
    let before = pager(&stage);

    let writing = stage.write(rate);
    let quiet = Instant::now();
    sleep(Duration::from_secs(3)).await;
    let back = Instant::now();
    stage.sinks[1].receiver.set(Mode::Take).await;
    until_within(Duration::from_mins(10), "the sink has caught up", async || {
        // Counted where it arrives; the bridge is not to be asked while it is measured.
        pager(&stage) >= backlog
    })
    .await;
    let over = Instant::now();
    sleep(Duration::from_secs(3)).await;
    writing.stop().await;
    let samples = sampler.finish().await;
    let peak = samples.iter().map(|sample| sample.peak_rss_mib).fold(0.0, f64::max);

    let speed = speed(&stage.sinks[1].receiver.arrivals()[before..backlog]);
    let memory = format!("peak RSS {peak:.0} MiB, {}", verdict(peak <= SMALL_ENOUGH));
    let fault = format!("away for {backlog} events, {rate}/s new ones");
    let audit = {
        let (produced, arrivals) = (stage.record.lock(), stage.sinks[0].receiver.arrivals());
        let slow = |stretch| slowest(&produced, &arrivals, stretch);
        format!(
            "slowest new event: {} before, {} meanwhile",
            slow((quiet, back)),
            slow((back, over))
        )
    };
    let pager = format!("{speed:.0} events/s, {}; {memory}", verdict(speed >= FAST_ENOUGH));
    let rows = stage.finish().await.into_iter().map(|(sink, verdict)| {
        let row = sink.has_all(&verdict, &fault);
        assert_eq!(verdict.repeated, 0, "{}: {verdict}", sink.name);
        if sink.name == "pager" {
            Row { caught_up: Some(over - back), ..row }.note(&pager)
        } else {
            row.note(&audit)
        }
    });
    Page::Rows(rows.collect())
}

/// The verdict on the figures, whether they are as asked; only the reader knows the machine.
fn verdict(good: bool) -> &'static str {
    if good { "as asked" } else { "NOT as asked" }
}

/// Events a second, from the first of these to the last.
fn speed(arrivals: &[Arrival]) -> f64 {
    let (Some(first), Some(last)) = (arrivals.first(), arrivals.last()) else { return 0.0 };
    arrivals.len() as f64 / last.at.duration_since(first.at).as_secs_f64()
}

fn slowest(produced: &[Produced], arrivals: &[Arrival], stretch: (Instant, Instant)) -> String {
    let slowest = delays(produced, arrivals, stretch).last().copied();
    slowest.map_or("none".to_owned(), |slowest| format!("{} ms", slowest.as_millis()))
}
