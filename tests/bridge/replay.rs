//! Replays: what the journal holds, once more, beside live delivery.

use std::time::Duration;

use tidings::{
    bridge::{
        BatchOptions, Control, ControlError, CorrelateMode, FailureClass, Filter, Outcome, Replay,
        ReplayFrom, ReplayProgress, ReplayRun, ReplayState, RetryOptions, SinkCondition,
    },
    event::Record,
    journal::Letters,
};
use tidings_testkit::api_server::EventObject;

use crate::support::{
    MemorySink, Received, Setup, Tuning, create, invalid, retry, server, settled, sink_status,
    stop, until,
};

fn replay(control: &Control, from: ReplayFrom, filter: Option<&str>) -> ReplayRun {
    let filter = filter.map(|filter| Filter::compile(filter).unwrap());
    control.replay(Replay { sink: "a".to_owned(), from, filter }).unwrap()
}

/// Waits until a replay says something.
async fn told(run: &mut ReplayRun, what: impl Fn(&ReplayProgress) -> bool) -> ReplayProgress {
    let told = async {
        let mut last = None;
        while let Some(progress) = run.next().await {
            if what(&progress) {
                return progress;
            }
            last = Some(progress);
        }
        panic!("the replay has ended: {last:?}");
    };
    tokio::time::timeout(Duration::from_secs(60), told).await.unwrap()
}

async fn done(run: &mut ReplayRun) -> ReplayProgress {
    let done = told(run, |progress| progress.state == ReplayState::Done).await;
    assert_eq!(run.next().await, None);
    done
}

