//! A journal that is full before a sink has had what it holds.

use std::time::Duration;

use serde_json::json;

use crate::accounts::number;
use crate::frame::{Company, Drill, Page, Run};
use crate::parts::Part as _;
use crate::receiver::Mode;
use crate::scripted::{Sink, Stage};
use crate::wait::until;

pub(crate) const DRILLS: [Drill; 2] = [
    Drill {
        name: "retention",
        what: "more than the journal holds, for a sink that is away, and for one that is slow",
        full: "40 000 events, 4 MiB of journal",
        short: Some("8 000 events, 1 MiB of journal"),
        company: Company::Any,
        long: false,
        run: |run| Box::pin(drop_oldest(run)),
    },
    Drill {
        name: "retention-block",
        what: "the same with overflow: block, and an API server that forgets meanwhile",
        full: "40 000 events, 4 MiB of journal",
        short: Some("8 000 events, 1 MiB of journal"),
        company: Company::Any,
        long: false,
        run: |run| Box::pin(block(run)),
    },
];

/// More events than a sink has in memory.
const IN_MEMORY: u64 = 16_000;

async fn drop_oldest(run: Run) -> Page {
    let mut rows = Vec::new();
    for (fault, mode, killed) in [
        ("away", Mode::Down, false),
        ("away, a kill -9 meanwhile", Mode::Down, true),
        ("1 s a batch", Mode::Slow(Duration::from_secs(1)), false),
    ] {
        let (events, size) = run.size((40_000, "4MiB"), (8_000, "1MiB"));
        let sinks = vec![Sink::new("audit").await, Sink::new("pager").await];
        let mut stage = Stage::set(sinks, run.seed, |config| {
            config["journal"]["retention"] = json!({"size": size});
        });
        stage.open().await;
        stage.sinks[1].receiver.set(mode).await;
        let mut writer = stage.writer();
        // In slices, so that the healthy sink is never so far behind; and until the journal has
        // dropped more than a sink that is away has in memory: 4 MiB of frames, and some batches.
        while stage.record.len() < events || dropped(&stage).await < IN_MEMORY {
            assert!(stage.record.len() < 10 * events, "the journal drops nothing");
            writer = writer.burst(200).await;
            stage.journalled().await;
            stage.has_arrived(0).await;
            if killed && stage.record.len() == events / 2 {
                stage.bridge.kill9();
                stage.open().await;
            }
        }
        stage.sinks[1].receiver.set(Mode::Take).await;
        let fault = format!("more than {size} of journal, {fault}");
        for (sink, verdict) in stage.finish().await {
            if sink.name == "audit" {
                rows.push(sink.has_all(&verdict, &fault));
            } else {
                let lost = number(&sink.status, "lost");
                // How much a slow one loses is up to how fast the machine is.
                let away = fault.contains("away");
                assert!(lost > 0 || !away, "the drill is to lose something: {}", sink.status);
                let row = sink.misses_what_is_stated(&verdict, &fault);
                rows.push(row.note(&format!("dropOldest; the bridge states {lost}")));
            }
        }
    }
    Page::Rows(rows)
}

/// How many records the journal holds no longer.
pub(crate) async fn dropped(stage: &Stage) -> u64 {
    let status = stage.bridge.status().await;
    let journal = &status["journal"];
    (number(journal, "nextSequence") - 1).saturating_sub(number(journal, "records"))
}

/// The act while intake stands still.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meanwhile {
    Nothing,
    Kill,
    /// The API server forgets what was replaced, so what was not read is seen only in part.
    Compaction,
}

async fn block(run: Run) -> Page {
    let mut rows = Vec::new();
    for (meanwhile, what) in [
        (Meanwhile::Nothing, ""),
        (Meanwhile::Kill, ", a kill -9 meanwhile"),
        (Meanwhile::Compaction, ", the API server compacted meanwhile"),
    ] {
        let (events, size) = run.size((40_000, "4MiB"), (8_000, "1MiB"));
        let sinks = vec![Sink::new("audit").await, Sink::new("pager").await];
        let mut stage = Stage::set(sinks, run.seed, |config| {
            config["journal"]["retention"] = json!({"size": size});
            config["sinks"]["pager"]["overflow"] = json!("block");
        });
        stage.open().await;
        stage.sinks[1].receiver.set(Mode::Down).await;
        stage.writer().burst(events).await;
        let blocked = async |stage: &Stage| {
            let status = stage.bridge.status().await;
            status["journal"]["blockedBy"].as_array().is_some_and(|by| !by.is_empty())
        };
        until("intake stands still", async || blocked(&stage).await).await;
        match meanwhile {
            Meanwhile::Nothing => {}
            Meanwhile::Kill => {
                stage.bridge.kill9();
                stage.bridge.launch().await;
                until("it stands still again", async || blocked(&stage).await).await;
            }
            Meanwhile::Compaction => {
                // What is on its way to the bridge is lost with the connection.
                stage.server.stop_listening().await;
                stage.server.compact(stage.server.revision());
                stage.server.listen_again().expect("the port as before");
            }
        }
        stage.sinks[1].receiver.set(Mode::Take).await;
        stage.settle().await;
        let skipped = number(&stage.bridge.status().await["ingest"], "skippedIncrements");
        let fault = format!("{events} events on {size}, away{what}");
        for (sink, verdict) in stage.finish().await {
            assert_eq!(number(&sink.status, "lost"), 0, "{}", sink.status);
            // Each write is one increment more, so what is missing is what was skipped.
            assert_eq!(verdict.missing, skipped, "{}: {verdict}", sink.name);
            let row = sink.has_all_increments(&verdict, &fault);
            rows.push(row.note(&format!("block; {skipped} increments stated as skipped")));
        }
    }
    Page::Rows(rows)
}
