//! An API server whose history is gone, or is another one: what was missed is stated, exactly, and
//! where nothing was missed nothing is said.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::cluster::{Stage, wall};
use crate::frame::{Company, Drill, Page, Row, Run};
use crate::oracle::Expected;
use crate::parts::{ApiServerOptions, Part as _};
use crate::truth::Version;
use crate::wait::{until, until_within};

pub(crate) const DRILLS: [Drill; 3] = [
    Drill {
        name: "api-server-absence",
        what: "a bridge that is away for longer than Events live, while etcd is compacted: what came \
               and went unseen lies within the interval that is stated, which is 5 s longer at most",
        full: "an absence of 60 s, Events that live for 20 s, at 40/s",
        short: Some("an absence of 14 s, Events that live for 8 s, at 40/s"),
        company: Company::Any,
        long: false,
        run: |run| Box::pin(absence(run)),
    },
    Drill {
        name: "api-server-restored",
        what: "an etcd that is restored from a snapshot, while the bridge runs and while it is down: a \
               new epoch is stated, and all that there is comes under the same ids",
        full: "behind the resume point, and already past it",
        short: None,
        company: Company::Any,
        long: false,
        run: |run| Box::pin(restored(run)),
    },
    Drill {
        name: "api-server-quiet",
        what: "an hour in which nothing happens but compactions, and watches that end: no gap, no \
               epoch, no warning, nothing repeated, and ready all the time",
        full: "60 compactions and as many ends of watches, two seconds each",
        short: None,
        company: Company::Any,
        long: false,
        run: |run| Box::pin(quiet(run)),
    },
];

/// The interval that is stated may be so much longer than what was missed.
const MAY_EXCEED: f64 = 5.0;
/// An open watch is probed every 15 s, and what is found is believed when it has stood for 30 s.
const EPOCH_IS_NOTICED_WITHIN: Duration = Duration::from_mins(5);

/// An interval that was stated.
struct Stated {
    from: Timestamp,
    to: Timestamp,
    skipped: u64,
}

impl Stated {
    /// The newest in a status.
    fn newest(status: &Value) -> Self {
        let gap = status["ingest"]["recentGaps"].as_array().and_then(|gaps| gaps.last());
        let gap = gap.unwrap_or_else(|| panic!("no gap in {status}"));
        let time = |end: &str| gap[end].as_str().expect("a time").parse().expect("a time");
        let skipped = gap["skippedIncrements"].as_u64().expect("a number");
        Self { from: time("from"), to: time("to"), skipped }
    }

    /// Asserts that it contains this, and exceeds it by no more than it may. Answers by how much.
    fn covers(&self, from: Timestamp, to: Timestamp) -> f64 {
        let Self { from: stated_from, to: stated_to, .. } = *self;
        let seconds = |early: Timestamp, late: Timestamp| late.duration_since(early).as_secs_f64();
        let excess = seconds(stated_from, from).max(0.0) + seconds(to, stated_to).max(0.0);
        let told = format!("{stated_from} to {stated_to} for {from} to {to}");
        assert!(stated_from <= from, "begins too late: {told}");
        assert!(excess <= MAY_EXCEED, "exceeds by {excess:.1} s: {told}");
        excess
    }
}

