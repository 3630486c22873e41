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
    // Other records go on.
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

/// Answers all that is sent for so long, refusing records of objects from 100 on.
fn refuse(caller: &mut Caller, seconds: u64, class: RefusedClass) {
    let end = caller.now + 1000 * seconds;
    while caller.now < end {
        caller.send();
        while let Some((_, seqs)) = caller.sent.first() {
            let is_refused = seqs.iter().any(|seq| caller.records[seq].1 >= 100);
            let refusal = failed(FailureClass::Refused(class));
            caller.answer(0, if is_refused { refusal } else { Outcome::Delivered });
            caller.send();
        }
        caller.now += 50;
    }
}

#[test]
fn records_larger_than_any_that_was_taken_are_given_up_however_many_they_are() {
    let mut caller = Caller::new(options(1, 10));
    caller.push([(1, 1)]);
    refuse(&mut caller, 1, RefusedClass::TooLarge);
    // A record of the same objects waits behind each of them.
    caller.push((0..200).map(|n| (1, 1000 + n % 10)));
    caller.push((0..10).map(|n| (1, 1000 + n)));
    refuse(&mut caller, 10, RefusedClass::TooLarge);
    assert_eq!(caller.delivery.window.open(), 0);
    // Those that are no larger may be refused because of the sink.
    caller.push((0..200).map(|n| (1, 100 + n)));
    refuse(&mut caller, 10, RefusedClass::TooLarge);
    assert_eq!(caller.delivery.window.open(), 180);
}

#[test]
fn a_record_that_is_taken_has_the_next_twenty_refused_ones_given_up() {
    let mut caller = Caller::new(options(1, 1));
    caller.push((0..200).map(|n| (1, 100 + n)));
    for round in 1..=5 {
        refuse(&mut caller, 60, RefusedClass::Invalid);
        assert_eq!(caller.delivery.window.open(), 200 - 20 * round);
        caller.push([(1, 1)]);
        refuse(&mut caller, 180, RefusedClass::Invalid);
        assert_eq!(caller.fates.get(&(200 + round as u64)), Some(&Fate::Delivered));
    }
}

/// Has records that come each second for so long, those of objects from 100 on failing.
fn pass(
    caller: &mut Caller,
    seconds: u64,
    failure: &Outcome,
    mut about: impl FnMut(u64) -> Vec<(u64, u64)>,
) {
    let end = caller.now + 1000 * seconds;
    while caller.now < end {
        caller.push(about(caller.now / 1000));
        let next = caller.now + 1000;
        while caller.now < next {
            caller.send();
            caller.now += 50;
            let is_idle = caller.sent.is_empty();
            while let Some((_, seqs)) = caller.sent.first() {
                let fails = seqs.iter().any(|seq| caller.records[seq].1 >= 100);
                caller.answer(0, if fails { failure.clone() } else { Outcome::Delivered });
            }
            if is_idle {
                let wake = caller.delivery.wake_at().unwrap_or(next);
                caller.now = wake.min(next).max(caller.now);
            }
        }
        caller.now = next;
    }
}

#[test]
fn a_record_that_fails_alone_while_others_are_taken_is_parked_after_a_minute() {
    let failure = of_record(FailureClass::Misconfigured);
    for (lanes, events) in [(1, 500), (8, 1)] {
        let mut caller = Caller::new(options(lanes, events));
        let culprit = caller.push([(1, 100)])[0];
        pass(&mut caller, 59, &failure, |_| vec![(2, 1)]);
        assert_eq!(caller.class(culprit), None);
        pass(&mut caller, 60, &failure, |_| vec![(2, 1)]);
        assert_eq!(caller.class(culprit), Some("blocked"));
        assert_eq!(caller.next, caller.records.len() as u64 + 1);
    }
}

#[test]
fn nothing_is_parked_while_nothing_else_is_taken_or_there_is_no_room() {
    let failure = of_record(FailureClass::Misconfigured);
    let mut caller = Caller::new(options(1, 1));
    let culprit = caller.push([(1, 100)])[0];
    pass(&mut caller, 3600, &failure, |_| vec![]);
    caller.room = false;
    pass(&mut caller, 3600, &failure, |_| vec![(2, 1)]);
    assert_eq!(caller.class(culprit), None);
    caller.room = true;
    pass(&mut caller, 60, &failure, |_| vec![(2, 1)]);
    assert_eq!(caller.class(culprit), Some("blocked"));
}

#[test]
fn later_records_of_an_object_that_fail_too_are_parked_sooner() {
    let failure = of_record(FailureClass::Unavailable);
    let mut caller = Caller::new(options(8, 1));
    caller.push([(1, 100); 20]);
    pass(&mut caller, 160, &failure, |_| vec![(2, 1)]);
    assert!((1..=20).all(|seq| caller.class(seq) == Some("blocked")));
}

