//! A time of day that jumps, as that of a machine that was suspended, or that is set right.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use crate::accounts::{number, settle};
use crate::frame::{Company, Drill, Page, Run};
use crate::load::Writer;
use crate::parts::Part as _;
use crate::preload::Preload;
use crate::receiver::Mode;
use crate::scripted::{Stage, three_sinks};

pub(crate) const DRILLS: [Drill; 1] = [Drill {
    name: "clock",
    what: "the time of day jumps while increments are held back, and between a kill -9 and the start; \
           the journal is kept for 24 h",
    full: "30 h ahead and back, 3 times each; again with two sinks away",
    short: Some("once each, and once with two sinks away"),
    company: Company::Any,
    long: false,
    run: |run| Box::pin(clock(run)),
}];

/// In seconds: more than the journal is kept for.
const AHEAD: &str = "108000";
/// Each jump: how far the clock is ahead then, and whether the bridge is killed for it.
const JUMPS: [(&str, bool); 4] = [(AHEAD, false), ("0", false), (AHEAD, true), ("0", true)];
const PAGER: usize = 1;
const SPARE: usize = 2;

async fn clock(run: Run) -> Page {
    let burst = run.size(5_000, 1_000);
    let mut rows = Vec::new();
    for away in [false, true] {
        let clock = Preload::make("clock", "CLOCK_AHEAD");
        let mut stage = Stage::set(three_sinks().await, run.seed, |config| {
            config["journal"]["retention"] = json!({"size": "64MiB", "age": "24h"});
        });
        clock.carries(&mut stage.bridge);
        stage.open().await;
        let jumps = match (run.short, away) {
            (true, false) => JUMPS[..2].to_vec(),
            (true, true) => JUMPS[2..3].to_vec(),
            (false, _) => JUMPS.repeat(3),
        };
        let mut writer = stage.writer();
        for (ahead, killed) in &jumps {
            writer = hold_some(&stage, writer).await;
            if away {
                for sink in [PAGER, SPARE] {
                    stage.sinks[sink].receiver.set(Mode::Down).await;
                }
                writer = writer.burst(burst).await;
                stage.has_arrived(0).await;
            }
            if *killed {
                stage.bridge.kill9();
            }
            clock.say(ahead);
            if *killed {
                stage.open().await;
            }
            // So long retention leaves what the view of Events is not saved of, and what a sink that
            // is away has not had.
            sleep(Duration::from_secs(12)).await;
            for sink in [PAGER, SPARE] {
                stage.sinks[sink].receiver.set(Mode::Take).await;
            }
            writer = writer.burst(burst).await;
            stage.journalled().await;
        }
        stage.settle().await;
        let status = stage.bridge.status().await;
        let (ingest, journal) = (&status["ingest"], &status["journal"]);
        assert_eq!((number(ingest, "gaps"), number(ingest, "skippedIncrements")), (0, 0));
        assert!(journal["damage"].is_null() && journal["error"].is_null(), "{journal}");
        assert!(stage.bridge.readiness().await.0);
        let fault = format!(
            "{} × 30 h, ahead or back{}",
            jumps.len(),
            if away { ", pager and spare away" } else { "" }
        );
        let judged = stage.finish().await.into_iter().map(|(sink, verdict)| {
            if !away || sink.name == "audit" {
                assert_eq!(number(&sink.status, "lost"), 0, "{}", sink.status);
                sink.has_all(&verdict, &fault)
            } else {
                sink.has_what_is_not_stated(&verdict, &fault)
            }
        });
        rows.extend(judged);
    }
    Page::Rows(rows)
}

/// A sink that suppresses holds something of far fewer bursts.
const MOST_BURSTS: u32 = 60;

/// Writes until the sink that suppresses holds something and has had all else, and that is saved.
async fn hold_some(stage: &Stage, mut writer: Writer) -> Writer {
    for _ in 0..MOST_BURSTS {
        writer = writer.burst(500).await;
        stage.has_arrived(0).await;
        settle(&stage.bridge, 0).await;
        if number(&stage.bridge.sink("pager").await, "held") > 0 {
            sleep(Duration::from_secs(2)).await;
            return writer;
        }
    }
    panic!("nothing is held after {MOST_BURSTS} bursts");
}
