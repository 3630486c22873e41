//! Dead letters: kept, counted, sent again, forwarded and dropped, whatever happens in between.

use std::{collections::BTreeSet, path::Path, time::Duration};

use proptest::prelude::*;
use tidings::{
    bridge::{BatchOptions, Bridge, Control, Failure, FailureClass, Outcome, Secrets},
    event::{Envelope, Record},
    journal::{DeadLetter, LetterCounts, LetterQuery, LetterState, Letters, State},
};
use tidings_testkit::api_server::{ApiServer, EventObject};
use tokio::runtime::Runtime;

use crate::support::{
    MemorySink, Received, Setup, Tuning, bridge_cases, create, dead_letters, invalid, retry,
    server, settled, sink_status, stop, until,
};

const ALL: Letters = Letters::Of { sink: None, class: None };

fn about_poison(event: &Received) -> bool {
    event.envelope.contains("\"reason\":\"Poison\"")
}

fn poison(server: &ApiServer, pod: &str) -> String {
    server.create(EventObject::about_pod("shop", pod, "Poison", "m")).unwrap().id()
}

fn refusing() -> MemorySink {
    let sink = MemorySink::default();
    sink.refuse(|event| about_poison(event).then(|| invalid("no such field")));
    sink
}

fn batches(events: usize) -> Tuning {
    let batch = BatchOptions { events, linger: Duration::from_millis(5), ..Default::default() };
    Tuning { batch, ..Tuning::default() }
}

async fn list(control: &Control) -> Vec<DeadLetter> {
    let query = LetterQuery { limit: 1000, ..LetterQuery::default() };
    control.dead_letters(query).await.unwrap()
}

