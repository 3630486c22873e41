//! Files of the journal that are taken away while the bridge runs: by hand, by a cleaner of temporary
//! files, with the whole directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;
use tokio::time::sleep;

use crate::frame::{Company, Drill, Page, Run};
use crate::parts::Part as _;
use crate::receiver::Mode;
use crate::scripted::{Stage, three_sinks};
use crate::wait::until;

pub(crate) const DRILLS: [Drill; 1] = [Drill {
    name: "unlinked",
    what: "the active segment, the state, and the journal's whole directory are removed under a \
           load, with a sink behind; then a kill -9",
    full: "each 3 times at 500/s",
    short: Some("each once at 300/s"),
    company: Company::Any,
    long: false,
    run: |run| Box::pin(unlinked(run)),
}];

const SPARE: usize = 2;

/// The part of a journal that is taken away.
#[derive(Clone, Copy)]
enum Taken {
    Segment,
    State,
    Directory,
}

impl Taken {
    fn take(self, journal: &Path) {
        let removed = match self {
            Self::Segment => fs::remove_file(newest_segment(journal)),
            Self::State => fs::remove_file(journal.join("state.redb")),
            Self::Directory => {
                // Renamed first, or what the bridge makes in it meanwhile would be in the way.
                let removed = journal.with_extension("removed");
                fs::rename(journal, &removed).and_then(|()| fs::remove_dir_all(removed))
            }
        };
        removed.expect("it is there");
    }
}

fn newest_segment(journal: &Path) -> PathBuf {
    let entries = fs::read_dir(journal).expect("the journal").map(|entry| entry.expect("an entry"));
    let segments =
        entries.map(|entry| entry.path()).filter(|path| path.extension() == Some("log".as_ref()));
    segments.max().expect("a segment")
}

async fn unlinked(run: Run) -> Page {
    let (rate, times, around) =
        run.size((500, 3, Duration::from_secs(5)), (300, 1, Duration::from_secs(2)));
    let mut stage = Stage::set(three_sinks().await, run.seed, |config| {
        // Segments of 1 MiB: some are sealed by then.
        config["journal"]["retention"] = json!({"size": "16MiB"});
    });
    stage.open().await;
    let writing = stage.write(rate);
    sleep(around).await;
    for taken in [Taken::Segment, Taken::State, Taken::Directory].repeat(times) {
        stage.sinks[SPARE].receiver.set(Mode::Down).await;
        sleep(around).await;
        let before = places(&stage).await;
        taken.take(&stage.bridge.journal());
        until("it is stated", async || places(&stage).await > before).await;
        is_well(&stage).await;
        stage.sinks[SPARE].receiver.set(Mode::Take).await;
        sleep(around).await;
    }
    nothing_can_be_put_back(&stage).await;
    sleep(around).await;
    let stated = places(&stage).await;
    stage.bridge.kill9();
    stage.open().await;
    writing.stop().await;
    stage.settle().await;
    is_well(&stage).await;
    let fault = format!("segment, state and directory, {times} × each at {rate}/s");
    let judged = stage.finish().await.into_iter().map(|(sink, verdict)| {
        // Sealed segments are gone with the directory, and what a sink had not had of them.
        let row = match sink.name {
            "audit" => sink.has_all(&verdict, &fault),
            _ => sink.has_what_is_not_stated(&verdict, &fault),
        };
        row.note(&format!("{stated} damages stated"))
    });
    Page::Rows(judged.collect())
}

/// How much damage is stated.
async fn places(stage: &Stage) -> u64 {
    let status = stage.bridge.status().await;
    status["journal"]["damage"]["places"].as_u64().unwrap_or_default()
}

/// Wherever the bridge is asked, it says that its journal can be written.
async fn is_well(stage: &Stage) {
    until("it is ready", async || stage.bridge.readiness().await.0).await;
    assert!(stage.bridge.status().await["journal"]["error"].is_null());
    assert_eq!(stage.bridge.metric("tidings_journal_writable").await, "1");
    until("status and metrics agree", async || {
        let counted = stage.bridge.metric("tidings_journal_damage_total").await;
        counted == places(stage).await.to_string()
    })
    .await;
}

/// Puts a file in the place of the directory for a while: then the bridge says so, wherever it is
/// asked, and goes on by itself afterwards.
async fn nothing_can_be_put_back(stage: &Stage) {
    let journal = stage.bridge.journal();
    let away = journal.with_extension("away");
    let exchange = || renameat_with(CWD, &journal, CWD, &away, RenameFlags::EXCHANGE);
    fs::write(&away, "in its place").expect("a file");
    exchange().expect("the file in its place");
    until("it says so", async || !stage.bridge.readiness().await.0).await;
    let (_, why) = stage.bridge.readiness().await;
    assert!(why.contains("the journal cannot be written"), "{why}");
    let status = stage.bridge.status().await;
    assert!(!status["journal"]["error"].is_null(), "{status}");
    assert_eq!(stage.bridge.metric("tidings_journal_writable").await, "0");
    exchange().expect("the directory");
    fs::remove_file(&away).expect("the file");
    is_well(stage).await;
}