fn of_replays(sink: &MemorySink) -> Vec<Received> {
    let received = sink.received().into_iter();
    received.filter(|event| event.seq >= Record::FIRST_ERRAND).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_both_filters_want_comes_again_under_the_same_ids_and_moves_no_total() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    for n in 0..100 {
        let reason = if n % 4 == 0 { "Dull" } else { "Started" };
        let event = EventObject::about_pod("shop", &format!("web-{}", n % 10), reason, "m");
        server.create(event).unwrap();
    }
    let batch = BatchOptions { events: 7, linger: Duration::from_millis(5), ..Default::default() };
    let filter = Some("event.reason != \"Dull\"");
    let tuning = Tuning { batch, filter, ..Tuning::default() };
    let bridge = Setup::new(&server, dir.path()).tuned("a", &sink, tuning).start().await;
    let before = settled(&bridge.view(), "a", 100).await;
    let first: Vec<_> = sink.received();
    let control = bridge.control();
    let all = done(&mut replay(&control, ReplayFrom::Time(0), None)).await;
    let expected = ReplayProgress {
        position: 101,
        until: 101,
        reached: 101,
        read: 100,
        matched: 75,
        delivered: 75,
        state: ReplayState::Done,
        oldest_ms: all.oldest_ms,
        ..ReplayProgress::default()
    };
    assert_eq!(all, expected);
    let again = of_replays(&sink);
    assert!(again.iter().all(|event| event.replayed && !event.envelope.contains("correlation")));
    let ids =
        |events: &[Received]| events.iter().map(|e| (e.id.clone(), e.delta)).collect::<Vec<_>>();
    assert_eq!(ids(&again), ids(&first));
    assert!(sink.batches().iter().all(|size| *size <= 7));
    let web_3 = Some("event.involvedObject.name == \"web-3\"");
    let some = done(&mut replay(&control, ReplayFrom::Position(51), web_3)).await;
    // 53, 63, 73, 83 and 93 of the hundred; each fourth from 0 on is dull.
    assert_eq!((some.read, some.matched, some.delivered, some.gone), (50, 5, 5, 0));
    let none = done(&mut replay(&control, ReplayFrom::Time(u64::MAX), None)).await;
    assert_eq!((none.read, none.delivered), (0, 0));
    let after = sink_status(&bridge.view(), "a");
    assert_eq!((after.delivered, after.filtered, after.seen), (75, 25, 100));
    assert_eq!((after.next_sequence, after.replayed), (before.next_sequence, 80));
    let nobody = Replay { sink: "b".to_owned(), from: ReplayFrom::Position(1), filter: None };
    let error = control.replay(nobody).unwrap_err();
    assert!(
        matches!(&error, ControlError::NoSuchSink { hint, .. } if hint.contains('a')),
        "{error}"
    );
    let named = Filter::compile("object.labels[\"team\"] == \"a\"").unwrap();
    let told_nothing =
        Replay { sink: "a".to_owned(), from: ReplayFrom::Position(1), filter: Some(named) };
    let error = control.replay(told_nothing).unwrap_err();
    assert!(matches!(&error, ControlError::NoObjects(sink) if sink == "a"), "{error}");
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_waits_for_its_sink_gives_way_and_ends_when_nobody_wants_it() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    for n in 0..20 {
        create(&server, &format!("web-{n}"));
    }
    let bridge = Setup::new(&server, dir.path()).sink("a", &sink).start().await;
    settled(&bridge.view(), "a", 20).await;
    let control = bridge.control();
    sink.respond(|events| {
        let replayed = events.iter().any(|event| event.replayed);
        replayed.then(|| retry(FailureClass::Unavailable))
    });
    let mut run = replay(&control, ReplayFrom::Position(1), None);
    let waits = told(&mut run, |p| matches!(p.state, ReplayState::Waiting(_))).await;
    assert_eq!(waits.state, ReplayState::Waiting("Unavailable".to_owned()));
    let second = Replay { sink: "a".to_owned(), from: ReplayFrom::Position(1), filter: None };
    assert!(matches!(control.replay(second), Err(ControlError::ReplayRuns(sink)) if sink == "a"));
    // Live delivery goes on, and the replay does not overtake it.
    create(&server, "live");
    sink.wait_for(21).await;
    sink.accept_everything();
    let end = done(&mut run).await;
    assert_eq!((end.until, end.delivered), (21, 20));
    // One that nobody listens to any more makes room for the next.
    sink.refuse(|_| Some(retry(FailureClass::Unavailable)));
    drop(replay(&control, ReplayFrom::Position(1), None));
    sink.refuse(|event| event.envelope.contains("web-7\"").then(|| invalid("no")));
    let mut run = None;
    until("there is room", || {
        let again = Replay { sink: "a".to_owned(), from: ReplayFrom::Position(1), filter: None };
        run = control.replay(again).ok();
        run.is_some()
    })
    .await;
    let end = done(&mut run.unwrap()).await;
    assert_eq!((end.delivered, end.refused), (20, 1));
    assert_eq!(sink_status(&bridge.view(), "a").dead_lettered, 0);
    // What is under way when the bridge stops is said to be.
    sink.respond(|_| Some(retry(FailureClass::Unavailable)));
    let mut run = replay(&control, ReplayFrom::Position(1), None);
    told(&mut run, |p| matches!(p.state, ReplayState::Waiting(_))).await;
    stop(bridge).await;
    told(&mut run, |p| p.state == ReplayState::Stopped).await;
    let late = Replay { sink: "a".to_owned(), from: ReplayFrom::Position(1), filter: None };
    drop(run);
    assert!(matches!(control.replay(late), Err(ControlError::Stopping)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_suppress_holds_is_not_overtaken() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let suppress = Tuning { correlate: CorrelateMode::Suppress, ..Tuning::default() };
    let bridge = Setup::new(&server, dir.path()).tuned("a", &sink, suppress).start().await;
    let view = bridge.view();
    // One more than the burst of a source is held, and what comes behind it is not.
    for n in 0..26 {
        let reason = format!("Reason{n}");
        server.create(EventObject::about_pod("shop", "loud", &reason, "m")).unwrap();
    }
    until("one is held", || sink_status(&view, "a").held == 1).await;
    create(&server, "quiet");
    sink.wait_for(26).await;
    until("it is behind", || sink_status(&view, "a").next_sequence == 28).await;
    let end = done(&mut replay(&bridge.control(), ReplayFrom::Position(1), None)).await;
    assert_eq!((end.until, end.reached, end.delivered), (26, 28, 25));
    stop(bridge).await;
    let received = sink.received();
    let summary = received.last().unwrap();
    let of_it: Vec<_> = received.iter().filter(|event| event.id == summary.id).collect();
    assert_eq!((summary.seq, of_it.len()), (26, 1), "{summary:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_replay_that_was_ended_nothing_more_is_sent() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    create(&server, "one");
    let bridge = Setup::new(&server, dir.path()).sink("a", &sink).start().await;
    settled(&bridge.view(), "a", 1).await;
    // A live event is on its way, and the replay waits behind it.
    sink.hold(true);
    create(&server, "two");
    until("it is on its way", || sink.attempts().len() == 2).await;
    let mut run = replay(&bridge.control(), ReplayFrom::Position(1), None);
    told(&mut run, |p| matches!(p.state, ReplayState::Waiting(_))).await;
    drop(run);
    let mut next = None;
    until("the replay has ended", || {
        let again = Replay { sink: "a".to_owned(), from: ReplayFrom::Position(9), filter: None };
        next = bridge.control().replay(again).ok();
        next.is_some()
    })
    .await;
    sink.hold(false);
    create(&server, "three");
    settled(&bridge.view(), "a", 3).await;
    stop(bridge).await;
    assert!(of_replays(&sink).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn errands_wait_for_a_sink_that_a_person_has_to_mend_whatever_its_bound_on_attempts() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    sink.refuse(|event| event.envelope.contains("web-3").then(|| invalid("no")));
    for n in 0..6 {
        create(&server, &format!("web-{n}"));
    }
    let tuning = Tuning::default();
    let twice = RetryOptions { max_attempts: Some(2), ..tuning.retry };
    let tuning = Tuning { retry: twice, ..tuning };
    let bridge = Setup::new(&server, dir.path()).tuned("a", &sink, tuning).start().await;
    settled(&bridge.view(), "a", 6).await;
    let control = bridge.control();
    until("the letter is saved", || bridge.view().dead_letters.counts().contains_key("a")).await;
    let attempts = sink.attempts().len();
    sink.refuse(|_| Some(retry(FailureClass::Misconfigured)));
    let mut run = replay(&control, ReplayFrom::Position(1), None);
    control.retry(Letters::Of { sink: None, class: None }).await.unwrap();
    until("they are tried on", || sink.attempts().len() > attempts + 10).await;
    sink.accept_everything();
    let end = done(&mut run).await;
    assert_eq!((end.delivered, end.refused), (6, 0));
    until("the letter is taken", || sink_status(&bridge.view(), "a").retried == 1).await;
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_that_is_refused_throughout_ends_and_its_sink_stays_healthy() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    for n in 0..25 {
        create(&server, &format!("web-{n}"));
    }
    let bridge = Setup::new(&server, dir.path()).sink("a", &sink).start().await;
    settled(&bridge.view(), "a", 25).await;
    sink.refuse(|event| event.replayed.then(|| invalid("no")));
    let end = done(&mut replay(&bridge.control(), ReplayFrom::Position(1), None)).await;
    assert_eq!((end.delivered, end.refused), (0, 25));
    // Live events refused as often in a row would be the sink's fault; these have their fates.
    let status = sink_status(&bridge.view(), "a");
    assert_eq!((status.state, status.dead_lettered), (SinkCondition::Healthy, 0));
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_says_of_events_without_an_answer_what_live_delivery_says() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    for n in 0..3 {
        create(&server, &format!("web-{n}"));
    }
    let bridge = Setup::new(&server, dir.path()).sink("a", &sink).start().await;
    settled(&bridge.view(), "a", 3).await;
    sink.respond(|events| {
        let unanswered = Outcome::PerEvent(Vec::new());
        events[0].replayed.then_some(unanswered)
    });
    let mut run = replay(&bridge.control(), ReplayFrom::Position(1), None);
    let words = "some events of the batch were not taken".to_owned();
    told(&mut run, |p| p.state == ReplayState::Waiting(words.clone())).await;
    sink.accept_everything();
    let end = done(&mut run).await;
    assert_eq!((end.delivered, end.refused), (3, 0));
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_retention_takes_from_under_a_replay_is_counted() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let mut setup = Setup::new(&server, dir.path()).sink("a", &sink);
    setup.retention = 8 << 20;
    let bridge = setup.start().await;
    let view = bridge.view();
    until("a watch", || server.open_watches() == 1).await;
    let message = "x".repeat(8 << 10);
    let write = |n: u64| {
        let event = EventObject::about_pod("shop", &format!("web-{n}"), "A", &message);
        server.create(event).unwrap();
    };
    (0..400).for_each(&write);
    settled(&view, "a", 400).await;
    sink.respond(|events| events[0].replayed.then(|| retry(FailureClass::Unavailable)));
    let mut run = replay(&bridge.control(), ReplayFrom::Position(1), None);
    told(&mut run, |p| matches!(p.state, ReplayState::Waiting(_))).await;
    let mut created = 400;
    while view.log.oldest().ordinal() < 500 {
        (created..created + 50).for_each(&write);
        created += 50;
        settled(&view, "a", created).await;
    }
    sink.accept_everything();
    let end = done(&mut run).await;
    assert_eq!((end.until, end.read + end.gone), (401, 400));
    assert!(end.gone > 100 && end.read > 0, "{end:?}");
    assert_eq!((end.matched, end.delivered), (end.read, end.read));
    // What was gone before it began counts, too: a replay that goes on from where one was ended
    // would otherwise say that it has delivered all.
    let oldest = view.log.oldest().next;
    let end = done(&mut replay(&bridge.control(), ReplayFrom::Position(oldest - 100), None)).await;
    assert!(end.gone >= 100, "{end:?}");
    assert_eq!((end.gone + end.read, end.delivered), (created - (oldest - 101), end.read));
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_before_the_time_asked_for_is_not_missing() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let setup = || Setup::new(&server, dir.path()).sink("a", &sink);
    let bridge = setup().start().await;
    until("a watch", || server.open_watches() == 1).await;
    let mut since = 0;
    for n in 0..20 {
        if n == 10 {
            tokio::time::sleep(Duration::from_millis(5)).await;
            since = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap();
        }
        // One by one, so that each has a frame of its own.
        create(&server, &format!("web-{n}-"));
        settled(&bridge.view(), "a", n + 1).await;
    }
    stop(bridge).await;
    let files = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let log = files.into_iter().find(|path| path.extension().is_some_and(|e| e == "log")).unwrap();
    let mut bytes = std::fs::read(&log).unwrap();
    let at = memchr::memmem::find(&bytes, b"web-3-").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    let bridge = setup().start().await;
    let control = bridge.control();
    let newer = done(&mut replay(&control, ReplayFrom::Time(since), None)).await;
    assert_eq!((newer.delivered, newer.gone), (10, 0));
    let all = done(&mut replay(&control, ReplayFrom::Position(1), None)).await;
    assert_eq!((all.delivered, all.gone), (19, 1));
    stop(bridge).await;
}
