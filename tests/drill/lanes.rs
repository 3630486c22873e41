//! Several attempts under way at once, to a receiver that takes its time and fails, of a bridge that is
//! killed: each object's changes arrive in order, and all of them.

use std::time::Duration;

use serde_json::json;

use crate::accounts::number;
use crate::crash::{kill_at, points};
use crate::frame::{Drill, Page, Run};
use crate::receiver::Mode;
use crate::scripted::{Sink, Stage};

pub(crate) const DRILLS: [Drill; 1] = [Drill {
    name: "lanes",
    what: "kill -9 while up to 32 attempts are under way, each of another length, and two of ten fail: each \
           object keeps its order",
    full: "20 kills in 60 s at 200/s",
    short: Some("3 kills in 10 s at 100/s"),
    alone: false,
    long: false,
    run: |run| Box::pin(lanes(run)),
}];

/// Names of sinks, their batches and lanes.
const WAYS: [(&str, usize, usize); 4] =
    [("one-by-one", 1, 8), ("wide", 1, 32), ("batches", 20, 8), ("one-lane", 20, 1)];
/// How long an answer may take.
const LONGEST: Duration = Duration::from_millis(40);

async fn lanes(run: Run) -> Page {
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
    Page::Rows(rows.collect())
}
