//! A journal that is full before a sink has had what it holds.

use std::time::Duration;

use serde_json::json;

use crate::accounts::number;
use crate::frame::{Drill, Page, Run};
use crate::load::Writer;
use crate::parts::Part as _;
use crate::receiver::Mode;
use crate::scripted::{Sink, Stage};

pub(crate) const DRILLS: [Drill; 1] = [Drill {
    name: "retention",
    what: "more than the journal holds, for a sink that is away and one that is slow",
    full: "40 000 events, 4 MiB of journal",
    short: Some("8 000 events, 1 MiB of journal"),
    run: |run| Box::pin(retention(run)),
}];

async fn retention(run: Run) -> Page {
    let mut rows = Vec::new();
    for (fault, mode, killed) in [
        ("away", Mode::Down, false),
        ("away, a kill -9 meanwhile", Mode::Down, true),
        ("100 ms a batch", Mode::Slow(Duration::from_millis(100)), false),
    ] {
        let (events, size) = run.size((40_000, "4MiB"), (8_000, "1MiB"));
        let sinks = vec![Sink::new("audit").await, Sink::new("pager").await];
        let mut stage = Stage::set(sinks, run.seed, |config| {
            config["journal"]["retention"] = json!({"size": size});
        });
        stage.open().await;
        stage.sinks[1].receiver.set(mode).await;
        let mut writer = Writer::new(&stage.server, &stage.record, run.seed);
        // In slices, so that the healthy sink is never so far behind.
        while stage.record.len() < events {
            writer = writer.burst(200).await;
            stage.journalled().await;
            stage.has_arrived(0).await;
            if killed && stage.record.len() == events / 2 {
                stage.bridge.kill9();
                stage.open().await;
            }
        }
        stage.sinks[1].receiver.set(Mode::Take).await;
        let fault = format!("{events} events on {size}, {fault}");
        for (sink, verdict) in stage.finish().await {
            if sink.name == "audit" {
                rows.push(sink.has_all(&verdict, &fault));
            } else {
                let lost = number(&sink.status, "lost");
                assert!(lost > 0, "the drill is to lose something: {}", sink.status);
                let row = sink.misses_what_is_stated(&verdict, &fault);
                rows.push(row.note(&format!("dropOldest; the bridge states {lost}")));
            }
        }
    }
    Page::Rows(rows)
}
