//! Lanes: order, answers, waits.

use std::time::Duration;

use proptest::{collection::vec, prelude::*};

use super::harness::{Caller, each, failed, failure, invalid, options};
use crate::bridge::{
    EventFate, FailureClass, Outcome, RefusedClass, RetryOptions, Secrets,
    delivery::{DeliveryOptions, Fate, Letter, LetterClass, Trouble},
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
    assert_eq!(caller.fates.len(), 7);
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
    assert_eq!(caller.fates.keys().copied().collect::<Vec<_>>(), [2, 4]);
    caller.drain();
    assert_eq!(caller.fates.len(), 4);
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
    assert_eq!(caller.delivery.wake_at(), Some(5000));
    caller.now = 5000;
    assert_eq!(caller.send().len(), 3);
}

#[test]
fn a_refused_batch_is_halved_until_the_culprit_stands_alone() {
    let mut caller = Caller::new(options(1, 8));
    let numbers: Vec<_> = (0..8).map(|key| caller.push(key)).collect();
    let mut attempts = 0;
    while let Some((lane, sent)) = caller.send().pop() {
        attempts += 1;
        let spoilt = sent.contains(&numbers[5]);
        caller.answer(lane, if spoilt { Outcome::Failed(invalid()) } else { Outcome::Delivered });
    }
    assert_eq!((caller.fates.len(), attempts, caller.now), (8, 7, 0));
    assert_eq!(class(caller.fate(numbers[5])), Some("invalid"));
    assert_eq!(caller.fates.values().filter(|fate| **fate == Fate::Delivered).count(), 7);
}

#[test]
fn what_is_not_taken_of_a_batch_is_sent_again_before_later_records_of_its_keys() {
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
    let class = LetterClass::PartialSuccess;
    let letter = Fate::DeadLetter(Letter { class, reason, attempts: 1, first: 0 });
    let fates = [letter.clone(), letter, Fate::Delivered, Fate::Delivered];
    assert!(caller.fates.into_values().eq(fates));
}

#[test]
fn an_attempt_too_many_makes_dead_letters() {
    let retry = RetryOptions { max_attempts: Some(3), ..RetryOptions::default() };
    let mut caller = Caller::new(DeliveryOptions { retry, ..options(1, 2) });
    let [first, second] = [1, 2].map(|key| caller.push(key));
    let answers = [
        failed(FailureClass::Unavailable),
        failed(FailureClass::Misconfigured),
        each("rd"),
        failed(FailureClass::Timeout),
    ];
    for (at, outcome) in answers.into_iter().enumerate() {
        assert_eq!(class(caller.fate(first)), None);
        caller.now = caller.delivery.wake_at().unwrap();
        assert_eq!(caller.send().len(), 1, "{at}");
        caller.answer(0, outcome);
    }
    assert_eq!(caller.fate(second), Some(&Fate::Delivered));
    let Some(Fate::DeadLetter(letter)) = caller.fate(first) else { panic!() };
    assert_eq!((letter.class, letter.attempts), (LetterClass::MaxAttempts, 4));
}

#[test]
fn errands_wait_for_live_records_but_not_for_ever() {
    let mut caller = Caller::new(options(1, 1));
    caller.push_all(0..20);
    let errand = caller.push_errand(100);
    let mut before = 0;
    while caller.fate(errand).is_none() {
        before += 1;
        caller.send();
        caller.answer(0, Outcome::Delivered);
    }
    assert_eq!(before, 8);
    caller.push_errand(101);
    caller.drain();
}

#[test]
fn an_errand_takes_the_lane_of_its_key() {
    let mut caller = Caller::new(options(2, 5));
    let live = caller.push(1);
    assert_eq!(caller.send(), [(0, vec![live])]);
    let [errand, other] = [1, 2].map(|key| caller.push_errand(key));
    assert_eq!(caller.send(), [(1, vec![other])]);
    caller.answer(0, Outcome::Delivered);
    assert_eq!(caller.send(), [(0, vec![errand])]);
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

fn outcome() -> impl Strategy<Value = Outcome> {
    let class = prop_oneof![
        Just(FailureClass::Unavailable),
        Just(FailureClass::Throttled),
        Just(FailureClass::Timeout),
        Just(FailureClass::Misconfigured),
        Just(FailureClass::Refused(RefusedClass::Invalid)),
        Just(FailureClass::Refused(RefusedClass::TooLarge)),
    ];
    let fate = prop_oneof![
        4 => Just(EventFate::Delivered),
        1 => Just(EventFate::Duplicate),
        3 => class.clone().prop_map(|class| EventFate::Failed(failure(class))),
    ];
    let reason = Secrets::none().reason("some");
    prop_oneof![
        3 => Just(Outcome::Delivered),
        3 => vec(fate, 0..12).prop_map(Outcome::PerEvent),
        1 => (0..12u64).prop_map(move |rejected| {
            Outcome::Partial { rejected, reason: reason.clone() }
        }),
        4 => class.prop_map(failed),
    ]
}

/// A thing that happens to delivery.
#[derive(Clone, Debug)]
enum Happening {
    Push(Vec<u64>),
    Errand(u64),
    Cancel(prop::sample::Index),
    Answer(prop::sample::Index, Outcome),
    Wake,
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        2 => vec(0..12u64, 1..20).prop_map(Happening::Push),
        2 => (0..12u64).prop_map(Happening::Errand),
        1 => any::<prop::sample::Index>().prop_map(Happening::Cancel),
        6 => (any::<prop::sample::Index>(), outcome())
            .prop_map(|(lane, outcome)| Happening::Answer(lane, outcome)),
        2 => Just(Happening::Wake),
    ]
}

proptest! {
    #[test]
    fn every_ticket_has_one_fate_and_no_key_is_overtaken(
        happenings in vec(happening(), 0..150),
        lanes in 1..6usize,
        batch_events in 1..10usize,
        max_attempts in proptest::option::of(1..5u32),
    ) {
        let retry = RetryOptions { max_attempts, ..RetryOptions::default() };
        let mut caller = Caller::new(DeliveryOptions { retry, ..options(lanes, batch_events) });
        for happening in happenings {
            match happening {
                Happening::Push(keys) => caller.push_all(keys),
                Happening::Errand(key) => _ = caller.push_errand(key),
                Happening::Cancel(at) => caller.cancel(at),
                Happening::Answer(lane, outcome) if !caller.sent.is_empty() => {
                    let lanes: Vec<_> = caller.sent.keys().copied().collect();
                    caller.answer(*lane.get(&lanes), outcome);
                }
                Happening::Answer(..) | Happening::Wake => {
                    let wake = caller.delivery.wake_at().unwrap_or_default();
                    caller.now = caller.now.max(wake);
                }
            }
            caller.send();
        }
        caller.drain();
    }
}