#[test]
fn a_namespace_that_fills_the_window_is_shut_until_one_of_its_records_is_taken() {
    let failure = of_record(FailureClass::Unavailable);
    let mut caller = Caller::new(options(8, 1));
    caller.push((0..1100).map(|n| (1, 100 + n)));
    pass(&mut caller, 10, &failure, |_| vec![(2, 1), (2, 2)]);
    assert_eq!((1..=1100).filter(|seq| caller.class(*seq) == Some("blocked")).count(), 1100);
    // Later records are not even sent,
    let unsent = caller.push([(1, 100), (1, 1)]);
    assert!(unsent.iter().all(|seq| caller.class(*seq) == Some("blocked")));
    assert_eq!(
        caller.fates[&unsent[0]],
        Fate::DeadLetter { class: "blocked".to_owned(), attempts: 0, unidentified: 0 }
    );
    // but for one after a minute, and another after two more.
    let before = caller.records.len() as u64;
    pass(&mut caller, 200, &failure, |_| vec![(2, 1), (1, 100)]);
    let sent = caller
        .fates
        .range(before + 1..)
        .filter(|(_, fate)| matches!(fate, Fate::DeadLetter { attempts, .. } if *attempts > 0));
    assert_eq!(sent.count(), 2);
    assert!(caller.fates.range(before + 1..).count() >= 399);
    // One that is taken opens it.
    let before = caller.records.len() as u64;
    pass(&mut caller, 300, &failure, |_| vec![(2, 1), (1, 1)]);
    let is_parked = |seq: &u64| caller.class(*seq) == Some("blocked");
    let last = (before + 1..=caller.records.len() as u64).rfind(|seq| is_parked(seq)).unwrap();
    assert!(last < caller.records.len() as u64 - 100, "{last}");
}

#[test]
fn a_record_of_a_batch_that_is_answered_by_itself_fails_alone() {
    let mut caller = Caller::new(options(1, 3));
    caller.push([(1, 1), (1, 2), (1, 3)]);
    caller.send();
    let Outcome::Failed(failure) = of_record(FailureClass::Unavailable) else { panic!() };
    let (taken, failed) = (EventFate::Delivered, EventFate::Failed(failure));
    caller.answer(0, Outcome::PerEvent(vec![taken.clone(), failed.clone(), taken]));
    caller.push([(1, 4), (1, 5), (1, 2)]);
    assert_eq!(caller.send(), [[4, 5]], "nobody waits but for its object");
    caller.answer(0, Outcome::Delivered);
    while caller.class(2).is_none() {
        caller.wake();
        for seqs in caller.send() {
            let fates = seqs.iter().map(|seq| match seq {
                2 => failed.clone(),
                _ => EventFate::Delivered,
            });
            let fates = fates.collect();
            caller.answer_of(seqs[0], Outcome::PerEvent(fates));
        }
        caller.push([(2, 1)]);
    }
    assert_eq!(caller.class(2), Some("blocked"));
    caller.drain();
}

#[test]
fn records_that_wait_for_their_namespace_leave_room_for_others() {
    let failure = of_record(FailureClass::Misconfigured);
    let mut caller = Caller::new(options(8, 1));
    // Nothing of others is there, nor was anything taken before.
    for object in 100.. {
        caller.push([(1, object)]);
        if !caller.delivery.has_room() {
            break;
        }
    }
    caller.room = false;
    let full = caller.records.len();
    assert_eq!(full, 1024);
    pass(&mut caller, 15, &failure, |_| vec![]);
    assert!(caller.delivery.has_room());
    caller.room = true;
    pass(&mut caller, 15, &failure, |_| vec![(2, 1)]);
    assert!((1..=full as u64).all(|seq| caller.class(seq) == Some("blocked")));
}

#[test]
fn a_record_that_failed_alone_has_its_turn_however_many_others_did() {
    let failure = of_record(FailureClass::Unavailable);
    let mut caller = Caller::new(options(1, 1));
    caller.room = false;
    caller.push((0..900).map(|n| (1, 100 + n)));
    pass(&mut caller, 60, &failure, |_| vec![(2, 1)]);
    // The receiver fails once for one of another namespace.
    let innocent = caller.push([(3, 1)])[0];
    loop {
        caller.send();
        let (_, seqs) = &caller.sent[0];
        let is_it = seqs.contains(&innocent);
        caller.answer(0, failure.clone());
        if is_it {
            break;
        }
        caller.now += 50;
    }
    pass(&mut caller, 100, &failure, |_| vec![(2, 1)]);
    assert_eq!(caller.fates.get(&innocent), Some(&Fate::Delivered));
}

#[test]
fn a_few_that_fail_do_not_shut_their_namespace() {
    let failure = of_record(FailureClass::Misconfigured);
    let mut caller = Caller::new(options(1, 500));
    let mut seqs = caller.push((0..40).map(|n| (1, 100 + n)));
    seqs.extend(caller.push((0..40).map(|n| (1, n))));
    pass(&mut caller, 30, &failure, |_| vec![(2, 1)]);
    assert!(seqs[40..].iter().all(|seq| caller.fates[seq] == Fate::Delivered));
    pass(&mut caller, 150, &failure, |_| vec![(2, 1)]);
    assert!(seqs[..40].iter().all(|seq| caller.class(*seq) == Some("blocked")));
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
    Room(bool),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        3 => vec((0..4u64, 0..4u64), 1..20).prop_map(Happening::Push),
        6 => (any::<prop::sample::Index>(), outcome())
            .prop_map(|(at, outcome)| Happening::Answer(at, outcome)),
        2 => Just(Happening::Wake),
        1 => any::<bool>().prop_map(Happening::Room),
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
                Happening::Room(room) => caller.room = room,
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