/// Waits until so many letters are on the disk, and answers them, the newest first.
async fn letters(control: &Control, count: usize) -> Vec<DeadLetter> {
    let listed = async {
        loop {
            let letters = list(control).await;
            if letters.len() == count {
                return letters;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), listed).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_ten_thousand_is_kept_until_the_receiver_has_been_mended() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), refusing());
    for n in 0..10_000 {
        match n {
            4321 => drop(poison(&server, "web-4321")),
            _ => drop(create(&server, &format!("web-{n}"))),
        }
    }
    let bridge = Setup::new(&server, dir.path()).sink("a", &sink).start().await;
    let (view, control) = (bridge.view(), bridge.control());
    let status = settled(&view, "a", 10_000).await;
    assert_eq!((status.delivered, status.dead_lettered), (9_999, 1));
    let [letter] = &letters(&control, 1).await[..] else { panic!() };
    assert_eq!((&*letter.sink, &*letter.class, &*letter.reason), ("a", "invalid", "no such field"));
    assert_eq!((letter.attempts, letter.state), (1, LetterState::Kept));
    // Not mended yet: it stays, with a new reason.
    sink.refuse(|event| about_poison(event).then(|| invalid("still not")));
    assert_eq!(control.retry(Letters::Numbers(vec![letter.number])).await.unwrap(), 1);
    let refused = async {
        loop {
            let again = control.dead_letter(letter.number).await.unwrap().unwrap();
            if again.state == LetterState::Kept {
                return again;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let again = tokio::time::timeout(Duration::from_secs(60), refused).await.unwrap();
    assert_eq!(again.attempts, letter.attempts + 1);
    assert_eq!((&*again.reason, again.first_ms), ("still not", letter.first_ms));
    assert!(again.time_ms >= letter.time_ms);
    let status = sink_status(&view, "a");
    assert_eq!((status.delivered, status.dead_lettered), (9_999, 1));
    // Mended.
    sink.accept_everything();
    assert_eq!(control.retry(ALL).await.unwrap(), 1);
    letters(&control, 0).await;
    let status = sink_status(&view, "a");
    assert_eq!((status.seen, status.delivered, status.dead_lettered), (10_000, 10_000, 0));
    assert_eq!((status.retried, status.redelivered), (1, 0));
    stop(bridge).await;
    let received = sink.received();
    let ids: BTreeSet<_> = received.iter().map(|event| &event.id).collect();
    assert_eq!((received.len(), ids.len()), (10_000, 10_000));
    assert_eq!(received.last().unwrap().envelope.as_bytes(), &letter.envelope[..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_survives_the_end_of_the_bridge_and_keeps_its_id() {
    let (dir, sink) = (tempfile::tempdir().unwrap(), refusing());
    let (server, journal) = (server(), dir.path());
    let id = &poison(&server, "web-1");
    // Each bridge has a runtime of its own, which is taken from under it.
    for held in [true, false] {
        let (sink, server) = (&sink, &server);
        let crash = move || {
            let runtime = Runtime::new().unwrap();
            let bridge = runtime.block_on(Setup::new(server, journal).sink("a", sink).start());
            runtime.block_on(async {
                if held {
                    let letters = letters(&bridge.control(), 1).await;
                    assert_eq!(letters[0].id, *id);
                    sink.accept_everything();
                    sink.hold(true);
                    let attempts = sink.attempts().len();
                    assert_eq!(bridge.control().retry(ALL).await.unwrap(), 1);
                    until("it is on its way", || sink.attempts().len() > attempts).await;
                } else {
                    sink.hold(false);
                    sink.wait_for(1).await;
                }
            });
            // The second time it has been delivered, and most likely that has not been saved.
            runtime.shutdown_timeout(Duration::from_secs(10));
            drop(bridge);
        };
        std::thread::scope(|scope| scope.spawn(crash).join()).unwrap();
    }
    let bridge = Setup::new(&server, journal).sink("a", &sink).start().await;
    letters(&bridge.control(), 0).await;
    let status = settled(&bridge.view(), "a", 1).await;
    assert_eq!((status.delivered, status.dead_lettered), (1, 0));
    stop(bridge).await;
    assert!(sink.ids().iter().all(|received| received == id));
    assert!((1..=2).contains(&sink.ids().len()));
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_go_among_live_events_and_change_nothing_of_their_order() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), refusing());
    for n in 0..10 {
        poison(&server, &format!("bad-{n}"));
    }
    let bridge = Setup::new(&server, dir.path()).tuned("a", &sink, batches(1)).start().await;
    let control = bridge.control();
    letters(&control, 10).await;
    // Live events wait, more than there are letters.
    sink.accept_everything();
    sink.hold(true);
    for n in 0..2000 {
        create(&server, &format!("web-{n}"));
    }
    until("journalled", || sink_status(&bridge.view(), "a").seen == 2010).await;
    assert_eq!(control.retry(ALL).await.unwrap(), 10);
    sink.hold(false);
    letters(&control, 0).await;
    let status = settled(&bridge.view(), "a", 2010).await;
    assert_eq!((status.delivered, status.dead_lettered, status.retried), (2010, 0, 10));
    stop(bridge).await;
    let (errands, live): (Vec<_>, Vec<_>) = sink
        .received()
        .into_iter()
        .map(|event| event.seq)
        .partition(|seq| *seq >= Record::FIRST_ERRAND);
    assert_eq!((errands.len(), live.len()), (10, 2000));
    assert!(live.is_sorted() && errands.is_sorted());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_that_fails_keeps_no_live_event_waiting() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), refusing());
    let bad = poison(&server, "bad");
    let bridge = Setup::new(&server, dir.path()).sink("a", &sink).start().await;
    let control = bridge.control();
    letters(&control, 1).await;
    sink.refuse(|event| about_poison(event).then(|| retry(FailureClass::Unavailable)));
    control.retry(ALL).await.unwrap();
    for n in 0..50 {
        create(&server, &format!("web-{n}"));
        sink.wait_for(n + 1).await;
    }
    let status = settled(&bridge.view(), "a", 51).await;
    assert_eq!((status.delivered, status.dead_lettered), (50, 1));
    // A letter that is dropped meanwhile is not tried any more.
    assert_eq!(control.drop_letters(ALL).await.unwrap(), 1);
    let tried = || sink.attempts().iter().filter(|(_, ids)| ids.contains(&bad)).count();
    let before = tried();
    for n in 50..100 {
        create(&server, &format!("web-{n}"));
        sink.wait_for(n + 1).await;
    }
    // One may have been under way.
    assert!((before..=before + 1).contains(&tried()), "{before} tries before, {} now", tried());
    let status = settled(&bridge.view(), "a", 101).await;
    assert_eq!((status.delivered, status.dead_lettered), (100, 1));
    assert!(list(&control).await.is_empty());
    stop(bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_the_receiver_fails_for_are_parked_and_sent_again_until_it_takes_them() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), MemorySink::default());
    let silence = || Outcome::Failed(Failure::silence(Secrets::none().reason("no answer")));
    sink.refuse(move |event| about_poison(event).then(silence));
    let poisons: BTreeSet<String> = (0..20)
        .map(|n| EventObject::about_pod("evil", &format!("bad-{n}"), "Poison", "m"))
        .map(|event| server.create(event).unwrap().id())
        .collect();
    let setup = || Setup::new(&server, dir.path()).tuned("a", &sink, batches(1));
    let bridge = setup().start().await;
    let view = bridge.view();
    let mut others = 0;
    while sink_status(&view, "a").parked < 20 {
        create(&server, &format!("web-{others}"));
        others += 1;
        sink.wait_for(others).await;
    }
    let status = settled(&view, "a", others as u64 + 20).await;
    assert_eq!((status.delivered, status.dead_lettered), (others as u64, 20));
    let parked = letters(&bridge.control(), 20).await;
    assert!(parked.iter().all(|letter| letter.class == "blocked"));
    assert!(parked.iter().all(|letter| letter.state == LetterState::RetryRequested));
    assert!(parked.iter().any(|letter| letter.reason.ends_with("no answer")));
    // They stay, however often they fail, and whatever else comes of the namespace.
    let tried = || sink.attempts().len();
    let before = tried();
    assert_eq!(bridge.control().retry(ALL).await.unwrap(), 20);
    until("one is tried", || tried() > before).await;
    stop(bridge).await;
    assert_eq!(dead_letters(dir.path()).len(), 20);
    // After a start they are sent by themselves, in order.
    sink.accept_everything();
    let bridge = setup().start().await;
    letters(&bridge.control(), 0).await;
    let status = settled(&bridge.view(), "a", others as u64 + 20).await;
    assert_eq!((status.dead_lettered, status.parked, status.retried), (0, 0, 20));
    stop(bridge).await;
    let again: Vec<_> = sink.received().into_iter().filter(about_poison).collect();
    assert_eq!(again.iter().map(|event| event.id.clone()).collect::<BTreeSet<_>>(), poisons);
    assert!(again.iter().map(|event| event.seq).is_sorted());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_letters_that_are_dropped_only_the_one_on_its_way_still_arrives() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), refusing());
    let other = MemorySink::default();
    other.hold(true);
    for n in 0..5 {
        poison(&server, &format!("bad-{n}"));
    }
    let forwards = Tuning { forward: Some("b"), ..Tuning::default() };
    let wants_none = Tuning { filter: Some("event.reason == \"Live\""), ..Tuning::default() };
    let patient = Tuning { timeout: Duration::from_mins(1), ..wants_none };
    let setup = Setup::new(&server, dir.path()).tuned("a", &sink, forwards);
    let bridge = setup.tuned("b", &other, patient).start().await;
    let control = bridge.control();
    letters(&control, 5).await;
    until("the first is forwarded", || other.attempts().len() == 1).await;
    sink.accept_everything();
    sink.hold(true);
    let before = sink.attempts().len();
    assert_eq!(control.retry(ALL).await.unwrap(), 5);
    until("the first is sent again", || sink.attempts().len() > before).await;
    assert_eq!(control.drop_letters(ALL).await.unwrap(), 5);
    sink.hold(false);
    other.hold(false);
    // Errands have their turn whenever nothing live waits.
    for n in 0..10 {
        let event = EventObject::about_pod("shop", &format!("web-{n}"), "Live", "m");
        server.create(event).unwrap();
        for name in ["a", "b"] {
            settled(&bridge.view(), name, n + 6).await;
        }
    }
    stop(bridge).await;
    assert_eq!((sink.received().len(), other.received().len()), (11, 11));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_waits_a_moment_for_a_letter_on_its_way_and_sends_it_after_the_next_start() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), refusing());
    let poison = poison(&server, "bad");
    let patient = Tuning { timeout: Duration::from_secs(600), ..Tuning::default() };
    let setup = || Setup::new(&server, dir.path()).tuned("a", &sink, patient.clone());
    let bridge = setup().start().await;
    let control = bridge.control();
    letters(&control, 1).await;
    sink.accept_everything();
    sink.hold(true);
    control.retry(ALL).await.unwrap();
    until("the letter is on its way", || sink.attempts().len() == 2).await;
    bridge.stop(Duration::from_secs(600)).await.unwrap();
    let kept = dead_letters(dir.path());
    let [letter] = &kept[..] else { panic!("{kept:?}") };
    assert_eq!((&letter.id, letter.state), (&poison, LetterState::RetryRequested));
    sink.hold(false);
    let bridge = setup().start().await;
    letters(&bridge.control(), 0).await;
    stop(bridge).await;
    assert_eq!(sink.ids(), [poison]);
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_of_a_sink_that_is_gone_are_listed_and_dropped_but_not_sent() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), refusing());
    poison(&server, "bad");
    let bridge = Setup::new(&server, dir.path()).sink("a", &sink).start().await;
    letters(&bridge.control(), 1).await;
    stop(bridge).await;
    let bridge = Setup::new(&server, dir.path()).sink("b", &sink).start().await;
    let control = bridge.control();
    let number = letters(&control, 1).await[0].number;
    let error = control.retry(Letters::Numbers(vec![number])).await.unwrap_err();
    assert!(error.to_string().contains("`a` is not configured any more"), "{error}");
    assert_eq!(control.drop_letters(Letters::Numbers(vec![number])).await.unwrap(), 1);
    assert_eq!(control.dead_letter(number).await.unwrap(), None);
    stop(bridge).await;
    assert!(dead_letters(dir.path()).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_is_forwarded_once_the_other_sink_takes_it() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), refusing());
    let other = MemorySink::default();
    other.refuse(|_| Some(retry(FailureClass::Unavailable)));
    let setup = || {
        let forwards = Tuning { forward: Some("b"), ..Tuning::default() };
        let wants_nothing = Tuning { filter: Some("false"), ..Tuning::default() };
        Setup::new(&server, dir.path()).tuned("a", &sink, forwards).tuned(
            "b",
            &other,
            wants_nothing,
        )
    };
    let id = poison(&server, "bad");
    create(&server, "good");
    let bridge = setup().start().await;
    letters(&bridge.control(), 1).await;
    until("it is tried", || !other.attempts().is_empty()).await;
    stop(bridge).await;
    other.accept_everything();
    let bridge = setup().start().await;
    let forwarded = other.wait_for(1).await;
    let status = settled(&bridge.view(), "b", 2).await;
    assert_eq!((status.delivered, status.filtered), (0, 2), "outside the identity");
    until("saved", || bridge.view().dead_letters.due_count("b") == 0).await;
    assert_eq!(sink_status(&bridge.view(), "b").forwarded, 1);
    // One that it refuses is not tried again.
    other.refuse(|_| Some(invalid("neither")));
    poison(&server, "worse");
    letters(&bridge.control(), 2).await;
    until("refused", || sink_status(&bridge.view(), "b").forwards_refused == 1).await;
    stop(bridge).await;
    let [event] = &forwarded[..] else { panic!() };
    let info = Envelope::parse(event.envelope.as_bytes()).unwrap().dead_letter.unwrap();
    assert_eq!((&event.id, &*info.sink, &*info.class), (&id, "a", "invalid"));
    assert_eq!((&*info.reason, info.attempts), ("no such field", 1));
    assert!(info.time >= info.first_time && info.time.parse::<jiff::Timestamp>().is_ok());
    let letters = dead_letters(dir.path());
    assert_eq!(
        letters.iter().map(|letter| letter.forward.as_deref()).collect::<Vec<_>>(),
        [None; 2]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_finds_no_room_is_counted() {
    let (server, dir, sink) = (server(), tempfile::tempdir().unwrap(), refusing());
    for n in 0..60 {
        create(&server, &format!("web-{n}"));
        poison(&server, &format!("bad-{n}"));
    }
    let mut setup = Setup::new(&server, dir.path()).sink("a", &sink);
    setup.dead_letters = 8 << 10;
    let bridge = setup.start().await;
    let status = settled(&bridge.view(), "a", 120).await;
    assert_eq!((status.delivered, status.dead_lettered), (60, 60));
    let counts = || bridge.view().dead_letters.counts().get("a").copied().unwrap_or_default();
    until("saved", || counts().events + counts().overflowed == 60).await;
    let LetterCounts { letters, bytes, overflowed, .. } = counts();
    assert!(overflowed > 40 && letters >= 2 && bytes <= 8 << 10, "{:?}", counts());
    stop(bridge).await;
    let kept = dead_letters(dir.path());
    assert_eq!(kept.last().unwrap().seq, 120);
    assert_eq!(kept.len() as u64, letters);
}

/// What happens to letters.
#[derive(Clone, Debug)]
enum Step {
    Create {
        plain: u8,
        poison: u8,
    },
    /// From now on the receiver takes everything, or refuses poison.
    Mend(bool),
    Retry,
    Drop,
    Wait(u64),
    Stop,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (1u8..8, 0u8..5).prop_map(|(plain, poison)| Step::Create { plain, poison }),
        2 => any::<bool>().prop_map(Step::Mend),
        3 => Just(Step::Retry),
        1 => Just(Step::Drop),
        4 => (1u64..60).prop_map(Step::Wait),
        1 => Just(Step::Stop),
        2 => Just(Step::Crash),
    ]
}

