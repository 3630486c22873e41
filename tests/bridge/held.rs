//! What a correlator holds back, in a journal that has little room for it.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use tidings::bridge::{CorrelateMode, Overflow};
use tidings_testkit::api_server::{ApiServer, EventObject, Written};

use crate::{
    overflow::{SIZE, blocking, fill, fill_about, ids, is_blocked, journalled, restarted},
    support::{MemorySink, Setup, Tuning, saved, server, settled, sink_status, stop, until},
};

fn suppressing(overflow: Overflow) -> Tuning {
    Tuning { correlate: CorrelateMode::Suppress, overflow, ..blocking() }
}

/// More about one Pod than its tokens last for, and each by itself: the last five are held back.
fn flood(server: &ApiServer) -> Vec<Written> {
    let one = |n| {
        let event = EventObject::about_pod("shop", "flood", &format!("R{n}"), "something else");
        server.create(event).unwrap()
    };
    (0..30).map(one).collect()
}

/// How often each Event occurred, by what its sink was told.
fn told(sink: &MemorySink) -> HashMap<String, u64> {
    let mut told = HashMap::new();
    for event in sink.received() {
        let (uid, _) = event.id.rsplit_once('-').unwrap();
        *told.entry(uid.to_owned()).or_default() += event.delta;
    }
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_correlator_holds_back_does_not_stop_intake() {
    // The least that there may be, and some more; an eighth of it is more than one round writes.
    for (size, others) in [(1 << 20, 10), (SIZE, 20)] {
        intake_goes_on(size, others).await;
    }
}

async fn intake_goes_on(retention: u64, others: usize) {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let setup = || {
        let tuning = suppressing(Overflow::Block);
        let mut setup = Setup::new(&server, dir.path()).tuned("pager", &sink, tuning);
        setup.retention = retention;
        setup
    };
    let bridge = setup().start().await;
    let view = bridge.view();
    // From here on each version is seen; a first list shows the newest ones only.
    until("a watch", || server.open_watches() == 1).await;
    let mut occurred = HashMap::new();
    let flood = flood(&server);
    occurred.extend(flood.iter().map(|event| (event.uid.clone(), 1)));
    for round in 2..=20 {
        for event in &flood {
            server.patch_count("shop", &event.name, round, jiff::Timestamp::now()).unwrap();
            occurred.insert(event.uid.clone(), u64::from(round.unsigned_abs()));
        }
        occurred.extend(fill(&server, others).into_iter().map(|event| (event.uid, 1)));
    }
    let versions = occurred.values().sum();
    until("everything is read, and had or held", || {
        let counts = sink_status(&view, "pager");
        counts.seen == versions && counts.pending == counts.held && !is_blocked(&view)
    })
    .await;
    assert!(sink_status(&view, "pager").held > 0, "not more than needed came out");
    // At the end the rest comes out, from the journal.
    stop(bridge).await;
    let bridge = setup().start().await;
    let counts = settled(&bridge.view(), "pager", versions).await;
    assert_eq!((counts.lost, counts.held), (0, 0));
    assert_eq!(told(&sink), occurred, "the increments add up");
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_comes_out_in_a_journal_that_was_made_smaller() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let setup = |retention| {
        let tuning = suppressing(Overflow::Block);
        let mut setup = Setup::new(&server, dir.path()).tuned("pager", &sink, tuning);
        setup.retention = retention;
        setup
    };
    let bridge = setup(16 << 20).start().await;
    let view = bridge.view();
    flood(&server);
    until("some are held", || sink_status(&view, "pager").held == 5).await;
    let mut count = 30;
    while view.log.bytes_from(1) < 3 << 19 {
        count += fill(&server, 20).len() as u64;
        until("it is read", || journalled(&view) == count).await;
    }
    until("it is had", || sink_status(&view, "pager").pending == 5).await;
    // It does not say what it holds before it ends.
    drop(bridge);
    let bridge = restarted(|| setup(1 << 20)).await;
    count += fill(&server, 1).len() as u64;
    let counts = settled(&bridge.view(), "pager", count).await;
    assert_eq!((counts.held, counts.lost), (0, 0));
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_correlator_holds_back_comes_out_before_the_journal_drops_it() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let tuning = suppressing(Overflow::DropOldest);
    let mut setup = Setup::new(&server, dir.path()).tuned("pager", &sink, tuning);
    setup.retention = SIZE;
    let bridge = setup.start().await;
    let view = bridge.view();
    let mut created = flood(&server);
    until("some are held", || sink_status(&view, "pager").held == 5).await;
    while view.log.oldest().ordinal() <= 30 {
        created.extend(fill_about(&server, created.len()..created.len() + 20));
        let count = created.len() as u64;
        until("the sink keeps up", || {
            let counts = sink_status(&view, "pager");
            counts.seen == count && counts.pending == counts.held
        })
        .await;
        assert!(count < 20_000, "retention drops nothing");
    }
    let counts = settled(&view, "pager", created.len() as u64).await;
    assert_eq!((counts.delivered, counts.lost), (created.len() as u64, 0));
    let all: HashSet<_> = ids(&created).into_iter().collect();
    assert_eq!(sink.ids().into_iter().collect::<HashSet<_>>(), all);
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retention_by_age_does_not_take_what_is_held_before_its_summary_is_sent() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let setup = |age| {
        let tuning = Tuning { correlate: CorrelateMode::Suppress, ..Tuning::default() };
        let mut setup = Setup::new(&server, dir.path()).tuned("pager", &sink, tuning);
        setup.retention = 8 << 20;
        setup.age = age;
        setup
    };
    let bridge = setup(Duration::from_secs(3600)).start().await;
    let view = bridge.view();
    let mut created = flood(&server);
    created.extend(fill(&server, 80));
    until("all is had or held", || {
        let counts = sink_status(&view, "pager");
        counts.seen == 110 && counts.pending == counts.held
    })
    .await;
    assert_eq!(sink_status(&view, "pager").held, 5);
    saved(dir.path(), "pager", |sink| sink.held == 5).await;
    drop((bridge, view));
    // As when the clock has gone ahead: all of it is older than the age.
    let bridge = restarted(|| setup(Duration::ZERO)).await;
    // Retention looks at it at once, and again.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(bridge.view().log.oldest().ordinal(), 0);
    stop(bridge).await;
    let bridge = setup(Duration::ZERO).start().await;
    let counts = settled(&bridge.view(), "pager", 110).await;
    assert_eq!((counts.delivered, counts.lost), (110, 0));
    until("it had them: now they go", || bridge.view().log.oldest().ordinal() > 0).await;
    assert_eq!(told(&sink).len(), created.len());
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_for_a_sink_that_is_away_past_retention_is_lost_version_by_version() {
    for kill in [false, true] {
        let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
        let setup = || {
            let tuning = suppressing(Overflow::DropOldest);
            let mut setup = Setup::new(&server, dir.path()).tuned("pager", &sink, tuning);
            setup.retention = 1 << 20;
            setup
        };
        let bridge = setup().start().await;
        let mut view = bridge.view();
        until("a watch", || server.open_watches() == 1).await;
        let events = flood(&server);
        for count in 2..=4 {
            for event in &events[25..] {
                server.patch_count("shop", &event.name, count, jiff::Timestamp::now()).unwrap();
            }
        }
        until("twenty versions are held", || sink_status(&view, "pager").held == 20).await;
        sink.hold(true);
        let others = fill_about(&server, 100..1800);
        let versions = 45 + others.len() as u64;
        until("all is journalled", || journalled(&view) == versions).await;
        // Up to behind what is read ahead of it.
        until("old segments go", || view.log.oldest().ordinal() > 1400).await;
        let mut bridge = bridge;
        if kill {
            drop((bridge, view));
            bridge = restarted(setup).await;
            view = bridge.view();
        }
        sink.hold(false);
        let counts = settled(&view, "pager", versions).await;
        let delivered: HashMap<_, _> =
            sink.received().into_iter().map(|event| (event.id, event.delta)).collect();
        // Each version is one increment.
        assert_eq!(counts.delivered, delivered.len() as u64);
        assert_eq!(counts.lost + delivered.values().sum::<u64>(), versions, "{counts:?}");
        assert!(counts.lost > 20, "{counts:?}");
        stop(bridge).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_goes_by_its_age_when_its_sink_stands_still() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let start = async || {
        let tuning = suppressing(Overflow::DropOldest);
        let mut setup = Setup::new(&server, dir.path()).tuned("pager", &sink, tuning);
        setup.retention = 8 << 20;
        setup.age = Duration::ZERO;
        setup.start().await
    };
    let bridge = start().await;
    let view = bridge.view();
    until("a watch", || server.open_watches() == 1).await;
    flood(&server);
    until("five versions are held", || sink_status(&view, "pager").held == 5).await;
    sink.hold(true);
    let versions = 30 + fill_about(&server, 100..300).len() as u64;
    until("it goes", || view.log.oldest().ordinal() > 30).await;
    sink.hold(false);
    stop(bridge).await;
    // How much of it was in the sink's hands, and came, is not to be known. Each version is one
    // increment.
    let bridge = start().await;
    let counts = settled(&bridge.view(), "pager", versions).await;
    let came: HashMap<_, _> =
        sink.received().into_iter().map(|event| (event.id, event.delta)).collect();
    assert_eq!(counts.delivered, came.len() as u64);
    assert_eq!(counts.lost + came.values().sum::<u64>(), versions, "{counts:?}");
    stop(bridge).await;
}
