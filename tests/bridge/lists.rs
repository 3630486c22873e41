//! Lists that are larger than what the journal has room for.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use jiff::Timestamp;
use tidings::{admin::status, bridge::BridgeView};
use tidings_testkit::api_server::{ApiServer, Fault, On, Written};

use crate::support::{MemorySink, Setup, create, free, server, stop, until};

/// A thread that looks at what the files of lists take, as often as it can.
struct Looking {
    end: Arc<AtomicBool>,
    most: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

fn staged(journal: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(journal) else { return 0 };
    let staging =
        entries.flatten().filter(|e| e.file_name().to_string_lossy().starts_with("staging-"));
    // One may be gone by now.
    staging.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}

impl Looking {
    fn at(journal: &Path) -> Self {
        let (end, most) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (ended, seen, journal) = (Arc::clone(&end), Arc::clone(&most), journal.to_owned());
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                seen.fetch_max(staged(&journal), Ordering::Relaxed);
                std::thread::yield_now();
            }
        });
        Self { end, most, thread }
    }

    /// The most that they took.
    fn end(self) -> u64 {
        self.end.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        self.most.load(Ordering::Relaxed)
    }
}

const RETENTION: u64 = 1 << 20;

fn last_error(view: &BridgeView) -> Option<String> {
    status(view).sources.into_iter().find_map(|source| source.last_error)
}

