//! A disk that is full, or read-only, in the middle of a load.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::accounts::number;
use crate::faulty_disk::{Fault, FaultyDisk};
use crate::frame::{Company, Drill, Page, Run};
use crate::parts::Part as _;
use crate::receiver::Mode;
use crate::scripted::{Stage, three_sinks};
use crate::small_disk::SmallDisk;
use crate::wait::until;

pub(crate) const DRILLS: [Drill; 4] = [
    Drill {
        name: "disk-full",
        what: "the journal's disk is full for a while, in the middle of a load; a sink catches up \
               meanwhile",
        full: "full for 30 s at 500/s: alone, with a kill -9, with a compacted API server",
        short: Some("full for 4 s at 200/s"),
        company: Company::Any,
        long: false,
        run: |run| Box::pin(disk_full(run)),
    },
    Drill {
        name: "disk-readonly",
        what: "nothing can be opened for writing in the journal's folder for a while, in the middle \
               of a load; a sink catches up meanwhile",
        full: "EROFS for 30 s at 500/s",
        short: Some("EROFS for 7 s at 200/s"),
        company: Company::Any,
        long: false,
        run: |run| Box::pin(disk_read_only(run)),
    },
    Drill {
        name: "disk-sync",
        what: "fsync fails for a while, and a sink catches up meanwhile; or it takes long",
        full: "EIO for 30 s, and 2 s a sync for 30 s, at 500/s",
        short: Some("for 5 s each at 200/s"),
        company: Company::Any,
        long: false,
        run: |run| Box::pin(disk_sync(run)),
    },
    Drill {
        name: "disk-read",
        what: "the state, the log or the note of what was delivered cannot be read at a start: once, \
               and for as long as it is tried",
        full: "EIO for one read of each, and for all, after kills -9 at 500/s",
        short: Some("the same at 200/s"),
        company: Company::Any,
        long: false,
        run: |run| Box::pin(disk_read(run)),
    },
];

/// The sink that has a backlog when the trouble begins.
const SPARE: usize = 2;
/// Lines of the log about one trouble of the disk: the journal, the sync, the state, the segments
/// that cannot be dropped and `positions.json` have one each. One every few seconds are more.
const LOUD_LINES: usize = 5;

/// The fault that happens beside it.
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

async fn disk_read_only(run: Run) -> Page {
    // The short form's is longer than two saves of positions.json are apart.
    let (rate, lasts, around) = run.size(
        (500, Duration::from_secs(30), Duration::from_secs(5)),
        (200, Duration::from_secs(7), Duration::from_secs(2)),
    );
    let disk = match SmallDisk::mount("64m") {
        Ok(disk) => disk,
        Err(why) => return Page::Skipped(why),
    };
    let mut stage = Stage::set(three_sinks().await, run.seed, |config| {
        config["journal"]["path"] = json!(disk.folder());
        // Segments of 1 MiB: a new one is due soon.
        config["journal"]["retention"] = json!({"size": "16MiB"});
    });
    disk.carries(&mut stage.bridge);
    stage.open().await;
    let writing = stage.write(rate);
    sleep(around).await;
    spare_falls_behind(&stage).await;
    disk.turn_read_only();
    stands_still(&stage).await;
    let (_, why) = stage.bridge.readiness().await;
    assert!(why.contains("hint: mount its file system writable again"), "{why}");
    spare_catches_up(&stage).await;
    sleep(lasts).await;
    disk.turn_writable();
    sleep(around).await;
    writing.stop().await;
    stage.settle().await;
    was_said_but_seldom(&stage);
    let fault = format!("read-only for {lasts:?} at {rate}/s");
    let judged = stage.finish().await.into_iter();
    Page::Rows(judged.map(|(sink, verdict)| sink.has_all(&verdict, &fault)).collect())
}

