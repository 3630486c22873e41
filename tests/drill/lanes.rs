//! Several attempts under way at once: to a receiver that takes its time and fails, of a bridge that is
//! killed, each object's changes arrive in order, and all of them; and a receiver that takes its time has
//! as many events a second more as there are lanes.

use std::time::Duration;

use serde_json::json;

use crate::accounts::number;
use crate::crash::{kill_at, points};
use crate::frame::{Company, Drill, Page, Row, Run};
use crate::receiver::Mode;
use crate::sampler::Sample;
use crate::scripted::{Sink, Stage};

pub(crate) const DRILLS: [Drill; 1] = [Drill {
    name: "lanes",
    what: "kill -9 while up to 32 attempts are under way, each of another length, and two of ten fail: each \
           object keeps its order; a receiver of 50 ms by 1, 8 and 32 lanes",
    full: "20 kills in 60 s at 200/s; 20 s by each number of lanes",
    short: Some("3 kills in 10 s at 100/s; 2 s by each number of lanes"),
    company: Company::InShort,
    long: false,
    run: |run| Box::pin(lanes(run)),
}];

/// Names of sinks, their batches and lanes.
const WAYS: [(&str, usize, usize); 4] =
    [("one-by-one", 1, 8), ("wide", 1, 32), ("batches", 20, 8), ("one-lane", 20, 1)];
/// How long an answer may take.
const LONGEST: Duration = Duration::from_millis(40);

/// One by one, by so many lanes.
const LANES: [u32; 3] = [1, 8, 32];
/// How long each answer takes, which makes that of a lane.
const TAKES: Duration = Duration::from_millis(50);
const MOST_OF_A_LANE: u32 = 20;
/// The least that they reach in a full run: 150 a second by 8 lanes.
const LEAST_OF_A_LANE: f64 = 150.0 / 8.0;

async fn lanes(run: Run) -> Page {
    let mut rows = killed(run).await;
    for lanes in LANES {
        rows.push(slow(run, lanes).await);
    }
    Page::Rows(rows)
}

async fn killed(run: Run) -> Vec<Row> {
    let (kills, rate, length) =
        run.size((20, 200, Duration::from_mins(1)), (3, 100, Duration::from_secs(10)));
    let mut sinks = Vec::new();
    for (name, ..) in WAYS {
        let sink = Sink::new(name).await;
        sink.receiver.set(Mode::Fickle(LONGEST)).await;
        sinks.push(sink);
    }
    let mut stage = Stage::set(sinks, run.seed, |config| {
        for (name, batch, lanes) in WAYS {
            config["sinks"][name]["batch"] = json!({"events": batch});
            config["sinks"][name]["concurrency"] = json!(lanes);
        }
    });
    stage.open().await;
    let writing = stage.write(rate);
    kill_at(points(run, kills, length), &mut stage.bridge).await;
    writing.stop().await;
    let fault = format!("{kills} × kill -9 at {rate}/s, answers within 40 ms, 2 of 10 fail");
    let rows = stage.finish().await.into_iter().zip(WAYS).map(|((sink, verdict), way)| {
        let again = number(&sink.status, "redelivered");
        // Cut, or under way when it was killed: what the bridge cannot know to have arrived.
        assert!(again <= verdict.repeated, "{}: {again} redelivered: {verdict}", sink.name);
        let (_, batch, lanes) = way;
        let notes = format!("batch {batch}, lanes {lanes}; {again} of the repeats known as such");
        sink.has_all(&verdict, &fault).note(&notes)
    });
    rows.collect()
}

/// A burst to a receiver that takes its time.
async fn slow(run: Run, lanes: u32) -> Row {
    let sink = Sink::new("slow").await;
    sink.receiver.set(Mode::Slow(TAKES)).await;
    let mut stage = Stage::set(vec![sink], run.seed, |config| {
        config["sinks"]["slow"]["batch"] = json!({"events": 1});
        config["sinks"]["slow"]["concurrency"] = json!(lanes);
    });
    stage.open().await;
    let events = lanes * MOST_OF_A_LANE * run.size(20, 2);
    stage.writer().burst(events as usize).await;
    stage.has_arrived(0).await;
    let peak = Sample::of(stage.bridge.id()).expect("it runs").peak_rss_mib;
    let took = {
        let arrivals = stage.sinks[0].receiver.arrivals();
        let (first, last) = (arrivals.first(), arrivals.last());
        first.zip(last).map(|(first, last)| last.at - first.at).unwrap_or_default()
    };
    let a_second = f64::from(events) / took.as_secs_f64();
    let least = f64::from(lanes) * LEAST_OF_A_LANE;
    assert!(run.short || a_second >= least, "expected {least} events/s, found {a_second}");
    let (sink, verdict) = stage.finish().await.pop().expect("a sink");
    let fault = format!("a receiver of {} ms", TAKES.as_millis());
    let notes = format!("batch 1, lanes {lanes}: {a_second:.0} events/s; peak RSS {peak:.0} MiB");
    sink.has_all(&verdict, &fault).note(&notes)
}
