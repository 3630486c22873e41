//! How batches are made, and what becomes of each event of a batch, whatever the sink answers.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use tidings::bridge::{
    BatchOptions, Bridge, CorrelateMode, EventFate, Failure, FailureClass, Fault, Outcome,
    RefusedClass, RetryOptions, Secrets, SinkCondition,
};
use tidings_testkit::api_server::{ApiServer, EventObject};

use crate::support::{
    MemorySink, Received, Setup, Tuning, create, dead_letters, failure, invalid, retry, server,
    settled, sink_status, stop, until,
};

fn batch(events: usize, bytes: u64, linger_ms: u64) -> Tuning {
    let linger = Duration::from_millis(linger_ms);
    Tuning { batch: BatchOptions { events, bytes, linger }, ..Tuning::default() }
}

/// A bridge with one sink, over a server that holds so many Events; they come in one list.
async fn deliver(
    count: usize,
    sink: &MemorySink,
    tuning: Tuning,
) -> (Bridge, tempfile::TempDir, ApiServer) {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    for n in 0..count {
        create(&server, &format!("web-{n}"));
    }
    let bridge = Setup::new(&server, dir.path()).tuned("a", sink, tuning).start().await;
    (bridge, dir, server)
}

/// Whether an event is about one of these Pods.
fn about(event: &Received, pods: &[usize]) -> bool {
    pods.iter().any(|n| event.envelope.contains(&format!("\"name\":\"web-{n}\"")))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_full_at_a_count() {
    let sink = MemorySink::default();
    let (bridge, _dir, _server) = deliver(25, &sink, batch(10, 1 << 20, 100)).await;
    sink.wait_for(25).await;
    assert_eq!(sink.batches(), [10, 10, 5]);
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_full_at_a_size_and_a_larger_event_travels_alone() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    for (n, bytes) in [1000, 1000, 9000, 1000, 1000, 1000, 1000].into_iter().enumerate() {
        let event = EventObject::about_pod("shop", &format!("web-{n}"), "A", &"x".repeat(bytes));
        server.create(event).unwrap();
    }
    let setup = Setup::new(&server, dir.path()).tuned("a", &sink, batch(500, 6000, 100));
    let bridge = setup.start().await;
    let received = sink.wait_for(7).await;
    assert!(received.iter().map(|event| event.envelope.len()).min().unwrap() > 1500);
    assert_eq!(sink.batches(), [2, 1, 3, 1]);
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_not_full_waits_as_long_as_it_lingers() {
    let sink = MemorySink::default();
    let (bridge, _dir, server) = deliver(0, &sink, batch(500, 1 << 20, 3000)).await;
    until("a watch", || server.open_watches() == 1).await;
    let first = tokio::time::Instant::now();
    create(&server, "one");
    tokio::time::sleep(Duration::from_millis(100)).await;
    create(&server, "two");
    sink.wait_for(2).await;
    assert_eq!(sink.batches(), [2]);
    assert!(first.elapsed() >= Duration::from_secs(3));
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_five_hundred_that_is_refused_is_found_and_the_others_arrive() {
    let sink = MemorySink::default();
    sink.refuse(|event| about(event, &[321]).then(|| invalid("no such field")));
    let (bridge, dir, _server) = deliver(500, &sink, batch(500, 16 << 20, 2000)).await;
    let status = settled(&bridge.view(), "a", 500).await;
    assert_eq!((status.delivered, status.dead_lettered), (499, 1));
    assert_eq!(status.state, SinkCondition::Healthy);
    stop(bridge).await;
    let mut seqs: Vec<_> = sink.received().into_iter().map(|event| event.seq).collect();
    seqs.sort_unstable();
    let [letter] = &dead_letters(dir.path())[..] else { panic!() };
    assert_eq!(seqs, (1..=500).filter(|seq| *seq != letter.seq).collect::<Vec<_>>());
    assert_eq!((&*letter.sink, &*letter.class, &*letter.reason), ("a", "invalid", "no such field"));
    assert_eq!((letter.seq, letter.attempts, letter.unidentified), (322, 1, 0));
    let envelope = String::from_utf8(letter.envelope.to_vec()).unwrap();
    assert!(envelope.contains("\"name\":\"web-321\"") && envelope.contains(&letter.id));
    assert!(sink.attempts().len() < 40, "halved, not counted through");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_are_answered_one_by_one_each_get_their_fate() {
    let sink = MemorySink::default();
    sink.respond(move |events| {
        let first = events.len() == 10;
        let fate = |event: &Received| match event {
            event if about(event, &[2, 7]) => EventFate::Failed(Failure::refused(
                RefusedClass::TooLarge,
                Secrets::none().reason("1 MiB"),
            )),
            event if first && about(event, &[3, 4]) => {
                EventFate::Failed(failure(FailureClass::Throttled))
            }
            _ => EventFate::Delivered,
        };
        Some(Outcome::PerEvent(events.iter().map(fate).collect()))
    });
    let (bridge, dir, _server) = deliver(10, &sink, batch(10, 1 << 20, 2000)).await;
    let status = settled(&bridge.view(), "a", 10).await;
    assert_eq!((status.delivered, status.dead_lettered), (8, 2));
    assert_eq!((status.attempts, status.failed_attempts), (2, 1));
    stop(bridge).await;
    let seqs: Vec<_> = sink.received().into_iter().map(|event| event.seq).collect();
    assert_eq!(seqs, [1, 2, 6, 7, 9, 10, 4, 5]);
    let letters = dead_letters(dir.path());
    assert_eq!(letters.iter().map(|letter| letter.seq).collect::<Vec<_>>(), [3, 8]);
    assert!(letters.iter().all(|letter| letter.class == "too-large"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_fails_is_named_and_the_others_count_as_delivered() {
    let sink = MemorySink::default();
    sink.refuse(|event| {
        let unavailable = failure(FailureClass::Unavailable);
        let of_record = Failure { fault: Fault::RecordForNow, ..unavailable };
        about(event, &[0]).then_some(Outcome::Failed(of_record))
    });
    let (bridge, dir, server) = deliver(20, &sink, batch(1, 1 << 20, 0)).await;
    let view = bridge.view();
    until("the others", || sink_status(&view, "a").delivered == 19).await;
    let before = sink_status(&view, "a");
    assert_eq!((before.seen, before.pending), (20, 1));
    let head = before.head.unwrap();
    assert_eq!((&*head.object, &*head.namespace), ("Pod shop/web-0", "shop"));
    assert_eq!(head.last_error, "Unavailable");
    stop(bridge).await;
    // They come again, as the position waits at the head. The count does not begin again.
    sink.hold(true);
    let bridge = Setup::new(&server, dir.path()).sink("a", &sink).start().await;
    let after = sink_status(&bridge.view(), "a");
    assert_eq!((after.delivered, after.pending, after.redelivered), (19, 1, 0));
    sink.accept_everything();
    sink.hold(false);
    let settled = settled(&bridge.view(), "a", 20).await;
    assert_eq!((settled.delivered, settled.redelivered), (20, 19));
    assert_eq!((settled.head.is_none(), settled.dead_lettered), (true, 0));
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_the_receiver_has_had_before_is_delivered_and_counted_apart() {
    let sink = MemorySink::default();
    let (had, new) = (EventFate::Duplicate, EventFate::Delivered);
    sink.answer([Outcome::PerEvent(vec![had.clone(), new.clone(), had, new])]);
    let (bridge, _dir, _server) = deliver(4, &sink, batch(4, 1 << 20, 2000)).await;
    let status = settled(&bridge.view(), "a", 4).await;
    assert_eq!((status.delivered, status.duplicates, status.failed_attempts), (4, 2, 0));
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_without_an_answer_is_sent_again() {
    let sink = MemorySink::default();
    sink.answer([Outcome::PerEvent(vec![EventFate::Delivered; 6])]);
    let (bridge, _dir, _server) = deliver(10, &sink, batch(10, 1 << 20, 2000)).await;
    sink.wait_for(10).await;
    let status = settled(&bridge.view(), "a", 10).await;
    assert_eq!((status.delivered, status.dead_lettered), (10, 0));
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partial_success_is_one_dead_letter_and_nothing_is_sent_again() {
    let sink = MemorySink::default();
    sink.answer([Outcome::Partial { rejected: 3, reason: Secrets::none().reason("too old") }]);
    let (bridge, dir, _server) = deliver(10, &sink, batch(10, 1 << 20, 2000)).await;
    let status = settled(&bridge.view(), "a", 10).await;
    assert_eq!((status.delivered, status.dead_lettered, status.attempts), (7, 3, 1));
    stop(bridge).await;
    let [letter] = &dead_letters(dir.path())[..] else { panic!() };
    assert_eq!((&*letter.class, &*letter.reason), ("partial-success", "too old"));
    assert_eq!(letter.unidentified, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_asks_for_time_gets_it() {
    let sink = MemorySink::default();
    let after = Some(Duration::from_millis(400));
    sink.answer([Outcome::Failed(Failure { after, ..failure(FailureClass::Throttled) })]);
    let (bridge, _dir, _server) = deliver(1, &sink, Tuning::default()).await;
    sink.wait_for(1).await;
    let [(first, _), (second, _)] = sink.attempts()[..] else { panic!() };
    assert!(second - first >= Duration::from_millis(400));
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_misconfigured_sink_is_tried_until_it_is_mended() {
    let sink = MemorySink::default();
    sink.refuse(|_| Some(retry(FailureClass::Misconfigured)));
    let (bridge, _dir, server) = deliver(10, &sink, batch(3, 1 << 20, 1)).await;
    until("attempts", || sink.attempts().len() > 5).await;
    let status = sink_status(&bridge.view(), "a");
    assert_eq!((status.state, status.pending), (SinkCondition::Misconfigured, 10));
    assert_eq!(status.last_error.as_deref(), Some("Misconfigured"));
    create(&server, "meanwhile");
    sink.accept_everything();
    sink.wait_for(11).await;
    let status = settled(&bridge.view(), "a", 11).await;
    assert_eq!((status.state, status.delivered), (SinkCondition::Healthy, 11));
    assert_eq!((status.dead_lettered, status.lost, status.last_error), (0, 0, None));
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_refuses_twenty_in_a_row_is_what_is_wrong() {
    let one_by_one = |events: &[Received]| {
        let refused = Failure::refused(RefusedClass::Invalid, Secrets::none().reason("no"));
        Some(Outcome::PerEvent(vec![EventFate::Failed(refused); events.len()]))
    };
    for (per_batch, per_event) in [(1, false), (30, false), (30, true)] {
        let sink = MemorySink::default();
        if per_event {
            sink.respond(one_by_one);
        } else {
            sink.refuse(|_| Some(invalid("no")));
        }
        let (bridge, dir, _server) = deliver(30, &sink, batch(per_batch, 1 << 20, 1000)).await;
        let state = || sink_status(&bridge.view(), "a").state;
        until("misconfigured", || state() == SinkCondition::Misconfigured).await;
        let error = sink_status(&bridge.view(), "a").last_error.unwrap();
        assert_eq!(error, "refuses everything, 20 events in a row: no");
        sink.accept_everything();
        let status = settled(&bridge.view(), "a", 30).await;
        assert_eq!((status.delivered, status.dead_lettered), (10, 20), "{per_batch} {per_event}");
        assert_eq!(state(), SinkCondition::Healthy);
        stop(bridge).await;
        assert_eq!(dead_letters(dir.path()).len(), 20);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_may_be_bounded() {
    let sink = MemorySink::default();
    sink.refuse(|event| about(event, &[1]).then(|| retry(FailureClass::Timeout)));
    let tuning = batch(1, 1 << 20, 1);
    let retry = RetryOptions { max_attempts: Some(3), ..tuning.retry };
    let (bridge, dir, _server) = deliver(3, &sink, Tuning { retry, ..tuning }).await;
    let status = settled(&bridge.view(), "a", 3).await;
    assert_eq!((status.delivered, status.dead_lettered), (2, 1));
    stop(bridge).await;
    let [letter] = &dead_letters(dir.path())[..] else { panic!() };
    assert_eq!((&*letter.class, &*letter.reason), ("max-attempts", "Timeout"));
    assert_eq!((letter.seq, letter.attempts), (2, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bound_on_attempts_gives_up_nothing_that_a_person_has_to_mend() {
    for refuses_everything in [false, true] {
        let sink = MemorySink::default();
        sink.refuse(move |_| {
            let answer =
                if refuses_everything { invalid("no") } else { retry(FailureClass::Misconfigured) };
            Some(answer)
        });
        let tuning = batch(1, 1 << 20, 1);
        let retry_twice = RetryOptions { max_attempts: Some(2), ..tuning.retry };
        let tuning = Tuning { retry: retry_twice, ..tuning };
        let (bridge, _dir, _server) = deliver(30, &sink, tuning).await;
        let state = || sink_status(&bridge.view(), "a").state;
        until("misconfigured", || state() == SinkCondition::Misconfigured).await;
        let attempts = sink.attempts().len();
        until("it is tried on", || sink.attempts().len() > attempts + 4).await;
        let refused = if refuses_everything { 20 } else { 0 };
        assert_eq!(sink_status(&bridge.view(), "a").dead_lettered, refused);
        // Nor do these attempts count when it fails in another way after that.
        let mut timed_out = false;
        sink.respond(move |_| {
            let first = !std::mem::replace(&mut timed_out, true);
            first.then(|| retry(FailureClass::Timeout))
        });
        let status = settled(&bridge.view(), "a", 30).await;
        assert_eq!((status.delivered, status.dead_lettered), (30 - refused, refused));
        stop(bridge).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_without_an_answer_is_given_up_and_made_again() {
    let sink = MemorySink::default();
    sink.hold(true);
    let tuning = Tuning { timeout: Duration::from_millis(1), ..Tuning::default() };
    let (bridge, _dir, _server) = deliver(1, &sink, tuning).await;
    let error = || sink_status(&bridge.view(), "a").last_error;
    until("a failure", || error().is_some()).await;
    let error = error().unwrap();
    assert!(error.starts_with("no answer within"), "{error}");
    sink.hold(false);
    sink.wait_for(1).await;
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_stalls_keeps_no_other_waiting_and_catches_up() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let (stalled, prompt) = (MemorySink::default(), MemorySink::default());
    stalled.hold(true);
    let setup = Setup::new(&server, dir.path()).sink("stalled", &stalled).sink("prompt", &prompt);
    let bridge = setup.start().await;
    until("a watch", || server.open_watches() == 1).await;
    // More than a sink's channel and its batches hold.
    let message = "x".repeat(10_000);
    for n in 0..1500 {
        let event = EventObject::about_pod("shop", &format!("web-{n}"), "A", &message);
        server.create(event).unwrap();
        if n % 100 == 0 {
            prompt.wait_for(n).await;
        }
    }
    prompt.wait_for(1500).await;
    assert_eq!(sink_status(&bridge.view(), "stalled").pending, 1500);
    stalled.hold(false);
    stalled.wait_for(1500).await;
    create(&server, "live again");
    assert_eq!(stalled.wait_for(1501).await.len(), 1501);
    prompt.wait_for(1501).await;
    stop(bridge).await;
    let seqs: Vec<_> = stalled.received().into_iter().map(|event| event.seq).collect();
    assert_eq!(seqs, (1..=1501).collect::<Vec<_>>());
    assert_eq!(stalled.ids(), prompt.ids());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_wanted_is_counted_and_what_cannot_be_judged_goes_through() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let (warnings, judged) = (MemorySink::default(), MemorySink::default());
    let filtered = |filter| Tuning { filter: Some(filter), ..Tuning::default() };
    let setup = || {
        Setup::new(&server, dir.path())
            .tuned("warnings", &warnings, filtered("event.type == \"Warning\""))
            .tuned("judged", &judged, filtered("10 / (delta - 1) > 100"))
    };
    for n in 0..10 {
        let event = EventObject::about_pod("shop", &format!("web-{n}"), "A", "m");
        server.create(if n % 3 == 0 { event.warning() } else { event }).unwrap();
    }
    let bridge = setup().start().await;
    warnings.wait_for(4).await;
    let status = settled(&bridge.view(), "warnings", 10).await;
    assert_eq!((status.delivered, status.filtered, status.match_errors), (4, 6, 0));
    // Each was created before the first start or as its first occurrence: a delta of 1.
    let status = settled(&bridge.view(), "judged", 10).await;
    assert_eq!((status.delivered, status.filtered, status.match_errors), (10, 0, 10));
    let mut often = EventObject::about_pod("shop", "often", "A", "m");
    often.count = 5;
    server.create(often).unwrap();
    let status = settled(&bridge.view(), "judged", 11).await;
    assert_eq!((status.delivered, status.filtered, status.match_errors), (10, 1, 10));
    settled(&bridge.view(), "warnings", 11).await;
    stop(bridge).await;
    let bridge = setup().start().await;
    let status = sink_status(&bridge.view(), "warnings");
    assert_eq!((status.delivered, status.filtered, status.seen), (4, 7, 11));
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_delivers_what_is_queued_but_waits_for_no_sink_that_fails() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let (slow, failing) = (MemorySink::default(), MemorySink::default());
    let attempts = AtomicU32::new(0);
    slow.respond(move |_| {
        let nth = attempts.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(u64::from(nth < 20)));
        None
    });
    failing.refuse(|_| Some(retry(FailureClass::Unavailable)));
    let patient = RetryOptions {
        initial: Duration::from_secs(600),
        max: Duration::from_secs(600),
        max_attempts: None,
    };
    let setup = || {
        Setup::new(&server, dir.path()).tuned("slow", &slow, batch(1, 1 << 20, 1)).tuned(
            "failing",
            &failing,
            Tuning { retry: patient, ..Tuning::default() },
        )
    };
    for n in 0..200 {
        create(&server, &format!("web-{n}"));
    }
    let bridge = setup().start().await;
    until("all of it is journalled", || sink_status(&bridge.view(), "slow").seen == 200).await;
    until("a failure", || sink_status(&bridge.view(), "failing").failed_attempts > 0).await;
    stop(bridge).await;
    assert_eq!(slow.received().len(), 200);
    failing.accept_everything();
    let bridge = setup().start().await;
    failing.wait_for(200).await;
    let status = settled(&bridge.view(), "failing", 200).await;
    assert_eq!((status.seen, status.delivered, status.redelivered), (200, 200, 0));
    stop(bridge).await;
    assert_eq!((slow.received().len(), failing.received().len()), (200, 200));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_in_which_nothing_comes_leaves_a_sink_where_it_was() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let setup = || Setup::new(&server, dir.path()).sink("a", &sink);
    create(&server, "one");
    let bridge = setup().start().await;
    settled(&bridge.view(), "a", 1).await;
    stop(bridge).await;
    for _ in 0..2 {
        let bridge = setup().start().await;
        until("a watch", || server.open_watches() == 1).await;
        let status = sink_status(&bridge.view(), "a");
        assert_eq!((status.seen, status.next_sequence), (1, 2));
        stop(bridge).await;
    }
    assert_eq!(sink.received().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_costs_match_too_much_goes_through_and_the_next_is_judged() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let nested = "event.metadata.labels.exists(a, event.metadata.labels.exists(b, \
                  a != b && event.metadata.labels[a] == event.metadata.labels[b]))";
    let tuning = Tuning { filter: Some(nested), ..Tuning::default() };
    let labelled = |pod: &str, labels: std::ops::Range<u32>, value: fn(u32) -> u32| {
        let mut event = EventObject::about_pod("shop", pod, "A", "m");
        let label = |n| (format!("l{n}"), value(n).to_string().into());
        event.metadata.labels = labels.map(label).collect();
        server.create(event).unwrap();
    };
    labelled("flood", 0..15_000, |n| n);
    labelled("different", 0..20, |n| n);
    labelled("same", 0..20, |_| 1);
    let bridge = Setup::new(&server, dir.path()).tuned("a", &sink, tuning).start().await;
    let status = settled(&bridge.view(), "a", 3).await;
    assert_eq!((status.delivered, status.filtered, status.match_errors), (2, 1, 1));
    assert!(!sink.received().iter().any(|event| event.envelope.contains("\"name\":\"different\"")));
    stop(bridge).await;
}

#[tokio::test]
async fn the_lag_is_that_of_what_is_pending_and_not_held_back() {
    let (server, slow, held) = (server(), MemorySink::default(), MemorySink::default());
    let journal = tempfile::tempdir().unwrap();
    let patient = BatchOptions { linger: Duration::from_secs(600), ..BatchOptions::default() };
    let bridge = Setup::new(&server, journal.path())
        .tuned("slow", &slow, Tuning { batch: patient, ..Tuning::default() })
        .tuned("held", &held, Tuning { correlate: CorrelateMode::Suppress, ..Tuning::default() })
        .start()
        .await;
    let view = bridge.view();
    for n in 0..30 {
        let event = EventObject::about_pod("shop", "web", &format!("R{n}"), "again");
        server.create(event).unwrap();
    }
    until("five are held back", || sink_status(&view, "held").held == 5).await;
    // Its batch waits for more, so nothing is on its way.
    until("one lags", || sink_status(&view, "slow").lag_seconds > 1.0).await;
    assert_eq!(sink_status(&view, "slow").attempts, 0);
    let status = sink_status(&view, "held");
    assert_eq!((status.pending, status.lag_seconds), (5, 0.0));
    stop(bridge).await;
}