/// The metrics of gaps and epochs.
async fn stated_in_metrics(stage: &Stage) -> [(&'static str, String); 3] {
    let value = async |metric| (metric, stage.bridge.metric(metric).await);
    [
        value("tidings_source_gaps_total").await,
        value("tidings_source_epochs_total").await,
        value("tidings_source_skipped_increments_total").await,
    ]
}

async fn absence(run: Run) -> Page {
    let (away, ttl) = run.size((60, 20), (14, 8));
    let (away, ttl) = (Duration::from_secs(away), Duration::from_secs(ttl));
    let options = ApiServerOptions { event_ttl: Some(ttl), ..ApiServerOptions::default() };
    let mut stage = Stage::set(options, |_| {}).await;
    stage.open().await;
    stage.write("before", Duration::from_secs(3)).await.finish(&stage.truth).await;
    stage.all_has_arrived().await;

    let writing = stage.write("away", away + Duration::from_secs(6)).await;
    let arrived = stage.pager.ledger.distinct();
    until("its first events arrive", async || stage.pager.ledger.distinct() > arrived).await;
    stage.bridge.kill9();
    let killed = Timestamp::now();
    sleep(away).await;
    stage.cluster.etcd.compact(stage.cluster.etcd.current_revision());
    stage.open().await;
    let back = Timestamp::now();
    // For a moment there is a watch before the API server says that its history is gone.
    until("the gap is stated", async || stage.bridge.status().await["ingest"]["gaps"] == 1).await;
    let back_at = stage.newest().await;
    let over = Instant::now();
    writing.finish(&stage.truth).await;
    let last = stage.produced().pop().expect("something was written");
    stage.has_arrived(&[last]).await;
    let metrics = stated_in_metrics(&stage).await;
    let (status, verdict) = stage.end().await;

    let stated = Stated::newest(&status);
    assert_eq!(status["ingest"]["gaps"], 1, "{status}");
    let excess = stated.covers(killed, back);
    let first = stage.first_arrivals();
    let shown = stage.truth.versions();
    let arrived = |version: &Version| first.contains_key(&version.id());
    let (mut overtaken, mut gone) = (0_u64, 0);
    for (n, version) in shown.iter().enumerate() {
        if version.deleted || arrived(version) {
            continue;
        }
        let at = wall(version.at);
        let within = stated.from <= at && at <= stated.to;
        assert!(within, "{version:?} at {at} is missing outside {} to {}", stated.from, stated.to);
        // A list shows the newest version of each Event that there is: this was not one.
        let mut later = shown[n..].iter().filter(|later| later.uid == version.uid);
        let fate = later.find(|later| later.deleted || arrived(later));
        match fate {
            Some(fate) if !fate.deleted => overtaken += 1,
            Some(end) if end.resource_version <= back_at => gone += 1,
            _ => panic!("{version:?} is missing, was not overtaken, and ended by {fate:?} only"),
        }
    }
    assert!(gone > 0, "nothing came and went unseen");
    // What arrived is told as the truth has it, each with all that led to it.
    let came: Vec<Version> =
        shown.iter().filter(|version| version.deleted || arrived(version)).cloned().collect();
    let expected = Expected::every(&came);
    expected.judge("pager", &stage.pager.ledger.lock());
    let skipped = expected.skipped_increments((0, u64::MAX));
    // Each write is one increment.
    assert_eq!((stated.skipped, skipped), (overtaken, overtaken), "{verdict}; {status}");
    for (metric, value) in metrics {
        let stated =
            if metric.contains("skipped") { skipped } else { u64::from(metric.contains("gaps")) };
        assert_eq!(value, stated.to_string(), "{metric}");
    }
    let caught_up = first.values().max().map(|last| last.saturating_duration_since(over));
    let notes = format!(
        "{gone} came and were gone before it was back, within the stated {} to {}, which exceeds the \
         truth by {excess:.1} s; {skipped} increments came as part of others, as stated",
        stated.from, stated.to,
    );
    let fault = format!("away for {} s, TTL {} s, etcd compacted", away.as_secs(), ttl.as_secs());
    let row = verdict.row(&fault, "pager");
    Page::Rows(vec![Row { lost: Some(0), caught_up, notes, ..row }])
}

async fn restored(_: Run) -> Page {
    Page::Rows(vec![behind().await, past().await])
}

/// Restored under a running bridge, whose watch shows nothing from then on, not even an end.
async fn behind() -> Row {
    let mut stage = Stage::set(ApiServerOptions::default(), |_| {}).await;
    let restored = restore(&mut stage, 10, false).await;
    let (ready, why) = stage.bridge.readiness().await;
    assert!(ready, "{why}");
    stage.write_once("unseen", Duration::from_secs(2)).await;
    end_of_epoch(stage, "etcd restored, behind the resume point", restored).await
}

/// Restored while the bridge is down, and grown past its resume point.
async fn past() -> Row {
    let mut stage = Stage::set(ApiServerOptions::default(), |_| {}).await;
    let restored = restore(&mut stage, 3, true).await;
    let resume = stage.earlier().last().expect("something was written").resource_version;
    stage.write_once("unseen", Duration::from_secs(10)).await;
    let grown = stage.produced().pop().expect("something was written").resource_version;
    assert!(grown > resume, "the numbers of before are all given out again");
    stage.open().await;
    end_of_epoch(stage, "etcd restored, past the resume point", restored).await
}

/// Takes a snapshot, has so many seconds of writes delivered that it does not know, and goes back to
/// it; answers when what the bridge knew had ended, and when that was over.
async fn restore(stage: &mut Stage, undone: u64, kill: bool) -> Timestamp {
    stage.open().await;
    stage.write("before", Duration::from_secs(3)).await.finish(&stage.truth).await;
    stage.all_has_arrived().await;
    let snapshot = stage.file("snapshot.db");
    stage.cluster.etcd.snapshot_save(&snapshot);
    stage.write("undone", Duration::from_secs(undone)).await.finish(&stage.truth).await;
    stage.all_has_arrived().await;
    let ended = Timestamp::now();
    if kill {
        stage.bridge.kill9();
    }
    stage.cluster.etcd.restore_from(&snapshot).await;
    let admin = stage.admin.clone();
    let listed = async || Api::<Event>::all(admin.clone()).list(&ListParams::default()).await;
    until("the API server has found its etcd again", async || listed().await.is_ok()).await;
    stage.begin_truth_anew().await;
    ended
}

async fn end_of_epoch(mut stage: Stage, fault: &str, ended: Timestamp) -> Row {
    let began = Instant::now();
    until_within(EPOCH_IS_NOTICED_WITHIN, "the new epoch is stated", async || {
        stage.bridge.logged("a new epoch").is_some()
    })
    .await;
    let noticed = began.elapsed();
    stage.write("later", Duration::from_secs(3)).await.finish(&stage.truth).await;
    stage.all_has_arrived().await;
    let (status, verdict) = stage.end().await;
    assert_eq!(status["ingest"]["epochs"], 1, "{status}");
    let expected = Expected::every(&stage.produced()).after(stage.earlier());
    let score = expected.judge("pager", &stage.pager.ledger.lock());
    assert_eq!(score.lost, 0);
    let stated = Stated::newest(&status);
    let early = ended.duration_since(stated.from).as_secs_f64();
    assert!(stated.from <= ended, "begins too late: {} for {ended}", stated.from);
    assert!(early <= MAY_EXCEED, "begins {early:.1} s too early: {status}");
    let said = stage.bridge.log();
    let said = said.iter().find_map(|line| {
        line["message"].as_str().filter(|message| message.contains("its etcd was restored"))
    });
    Row {
        lost: Some(0),
        // Of two histories, which do not add up.
        delta: None,
        notes: format!(
            "“{}”; all that there is came again under the same ids; an epoch stated from {early:.1} s before the end of the old one; noticed after {:.0} s",
            said.expect("it is said why"),
            noticed.as_secs_f64(),
        ),
        ..verdict.row(fault, "pager")
    }
}

/// Minutes pass in seconds: the front has watches end soon, and each finds that its resume point
/// has been compacted meanwhile.
async fn quiet(_: Run) -> Page {
    const MINUTES: usize = 60;
    let mut stage = Stage::set(ApiServerOptions::default(), |_| {}).await;
    stage.open().await;
    stage.write("before", Duration::from_secs(3)).await.finish(&stage.truth).await;
    stage.all_has_arrived().await;
    stage.front.hurry(true);
    // It cuts what is open, which the bridge may say.
    until("that is over", async || stage.bridge.logged("answers again").is_some()).await;
    stage.watches().await;
    let warned = |stage: &Stage| {
        let log = stage.bridge.log().into_iter();
        log.filter(|line| line["level"] == "WARN" || line["level"] == "ERROR").collect::<Vec<_>>()
    };
    let before = warned(&stage).len();
    let maps = Api::<ConfigMap>::default_namespaced(stage.admin.clone());
    let lists = async |stage: &Stage| stage.source().await["lists"].as_u64().expect("a number");
    let (asked, mut asks) = (lists(&stage).await, 0);
    for minute in 0..MINUTES {
        let map = json!({"metadata": {"name": format!("minute-{minute}")}});
        let map: ConfigMap = serde_json::from_value(map).expect("a map");
        maps.create(&PostParams::default(), &map).await.expect("a new map");
        stage.cluster.etcd.compact(stage.cluster.etcd.current_revision());
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(2) {
            let (ready, why) = stage.bridge.readiness().await;
            assert!(ready, "{why}");
            asks += 1;
            sleep(Duration::from_millis(50)).await;
        }
    }
    let asked = lists(&stage).await - asked;
    let said = warned(&stage);
    assert_eq!(said.len(), before, "{said:#?}");
    stage.front.hurry(false);
    stage.write("after", Duration::from_secs(3)).await.finish(&stage.truth).await;
    stage.all_has_arrived().await;
    for (metric, value) in stated_in_metrics(&stage).await {
        assert_eq!(value, "0", "{metric}");
    }
    let (status, verdict) = stage.end().await;
    verdict.lost_nothing("pager");
    assert_eq!(verdict.repeated, 0, "{verdict}");
    for nothing in ["gaps", "epochs", "skippedIncrements"] {
        assert_eq!(status["ingest"][nothing], 0, "{status}");
    }
    let said = "no warning, no gap, no epoch, nothing repeated";
    let notes = format!("ready {asks} times of {asks}; {said}; {asked} lists");
    let fault = format!("{MINUTES} compactions, watches of 2 s");
    Page::Rows(vec![Row { notes, ..verdict.row(&fault, "pager") }])
}
