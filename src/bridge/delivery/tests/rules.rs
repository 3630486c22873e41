//! The rules, one by one.

use std::time::Duration;

use proptest::{collection::vec, prelude::*};

use super::harness::{Caller, each, failed, failure, invalid, of_record, options, silence};
use crate::bridge::{
    BatchOptions, EventFate, FailureClass, Outcome, RefusedClass, RetryOptions, Secrets,
    delivery::{DeliveryOptions, Trouble, tests::harness::Fate},
};

#[test]
fn one_lane_without_failures_keeps_the_order_of_the_journal() {
    let mut caller = Caller::new(options(1, 3));
    caller.push((0..7).map(|n| (1, n % 2)));
    let mut order = Vec::new();
    while let Some(sent) = caller.send().pop() {
        order.extend(sent);
        assert_eq!(caller.sent.len(), 1);
        caller.answer(0, Outcome::Delivered);
    }
    assert_eq!(order, [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(caller.next, 8);
}

#[test]
fn a_batch_is_bounded_by_bytes_and_a_larger_record_goes_alone() {
    for (bytes, sent) in [(2500, vec![1, 2]), (10, vec![1])] {
        let batch = BatchOptions { bytes, ..options(1, 500).batch };
        let mut caller = Caller::new(DeliveryOptions { batch, ..options(1, 500) });
        caller.push((0..5).map(|n| (1, n)));
        assert_eq!(caller.send()[0], sent);
    }
}

#[test]
fn a_record_that_waits_holds_up_its_own_object_only() {
    for lanes in [1, 2] {
        let mut caller = Caller::new(options(lanes, 1));
        caller.push([(1, 7), (1, 8), (1, 7), (1, 9)]);
        caller.send();
        caller.answer_of(1, of_record(FailureClass::Misconfigured));
        for _ in 0..2 {
            caller.send();
            caller.answer(0, Outcome::Delivered);
        }
        assert!(caller.send().is_empty(), "3 waits for 1");
        assert_eq!(caller.fates.keys().copied().collect::<Vec<_>>(), [2, 4]);
        assert_eq!(caller.next, 1);
        caller.drain();
    }
}

#[test]
fn a_sink_is_misconfigured_only_while_nothing_is_taken() {
    let mut caller = Caller::new(options(2, 1));
    caller.push((0..4).map(|n| (n, n)));
    caller.send();
    assert_eq!(caller.delivery.trouble(), Trouble::None);
    caller.answer_of(1, failed(FailureClass::Misconfigured));
    assert!(matches!(caller.delivery.trouble(), Trouble::Misconfigured(_)));
    caller.answer_of(2, Outcome::Delivered);
    assert!(matches!(caller.delivery.trouble(), Trouble::Retrying(_)));
    caller.drain();
    assert_eq!(caller.delivery.trouble(), Trouble::None);
}

#[test]
fn a_request_for_time_slows_every_lane() {
    let mut caller = Caller::new(options(3, 1));
    caller.push((0..9).map(|n| (1, n)));
    caller.send();
    let mut throttled = failure(FailureClass::Throttled);
    throttled.after = Some(Duration::from_secs(5));
    caller.answer_of(2, Outcome::Failed(throttled));
    caller.answer_of(1, Outcome::Delivered);
    caller.answer_of(3, Outcome::Delivered);
    assert!(caller.send().is_empty());
    caller.wake();
    assert_eq!(caller.now, 5000);
    assert_eq!(caller.send().len(), 3);
}

#[test]
fn a_refused_batch_is_halved_until_the_culprit_stands_alone() {
    let mut caller = Caller::new(options(1, 500));
    caller.push((0..500).map(|n| (1, n)));
    let mut attempts = 0;
    while !caller.send().is_empty() {
        while let Some((_, seqs)) = caller.sent.first() {
            attempts += 1;
            let spoilt = seqs.contains(&322);
            let refused = Outcome::Failed(invalid());
            caller.answer(0, if spoilt { refused } else { Outcome::Delivered });
        }
    }
    assert_eq!((caller.fates.len(), caller.now), (500, 0));
    assert_eq!(caller.class(322), Some("invalid"));
    assert_eq!(caller.fates.values().filter(|fate| **fate == Fate::Delivered).count(), 499);
    assert!(attempts < 40, "{attempts}");
}

#[test]
fn a_batch_that_fails_is_sent_once_more_and_then_parted_by_namespace() {
    let mut caller = Caller::new(options(1, 6));
    caller.push([(1, 1), (2, 1), (3, 1), (1, 2), (2, 1), (3, 2), (4, 1)]);
    assert_eq!(caller.send(), [[1, 2, 3, 4, 5, 6]]);
    caller.answer(0, of_record(FailureClass::Unavailable));
    // What is not in it goes on.
    assert_eq!(caller.send(), [[7]]);
    caller.answer(0, Outcome::Delivered);
    caller.wake();
    assert_eq!(caller.send(), [[1, 2, 3, 4, 5, 6]]);
    caller.answer(0, of_record(FailureClass::Unavailable));
    let mut parts = Vec::new();
    while let [_, ..] = &caller.send()[..] {
        while !caller.sent.is_empty() {
            parts.push(caller.sent[0].1.clone());
            caller.answer(0, Outcome::Delivered);
        }
    }
    parts.sort();
    assert_eq!(parts, [[1, 4], [2, 5], [3, 6]]);
    caller.push([(1, 1), (2, 1)]);
    assert_eq!(caller.send(), [[8, 9]], "they are apart no more");
}

#[test]
fn a_culprit_before_many_namespaces_has_the_batch_fail_twice() {
    let mut caller = Caller::new(options(1, 60));
    caller.push((0..60).map(|n| (n % 30, n)));
    let mut whole = 0;
    while caller.class(1).is_none() && caller.fates.len() < 59 {
        for seqs in caller.send() {
            whole += usize::from(seqs.len() > 2);
            let fails = seqs.contains(&1);
            let fails =
                if fails { of_record(FailureClass::Unavailable) } else { Outcome::Delivered };
            caller.answer_of(seqs[0], fails);
        }
        caller.now = caller.delivery.wake_at().unwrap_or(caller.now);
    }
    assert_eq!(whole, 2);
}

#[test]
fn a_batch_of_which_some_are_taken_says_why_the_others_are_not() {
    let mut caller = Caller::new(options(1, 2));
    caller.push([(1, 1), (1, 2), (1, 3)]);
    caller.send();
    caller.answer(0, each("dr"));
    assert!(matches!(caller.delivery.trouble(), Trouble::Retrying(_)));
    let mut throttled = failure(FailureClass::Throttled);
    throttled.after = Some(Duration::from_secs(3));
    assert_eq!(caller.send(), [[3]]);
    caller.answer(0, Outcome::PerEvent(vec![EventFate::Failed(throttled)]));
    caller.wake();
    assert_eq!(caller.now, 3000);
}

#[test]
fn silence_keeps_no_lane_a_second_time() {
    let mut caller = Caller::new(options(1, 2));
    caller.push([(1, 1), (1, 2)]);
    caller.send();
    caller.answer(0, silence());
    caller.push([(2, 1), (2, 2), (2, 3)]);
    assert_eq!(caller.send(), [vec![3, 4], vec![1]], "the second beside the lane");
    caller.answer_of(3, Outcome::Delivered);
    assert_eq!(caller.send(), [[5]]);
    caller.answer_of(1, silence());
    caller.answer_of(5, Outcome::Delivered);
    assert_eq!(caller.send(), [[2]], "beside, while the first waits");
    caller.push([(2, 1)]);
    assert_eq!(caller.send(), [[6]]);
    caller.drain();
}

#[test]
fn a_failing_sink_is_tried_with_one_record_of_another_namespace_each_time() {
    let mut caller = Caller::new(options(4, 10));
    caller.push((0..40).map(|n| (n % 4, n)));
    let mut tried = Vec::new();
    for _ in 0..12 {
        caller.send();
        while let Some((_, seqs)) = caller.sent.first() {
            tried.push(seqs.clone());
            caller.answer(0, failed(FailureClass::Unavailable));
        }
        caller.wake();
    }
    let alone: Vec<u64> = tried.iter().filter(|seqs| seqs.len() == 1).map(|seqs| seqs[0]).collect();
    assert!(alone.len() > 5, "{tried:?}");
    let namespaces: Vec<u64> = alone.iter().map(|seq| caller.records[seq].0).collect();
    assert!(namespaces.windows(2).all(|pair| pair[0] != pair[1]), "{namespaces:?}");
    // One is taken, and the others go as if nothing had been.
    caller.send();
    caller.answer(0, Outcome::Delivered);
    let sent = caller.send();
    assert_eq!(sent.iter().map(Vec::len).sum::<usize>(), 39, "{sent:?}");
    assert!(sent.len() <= 5, "{sent:?}");
    caller.drain();
}

#[test]
fn what_is_not_taken_of_a_batch_is_sent_again_before_later_records_of_its_objects() {
    let mut caller = Caller::new(options(2, 4));
    caller.push([1, 2, 3, 1, 2, 4].map(|object| (1, object)));
    assert_eq!(caller.send(), [vec![1, 2, 3, 4], vec![6]]);
    caller.answer_of(1, each("dru"));
    assert_eq!(
        (caller.fates.get(&1), caller.fates.get(&3)),
        (Some(&Fate::Delivered), Some(&Fate::Delivered))
    );
    assert!(caller.send().is_empty(), "the others wait for it");
    caller.wake();
    assert_eq!(caller.send(), [[2, 4, 5]]);
    caller.drain();
}

#[test]
fn a_partial_success_is_a_letter_for_so_many_and_not_sent_again() {
    let mut caller = Caller::new(options(1, 4));
    caller.push((0..4).map(|n| (1, n)));
    caller.send();
    caller.answer(0, Outcome::Partial { rejected: 2, reason: Secrets::none().reason("two") });
    let class = "partial-success".to_owned();
    let letter = Fate::DeadLetter { class, attempts: 1, unidentified: 2 };
    assert_eq!(
        caller.fates.into_values().collect::<Vec<_>>(),
        [letter, Fate::Delivered, Fate::Delivered]
    );
}

#[test]
fn max_attempts_counts_each_record_and_gives_up_no_neighbour_of_it() {
    let retry = RetryOptions { max_attempts: Some(3), ..RetryOptions::default() };
    let mut caller = Caller::new(DeliveryOptions { retry, ..options(1, 8) });
    caller.push((0..8).map(|n| (1, n)));
    while caller.delivery.oldest_ms().is_some() {
        for seqs in caller.send() {
            let spoilt = seqs.contains(&5);
            let fails = of_record(FailureClass::Unavailable);
            caller.answer_of(seqs[0], if spoilt { fails } else { Outcome::Delivered });
        }
        caller.now = caller.delivery.wake_at().unwrap_or(caller.now);
    }
    assert_eq!(caller.class(5), Some("max-attempts"));
    assert_eq!(caller.fates.values().filter(|fate| **fate == Fate::Delivered).count(), 7);
}

#[test]
fn max_attempts_gives_up_each_record_of_a_sink_that_takes_nothing() {
    let retry = RetryOptions { max_attempts: Some(3), ..RetryOptions::default() };
    for failure in [failed(FailureClass::Timeout), of_record(FailureClass::Unavailable)] {
        let mut caller = Caller::new(DeliveryOptions { retry, ..options(1, 2) });
        caller.push((0..10).map(|n| (n % 3, n)));
        while caller.delivery.oldest_ms().is_some() {
            for seqs in caller.send() {
                caller.answer_of(seqs[0], failure.clone());
            }
            caller.now = caller.delivery.wake_at().unwrap_or(caller.now);
        }
        assert!((1..=10).all(|seq| caller.class(seq) == Some("max-attempts")));
    }
}

#[test]
fn max_attempts_counts_nothing_that_a_person_has_to_mend() {
    let retry = RetryOptions { max_attempts: Some(2), ..RetryOptions::default() };
    let mut caller = Caller::new(DeliveryOptions { retry, ..options(1, 2) });
    caller.push([(1, 1), (1, 2)]);
    for _ in 0..20 {
        caller.send();
        caller.answer(0, failed(FailureClass::Misconfigured));
        caller.wake();
    }
    assert!(matches!(caller.delivery.trouble(), Trouble::Misconfigured(_)));
    caller.drain();
    assert_eq!(caller.fates.values().filter(|fate| **fate == Fate::Delivered).count(), 2);
}

#[test]
fn the_window_is_bounded_by_records_and_bytes() {
    let batch = BatchOptions { bytes: 1 << 20, ..options(4, 500).batch };
    let mut caller = Caller::new(DeliveryOptions { batch, ..options(4, 500) });
    let mut pushed = 0;
    while caller.delivery.has_room() {
        caller.push([(1, pushed)]);
        pushed += 1;
    }
    assert_eq!(pushed, 6 * 500);
    caller.send();
    assert!(!caller.delivery.has_room());
    caller.answer(2, Outcome::Delivered);
    assert!(caller.delivery.has_room());
    let mut caller = Caller::new(options(1, 1));
    let mut pushed = 0;
    while caller.delivery.has_room() {
        caller.push([(1, pushed)]);
        pushed += 1;
    }
    assert_eq!(pushed, 1024);
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let class = prop_oneof![
        Just(FailureClass::Unavailable),
        Just(FailureClass::Throttled),
        Just(FailureClass::Timeout),
        Just(FailureClass::Misconfigured),
        Just(FailureClass::Refused(RefusedClass::Invalid)),
        Just(FailureClass::Refused(RefusedClass::Unsendable)),
    ];
    let fate = prop_oneof![
        4 => Just(EventFate::Delivered),
        1 => Just(EventFate::Duplicate),
        3 => class.clone().prop_map(|class| EventFate::Failed(failure(class))),
    ];
    let of_record = prop_oneof![
        Just(of_record(FailureClass::Unavailable)),
        Just(of_record(FailureClass::Misconfigured)),
        Just(silence()),
    ];
    let reason = Secrets::none().reason("some");
    prop_oneof![
        3 => Just(Outcome::Delivered),
        3 => vec(fate, 0..12).prop_map(Outcome::PerEvent),
        1 => (0..12u64).prop_map(move |rejected| {
            Outcome::Partial { rejected, reason: reason.clone() }
        }),
        3 => class.prop_map(failed),
        3 => of_record,
    ]
}

/// A thing that happens to delivery.
#[derive(Clone, Debug)]
enum Happening {
    Push(Vec<(u64, u64)>),
    Answer(prop::sample::Index, Outcome),
    Wake,
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        3 => vec((0..4u64, 0..4u64), 1..20).prop_map(Happening::Push),
        6 => (any::<prop::sample::Index>(), outcome())
            .prop_map(|(at, outcome)| Happening::Answer(at, outcome)),
        2 => Just(Happening::Wake),
    ]
}

proptest! {
    #[test]
    fn each_record_has_one_fate_and_no_object_is_overtaken(
        happenings in vec(happening(), 0..200),
        lanes in 1..6usize,
        events in 1..10usize,
        max_attempts in proptest::option::of(1..5u32),
    ) {
        let retry = RetryOptions { max_attempts, ..RetryOptions::default() };
        let mut caller = Caller::new(DeliveryOptions { retry, ..options(lanes, events) });
        for happening in happenings {
            match happening {
                Happening::Push(records) => _ = caller.push(records),
                Happening::Answer(at, outcome) if !caller.sent.is_empty() => {
                    let at = at.index(caller.sent.len());
                    caller.answer(at, outcome);
                }
                Happening::Answer(..) | Happening::Wake => {
                    let wake = caller.delivery.wake_at().unwrap_or_default();
                    caller.now = caller.now.max(wake);
                }
            }
            caller.send();
            let goes_on = !caller.sent.is_empty() || caller.delivery.wake_at().is_some();
            prop_assert!(goes_on || caller.delivery.oldest_ms().is_none(), "it stands still");
        }
        caller.drain();
    }
}
