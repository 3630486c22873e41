//! What happens to sinks when the journal drops, loses or refuses what they had not had.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;
use tidings::{
    bridge::{BridgeError, FailureClass, SinkStart},
    journal::OpenError,
};
use tidings_log::OpenError as LogError;
use tidings_testkit::api_server::{ApiServer, EventObject, Options, Written};
use tokio::runtime::Runtime;

use crate::support::{
    MemorySink, Setup, Tuning, create, exchange, retry, server, settled, sink_status, stop, until,
};

/// Creates Events of some KiB each until `enough`.
async fn fill(server: &ApiServer, mut enough: impl FnMut() -> bool) -> u64 {
    let message = "x".repeat(8 << 10);
    let mut created = 0;
    while !enough() {
        for _ in 0..50 {
            let event = EventObject::about_pod("shop", &format!("web-{created}"), "A", &message);
            server.create(event).unwrap();
            created += 1;
        }
        assert!(created < 20_000, "retention drops nothing");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    created
}

#[tokio::test(flavor = "multi_thread")]
async fn what_retention_drops_before_a_stalled_sink_had_it_is_lost_and_counted() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let (stalled, prompt) = (MemorySink::default(), MemorySink::default());
    stalled.hold(true);
    let setup = || {
        // Its attempt does not fail meanwhile: the window would grow.
        let patient = Tuning { timeout: Duration::from_mins(10), ..Tuning::default() };
        let setup = Setup::new(&server, dir.path());
        let mut setup = setup.tuned("stalled", &stalled, patient).sink("prompt", &prompt);
        setup.retention = 8 << 20;
        setup
    };
    let bridge = setup().start().await;
    let view = bridge.view();
    until("a watch", || server.open_watches() == 1).await;
    // Twice what is kept, so that what the stalled sink is to read next is gone.
    let created = fill(&server, || view.log.oldest().ordinal() > 2000).await;
    until("all is journalled", || view.log.tail().ordinal() == created).await;
    let status = sink_status(&view, "stalled");
    assert_eq!((status.seen, status.pending, status.lost), (created, created, 0));
    settled(&view, "prompt", created).await;
    let is_shown = || sink_status(&view, "stalled").overrun == view.log.oldest().ordinal();
    until("what is gone is shown before the sink is back", is_shown).await;
    assert_eq!(sink_status(&view, "prompt").overrun, 0);
    stalled.hold(false);
    let status = settled(&view, "stalled", created).await;
    assert!(status.lost > 500 && status.lost <= view.log.oldest().ordinal(), "{status:?}");
    assert_eq!(status.overrun, 0);
    let received = stalled.received();
    assert_eq!(status.delivered, received.len() as u64);
    let mut seqs: Vec<_> = received.iter().map(|event| event.seq).collect();
    assert!(seqs.is_sorted());
    seqs.dedup();
    assert_eq!(status.lost, created - seqs.len() as u64, "exactly what it did not get");
    assert_eq!(sink_status(&view, "prompt").lost, 0);
    stop(bridge).await;
    let bridge = setup().start().await;
    let status = sink_status(&bridge.view(), "stalled");
    assert_eq!((status.seen, status.lost), (created, created - seqs.len() as u64));
    stop(bridge).await;
}