fn start(server: &ApiServer, journal: &Path, sink: &MemorySink) -> (Runtime, Bridge) {
    let runtime = Runtime::new().unwrap();
    let setup = Setup::new(server, journal).tuned("a", sink, batches(3));
    let bridge = runtime.block_on(setup.start());
    (runtime, bridge)
}

fn letters_add_up(steps: Vec<Step>) {
    let outer = Runtime::new().unwrap();
    let (server, sink) = (outer.block_on(async { server() }), refusing());
    let dir = tempfile::tempdir().unwrap();
    let mut created = 0;
    let (mut runtime, mut bridge) = start(&server, dir.path(), &sink);
    for step in steps {
        match step {
            Step::Create { plain, poison: bad } => {
                let _entered = outer.enter();
                for _ in 0..plain {
                    create(&server, &format!("web-{created}"));
                    created += 1;
                }
                for _ in 0..bad {
                    poison(&server, &format!("web-{created}"));
                    created += 1;
                }
            }
            Step::Mend(true) => sink.accept_everything(),
            Step::Mend(false) => {
                sink.refuse(|event| about_poison(event).then(|| invalid("no")));
            }
            Step::Retry => drop(runtime.block_on(bridge.control().retry(ALL)).unwrap()),
            Step::Drop => drop(runtime.block_on(bridge.control().drop_letters(ALL)).unwrap()),
            Step::Wait(ms) => {
                runtime.block_on(async { tokio::time::sleep(Duration::from_millis(ms)).await });
                // Held to the identity within.
                sink_status(&bridge.view(), "a");
            }
            Step::Stop => {
                runtime.block_on(stop(bridge));
                drop(runtime);
                (runtime, bridge) = start(&server, dir.path(), &sink);
            }
            Step::Crash => {
                runtime.shutdown_timeout(Duration::from_secs(10));
                drop(bridge);
                (runtime, bridge) = start(&server, dir.path(), &sink);
            }
        }
    }
    let status = runtime.block_on(settled(&bridge.view(), "a", created));
    assert_eq!(status.delivered + status.dead_lettered, created);
    runtime.block_on(stop(bridge));
    drop(runtime);
    let (state, loaded) =
        State::open(&tidings::journal::open(dir.path()).unwrap(), 1 << 30, 0).unwrap();
    let counts = state.dead_letters().counts().get("a").copied().unwrap_or_default();
    let totals = loaded.sinks["a"].totals;
    let gone = counts.dropped + counts.overflowed - counts.arrived;
    assert_eq!(totals.dead_lettered, counts.events + gone);
    assert_eq!(totals.delivered + totals.dead_lettered, created);
    let ids: BTreeSet<_> = sink.ids().into_iter().collect();
    assert!(ids.len() as u64 >= totals.delivered, "{} {totals:?}", ids.len());
}

proptest! {
    #![proptest_config(bridge_cases())]

    #[test]
    fn letters_are_what_was_dead_lettered_and_not_dropped(
        steps in prop::collection::vec(step(), 1..25),
    ) {
        letters_add_up(steps);
    }
}