/// Whether a list is said to be one that the journal cannot hold, and what to do about it.
fn cannot_hold(view: &BridgeView) -> bool {
    let words = ["expected a list that the journal can hold", "raise journal.retention.size"];
    last_error(view).is_some_and(|error| words.iter().all(|words| error.contains(words)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_the_journal_has_no_room_for_comes_in_parts_in_order_and_once() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let start = || {
        let mut setup = Setup::new(&server, dir.path()).sink("a", &sink);
        setup.retention = RETENTION;
        setup.start()
    };
    let first: Vec<_> = (0..1000).map(|n| create(&server, &format!("web-{}", n % 7))).collect();
    let looking = Looking::at(dir.path());
    let bridge = start().await;
    sink.wait_for(1000).await;
    assert_eq!(sink.ids(), first.iter().map(Written::id).collect::<Vec<_>>());
    let ingest = || status(&bridge.view()).ingest;
    until("a watch", || server.open_watches() == 1).await;
    let stated = ingest().recent_gaps;
    assert!(!stated.is_empty(), "what comes and goes between two parts is not seen");
    stop(bridge).await;

    // A gap that is as large.
    let patched = first.iter().take(900);
    let patched =
        patched.map(|e| server.patch_count("shop", &e.name, 3, Timestamp::now()).unwrap());
    let patched: Vec<_> = patched.map(|event| event.id()).collect();
    server.compact(server.revision());
    let bridge = start().await;
    sink.wait_for(1900).await;
    until("the gap is stated", || status(&bridge.view()).ingest.gaps == 1).await;
    let gap = status(&bridge.view()).ingest.recent_gaps.remove(0);
    assert_eq!((gap.replayed, gap.skipped_increments), (900, 900));
    stop(bridge).await;
    assert_eq!(sink.ids()[1000..], patched);
    assert!(sink.received()[1000..].iter().all(|event| event.delta == 2 && event.replayed));
    let most = looking.end();
    assert!(most <= RETENTION / 2, "{most} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_no_parts_make_fit_says_so_and_is_made_when_there_is_room() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let start = |retention| {
        let mut setup = Setup::new(&server, dir.path()).sink("a", &sink);
        setup.retention = retention;
        setup.start()
    };
    let bridge = start(RETENTION).await;
    create(&server, "known");
    sink.wait_for(1).await;
    stop(bridge).await;
    let missed: Vec<_> = (0..1500).map(|n| create(&server, &format!("web-{n}")).id()).collect();
    server.compact(server.revision());
    let bridge = start(16 << 10).await;
    until("why is said", || cannot_hold(&bridge.view())).await;
    assert_eq!(sink.received().len(), 1);
    stop(bridge).await;
    let bridge = start(RETENTION).await;
    sink.wait_for(1501).await;
    until("the gap is stated", || status(&bridge.view()).ingest.gaps == 1).await;
    stop(bridge).await;
    assert_eq!(sink.ids()[1..], missed);
}

/// So many requests for lists are answered; from then on none is.
fn answer_lists(server: &ApiServer, times: u32) {
    answer_lists_slowly(server, times, Duration::ZERO);
}

/// The same, each after so long.
fn answer_lists_slowly(server: &ApiServer, times: u32, each: Duration) {
    server.set_fault(On::List, Some(times), Fault::Delay(each));
    server.set_fault(On::List, None, Fault::Unavailable);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_between_the_parts_of_a_first_list_hides_no_gap() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum State {
        Saved,
        Older,
        Gone,
    }
    for saved in [State::Saved, State::Older, State::Gone] {
        let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
        let start = |retention| {
            let mut setup = Setup::new(&server, dir.path()).sink("a", &sink);
            setup.retention = retention;
            setup.start()
        };
        answer_lists(&server, 0);
        stop(start(RETENTION).await).await;
        let [state, before] = ["state.redb", "before"].map(|name| dir.path().join(name));
        std::fs::copy(&state, &before).unwrap();
        server.clear_faults();

        let mut created: Vec<_> = (0..1000).map(|n| create(&server, &format!("web-{n}"))).collect();
        // What comes into the log comes long after it was asked for.
        answer_lists_slowly(&server, 2, Duration::from_millis(1500));
        let asked = Timestamp::now();
        let bridge = start(RETENTION).await;
        let view = bridge.view();
        until("the second part is refused", || last_error(&view).is_some()).await;
        let part = view.log.tail().ordinal();
        assert!((1..1000).contains(&part), "{part}");
        // A second has the state saved.
        tokio::time::sleep(Duration::from_millis(2500)).await;
        drop(bridge);
        free(dir.path()).await;
        let late = created.pop().unwrap();
        server.delete("shop", &late.name).unwrap();
        server.clear_faults();
        match saved {
            State::Saved => {}
            State::Older => _ = std::fs::copy(&before, &state).unwrap(),
            State::Gone => std::fs::remove_file(&state).unwrap(),
        }
        let bridge = start(64 * RETENTION).await;
        until("a watch", || server.open_watches() == 1).await;
        let stated = status(&bridge.view()).ingest.recent_gaps;
        assert_eq!(stated.len(), 1, "{saved:?}");
        assert_eq!(stated[0].replayed, 999 - part, "{saved:?}");
        assert!(
            stated[0].from.parse::<Timestamp>().unwrap() < asked,
            "{saved:?} {stated:?} {asked}"
        );
        until("all are there", || created.iter().all(|e| sink.ids().contains(&e.id()))).await;
        stop(bridge).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_there_is_of_a_list_is_held_to_its_room_with_the_uids_of_what_is_known() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let start = |retention| {
        let mut setup = Setup::new(&server, dir.path()).sink("a", &sink);
        setup.retention = retention;
        setup.start()
    };
    for n in 0..9000 {
        create(&server, &format!("web-{n}"));
    }
    let bridge = start(64 << 20).await;
    sink.wait_for(9000).await;
    stop(bridge).await;
    let next = [(); 2].map(|()| create(&server, "next").id());
    server.compact(server.revision());
    let looking = Looking::at(dir.path());
    let small = 128 << 10;
    let bridge = start(small).await;
    let view = bridge.view();
    until("why is said", || cannot_hold(&view)).await;
    stop(bridge).await;
    let most = looking.end();
    assert!(most <= small / 2, "{most} bytes");
    let bridge = start(RETENTION).await;
    sink.wait_for(9002).await;
    stop(bridge).await;
    assert_eq!(sink.ids()[9000..], next);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_restore_between_the_parts_of_a_list_begins_it_anew() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let start = || {
        let mut setup = Setup::new(&server, dir.path()).sink("a", &sink);
        setup.retention = RETENTION;
        setup.start()
    };
    let create_some = |name: &str| -> Vec<_> {
        (0..1000).map(|n| create(&server, &format!("{name}-{n}")).id()).collect()
    };
    create(&server, "kept");
    let snapshot = server.snapshot();
    let bridge = start().await;
    create(&server, "lost");
    sink.wait_for(2).await;
    stop(bridge).await;
    server.restore(&snapshot);
    create_some("first");
    // A probe, the question for a witness, and the pages of a list.
    answer_lists(&server, 2 + 3);
    let bridge = start().await;
    let view = bridge.view();
    until("the second part is refused", || last_error(&view).is_some()).await;
    let part = view.log.tail().ordinal() - 2;
    assert!((1..1000).contains(&part), "{part}");
    server.restore(&snapshot);
    let second = create_some("second");
    server.clear_faults();
    until("all are there", || second.iter().all(|id| sink.ids().contains(id))).await;
    // The list of the first one was never whole.
    assert_eq!(status(&view).ingest.epochs, 1);
    stop(bridge).await;
    let ids = sink.ids();
    assert!(second.iter().all(|id| ids.iter().filter(|other| *other == id).count() == 1));
}

/// The API server's etcd is restored while a part of a list is in the journal. With `grown` it has come
/// past what that part brought, by other Events and another version of one that was in it.
async fn restored_between_the_parts(first: bool, grown: bool) {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let start = || {
        let mut setup = Setup::new(&server, dir.path()).sink("a", &sink);
        setup.retention = RETENTION;
        setup.start()
    };
    let kept = create(&server, "kept");
    if !first {
        let bridge = start().await;
        sink.wait_for(1).await;
        stop(bridge).await;
    }
    let snapshot = server.snapshot();
    (0..5).for_each(|n| _ = create(&server, &format!("before-{n}")));
    server.patch_count("shop", &kept.name, 2, Timestamp::now()).unwrap();
    (0..1000).for_each(|n| _ = create(&server, &format!("lost-{n}")));
    server.compact(server.revision());
    // Of a gap a probe, and a question for the witness; and the pages of a list.
    answer_lists(&server, if first { 3 } else { 2 + 3 });
    let bridge = start().await;
    let view = bridge.view();
    let had = u64::from(!first);
    until("the second part is refused", || last_error(&view).is_some()).await;
    let part = view.log.tail().ordinal() - had;
    assert!((1..1000).contains(&part), "{part}");
    server.restore(&snapshot);
    let patched = server.patch_count("shop", &kept.name, 3, Timestamp::now()).unwrap();
    let mut second = vec![patched.id()];
    if grown {
        second.extend((0..1100).map(|n| create(&server, &format!("found-{n}")).id()));
    }
    server.clear_faults();
    until("all are there", || second.iter().all(|id| sink.ids().contains(id))).await;
    until("it is stated", || status(&view).ingest.epochs == 1).await;
    second.push(create(&server, "next").id());
    until("it goes on", || sink.ids().contains(second.last().unwrap())).await;
    assert_eq!(status(&view).ingest.epochs, 1);
    stop(bridge).await;
    let ids = sink.ids();
    assert!(second.iter().all(|id| ids.iter().filter(|other| *other == id).count() == 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_that_is_restored_between_the_parts_of_a_list_is_a_new_epoch() {
    for first in [true, false] {
        for grown in [false, true] {
            eprintln!("first: {first}, grown: {grown}");
            restored_between_the_parts(first, grown).await;
        }
    }
}
