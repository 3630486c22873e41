//! Files of the journal that are taken away while the bridge runs.

use std::{fs, path::Path};

use tidings::bridge::{BridgeView, FailureClass};
use tidings_testkit::api_server::EventObject;

use crate::support::{
    MemorySink, Setup, create, free, invalid, retry, server, settled, sink_status, stop, take_away,
    until,
};

/// So many events wait for a sink when it happens.
const WAITING: u64 = 300;

fn newest_segment(journal: &Path) -> std::path::PathBuf {
    let entries = fs::read_dir(journal).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|e| e == "log")).max().unwrap()
}

fn damaged_files(view: &BridgeView) -> Vec<String> {
    view.log.damages().newest().into_iter().map(|damage| damage.file).collect()
}

/// Takes something away from a journal with a sink that is behind. Nothing may be missing afterwards:
/// what was taken is still open.
async fn nothing_is_missing_when(take_away: impl Fn(&Path)) {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let journal = dir.path().join("journal");
    let (behind, ahead) = (MemorySink::default(), MemorySink::default());
    behind.refuse(|_| Some(retry(FailureClass::Unavailable)));
    let setup = || Setup::new(&server, &journal).sink("behind", &behind).sink("ahead", &ahead);
    let bridge = setup().start().await;
    let view = bridge.view();
    let mut written = 0;
    while written < WAITING {
        create(&server, &format!("web-{written}"));
        written += 1;
    }
    settled(&view, "ahead", written).await;
    take_away(&journal);
    // Whoever comes first, reader or writer.
    behind.accept_everything();
    for _ in 0..20 {
        create(&server, &format!("web-{written}"));
        written += 1;
    }
    for sink in ["behind", "ahead"] {
        let status = settled(&view, sink, written).await;
        assert_eq!((status.delivered, status.lost), (written, 0), "{sink}");
    }
    until("it is stated", || view.log.damages().count() > 0).await;
    until("all is in its place again", || {
        ["lock", "state.redb"].iter().all(|name| journal.join(name).exists())
    })
    .await;
    create(&server, "one-more");
    written += 1;
    settled(&view, "behind", written).await;
    assert!(newest_segment(&journal).exists());
    stop(bridge).await;

    // The next run goes on from there.
    let bridge = setup().start().await;
    let view = bridge.view();
    create(&server, "after");
    written += 1;
    for sink in ["behind", "ahead"] {
        let status = settled(&view, sink, written).await;
        assert_eq!((status.delivered, status.lost), (written, 0), "{sink}");
    }
    assert_eq!(damaged_files(&view), [] as [&str; 0]);
    let mut ids = behind.ids();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len() as u64, written);
    assert_eq!(sink_status(&view, "behind").redelivered, 0);
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_active_segment_that_is_unlinked_costs_nothing_and_is_stated() {
    nothing_is_missing_when(|journal| fs::remove_file(newest_segment(journal)).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_removed_costs_nothing_that_is_open_and_is_stated() {
    nothing_is_missing_when(take_away).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_is_unlinked_costs_nothing_and_is_stated() {
    nothing_is_missing_when(|journal| fs::remove_file(journal.join("state.redb")).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sealed_segments_that_are_removed_are_lost_and_counted_and_the_sink_goes_on() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let journal = dir.path().join("journal");
    let sink = MemorySink::default();
    sink.refuse(|_| Some(retry(FailureClass::Unavailable)));
    let mut setup = Setup::new(&server, &journal).sink("behind", &sink);
    setup.retention = 16 << 20;
    let bridge = setup.start().await;
    let view = bridge.view();
    let mut written = 0;
    // More than a sink that is behind has in memory.
    let long = "long ".repeat(2000);
    while view.log.disk_bytes() < 12 << 20 {
        let name = format!("web-{written}");
        server.create(EventObject::about_pod("shop", &name, "A", &long)).unwrap();
        written += 1;
        if written % 50 == 0 {
            until("it is journalled", || view.log.tail().ordinal() == written).await;
        }
    }
    until("it is journalled", || view.log.tail().ordinal() == written).await;
    take_away(&journal);
    until("the directory is made again", || journal.join("lock").exists()).await;
    sink.accept_everything();
    create(&server, "after");
    written += 1;
    let status = settled(&view, "behind", written).await;
    assert!(status.lost > 0 && status.delivered > 0, "{status:?}");
    assert_eq!(status.delivered + status.lost, written);
    assert_eq!(status.delivered as usize, sink.ids().len());
    assert!(view.log.damages().records() >= status.lost);
    stop(bridge).await;
}

/// The state is made before all else of a journal but its lock, so it was there.
#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_is_missing_at_a_start_is_stated_and_at_a_first_one_it_is_not_missing() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    sink.refuse(|event| event.envelope.contains("poison").then(|| invalid("no")));
    let start = || Setup::new(&server, dir.path()).sink("a", &sink).start();
    fs::write(dir.path().join("lock"), "").unwrap();
    let bridge = start().await;
    assert_eq!(damaged_files(&bridge.view()), [] as [&str; 0]);
    create(&server, "web-0");
    create(&server, "poison");
    settled(&bridge.view(), "a", 2).await;
    drop(bridge);
    free(dir.path()).await;
    fs::remove_file(dir.path().join("state.redb")).unwrap();
    let bridge = start().await;
    let damage = bridge.view().log.damages().newest();
    assert_eq!((damage.len(), &*damage[0].file), (1, "state.redb"));
    assert!(damage[0].reason.starts_with("it is missing, and is begun anew"), "{damage:?}");
    stop(bridge).await;
    let bridge = start().await;
    assert_eq!(damaged_files(&bridge.view()), [] as [&str; 0], "once");
    stop(bridge).await;
}
