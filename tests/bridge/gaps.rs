//! What a gap hides, and what is said of it.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;
use tidings::{
    admin::{IngestStatus, status},
    bridge::{Bridge, BridgeView, SourceStart},
};
use tidings_testkit::api_server::{
    ApiServer, Ending, EventObject, Fault, On, Place, StreamFault, Written, seconds,
};

use crate::support::{
    MemorySink, Received, Setup, create, push_time, server, stop, stop_unpushed, until,
};

async fn start(server: &ApiServer, journal: &Path, sink: &MemorySink) -> Bridge {
    Setup::new(server, journal).sink("a", sink).start().await
}

fn ingest(view: &BridgeView) -> IngestStatus {
    status(view).ingest
}

fn patch(server: &ApiServer, event: &Written, count: i32) -> Written {
    server.patch_count("shop", &event.name, count, Timestamp::now()).unwrap()
}

fn short(events: &[Received]) -> Vec<(String, u64, bool)> {
    events.iter().map(|event| (event.id.clone(), event.delta, event.replayed)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_gives_the_newest_versions_and_says_what_it_hid() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let bridge = start(&server, dir.path(), &sink).await;
    let [known, quiet, gone] = ["known", "quiet", "gone"].map(|pod| create(&server, pod));
    sink.wait_for(3).await;
    stop(bridge).await;
    let down = Timestamp::now();

    let new = create(&server, "new");
    let new = [2, 3, 4].map(|count| patch(&server, &new, count))[2].clone();
    let known = [2, 3, 7].map(|count| patch(&server, &known, count))[2].clone();
    let single = create(&server, "single");
    server.delete("shop", &gone.name).unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.compact(server.revision());

    let bridge = start(&server, dir.path(), &sink).await;
    let received = sink.wait_for(6).await;
    until("the gap is stated", || ingest(&bridge.view()).gaps == 1).await;
    let ingest = ingest(&bridge.view());
    let missed = (Timestamp::now() - down).total(jiff::Unit::Second).unwrap();
    // In the order of their versions; `new` was created after the first start, so all is news.
    let expected = [(new.id(), 4, true), (known.id(), 6, true), (single.id(), 1, true)];
    assert_eq!(short(&received[3..]), expected);
    assert_eq!(ingest.skipped_increments, 3 + 5);
    assert!((0.3..=missed + 5.0).contains(&ingest.gap_seconds), "{ingest:?}, {missed} s");
    assert_eq!(ingest.epochs, 0);

    // What the gap took is forgotten; what it left is not.
    let mut again = EventObject::about_pod("shop", "gone", "Started", "another, of the same uid");
    again.metadata.uid = gone.uid;
    again.count = 3;
    let again = server.create(again).unwrap();
    let quiet = patch(&server, &quiet, 2);
    let received = sink.wait_for(8).await;
    assert_eq!(short(&received[6..]), [(again.id(), 3, false), (quiet.id(), 1, false)]);
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_with_nothing_newer_is_none() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    create(&server, "one");
    let bridge = start(&server, dir.path(), &sink).await;
    sink.wait_for(1).await;
    stop(bridge).await;
    server.skip_revisions(100);
    server.compact(server.revision());
    let bridge = start(&server, dir.path(), &sink).await;
    // The probe, the watch that is told so, and the list.
    until("a watch after a list", || {
        let sources = status(&bridge.view()).sources;
        sources.iter().any(|source| source.lists == 2 && source.stream_open)
    })
    .await;
    let next = create(&server, "two");
    let received = sink.wait_for(2).await;
    assert_eq!(short(&received[1..]), [(next.id(), 1, false)]);
    let ingest = ingest(&bridge.view());
    assert_eq!((ingest.gaps, ingest.skipped_increments), (0, 0), "{ingest:?}");
    assert!(ingest.gap_seconds < f64::EPSILON, "{ingest:?}");
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_under_a_running_bridge_is_measured_from_the_last_sign_of_life() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let bridge = start(&server, dir.path(), &sink).await;
    until("a watch", || server.open_watches() == 1).await;
    let event = create(&server, "one");
    sink.wait_for(1).await;
    let outage = server.set_fault(On::Any, None, Fault::Unavailable);
    server.cut_connections();
    until("the outage is noticed", || server.fault_hits(outage) > 0).await;
    let patched = [2, 3, 4].map(|count| patch(&server, &event, count))[2].clone();
    server.compact(server.revision());
    server.clear_faults();
    let received = sink.wait_for(2).await;
    assert_eq!(short(&received[1..]), [(patched.id(), 3, true)]);
    until("the gap is stated", || ingest(&bridge.view()).gaps == 1).await;
    let ingest = ingest(&bridge.view());
    assert_eq!(ingest.skipped_increments, 2);
    // The first wait after the cut is of 0.8 s at the least.
    assert!((0.8..60.0).contains(&ingest.gap_seconds), "{ingest:?}");
    stop(bridge).await;
}

/// A bridge comes back, and its watch ends after `read` of the Events that were written meanwhile.
async fn cut_short(server: &ApiServer, journal: &Path, sink: &MemorySink, read: usize) -> Bridge {
    let cut = StreamFault::Cut(Place::BetweenLines, Ending::Reset);
    server.fail_once(On::Watch, Fault::Stream { after: read, then: cut });
    // And the next does not come before what the test does to the history.
    server.set_fault(On::Watch, None, Fault::Unavailable);
    let before = sink.received().len();
    let bridge = start(server, journal, sink).await;
    sink.wait_for(before + read).await;
    bridge
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_behind_a_catch_up_that_was_cut_short_begins_before_what_was_not_read() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let up = Timestamp::now();
    let bridge = start(&server, dir.path(), &sink).await;
    create(&server, "before");
    sink.wait_for(1).await;
    stop(bridge).await;
    (0..10).for_each(|n| drop(create(&server, &format!("missed-{n}"))));
    let missed = Timestamp::now();
    // A gap is stated to begin a second before the last sign of life.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let bridge = cut_short(&server, dir.path(), &sink, 3).await;
    server.compact(server.revision());
    server.clear_faults();
    until("the gap is stated", || ingest(&bridge.view()).gaps == 1).await;
    let gap = ingest(&bridge.view()).recent_gaps.remove(0);
    stop(bridge).await;
    let from: Timestamp = gap.from.parse().unwrap();
    assert!(from <= missed, "{gap:?}, missed at {missed}");
    assert!(from >= up - Duration::from_secs(1), "{gap:?}, up at {up}");
    assert_eq!(gap.replayed, 7);
}

/// The Events of a catch-up that was cut short are no sign of life, and witnesses all the same.
#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_restored_to_before_a_catch_up_that_was_cut_short_is_a_new_epoch() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let bridge = start(&server, dir.path(), &sink).await;
    let kept = create(&server, "kept").id();
    sink.wait_for(1).await;
    stop(bridge).await;
    let snapshot = server.snapshot();
    (0..10).for_each(|n| drop(create(&server, &format!("lost-{n}"))));
    let bridge = cut_short(&server, dir.path(), &sink, 3).await;
    stop(bridge).await;
    server.clear_faults();
    server.restore(&snapshot);
    let after: Vec<_> = (0..20).map(|n| create(&server, &format!("after-{n}")).id()).collect();
    let read = sink.received().len();
    let bridge = start(&server, dir.path(), &sink).await;
    sink.wait_for(read + 21).await;
    until("a new epoch", || ingest(&bridge.view()).epochs == 1).await;
    stop(bridge).await;
    assert_eq!(sink.ids()[read..], [std::slice::from_ref(&kept), &after].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn increments_are_of_what_happened_since_the_first_start() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let counted = |pod: &str, count, created: Timestamp| {
        let mut event = EventObject::about_pod("shop", pod, "BackOff", "Back-off restarting");
        event.count = count;
        event.metadata.creation_timestamp = Some(seconds(created));
        server.create(event).unwrap()
    };
    let before = Timestamp::now() - Duration::from_secs(3600);
    let old = counted("old", 50, before);
    let bridge = start(&server, dir.path(), &sink).await;
    sink.wait_for(1).await;
    let steps = [
        (old.id(), 1),
        (patch(&server, &old, 53).id(), 3),
        // A recorder that started over, and what follows.
        (patch(&server, &old, 2).id(), 0),
        (patch(&server, &old, 4).id(), 2),
        (counted("found late", 9, before).id(), 1),
        (counted("new", 9, Timestamp::now() + Duration::from_secs(1)).id(), 9),
    ];
    let received = sink.wait_for(steps.len()).await;
    let deltas: Vec<_> = received.into_iter().map(|event| (event.id, event.delta)).collect();
    assert_eq!(deltas, steps);
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_of_thousands_is_in_order_and_survives_a_list_that_breaks_off() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let bridge = start(&server, dir.path(), &sink).await;
    let first = create(&server, "first");
    sink.wait_for(1).await;
    stop(bridge).await;
    let written: Vec<_> = (0..1800).map(|n| create(&server, &format!("web-{}", n % 7))).collect();
    patch(&server, &first, 2);
    server.compact(server.revision());
    // The probe, then two pages, then an answer that is none.
    for _ in 0..3 {
        server.fail_once(On::List, Fault::Delay(Duration::ZERO));
    }
    server.fail_once(On::List, Fault::Html { code: 200 });
    let bridge = start(&server, dir.path(), &sink).await;
    let received = sink.wait_for(1802).await;
    stop(bridge).await;
    assert_eq!(received.len(), 1802);
    let ids: Vec<_> = written.iter().map(Written::id).collect();
    assert_eq!(received[1..1801].iter().map(|event| event.id.clone()).collect::<Vec<_>>(), ids);
    assert!(received[1..].iter().all(|event| event.replayed && event.delta == 1));
    assert!(
        std::fs::read_dir(dir.path())
            .unwrap()
            .flatten()
            .all(|entry| { !entry.file_name().to_string_lossy().starts_with("staging-") })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_right_behind_an_error_of_the_watch_is_no_gap() {
    for then in [StreamFault::InternalError, StreamFault::too_many_requests()] {
        let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
        server.fail_once(On::Watch, Fault::Stream { after: 1, then });
        let bridge = start(&server, dir.path(), &sink).await;
        until("a watch", || server.open_watches() == 1).await;
        let event = create(&server, "web");
        sink.wait_for(1).await;
        let brief = create(&server, "brief");
        let mut expected = vec![event.id(), brief.id()];
        expected.extend((2..8).map(|count| patch(&server, &event, count).id()));
        server.delete("shop", &brief.name).unwrap();
        let received = sink.wait_for(8).await;
        assert_eq!(received.iter().map(|event| event.id.clone()).collect::<Vec<_>>(), expected);
        assert!(received.iter().all(|event| event.delta == 1 && !event.replayed));
        assert_eq!(ingest(&bridge.view()).gaps, 0);
        stop(bridge).await;
    }
}

/// Copies the files of a journal.
fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap().flatten().filter(|e| e.path().is_file()) {
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn logs(journal: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(journal).unwrap().flatten().map(|entry| entry.path());
    files.filter(|path| path.extension().is_some_and(|e| e == "log")).collect()
}

/// Two journals of a bridge that has read one Event, and when it was stopped.
async fn journals_of_one_event(
    server: &ApiServer,
    sink: &MemorySink,
) -> ([tempfile::TempDir; 2], Timestamp) {
    let [before, after] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    create(server, "first");
    let bridge = start(server, before.path(), sink).await;
    sink.wait_for(1).await;
    stop(bridge).await;
    let stopped = Timestamp::now();
    copy(before.path(), after.path());
    ([before, after], stopped)
}

/// Leaves so many of the bytes of the newest segment.
fn cut_the_log(journal: &Path, left: impl FnOnce(u64) -> u64) {
    let newest = logs(journal).into_iter().max().unwrap();
    let log = std::fs::File::options().write(true).open(newest).unwrap();
    log.set_len(left(log.metadata().unwrap().len())).unwrap();
}

/// Two crashes in the last moments of a list, as they leave the journal: with the state of before,
/// and the log of after, without its last frame if that was not written.
async fn crash_at_the_end_of_a_gap(last_frame_is_written: bool) {
    let (server, sink) = (server(), MemorySink::default());
    let ([before, after], down) = journals_of_one_event(&server, &sink).await;
    // So many fill two frames, and the last one of the list has nothing but the resume point.
    for n in 0..1000 {
        let event = create(&server, &format!("web-{n}"));
        patch(&server, &event, 3);
    }
    server.compact(server.revision());
    let bridge = start(&server, after.path(), &MemorySink::default()).await;
    until("the gap is stated", || ingest(&bridge.view()).gaps == 1).await;
    let stated = ingest(&bridge.view()).recent_gaps.remove(0);
    stop(bridge).await;
    assert_eq!((stated.replayed, stated.skipped_increments), (1000, 2000));

    std::fs::copy(before.path().join("state.redb"), after.path().join("state.redb")).unwrap();
    if !last_frame_is_written {
        cut_the_log(after.path(), |bytes| bytes - 1);
    }
    let bridge = start(&server, after.path(), &MemorySink::default()).await;
    until("the gap is stated", || ingest(&bridge.view()).gaps == 1).await;
    let ingest = ingest(&bridge.view());
    stop(bridge).await;
    let again = &ingest.recent_gaps[0];
    assert_eq!((again.replayed, again.skipped_increments), (1000, 2000));
    assert_eq!((ingest.skipped_increments, ingest.epochs), (2000, 0));
    assert_eq!(again.from, stated.from);
    assert!(again.from.parse::<Timestamp>().unwrap() < down, "{again:?} {down}");
    assert!(again.to.parse::<Timestamp>().unwrap() > down, "{again:?} {down}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_before_the_end_of_a_list_does_not_hide_the_gap() {
    crash_at_the_end_of_a_gap(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_right_after_a_list_does_not_hide_the_gap() {
    crash_at_the_end_of_a_gap(true).await;
}

/// A crash in the midst of a list, behind which the API server has the history that it did not have
/// before it: an Event that was not exported yet, with a version older than what was.
#[tokio::test(flavor = "multi_thread")]
async fn what_follows_a_list_that_a_crash_cut_short_is_in_order_though_the_history_is_back() {
    let (server, sink) = (server(), MemorySink::default());
    let ([before, after], _) = journals_of_one_event(&server, &sink).await;
    let early = create(&server, "web-0");
    for n in 0..1000 {
        let event = create(&server, &format!("web-{n}"));
        patch(&server, &event, 3);
    }
    patch(&server, &early, 2);
    server.fail_once(On::Watch, Fault::Gone);
    let bridge = start(&server, after.path(), &MemorySink::default()).await;
    until("the gap is stated", || ingest(&bridge.view()).gaps == 1).await;
    stop(bridge).await;
    std::fs::copy(before.path().join("state.redb"), after.path().join("state.redb")).unwrap();
    cut_the_log(after.path(), |bytes| bytes * 3 / 4);

    let sink = MemorySink::default();
    let bridge = start(&server, after.path(), &sink).await;
    until("the gap is stated", || ingest(&bridge.view()).gaps == 1).await;
    let last = create(&server, "last");
    until("the last is there", || sink.received().iter().any(|event| event.id == last.id())).await;
    let stated = ingest(&bridge.view());
    stop(bridge).await;
    let received = sink.received();
    let version =
        |event: &Received| -> u64 { event.id.rsplit('-').next().unwrap().parse().unwrap() };
    assert!(received.is_sorted_by_key(version), "{} arrived", received.len());
    assert_eq!((stated.gaps, stated.skipped_increments), (1, 2001));
    assert_eq!(received.iter().map(|event| event.delta).sum::<u64>(), 3002 + 1);
}

/// Restores a server under a bridge that is down to before the last that it read, and lets it go on
/// past the resume point; with `compacted` the history that shows it is gone, too. Everything has to
/// come, once.
async fn restored_and_grown_past(compacted: bool) {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let kept = create(&server, "kept").id();
    let snapshot = server.snapshot();
    let bridge = start(&server, dir.path(), &sink).await;
    until("a watch", || server.open_watches() == 1).await;
    for n in 0..5 {
        create(&server, &format!("lost-{n}"));
    }
    sink.wait_for(6).await;
    stop(bridge).await;
    let (resume, down) = (server.revision(), Timestamp::now());
    server.restore(&snapshot);
    let after: Vec<_> = (0..10).map(|n| create(&server, &format!("after-{n}")).id()).collect();
    assert!(server.revision() > resume);
    if compacted {
        server.compact(server.revision());
    }
    let bridge = start(&server, dir.path(), &sink).await;
    sink.wait_for(17).await;
    assert_eq!(sink.ids()[6..], [std::slice::from_ref(&kept), &after].concat());
    let next = create(&server, "next").id();
    sink.wait_for(18).await;
    let stated = ingest(&bridge.view());
    stop(bridge).await;
    assert_eq!((stated.epochs, stated.gaps, stated.recent_gaps.len()), (1, 0, 1), "{stated:?}");
    let gap = &stated.recent_gaps[0];
    assert!(gap.epoch && gap.from.parse::<Timestamp>().unwrap() < down, "{gap:?} {down}");
    let bridge = start(&server, dir.path(), &sink).await;
    let last = create(&server, "last").id();
    sink.wait_for(19).await;
    assert_eq!(ingest(&bridge.view()).epochs, 0);
    stop(bridge).await;
    assert_eq!(sink.ids()[17..], [next, last]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_restored_and_grown_past_the_resume_point_is_a_new_epoch() {
    restored_and_grown_past(false).await;
}

/// A crash before the last frame of the list that begins a new epoch. All of it comes again then, and
/// is stated once.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_epoch_that_a_crash_cut_short_is_stated_as_what_is_listed() {
    let (server, sink) = (server(), MemorySink::default());
    let [before, after] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let snapshot = server.snapshot();
    let bridge = start(&server, before.path(), &sink).await;
    create(&server, "lost");
    sink.wait_for(1).await;
    stop(bridge).await;
    copy(before.path(), after.path());
    server.restore(&snapshot);
    for n in 0..1001 {
        create(&server, &format!("web-{n}"));
    }
    for crashed in [false, true] {
        let bridge = start(&server, after.path(), &MemorySink::default()).await;
        until("the epoch is stated", || ingest(&bridge.view()).epochs == 1).await;
        let stated = ingest(&bridge.view()).recent_gaps;
        stop(bridge).await;
        assert_eq!((stated.len(), stated[0].replayed), (1, 1001), "{crashed}: {stated:?}");
        std::fs::copy(before.path().join("state.redb"), after.path().join("state.redb")).unwrap();
        cut_the_log(after.path(), |bytes| bytes - 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_contradicts_what_was_read_is_of_a_new_epoch() {
    restored_and_grown_past(true).await;
}

/// What a journal has lost between two runs.
type Lose = fn(&Path);

#[tokio::test(flavor = "multi_thread")]
async fn an_ordinary_gap_is_no_new_epoch_however_the_source_began_and_whatever_was_lost() {
    let lost: [(&str, Lose); 3] = [
        ("nothing", |_| {}),
        ("the state", |journal| std::fs::remove_file(journal.join("state.redb")).unwrap()),
        ("the log", |journal| logs(journal).iter().for_each(|l| std::fs::remove_file(l).unwrap())),
    ];
    let hour = SourceStart::Since(Duration::from_secs(3600));
    for begin in [SourceStart::All, SourceStart::Now, hour] {
        for (what, lose) in lost {
            let (server, dir) = (server(), tempfile::tempdir().unwrap());
            let sink = MemorySink::default();
            let setup = || {
                let mut setup = Setup::new(&server, dir.path()).sink("a", &sink);
                setup.start = begin;
                setup.field_selector = "type=Normal".to_owned();
                setup.start()
            };
            let old = Some(seconds(Timestamp::now() - Duration::from_secs(7200)));
            let mut before = EventObject::about_pod("shop", "before", "Started", "before");
            before.metadata.creation_timestamp.clone_from(&old);
            (before.first_timestamp, before.last_timestamp) = (old.clone(), old);
            server.create(before).unwrap();
            let bridge = setup().await;
            until("a watch", || server.open_watches() == 1).await;
            let [first, gone] = ["first", "gone"].map(|pod| create(&server, pod));
            // Out of the selection, and into it again.
            for kind in ["Warning", "Normal"] {
                server.patch("shop", &first.name, &serde_json::json!({"type": kind})).unwrap();
            }
            let last = format!("{}-{}", first.uid, server.revision());
            until("all of it", || sink.ids().contains(&last)).await;
            stop(bridge).await;
            lose(dir.path());
            server.delete("shop", &gone.name).unwrap();
            let new = create(&server, "new").id();
            server.compact(server.revision());
            let bridge = setup().await;
            until("a watch", || server.open_watches() == 1).await;
            // What was lost with the log may be taken for what was before the start.
            if what != "the log" {
                until("what is new", || sink.ids().contains(&new)).await;
            }
            assert_eq!(ingest(&bridge.view()).epochs, 0, "{begin:?}, lost: {what}");
            stop(bridge).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gaps_of_two_sources_are_both_told() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let setup = || {
        let mut setup = Setup::new(&server, dir.path()).sink("a", &sink);
        setup.namespaces = vec!["shop".to_owned(), "bank".to_owned()];
        setup.start()
    };
    let in_bank = |pod| {
        server.create(EventObject::about_pod("bank", pod, "Started", "Started")).unwrap();
    };
    let bridge = setup().await;
    until("two watches", || server.open_watches() == 2).await;
    create(&server, "one");
    in_bank("one");
    sink.wait_for(2).await;
    stop(bridge).await;
    create(&server, "two");
    in_bank("two");
    in_bank("three");
    server.compact(server.revision());
    let bridge = setup().await;
    until("both are stated", || ingest(&bridge.view()).gaps == 2).await;
    let recent = ingest(&bridge.view()).recent_gaps;
    let mut told: Vec<_> = recent.iter().map(|gap| (&*gap.source, gap.replayed)).collect();
    told.sort_unstable();
    assert_eq!(told, [("bank", 2), ("shop", 1)]);
    stop(bridge).await;
}

#[tokio::test(start_paused = true)]
async fn a_quiet_time_with_compactions_is_no_gap_and_changes_nothing() {
    let time = tokio::spawn(push_time(Duration::from_millis(20)));
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let bridge = start(&server, dir.path(), &sink).await;
    create(&server, "one");
    sink.wait_for(1).await;
    let view = bridge.view();
    until("a watch", || status(&view).sources[0].stream_open).await;
    time.abort();
    let time = tokio::spawn(push_time(Duration::from_millis(50)));
    // Half an hour, in which other resources are written, and history is cut off again and again.
    for second in 0..1800 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.skip_revisions(1);
        if second % 300 == 0 {
            server.compact(server.revision());
        }
    }
    time.abort();
    let time = tokio::spawn(push_time(Duration::from_millis(20)));
    let next = create(&server, "two").id();
    sink.wait_for(2).await;
    let ingest = ingest(&view);
    assert_eq!((ingest.gaps, ingest.epochs, ingest.recent_gaps.len()), (0, 0, 0), "{ingest:?}");
    assert!(status(&view).sources[0].lists >= 4, "{:?}", status(&view).sources);
    assert_eq!(sink.ids()[1], next);
    stop_unpushed(time, bridge).await;
}
