//! History that is gone: what was in it, and what is said about it.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams};
use tempfile::TempDir;

use crate::oracle::Expected;
use crate::parts::Part as _;
use crate::stage::Stage;
use crate::truth::Truth;
use crate::wait::{until, until_within};
use crate::writers::Load;

/// The bridge probes an open watch every 15 s, and believes what it finds when it has stood for
/// 30 s.
const EPOCH_IS_NOTICED_WITHIN: Duration = Duration::from_secs(75);

#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_while_the_bridge_is_down_is_a_gap_that_is_stated() {
    let mut stage = Stage::set().await;
    let admin = stage.cluster.admin().await;
    stage.bridge.launch().await;
    let load = Load { events: 500, repeated: 100, ..Load::default() };
    load.write(&admin, &stage.truth).await;
    stage.all_has_arrived().await;
    stage.bridge.stop_in_order().await;

    let (after, from) = (newest(&stage.truth), Timestamp::now());
    Load { occurrences: 5..=8, ..load.clone() }.write(&admin, &stage.truth).await;
    Load { prefix: "hidden", ..load.clone() }.write(&admin, &stage.truth).await;
    // Known before, and gone after: the end of an Event is not news, and no reason to keep it.
    let events = Api::<Event>::namespaced(admin.clone(), "team-1");
    events.delete("event-1", &DeleteParams::default()).await.expect("deleted");
    until("the deletion is seen", async || newest_seen_is_a_deletion(&stage.truth)).await;
    stage.cluster.etcd.compact(stage.cluster.etcd.current_revision());
    let (up_to, to) = (newest(&stage.truth), Timestamp::now());

    stage.bridge.launch().await;
    let gap = (after, up_to);
    stage.has_arrived(&Expected::but_for(&stage.truth.versions(), gap)).await;
    // And life goes on, for old Events and new ones.
    Load { occurrences: 9..=10, ..load.clone() }.write(&admin, &stage.truth).await;
    Load { prefix: "later", events: 100, repeated: 20, ..load }.write(&admin, &stage.truth).await;
    let expected = Expected::but_for(&stage.truth.versions(), gap);
    stage.has_arrived(&expected).await;

    let skipped = expected.skipped_increments(gap);
    assert!(skipped > 0);
    let stated = stage.bridge.said("a gap in the watch").await;
    assert_eq!(stated["skipped_increments"], skipped, "{stated}");
    let told = |end: &str| stated[end].as_str().and_then(|time| time.parse::<Timestamp>().ok());
    assert!(told("from").expect("a time") < from && told("to").expect("a time") > to, "{stated}");
    let metric = async |name| stage.bridge.metric(name).await;
    let seconds: f64 = metric("tidings_source_gap_seconds_total").await.parse().expect("a number");
    assert!(seconds > to.duration_since(from).as_secs_f64(), "{seconds} s");
    assert_eq!(metric("tidings_source_skipped_increments_total").await, skipped.to_string());
    assert_eq!(metric("tidings_source_gaps_total").await, "1");
    eprintln!("  stated: {stated}");
    stage.finish_with(|versions| Expected::but_for(versions, gap)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_etcd_is_a_new_epoch() {
    let mut stage = Stage::set().await;
    let admin = stage.cluster.admin().await;
    stage.bridge.launch().await;
    let (load, backup) = Backup::of_some_events(&stage, &admin).await;
    // What the restored etcd will not know; enough that it does not count up to it again meanwhile.
    Load { occurrences: 5..=6, ..load.clone() }.write(&admin, &stage.truth).await;
    Load { prefix: "undone", events: 600, repeated: 0, ..load.clone() }
        .write(&admin, &stage.truth)
        .await;
    stage.all_has_arrived().await;

    let before = backup.restore(&mut stage, &admin).await;
    Load { prefix: "unseen", events: 100, repeated: 0, ..load.clone() }
        .write(&admin, &stage.truth)
        .await;
    until_within(EPOCH_IS_NOTICED_WITHIN, "the new epoch is stated", async || {
        stage.bridge.logged("a new epoch").is_some()
    })
    .await;
    Load { occurrences: 5..=8, ..load.clone() }.write(&admin, &stage.truth).await;
    Load { prefix: "later", events: 100, repeated: 20, ..load }.write(&admin, &stage.truth).await;

    assert_eq!(stage.bridge.metric("tidings_source_epochs_total").await, "1");
    let before = before.versions();
    stage.finish_with(|versions| Expected::every(versions).after(&before)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_restored_and_grown_past_the_resume_point_is_a_new_epoch() {
    let mut stage = Stage::set().await;
    let admin = stage.cluster.admin().await;
    stage.bridge.launch().await;
    let (load, backup) = Backup::of_some_events(&stage, &admin).await;
    let undone = Load { prefix: "undone", events: 100, repeated: 0, ..load.clone() };
    undone.write(&admin, &stage.truth).await;
    stage.all_has_arrived().await;
    let (down, resume) = (Timestamp::now(), newest(&stage.truth));
    stage.bridge.kill9();

    let before = backup.restore(&mut stage, &admin).await;
    let unseen = Load { prefix: "unseen", events: 600, repeated: 0, ..load.clone() };
    unseen.write(&admin, &stage.truth).await;
    assert!(newest(&stage.truth) > resume, "the numbers of before are all given out again");

    stage.bridge.launch().await;
    until_within(EPOCH_IS_NOTICED_WITHIN, "the new epoch is stated", async || {
        stage.bridge.logged("a new epoch").is_some()
    })
    .await;
    Load { prefix: "later", events: 100, repeated: 20, ..load }.write(&admin, &stage.truth).await;
    assert_eq!(stage.bridge.metric("tidings_source_epochs_total").await, "1");
    let stated = stage.bridge.said("a new epoch").await;
    let from: Timestamp = stated["from"].as_str().expect("a time").parse().expect("a time");
    let early = down.duration_since(from).as_secs_f64();
    assert!((0.0..=5.0).contains(&early), "{early} s before the end: {stated}");
    eprintln!("  stated: {stated}; it begins {early:.1} s before the kill");
    let before = before.versions();
    stage.finish_with(|versions| Expected::every(versions).after(&before)).await;
}

/// The snapshot of etcd when the first events had arrived.
struct Backup {
    folder: TempDir,
}

impl Backup {
    /// Has some written and waits for them. The load can go on.
    async fn of_some_events(stage: &Stage, admin: &Client) -> (Load, Self) {
        let load = Load { events: 300, repeated: 60, ..Load::default() };
        load.write(admin, &stage.truth).await;
        stage.all_has_arrived().await;
        let backup = Self { folder: tempfile::tempdir().expect("a temporary folder") };
        stage.cluster.etcd.snapshot_save(&backup.file());
        (load, backup)
    }

    /// Puts it in etcd's place under the running API server. The watch of the truth is then as
    /// blind as the bridge's, so from here on it is another one; answers that of before.
    async fn restore(&self, stage: &mut Stage, admin: &Client) -> Truth {
        stage.cluster.etcd.restore_from(&self.file()).await;
        let list = async || Api::<Event>::all(admin.clone()).list(&ListParams::default()).await;
        until("the API server has found its etcd again", async || list().await.is_ok()).await;
        std::mem::replace(&mut stage.truth, Truth::start(admin.clone()).await)
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("snapshot.db")
    }
}

/// The newest resourceVersion that a watch has shown.
fn newest(truth: &Truth) -> u64 {
    truth.versions().last().expect("something was written").resource_version
}

fn newest_seen_is_a_deletion(truth: &Truth) -> bool {
    truth.versions().last().is_some_and(|version| version.deleted)
}