#[test]
fn what_retention_drops_is_known_after_a_crash() {
    let outer = Runtime::new().unwrap();
    let (server, dir) = (outer.block_on(async { server() }), tempfile::tempdir().unwrap());
    let sink = MemorySink::default();
    let start = || {
        let runtime = Runtime::new().unwrap();
        let mut setup = Setup::new(&server, dir.path()).sink("a", &sink);
        setup.retention = 1 << 20;
        let bridge = runtime.block_on(setup.start());
        (runtime, bridge)
    };
    let again = |event: &Written, count: i32| {
        server.patch_count("shop", &event.name, count, Timestamp::now()).unwrap().id()
    };
    let (runtime, bridge) = start();
    let early = create(&server, "early");
    // Or the first list would show the second version alone.
    runtime.block_on(sink.wait_for(1));
    again(&early, 5);
    runtime.block_on(sink.wait_for(2));
    let view = bridge.view();
    runtime.block_on(fill(&server, || view.log.oldest().ordinal() > 2));
    // Sooner than the view is saved when nothing asks for it.
    runtime.shutdown_timeout(Duration::from_secs(10));
    drop((view, bridge));
    let (runtime, bridge) = start();
    let sixth = again(&early, 6);
    let received = || sink.received().into_iter().find(|event| event.id == sixth);
    runtime.block_on(until("it arrives", || received().is_some()));
    runtime.block_on(stop(bridge));
    assert_eq!(received().unwrap().delta, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_is_new_starts_where_it_is_told() {
    let (server, dir, first) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let old = [create(&server, "one").id(), create(&server, "two").id()];
    let bridge = Setup::new(&server, dir.path()).sink("first", &first).start().await;
    first.wait_for(2).await;
    stop(bridge).await;
    let (now, oldest) = (MemorySink::default(), MemorySink::default());
    let setup = || {
        Setup::new(&server, dir.path()).sink("now", &now).tuned(
            "oldest",
            &oldest,
            Tuning { start: SinkStart::Oldest, ..Tuning::default() },
        )
    };
    let bridge = setup().start().await;
    oldest.wait_for(2).await;
    let next = create(&server, "three").id();
    oldest.wait_for(3).await;
    now.wait_for(1).await;
    let status = settled(&bridge.view(), "now", 1).await;
    assert_eq!((status.delivered, status.lost), (1, 0));
    stop(bridge).await;
    // What it was told then holds no longer: it has a place of its own.
    let bridge = setup().start().await;
    create(&server, "four");
    oldest.wait_for(4).await;
    now.wait_for(2).await;
    stop(bridge).await;
    assert_eq!(oldest.ids()[..3], [&old[..], std::slice::from_ref(&next)].concat());
    assert_eq!((now.ids().len(), &now.ids()[0]), (2, &next));
}

/// How a journal is harmed between two runs.
type Harm = fn(&Path);

fn remove(journal: &Path, name: &str) {
    std::fs::remove_file(journal.join(name)).unwrap();
}

fn scribble(path: PathBuf) {
    let length = std::fs::metadata(&path).unwrap().len();
    std::fs::write(path, vec![0x5a; usize::try_from(length).unwrap()]).unwrap();
}

fn segments(journal: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(journal).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|e| e == "log")).collect()
}

