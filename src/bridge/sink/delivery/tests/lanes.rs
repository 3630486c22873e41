//! Lanes: order, answers, waits.

use std::time::Duration;

use proptest::{collection::vec, prelude::*};

use super::harness::{Caller, broken, each, failed, failure, http, invalid, options, run, silence};
use crate::bridge::{
    EventFate, Failure, FailureClass, Fault, Outcome, RefusedClass, RetryOptions, Secrets, Status,
    sink::delivery::{
        DeadLetterClass, DeliveryOptions, FIRST_RESEND, Fate, GivenUp, Ticket, Trouble,
    },
};

fn class(fate: Option<&Fate>) -> Option<&'static str> {
    match fate {
        Some(Fate::DeadLetter(letter)) => Some(letter.class.as_str()),
        _ => None,
    }
}

#[test]
fn one_lane_keeps_the_order_of_the_journal() {
    let mut caller = Caller::new(options(1, 3));
    caller.push_all((0..7).map(|key| key % 2));
    let mut order = Vec::new();
    for _ in 0..3 {
        let sent = caller.send();
        assert_eq!(sent.len(), 1);
        order.extend(sent[0].1.clone());
        caller.answer(0, failed(FailureClass::Timeout));
        assert!(caller.send().is_empty() && caller.delivery.wake_at() > Some(caller.now));
        caller.now = caller.delivery.wake_at().unwrap();
        assert_eq!(caller.send(), sent);
        caller.answer(0, Outcome::Delivered);
    }
    assert_eq!(order, [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(caller.delivery.settled(), 8);
}

#[test]
fn a_batch_is_bounded_by_bytes_and_a_larger_record_goes_alone() {
    let batch_bytes = 2500;
    let mut caller = Caller::new(DeliveryOptions { batch_bytes, ..options(1, 500) });
    caller.push_all(0..5);
    assert_eq!(caller.send()[0].1, [1, 2]);
    let batch_bytes = 10;
    let mut caller = Caller::new(DeliveryOptions { batch_bytes, ..options(1, 500) });
    caller.push_all(0..5);
    assert_eq!(caller.send()[0].1, [1]);
}

#[test]
fn a_lane_that_fails_holds_up_its_own_keys_only() {
    let mut caller = Caller::new(options(2, 1));
    let [first, _, second, third] = [7, 8, 7, 9].map(|key| caller.push(key));
    let sent = caller.send();
    assert_eq!(sent, [(0, vec![1]), (1, vec![2])]);
    caller.answer(0, failed(FailureClass::Misconfigured));
    caller.answer(1, Outcome::Delivered);
    assert_eq!(caller.send(), [(1, vec![third])], "{second} waits for {first}");
    caller.answer(1, Outcome::Delivered);
    assert_eq!(caller.delivery.settled(), 1);
    assert_eq!(caller.delivery.settled_behind().collect::<Vec<_>>(), vec![2..3, 4..5]);
    caller.drain();
    assert_eq!(caller.delivery.settled(), 5);
}

#[test]
fn a_sink_is_misconfigured_only_while_no_lane_is_taken() {
    let mut caller = Caller::new(options(2, 1));
    caller.push_all(0..4);
    caller.send();
    assert_eq!(caller.delivery.trouble(), Trouble::None);
    caller.answer(0, failed(FailureClass::Misconfigured));
    assert!(matches!(caller.delivery.trouble(), Trouble::Misconfigured(_)));
    caller.answer(1, Outcome::Delivered);
    assert!(matches!(caller.delivery.trouble(), Trouble::Retrying(_)));
    caller.drain();
    assert_eq!(caller.delivery.trouble(), Trouble::None);
}

#[test]
fn a_request_for_time_slows_every_lane() {
    let mut caller = Caller::new(options(3, 1));
    caller.push_all(0..9);
    caller.send();
    let mut throttled = failure(FailureClass::Throttled);
    throttled.after = Some(Duration::from_secs(5));
    caller.answer(1, Outcome::Failed(throttled));
    caller.answer(0, Outcome::Delivered);
    caller.answer(2, Outcome::Delivered);
    assert!(caller.send().is_empty());
    assert_eq!(caller.delivery.wake_at(), Some(5001));
    caller.now = 5001;
    assert_eq!(caller.send().len(), 3);
}

#[test]
fn a_refused_batch_is_halved_until_the_culprit_stands_alone() {
    let mut caller = Caller::new(options(1, 8));
    let numbers: Vec<_> = (0..8).map(|key| caller.push(key)).collect();
    let mut attempts = 0;
    while caller.fate(numbers[5]).is_none() {
        assert!(attempts < 500);
        attempts += 1;
        for (lane, sent) in caller.send() {
            let spoilt = sent.contains(&numbers[5]);
            let refused = Outcome::Failed(invalid());
            caller.answer(lane, if spoilt { refused } else { Outcome::Delivered });
        }
        if attempts > 6 {
            // Somebody has to be taken in turns with it.
            caller.push(100 + attempts);
        }
        caller.now += 50;
    }
    assert_eq!(class(caller.fate(numbers[5])), Some("invalid"));
}

#[test]
fn records_of_a_batch_that_are_not_taken_are_sent_again_before_later_ones_of_their_keys() {
    let mut caller = Caller::new(options(2, 4));
    let keys = [1, 2, 3, 1, 2, 4];
    let numbers = keys.map(|key| caller.push(key));
    caller.send();
    assert_eq!((&caller.sent[&0][..], &caller.sent[&1][..]), (&numbers[..4], &numbers[5..]));
    caller.answer(0, each("dru"));
    assert_eq!(caller.fate(numbers[0]), Some(&Fate::Delivered));
    assert_eq!(caller.fate(numbers[2]), Some(&Fate::Duplicate));
    assert!(caller.send().is_empty(), "the others wait for it");
    caller.now = caller.delivery.wake_at().unwrap();
    assert_eq!(caller.send(), [(0, vec![numbers[1], numbers[3]])]);
    caller.answer(0, each("ud"));
    assert_eq!(caller.send(), [(0, vec![numbers[4]])]);
}

#[test]
fn a_partial_success_is_a_letter_for_so_many_and_not_sent_again() {
    let mut caller = Caller::new(options(1, 4));
    caller.push_all(0..4);
    caller.send();
    let reason = Secrets::none().reason("two of them");
    caller.answer(0, Outcome::Partial { rejected: 2, reason: reason.clone() });
    let class = DeadLetterClass::PartialSuccess;
    let letter = Fate::DeadLetter(GivenUp { class, reason, attempts: 1, first: 0, by_hand: false });
    let fates = [letter.clone(), letter, Fate::Delivered, Fate::Delivered];
    assert!(caller.fates.into_values().eq(fates));
}

#[test]
fn an_attempt_too_many_makes_dead_letters() {
    let retry = RetryOptions { max_attempts: Some(3), ..RetryOptions::default() };
    let mut caller = Caller::new(DeliveryOptions { retry, ..options(1, 2) });
    let [first, second] = [1, 2].map(|key| caller.push(key));
    let answers = [
        Outcome::Failed(broken()),
        failed(FailureClass::Misconfigured),
        Outcome::PerEvent(vec![EventFate::Failed(broken()), EventFate::Delivered]),
        Outcome::Failed(silence()),
    ];
    for (at, outcome) in answers.into_iter().enumerate() {
        assert_eq!(class(caller.fate(first)), None);
        caller.now = caller.delivery.wake_at().unwrap();
        assert_eq!(caller.send().len(), 1, "{at}");
        caller.answer(0, outcome);
    }
    assert_eq!(caller.fate(second), Some(&Fate::Delivered));
    let Some(Fate::DeadLetter(letter)) = caller.fate(first) else { panic!() };
    assert_eq!((letter.class, letter.attempts), (DeadLetterClass::MaxAttempts, 4));
}

#[test]
fn attempts_that_fail_by_the_sink_s_fault_are_not_counted() {
    let retry = RetryOptions { max_attempts: Some(3), ..RetryOptions::default() };
    for class in [
        FailureClass::Unavailable,
        FailureClass::Timeout,
        FailureClass::Throttled,
        FailureClass::Misconfigured,
    ] {
        let mut caller = Caller::new(DeliveryOptions { retry, ..options(2, 2) });
        caller.push_all(0..20);
        caller.push_resend(20);
        let all: Vec<_> = (1..=20).chain([FIRST_RESEND]).collect();
        run(&mut caller, 120_000, &all, &failure(class));
        assert!(caller.fates.is_empty(), "{class:?}: {:?}", caller.fates);
        caller.drain();
    }
}

#[test]
fn attempts_are_counted_for_each_record_wherever_it_is_tried() {
    let retry = RetryOptions { max_attempts: Some(20), ..RetryOptions::default() };
    let mut caller = Caller::new(DeliveryOptions { retry, ..options(1, 10) });
    caller.namespaces = 10;
    caller.push_all([1, 2]);
    let [first, second] = [10, 20].map(|key| caller.push(key));
    let (mut failures, mut alone) = (0, 0);
    for _ in 0..10_000 {
        if caller.fate(second).is_some() {
            break;
        }
        for (line, sent) in caller.send() {
            // The first is taken once it has failed by itself, and the second comes back to the lane.
            let fails = sent.contains(&second) || sent.contains(&first) && alone < 2;
            alone += u32::from(sent == [first]);
            failures += u32::from(sent.contains(&second));
            let failed = Outcome::Failed(broken());
            caller.answer(line, if fails { failed } else { Outcome::Delivered });
        }
        caller.now += 50;
    }
    assert_eq!(class(caller.fate(second)), Some("max-attempts"));
    assert_eq!((caller.fate(first), failures), (Some(&Fate::Delivered), 20));
}

#[test]
fn resends_wait_for_live_records_but_not_for_ever() {
    let mut caller = Caller::new(options(1, 1));
    caller.push_all(0..20);
    let resend = caller.push_resend(100);
    let mut before = 0;
    while caller.fate(resend).is_none() {
        before += 1;
        caller.send();
        caller.answer(0, Outcome::Delivered);
    }
    assert_eq!(before, 8);
    caller.push_resend(101);
    caller.drain();
}

#[test]
fn a_resend_takes_the_lane_of_its_key() {
    let mut caller = Caller::new(options(2, 5));
    let live = caller.push(1);
    assert_eq!(caller.send(), [(0, vec![live])]);
    let [resend, other] = [1, 2].map(|key| caller.push_resend(key));
    assert_eq!(caller.send(), [(1, vec![other])]);
    caller.answer(0, Outcome::Delivered);
    assert_eq!(caller.send(), [(0, vec![resend])]);
    caller.push(1);
    assert!(caller.send().is_empty());
    caller.drain();
}

#[test]
fn records_in_hand_are_bounded() {
    let mut caller = Caller::new(options(4, 500));
    let mut pushed = 0;
    while caller.delivery.has_room() {
        caller.push(pushed);
        pushed += 1;
    }
    assert_eq!(pushed, 6 * 500);
    caller.send();
    assert!(!caller.delivery.has_room());
    caller.answer(2, Outcome::Delivered);
    assert!(caller.delivery.has_room());
}

#[test]
fn a_record_that_waits_for_long_takes_no_room_for_those_behind_it() {
    let mut caller = Caller::new(options(2, 500));
    let first = caller.push(0);
    caller.send();
    caller.answer(0, failed(FailureClass::Misconfigured));
    let mut delivery = caller.delivery;
    let ticket = |key| Ticket { key, namespace: key, destination: 0, bytes: 100 };
    for round in 0..200 {
        for key in 1..=500 {
            delivery.push(ticket(1 + key));
        }
        let lane = delivery.next_send(round).unwrap();
        delivery.answered(lane, Outcome::Delivered, round);
    }
    assert_eq!(delivery.settled(), first);
    assert!(delivery.settled_behind().eq(std::iter::once(2..100_002)));
    assert_eq!(delivery.next_send(100_000), Some(0));
    assert_eq!(delivery.tickets(0), [first]);
    delivery.answered(0, Outcome::Delivered, 100_000);
    assert_eq!(delivery.settled(), 100_002);
}

fn any_failure() -> impl Strategy<Value = Failure> {
    let class = prop_oneof![
        Just(FailureClass::Unavailable),
        Just(FailureClass::Throttled),
        Just(FailureClass::Timeout),
        Just(FailureClass::Misconfigured),
        Just(FailureClass::Refused(RefusedClass::Invalid)),
        Just(FailureClass::Refused(RefusedClass::TooLarge)),
    ];
    let of_record = prop_oneof![
        Just(http(FailureClass::Misconfigured, Fault::RecordForGood, 403)),
        Just(http(FailureClass::Unavailable, Fault::RecordForNow, 500)),
        Just(Failure {
            fault: Fault::RecordForNow,
            status: Status::Silence,
            ..failure(FailureClass::Timeout)
        }),
    ];
    prop_oneof![class.prop_map(failure), of_record]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let fate = prop_oneof![
        4 => Just(EventFate::Delivered),
        1 => Just(EventFate::Duplicate),
        3 => any_failure().prop_map(EventFate::Failed),
    ];
    let reason = Secrets::none().reason("some");
    prop_oneof![
        3 => Just(Outcome::Delivered),
        3 => vec(fate, 0..12).prop_map(Outcome::PerEvent),
        1 => (0..12u64).prop_map(move |rejected| {
            Outcome::Partial { rejected, reason: reason.clone() }
        }),
        4 => any_failure().prop_map(Outcome::Failed),
    ]
}

/// A thing that happens to delivery.
#[derive(Clone, Debug)]
enum Happening {
    Push(Vec<u64>),
    Resend(u64),
    Cancel(prop::sample::Index),
    Answer(prop::sample::Index, Outcome),
    /// All attempts fail so often.
    Outage(u32, Failure),
    /// So many milliseconds pass.
    Wake(u64),
    /// The head is put away, or there is no room for it.
    PutAway(bool),
    /// The receiver has so many destinations.
    Relocate(u64),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        2 => vec(0..12u64, 1..20).prop_map(Happening::Push),
        2 => (0..12u64).prop_map(Happening::Resend),
        1 => any::<prop::sample::Index>().prop_map(Happening::Cancel),
        6 => (any::<prop::sample::Index>(), outcome())
            .prop_map(|(lane, outcome)| Happening::Answer(lane, outcome)),
        1 => (1..12u32, any_failure())
            .prop_map(|(times, failure)| Happening::Outage(times, failure)),
        2 => (0..20_000u64).prop_map(Happening::Wake),
        1 => any::<bool>().prop_map(Happening::PutAway),
        1 => (1..4u64).prop_map(Happening::Relocate),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_ticket_has_one_fate_and_no_key_is_overtaken(
        copies in vec(0..12u64, 0..8),
        happenings in vec(happening(), 0..150),
        lanes in 1..6usize,
        (batch_events, batch_bytes) in (1..10usize, prop_oneof![Just(1 << 20), Just(3000)]),
        (namespaces, destinations) in (1..8u64, 1..3u64),
        max_attempts in proptest::option::of(1..5u32),
        most_waiting in prop_oneof![2..8u32, Just(1000)],
    ) {
        let retry = RetryOptions { max_attempts, ..RetryOptions::default() };
        let options = DeliveryOptions { batch_bytes, retry, ..options(lanes, batch_events) };
        let mut caller = Caller::after(options, copies.len() as u64);
        (caller.namespaces, caller.destinations) = (namespaces, destinations);
        caller.delivery.most_waiting = most_waiting;
        for key in copies {
            caller.push_copy(key);
        }
        for happening in happenings {
            match happening {
                Happening::Push(keys) => caller.push_all(keys),
                Happening::Resend(key) => _ = caller.push_resend(key),
                Happening::Cancel(at) => caller.cancel(at),
                Happening::Answer(lane, outcome) if !caller.sent.is_empty() => {
                    let lanes: Vec<_> = caller.sent.keys().copied().collect();
                    caller.answer(*lane.get(&lanes), outcome);
                }
                Happening::Answer(..) => {
                    let wake = caller.delivery.wake_at().unwrap_or_default();
                    caller.now = caller.now.max(wake);
                }
                Happening::Outage(times, failure) => {
                    for _ in 0..times {
                        while let Some(lane) = caller.sent.keys().next().copied() {
                            caller.answer(lane, Outcome::Failed(failure.clone()));
                        }
                        let wake = caller.delivery.wake_at().unwrap_or_default();
                        caller.now = caller.now.max(wake);
                        caller.send();
                    }
                }
                Happening::Wake(millis) => caller.now += millis,
                Happening::PutAway(by_hand) => caller.put_away(by_hand),
                Happening::Relocate(destinations) => {
                    if !caller.delivery.has_live() {
                        caller.relocate(destinations);
                    }
                }
            }
            caller.send();
        }
        caller.drain();
        let resends = caller.fates.range(FIRST_RESEND..).count() as u64;
        prop_assert_eq!(caller.delivery.settled(), 1 + caller.fates.len() as u64 - resends);
    }
}
