//! Lists that are larger than what the journal has room for.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

use jiff::Timestamp;
use tidings::{admin::status, demo::api_server::Written};

use crate::support::{MemorySink, Setup, create, server, stop, until};

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

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_the_journal_has_no_room_for_comes_in_parts_in_order_and_once() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let start = || {
        let mut setup = Setup::new(&server, dir.path()).sink("a", &sink);
        setup.retention = RETENTION;
        setup.start()
    };
    let first: Vec<_> = (0..3000).map(|n| create(&server, &format!("web-{}", n % 7))).collect();
    let looking = Looking::at(dir.path());
    let bridge = start().await;
    sink.wait_for(3000).await;
    assert_eq!(sink.ids(), first.iter().map(Written::id).collect::<Vec<_>>());
    let ingest = || status(&bridge.view()).ingest;
    until("a watch", || server.open_watches() == 1).await;
    let stated = ingest().recent_gaps;
    assert!(!stated.is_empty(), "what comes and goes between two parts is not seen");
    stop(bridge).await;

    // A gap that is as large.
    let patched = first.iter().take(2500);
    let patched =
        patched.map(|e| server.patch_count("shop", &e.name, 3, Timestamp::now()).unwrap());
    let patched: Vec<_> = patched.map(|event| event.id()).collect();
    server.compact(server.revision());
    let bridge = start().await;
    sink.wait_for(5500).await;
    until("the gap is stated", || status(&bridge.view()).ingest.gaps == 1).await;
    let gap = status(&bridge.view()).ingest.recent_gaps.remove(0);
    assert_eq!((gap.replayed, gap.skipped_increments), (2500, 2500));
    stop(bridge).await;
    assert_eq!(sink.ids()[3000..], patched);
    assert!(sink.received()[3000..].iter().all(|event| event.delta == 2 && event.replayed));
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
    let last_error =
        || status(&bridge.view()).sources.into_iter().find_map(|source| source.last_error);
    let words = "expected a list that the journal can hold";
    let said =
        |error: &String| error.contains(words) && error.contains("raise journal.retention.size");
    until("why is said", || last_error().as_ref().is_some_and(said)).await;
    assert_eq!(sink.received().len(), 1);
    stop(bridge).await;
    let bridge = start(RETENTION).await;
    sink.wait_for(1501).await;
    until("the gap is stated", || status(&bridge.view()).ingest.gaps == 1).await;
    stop(bridge).await;
    assert_eq!(sink.ids()[1..], missed);
}
