//! A disk that is full in the middle of a load.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use crate::accounts::number;
use crate::frame::{Drill, Page, Run};
use crate::parts::Part as _;
use crate::scripted::{Stage, three_sinks};
use crate::small_disk::SmallDisk;
use crate::wait::until;

pub(crate) const DRILLS: [Drill; 1] = [Drill {
    name: "disk-full",
    what: "the journal's disk is full for a while, in the middle of a load",
    full: "full for 30 s at 500/s: alone, with a kill -9, with a compacted API server",
    short: Some("full for 4 s at 200/s"),
    alone: false,
    long: false,
    run: |run| Box::pin(disk_full(run)),
}];

/// What happens beside it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    /// The bridge is killed and starts on the full disk.
    Kill,
    /// The API server is away, and comes back without its history.
    Compaction,
}

async fn disk_full(run: Run) -> Page {
    let (rate, full, around) = run.size(
        (500, Duration::from_secs(30), Duration::from_secs(5)),
        (200, Duration::from_secs(4), Duration::from_secs(2)),
    );
    let mut rows = Vec::new();
    for beside in [Beside::Nothing, Beside::Kill, Beside::Compaction] {
        let disk = match SmallDisk::mount("64m") {
            Ok(disk) => disk,
            Err(why) => return Page::Skipped(why),
        };
        let mut stage = Stage::set(three_sinks().await, run.seed, |config| {
            config["journal"]["path"] = json!(disk.folder());
            config["journal"]["retention"] = json!({"size": "40MiB"});
        });
        disk.carries(&mut stage.bridge);
        stage.open().await;
        let writing = stage.write(rate);
        sleep(around).await;
        let filled = disk.fill();
        until("the bridge says that its disk is full", async || {
            !stage.bridge.status().await["journal"]["error"].is_null()
        })
        .await;
        match beside {
            Beside::Nothing => sleep(full).await,
            Beside::Kill => {
                sleep(full / 2).await;
                stage.bridge.kill9();
                stage.bridge.launch().await;
                sleep(full / 2).await;
            }
            Beside::Compaction => {
                stage.server.stop_listening().await;
                sleep(full).await;
                stage.server.compact(stage.server.revision());
                stage.server.listen_again().expect("the port as before");
            }
        }
        drop(filled);
        sleep(around).await;
        writing.stop().await;
        stage.settle().await;
        let skipped = number(&stage.bridge.status().await["ingest"], "skippedIncrements");
        let fault = format!(
            "full for {full:?} at {rate}/s{}",
            match beside {
                Beside::Nothing => "",
                Beside::Kill => ", kill -9 and start meanwhile",
                Beside::Compaction => ", the API server away and compacted meanwhile",
            }
        );
        rows.extend(stage.finish().await.into_iter().map(|(sink, verdict)| {
            if beside != Beside::Compaction {
                return sink.has_all(&verdict, &fault);
            }
            // Each write is one increment more, so what is missing is what was skipped. All Events
            // exist to the end, so nothing came and went unseen.
            if !sink.suppress {
                assert_eq!(
                    verdict.missing, skipped,
                    "{}: stated is the truth: {verdict}",
                    sink.name
                );
            }
            let row = sink.has_all_increments(&verdict, &fault);
            row.note(&format!("{skipped} increments stated as skipped"))
        }));
    }
    Page::Rows(rows)
}