async fn disk_sync(run: Run) -> Page {
    let (rate, lasts, around) = run.size(
        (500, Duration::from_secs(30), Duration::from_secs(5)),
        (200, Duration::from_secs(5), Duration::from_secs(2)),
    );
    let mut rows = Vec::new();
    for fault in [Fault::Sync, Fault::SlowSync] {
        let disk = FaultyDisk::make();
        let mut stage = Stage::set(three_sinks().await, run.seed, |_| {});
        disk.carries(&mut stage.bridge);
        stage.open().await;
        let writing = stage.write(rate);
        sleep(around).await;
        if fault == Fault::Sync {
            spare_falls_behind(&stage).await;
        }
        disk.begin(fault);
        if fault == Fault::Sync {
            stands_still(&stage).await;
            spare_catches_up(&stage).await;
        }
        sleep(lasts).await;
        disk.end();
        sleep(around).await;
        writing.stop().await;
        stage.settle().await;
        match fault {
            Fault::Sync => was_said_but_seldom(&stage),
            // It is nobody's trouble: events go on, and are synced when it is their turn.
            _ => assert_eq!(loud_lines(&stage), [] as [Value; 0]),
        }
        let what = match fault {
            Fault::Sync => "fsync fails",
            _ => "fsync takes 2 s",
        };
        let fault = format!("{what} for {lasts:?} at {rate}/s");
        let judged = stage.finish().await.into_iter();
        rows.extend(judged.map(|(sink, verdict)| sink.has_all(&verdict, &fault)));
    }
    Page::Rows(rows)
}

async fn disk_read(run: Run) -> Page {
    let (rate, around) = run.size((500, Duration::from_secs(5)), (200, Duration::from_secs(2)));
    let disk = FaultyDisk::make();
    let mut stage = Stage::set(three_sinks().await, run.seed, |_| {});
    disk.carries(&mut stage.bridge);
    stage.open().await;
    let writing = stage.write(rate);
    for file in ["/state.redb", ".log", "/delivered/"] {
        sleep(around).await;
        stage.bridge.kill9();
        let before = journal_files(&stage);

        // For as long as it is tried: the start gives up, says how to go on, and nothing is set aside.
        disk.begin(Fault::Reads(file));
        let (ended, said) = stage.bridge.run_to_its_end().await;
        assert_eq!(ended.code(), Some(1), "{said}");
        let (_, last_word) = said.rsplit_once("cannot read ").expect("a file that cannot be read");
        assert!(last_word.contains(file), "{last_word}");
        assert!(last_word.contains(": Input/output error (os error 5)"), "{last_word}");
        assert!(last_word.contains("hint: the file was left as it is"), "{last_word}");
        assert_eq!(journal_files(&stage), before);
        disk.end();

        // Once: the start goes on by itself.
        disk.begin(Fault::OneRead(file));
        stage.bridge.launch().await;
        assert!(disk.is_over(), "{file}");
        let tried_again = stage.bridge.logged("the journal could not be read: trying again");
        let tried_again = tried_again.expect("it is said").to_string();
        assert!(tried_again.contains(file), "{tried_again}");
        let status = stage.bridge.status().await;
        assert!(status["journal"]["damage"].is_null(), "{status}");
    }
    writing.stop().await;
    stage.settle().await;
    let fault = format!("EIO for each read of a file, and for one, at {rate}/s");
    let judged = stage.finish().await.into_iter();
    Page::Rows(judged.map(|(sink, verdict)| sink.has_all(&verdict, &fault)).collect())
}

/// The names in the journal's directory.
fn journal_files(stage: &Stage) -> Vec<String> {
    let entries = std::fs::read_dir(stage.bridge.journal()).expect("the journal");
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("an entry").file_name();
    let mut names: Vec<_> = entries.map(|entry| name(entry).display().to_string()).collect();
    names.sort();
    names
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

/// The number of events that the sink that was down has not had.
async fn backlog(stage: &Stage) -> u64 {
    number(&stage.bridge.sink(stage.sinks[SPARE].name).await, "pending")
}

/// Takes the sink down, and waits until there is something for it.
async fn spare_falls_behind(stage: &Stage) {
    stage.sinks[SPARE].receiver.set(Mode::Down).await;
    until("there is a backlog", async || backlog(stage).await > 0).await;
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

/// The lines of the log about trouble with the disk.
fn loud_lines(stage: &Stage) -> Vec<Value> {
    let about_the_disk = ["journal", "state cannot", "positions.json", "segments"];
    let is_one = |line: &Value| {
        let loud = line["level"] == "WARN" || line["level"] == "ERROR";
        let message = line["message"].as_str().unwrap_or_default();
        loud && about_the_disk.iter().any(|words| message.contains(words))
    };
    stage.bridge.log().into_iter().filter(is_one).collect()
}
