//! A disk that is full in the middle of a load.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::accounts::number;
use crate::frame::{Drill, Page, Run};
use crate::parts::Part as _;
use crate::receiver::Mode;
use crate::scripted::{Stage, three_sinks};
use crate::small_disk::SmallDisk;
use crate::wait::until;

pub(crate) const DRILLS: [Drill; 1] = [Drill {
    name: "disk-full",
    what: "the journal's disk is full for a while, in the middle of a load; a sink catches up \
               meanwhile",
    full: "full for 30 s at 500/s: alone, with a kill -9, with a compacted API server",
    short: Some("full for 4 s at 200/s"),
    alone: false,
    long: false,
    run: |run| Box::pin(disk_full(run)),
}];

/// The sink that has a backlog when the trouble begins.
const SPARE: usize = 2;
/// Lines of the log about one trouble of the disk: the journal, the sync, the state, the segments
/// that cannot be dropped and `positions.json` have one each. One every few seconds are more.
const LOUD_LINES: usize = 5;

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
        stage.sinks[SPARE].receiver.set(Mode::Down).await;
        sleep(around).await;
        let filled = disk.fill();
        stands_still(&stage).await;
        match beside {
            Beside::Nothing => {
                spare_catches_up(&stage).await;
                sleep(full).await;
            }
            Beside::Kill => {
                spare_catches_up(&stage).await;
                sleep(full / 2).await;
                stage.bridge.kill9();
                stage.bridge.launch().await;
                sleep(full / 2).await;
            }
            Beside::Compaction => {
                stage.server.stop_listening().await;
                spare_catches_up(&stage).await;
                sleep(full).await;
                stage.server.compact(stage.server.revision());
                stage.server.listen_again().expect("the port as before");
            }
        }
        drop(filled);
        sleep(around).await;
        writing.stop().await;
        stage.settle().await;
        if beside != Beside::Kill {
            was_said_but_seldom(&stage);
        }
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

/// Waits until the bridge says, wherever it is asked, that its journal cannot be written.
async fn stands_still(stage: &Stage) {
    until("the bridge says that its disk takes nothing", async || {
        !stage.bridge.status().await["journal"]["error"].is_null()
    })
    .await;
    assert_eq!(stage.bridge.metric("tidings_journal_writable").await, "0");
    let (ready, why) = stage.bridge.readiness().await;
    assert!(!ready && why.contains("the journal cannot be written"), "{why}");
}

/// What the sink that was down has not had.
async fn backlog(stage: &Stage) -> u64 {
    number(&stage.bridge.sink(stage.sinks[SPARE].name).await, "pending")
}

/// Brings the sink back that was down, and waits until it has had all that the journal holds, while
/// the disk still takes nothing.
async fn spare_catches_up(stage: &Stage) {
    assert!(backlog(stage).await > 0, "there is something to catch up with");
    stage.sinks[SPARE].receiver.set(Mode::Take).await;
    until("the backlog has arrived", async || backlog(stage).await == 0).await;
    let journal = &stage.bridge.status().await["journal"];
    assert!(!journal["error"].is_null(), "the disk takes nothing all the while: {journal}");
}

/// The trouble and its end are in the log, and no line comes again and again.
fn was_said_but_seldom(stage: &Stage) {
    let log = stage.bridge.log();
    let count = |words: &str| {
        let says = |line: &&Value| line["message"].as_str().is_some_and(|m| m.contains(words));
        log.iter().filter(says).count()
    };
    let (begun, ended) = (
        count("the journal cannot be used: intake stands still"),
        count("the journal can be used again"),
    );
    assert!(begun > 0 && begun == ended, "{begun} times said, {ended} times over");
    let loud = loud_lines(stage);
    assert!(loud.len() <= LOUD_LINES, "{loud:#?}");
}

/// What the log has of trouble with the disk.
fn loud_lines(stage: &Stage) -> Vec<Value> {
    let about_the_disk = ["journal", "state cannot", "positions.json", "segments"];
    let is_one = |line: &Value| {
        let loud = line["level"] == "WARN" || line["level"] == "ERROR";
        let message = line["message"].as_str().unwrap_or_default();
        loud && about_the_disk.iter().any(|words| message.contains(words))
    };
    stage.bridge.log().into_iter().filter(is_one).collect()
}