/// Two sinks, of which one has had everything and the other nothing of a list of many frames and
/// of what followed; then harm; then both have to have had everything, and the first one not all of
/// it again if `knows`.
async fn harmed(harm: Harm, knows: bool) {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let (behind, ahead) = (MemorySink::default(), MemorySink::default());
    behind.refuse(|_| Some(retry(FailureClass::Unavailable)));
    let setup = || Setup::new(&server, dir.path()).sink("behind", &behind).sink("ahead", &ahead);
    let mut ids: Vec<_> = (0..1200).map(|n| create(&server, &format!("web-{n}")).id()).collect();
    let bridge = setup().start().await;
    ahead.wait_for(1200).await;
    ids.extend((0..5).map(|n| create(&server, &format!("later-{n}")).id()));
    ahead.wait_for(1205).await;
    settled(&bridge.view(), "ahead", 1205).await;
    until("a failure", || sink_status(&bridge.view(), "behind").failed_attempts > 0).await;
    stop(bridge).await;
    harm(dir.path());
    ids.push(create(&server, "meanwhile").id());
    behind.accept_everything();
    let bridge = setup().start().await;
    until("all of it at both", || {
        [&behind, &ahead].iter().all(|sink| sink.ids().contains(&ids[1205]))
    })
    .await;
    for name in ["behind", "ahead"] {
        until("nothing pending", || sink_status(&bridge.view(), name).pending == 0).await;
    }
    stop(bridge).await;
    for (name, sink) in [("behind", &behind), ("ahead", &ahead)] {
        let had: std::collections::HashSet<_> = sink.ids().into_iter().collect();
        let missing = ids.iter().filter(|id| !had.contains(*id)).count();
        assert_eq!(missing, 0, "{name}");
        assert_eq!(had.len(), ids.len(), "{name}: the ids are the same");
    }
    if knows {
        assert_eq!(ahead.received().len(), ids.len(), "it knew what it had had");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_is_gone_is_made_up_for_from_the_positions() {
    harmed(|journal| remove(journal, "state.redb"), true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_is_damaged_is_made_up_for_from_the_positions() {
    harmed(|journal| scribble(journal.join("state.redb")), true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_state_and_positions_everything_comes_again_rather_than_not_at_all() {
    harmed(
        |journal| {
            remove(journal, "state.redb");
            remove(journal, "positions.json");
        },
        false,
    )
    .await;
    harmed(
        |journal| {
            scribble(journal.join("state.redb"));
            scribble(journal.join("positions.json"));
        },
        false,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_that_is_gone_or_damaged_from_end_to_end_is_read_again() {
    harmed(
        |journal| {
            segments(journal).into_iter().for_each(scribble);
            scribble(journal.join("state.redb"));
        },
        false,
    )
    .await;
    harmed(
        |journal| {
            for path in segments(journal) {
                std::fs::remove_file(path).unwrap();
            }
            remove(journal, "state.redb");
        },
        false,
    )
    .await;
    harmed(|journal| std::fs::remove_dir_all(journal).unwrap(), false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_gone_or_cut_beside_its_state_is_read_again() {
    let log_gone = |journal: &Path| {
        for path in segments(journal) {
            std::fs::remove_file(path).unwrap();
        }
    };
    harmed(log_gone, false).await;
    harmed(|journal| segments(journal).into_iter().for_each(scribble), false).await;
    harmed(
        |journal| {
            segments(journal).into_iter().for_each(scribble);
            remove(journal, "positions.json");
        },
        false,
    )
    .await;
    // Half of the last segment, and so of what the view of Events knows.
    harmed(
        |journal| {
            let path = segments(journal).pop().unwrap();
            let file = std::fs::File::options().write(true).open(path).unwrap();
            file.set_len(file.metadata().unwrap().len() / 2).unwrap();
        },
        false,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_in_the_place_of_files_are_set_aside() {
    let replace = |journal: &Path| {
        let mut files = segments(journal);
        let others = ["state.redb", "positions.json", "delivered/ahead"];
        files.extend(others.map(|name| journal.join(name)));
        for path in files {
            std::fs::remove_file(&path).unwrap();
            std::fs::create_dir(path).unwrap();
        }
    };
    harmed(replace, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_of_another_cluster_or_of_another_process_is_refused() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    create(&server, "one");
    let bridge = Setup::new(&server, dir.path()).sink("a", &sink).start().await;
    sink.wait_for(1).await;
    let held = Setup::new(&server, dir.path()).sink("a", &sink).try_start().await;
    let Err(error @ BridgeError::Journal(OpenError::Log(LogError::Held { .. }))) = held else {
        panic!()
    };
    assert!(error.to_string().contains("held by another process\nhint: "), "{error}");
    stop(bridge).await;
    let uid = "0b0b0b0b-2f3e-4b6e-9d7b-5f0f2b3f8a10".to_owned();
    let other = ApiServer::start(Options { cluster_uid: uid, ..Options::default() }).unwrap();
    // Whether the state knows of the cluster or only the log does.
    for state_too in [true, false] {
        if !state_too {
            remove(dir.path(), "state.redb");
        }
        let refused = Setup::new(&other, dir.path()).sink("a", &sink).try_start().await;
        let Err(error @ BridgeError::Cluster(_)) = refused else { panic!() };
        let text = error.to_string();
        for part in ["c1d4b1b6-2f3e", "0b0b0b0b-2f3e", "hint: ", &*dir.path().to_string_lossy()] {
            assert!(text.contains(part), "{text}");
        }
    }
    assert_eq!(sink.received().len(), 1);
    // A command that works on it lets go soon, which is waited for.
    let command = tidings::journal::open(dir.path()).unwrap();
    let letting_go = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        drop(command);
    });
    let bridge = Setup::new(&server, dir.path()).sink("a", &sink).start().await;
    letting_go.join().unwrap();
    stop(bridge).await;
}

#[test]
fn a_disk_that_takes_nothing_does_not_hold_up_the_end() {
    let (runtime, dir) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let journal = dir.path().join("journal");
    let bridge = runtime.block_on(async {
        let (server, sink) = (server(), MemorySink::default());
        let bridge = Setup::new(&server, &journal).sink("a", &sink).start().await;
        until("a watch", || server.open_watches() == 1).await;
        // The directory cannot be made again, and nothing in it.
        let away = dir.path().join("away");
        std::fs::write(&away, "in its place").unwrap();
        exchange(&journal, &away);
        fill(&server, || bridge.view().ingest.journal_error().is_some()).await;
        bridge
    });
    drop(bridge);
    // Waits for the thread that waits for the disk.
    drop(runtime);
}
