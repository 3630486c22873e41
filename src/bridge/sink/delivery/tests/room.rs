//! Room: who is given up where the journal has none, and who is read on behind what fills the hand.

use std::{collections::BTreeMap, env, time::Duration};

use super::harness::{
    Caller, broken, class, failure, forbidden, invalid, options, run, silence, with_culprits,
};
use crate::bridge::{
    Failure, FailureClass, Outcome, RefusedClass, RetryOptions,
    sink::delivery::{DeadLetterClass, DeliveryOptions, Fate, Number},
};

#[test]
fn copies_are_bounded_and_what_is_over_is_given_up_where_there_is_no_room() {
    let copied_bytes = 4_000;
    let mut caller = Caller::new(DeliveryOptions { copied_bytes, ..options(1, 20) });
    let culprits = with_culprits(&mut caller);
    for round in 0..100 {
        caller.push(1 + round % 9);
        run(&mut caller, 500, &culprits, &broken());
    }
    // A namespace has a quarter: one record.
    assert_eq!(caller.copied.len(), 1);
    let held = culprits.iter().copied().find(|culprit| !caller.copied.contains(culprit)).unwrap();
    assert_eq!(caller.delivery.settled(), held, "the position stays before it");
    caller.put_away(false);
    assert_eq!(class(&caller, held), Some(DeadLetterClass::Blocked));
    assert!(!caller.delivery.relieve(0, caller.now), "a copy takes no room in the log");
}

/// Intake that stands still for what fails brings no witness.
#[test]
fn room_is_made_whoever_fails_when_nobody_else_comes_any_more() {
    for (lanes, batch, rounds) in [(1, 20, 60), (4, 1, 60)] {
        for round in 0..rounds {
            let copied_bytes = 8_000;
            let options = DeliveryOptions { copied_bytes, ..options(lanes, batch) };
            let mut caller = Caller::new(options);
            caller.namespaces = 10;
            let mut culprits = vec![caller.push(10)];
            caller.push_all(1..10);
            for at in 0..round {
                if at % 6 == 0 {
                    culprits.extend([10, 20].map(|key| caller.push(key)));
                }
                caller.push(1 + at % 9);
                run(&mut caller, 2_000, &culprits, &forbidden());
            }
            culprits.extend([30, 40, 10].map(|key| caller.push(key)));
            for _ in 0..120 {
                run(&mut caller, 2_000, &culprits, &forbidden());
                caller.put_away(false);
            }
            let held: Vec<_> = caller.delivery.held(caller.now).collect();
            let next = caller.delivery.live.next();
            assert_eq!(caller.delivery.settled(), next, "{lanes} lanes, {round}: {held:#?}");
            let innocent = |number: &Number| !culprits.contains(number);
            let taken = |number: Number| caller.fate(number) == Some(&Fate::Delivered);
            assert!((1..next).filter(innocent).all(taken), "{lanes} lanes, {round}");
        }
    }
}

#[test]
fn an_outage_gives_nothing_up_though_there_is_no_room() {
    for (lanes, batch) in [(1, 20), (8, 1)] {
        let mut caller = Caller::new(options(lanes, batch));
        caller.namespaces = 10;
        caller.push_all(0..100);
        run(&mut caller, 1_000, &[], &forbidden());
        let numbers: Vec<_> = (0..60).map(|key| caller.push(key)).collect();
        // One of the lanes finds out later than the others.
        let fails: Vec<_> = numbers.iter().copied().filter(|number| number % 8 != 0).collect();
        run(&mut caller, 50, &fails, &forbidden());
        for _ in 0..600 {
            run(&mut caller, 500, &numbers, &forbidden());
            caller.put_away(false);
        }
        let given_up = caller.fates.values().any(|fate| *fate != Fate::Delivered);
        assert!(!given_up && caller.copied.is_empty(), "{lanes} lanes");
    }
}

/// At each of a namespace's events, and at every second one.
#[test]
fn a_receiver_that_is_silent_holds_a_full_journal_up_for_few_of_its_timeouts() {
    const TIMEOUT: u64 = 10_000;
    const FULL: u64 = 25_000;
    for (each, timeouts) in [(1, 4), (2, 8)] {
        let mut caller = Caller::new(DeliveryOptions { copied_bytes: 0, ..options(1, 500) });
        caller.namespaces = 10;
        let (mut culprits, mut last) = (Vec::new(), 0);
        for round in 0..21 * each {
            caller.push_all(1..10);
            last = caller.push(10 + 10 * round);
            culprits.extend(Some(last).filter(|_| round % each == 0));
        }
        let mut answers = BTreeMap::new();
        while caller.delivery.settled() <= last {
            let lines = &caller.delivery.lines;
            assert!(caller.now < FULL + timeouts * TIMEOUT, "each {each}: {lines:#?}");
            for (line, sent) in caller.send() {
                let is_silent = sent.iter().any(|number| culprits.contains(number));
                let takes = if is_silent { TIMEOUT } else { 50 };
                answers.insert(line, (caller.now + takes, is_silent));
            }
            let now = caller.now;
            for (line, (_, is_silent)) in answers.extract_if(.., |_, (at, _)| *at <= now) {
                let failed = Outcome::Failed(silence());
                caller.answer(line, if is_silent { failed } else { Outcome::Delivered });
            }
            // Nobody else comes once it is full.
            if caller.now < FULL {
                caller.push(1 + caller.now / 50 % 9);
            } else if caller.now.is_multiple_of(500) {
                caller.put_away(false);
            }
            caller.now += 50;
        }
    }
}

/// As of a small journal that is read no further: all that others had is passed.
#[test]
fn room_is_made_where_all_that_is_left_is_of_many_namespaces_that_fail() {
    let refused = Failure { class: FailureClass::Refused(RefusedClass::Invalid), ..forbidden() };
    for (failure, lanes) in [(&refused, 4), (&forbidden(), 4), (&broken(), 4), (&refused, 1)] {
        let mut caller = Caller::new(DeliveryOptions { copied_bytes: 0, ..options(lanes, 200) });
        caller.namespaces = 8;
        let mut culprits = Vec::new();
        for round in 0..31 {
            caller.push_all((0..10).map(|n| 8 * n + round % 7));
            culprits.push(caller.push(1000 + 3 * round));
        }
        for _ in 0..600 {
            run(&mut caller, 500, &culprits, failure);
            caller.put_away(false);
        }
        let held: Vec<_> = caller.delivery.held(caller.now).collect();
        assert!(!caller.delivery.has_live(), "{lanes} lanes: {failure:?}: {held:#?}");
    }
}

/// Two records of a namespace that has a queue, which nobody has judged.
fn with_queue(caller: &mut Caller) -> [Number; 2] {
    let culprits = with_culprits(caller);
    for round in 0..1_000 {
        if !caller.delivery.queues.is_empty() {
            return culprits;
        }
        caller.push(1 + round % 9);
        run(caller, 50, &culprits, &forbidden());
    }
    panic!("there is no queue: {:#?}", caller.delivery);
}

#[test]
fn an_outage_gives_nothing_up_of_a_queue_from_before_though_there_is_no_room() {
    for (lanes, batch) in [(1, 20), (8, 1)] {
        let mut caller = Caller::new(options(lanes, batch));
        with_queue(&mut caller);
        caller.push_all(0..1_200);
        let next = caller.delivery.live.next();
        let all: Vec<_> = (1..next).collect();
        for _ in 0..240 {
            run(&mut caller, 500, &all, &forbidden());
            caller.put_away(false);
        }
        assert!(caller.fates.values().all(|fate| *fate == Fate::Delivered), "{lanes} lanes");
        run(&mut caller, 120_000, &[], &forbidden());
        assert_eq!(caller.delivery.settled(), next);
        assert!(caller.fates.values().all(|fate| *fate == Fate::Delivered), "{lanes} lanes");
    }
}

#[test]
fn room_is_made_where_two_namespaces_fail_and_nobody_else_comes_any_more() {
    let mut caller = Caller::new(options(1, 20));
    let mut culprits = with_queue(&mut caller).to_vec();
    culprits.push(caller.push(11));
    for _ in 0..120 {
        run(&mut caller, 2_000, &culprits, &forbidden());
        caller.put_away(false);
    }
    assert_eq!(caller.delivery.settled(), caller.delivery.live.next());
    let letters = caller.fates.values().filter(|fate| matches!(fate, Fate::DeadLetter(_)));
    assert_eq!(letters.count() + caller.copied.len(), 3, "the position has passed each of them");
}

/// Each attempt takes as long as an answer is waited for.
#[test]
fn many_go_at_once_where_several_in_a_row_were_silent_and_there_is_no_room() {
    let mut caller = Caller::new(DeliveryOptions { copied_bytes: 0, ..options(1, 20) });
    let mut culprits = with_culprits(&mut caller).to_vec();
    culprits.extend((3..303).map(|n| caller.push(10 * n)));
    let (mut silent, mut attempts) = (Vec::new(), 0);
    for round in 0..4_000 {
        caller.push(1 + round % 9);
        for (line, sent) in caller.send() {
            if sent.iter().any(|number| culprits.contains(number)) {
                attempts += 1;
                silent.push((caller.now + 30_000, line));
            } else {
                caller.answer(line, Outcome::Delivered);
            }
        }
        let (ended, under_way) = silent.into_iter().partition(|(at, _)| *at <= caller.now);
        silent = under_way;
        let ended: Vec<(u64, usize)> = ended;
        for (_, line) in ended {
            caller.answer(line, Outcome::Failed(silence()));
        }
        caller.put_away(false);
        caller.now += 100;
    }
    let blocked = culprits.iter().filter(|culprit| class(&caller, **culprit).is_some());
    assert!(blocked.count() > 290 && attempts < 20, "{attempts} attempts");
    let innocent = |(number, _): &(&Number, &Fate)| !culprits.contains(number);
    assert!(caller.fates.iter().filter(innocent).all(|(_, fate)| *fate == Fate::Delivered));
}

#[test]
fn a_record_that_is_held_by_reference_has_no_copies_behind_it() {
    let mut caller = Caller::new(DeliveryOptions { copied_bytes: 4_000, ..options(1, 20) });
    let culprits = with_culprits(&mut caller);
    for round in 0..100 {
        caller.push(1 + round % 9);
        run(&mut caller, 500, &culprits, &broken());
    }
    let held = culprits.iter().position(|culprit| !caller.copied.contains(culprit)).unwrap();
    run(&mut caller, 60_000, &[culprits[held]], &broken());
    assert_eq!(caller.fate(culprits[1 - held]), Some(&Fate::Delivered), "there is room again");
    let behind = caller.push([10, 20][held]);
    run(&mut caller, 1_000, &[culprits[held]], &broken());
    assert!(caller.copied.len() == 1 && caller.fate(behind).is_none());
    run(&mut caller, 120_000, &[], &broken());
    assert_eq!(caller.fate(behind), Some(&Fate::Delivered));
}

#[test]
fn where_there_is_no_room_the_oldest_of_the_namespace_that_holds_most_goes() {
    let mut caller = Caller::new(DeliveryOptions { copied_bytes: 0, ..options(1, 20) });
    caller.namespaces = 10;
    caller.push_all([1, 2]);
    let fullest = [10, 20, 30].map(|key| caller.push(key));
    let alone = caller.push(13);
    caller.push_all([4, 5]);
    let rare = failure(FailureClass::Unavailable);
    for round in 0..1_000 {
        if round % 20 == 0 {
            caller.push(1 + round % 2);
        }
        for (line, sent) in caller.send() {
            let has = |culprits: &[Number]| sent.iter().any(|number| culprits.contains(number));
            // The fullest has a queue, and nobody knows whose fault it is.
            let outcome = match (has(&fullest), has(&[alone])) {
                (true, _) if line > 0 => Outcome::Failed(rare.clone()),
                (false, false) => Outcome::Delivered,
                _ => Outcome::Failed(broken()),
            };
            caller.answer(line, outcome);
        }
        caller.now += 50;
    }
    assert!(caller.fates.values().all(|fate| *fate == Fate::Delivered));
    caller.put_away(false);
    assert_eq!(class(&caller, fullest[0]), Some(DeadLetterClass::Blocked));
    assert!(fullest[1..].iter().chain([&alone]).all(|number| caller.fate(*number).is_none()));
}

/// With one lane and eight, one destination and two.
#[test]
fn one_that_fills_what_is_in_hand_stops_nobody_behind_it() {
    for (lanes, destinations) in [(1, 1), (8, 1), (1, 2), (8, 2)] {
        let mut caller = Caller::new(DeliveryOptions { batch_bytes: 4000, ..options(lanes, 20) });
        (caller.namespaces, caller.destinations) = (3, destinations);
        let mut culprits = Vec::new();
        for key in 0..200 {
            take_in(&mut caller, &culprits, 600_000);
            culprits.push(caller.push(3 * key));
        }
        let others: Vec<_> = (0..200)
            .map(|key| {
                take_in(&mut caller, &culprits, 600_000);
                caller.push(3 * key + 1)
            })
            .collect();
        run(&mut caller, 120_000, &culprits, &broken());
        let taken = |number: &Number| caller.fate(*number) == Some(&Fate::Delivered);
        assert!(others.iter().all(taken), "{lanes} lanes, {destinations} destinations");
        assert!(culprits.iter().all(|number| caller.fate(*number).is_none()));
    }
}

#[test]
fn many_namespaces_that_fill_what_is_in_hand_stop_nobody_behind_them() {
    for (lanes, culprit_namespaces) in [(1, 4), (1, 12), (8, 12)] {
        let mut caller = Caller::new(DeliveryOptions { batch_bytes: 4000, ..options(lanes, 20) });
        let namespaces = culprit_namespaces + 2;
        caller.namespaces = namespaces;
        let mut culprits = Vec::new();
        for key in 0..240 {
            take_in(&mut caller, &culprits, 600_000);
            culprits.push(caller.push(namespaces * key + key % culprit_namespaces));
        }
        let others: Vec<_> = (0..100)
            .map(|key| {
                take_in(&mut caller, &culprits, 600_000);
                caller.push(namespaces * key + culprit_namespaces + key % 2)
            })
            .collect();
        run(&mut caller, 1_200_000, &culprits, &broken());
        let taken = |number: &Number| caller.fate(*number) == Some(&Fate::Delivered);
        assert!(others.iter().all(taken), "{lanes} lanes, {culprit_namespaces} namespaces");
        assert!(culprits.iter().all(|number| caller.fate(*number).is_none()));
    }
}

/// Sends until there is room for more, for so long at most. Answers whether there is.
fn take_in(caller: &mut Caller, culprits: &[Number], millis: u64) -> bool {
    let until = caller.now + millis;
    while !caller.delivery.has_room() && caller.now < until {
        run(caller, 50, culprits, &broken());
    }
    caller.delivery.has_room()
}

#[test]
fn room_is_made_by_one_for_each_two_others_that_are_taken() {
    let mut caller = Caller::new(options(2, 1));
    let culprits = with_queue(&mut caller);
    let mut fail = culprits.to_vec();
    for round in 0..600 {
        if round % 2 == 0 {
            fail.push(caller.push(10 + 10 * (round % 50)));
        }
        caller.push(1 + round % 9);
        run(&mut caller, 200, &fail, &broken());
        caller.put_away(false);
    }
    let open = fail.iter().filter(|number| caller.fate(**number).is_none()).count();
    let open = open - caller.copied.len();
    assert!(open < 100, "{open} of {} wait", fail.len());
}

/// Among copies of an earlier run, records that came back, queues and lanes: all that is left fails, or waits behind
/// what does.
///
/// `TIDINGS_MODEL_SEEDS` plays more worlds.
#[test]
fn room_is_made_wherever_what_is_left_stands() {
    let runs = env::var("TIDINGS_MODEL_SEEDS").map_or(60, |runs| runs.parse().unwrap());
    for seed in 0..runs {
        let mut random = fastrand::Rng::with_seed(seed);
        let failure = random.choice([invalid(), forbidden(), broken()]).unwrap();
        let lanes = random.choice([1, 2, 4]).unwrap();
        let mut caller = Caller::after(
            DeliveryOptions {
                copied_bytes: random.choice([0, 20_000, 60_000]).unwrap(),
                retry: RetryOptions { max: Duration::from_millis(300), ..RetryOptions::default() },
                ..options(lanes, random.choice([3, 20, 200]).unwrap())
            },
            15,
        );
        caller.namespaces = 5;
        let failing = random.u64(1..=5);
        let mut culprits = Vec::new();
        for _ in 0..15 {
            let number = caller.push_copy(5 * random.u64(1..10) + random.u64(..failing));
            culprits.extend(Some(number).filter(|_| random.bool()));
        }
        for _ in 0..random.usize(1..8) {
            for _ in 0..random.usize(1..40) {
                let namespace = random.u64(..5);
                let number = caller.push(5 * random.u64(1..10) + namespace);
                let fails = namespace < failing && random.u8(..3) == 0;
                culprits.extend(Some(number).filter(|_| fails));
            }
            run(&mut caller, random.u64(..2_000), &culprits, &failure);
        }
        let passed = |caller: &Caller| {
            let head = caller.delivery.settled();
            caller.fates.range(head..).count().max(caller.copied.range(head..).count())
        };
        let mut rounds = 0;
        while caller.delivery.has_live()
            && caller.delivery.is_passed_by_most(passed(&caller) as u64)
        {
            run(&mut caller, 500, &culprits, &failure);
            caller.put_away(false);
            rounds += 1;
            assert!(rounds < 1_000, "seed {seed}: {:#?}", caller.delivery.lines);
        }
    }
}

/// The journal is full of them before it is parted, and nobody else comes any more.
#[test]
fn room_is_made_where_one_has_failed_while_others_were_taken_and_more_wait_behind_it() {
    for failure in [forbidden(), broken(), invalid()] {
        for rounds in (2..60).step_by(9) {
            let mut caller = Caller::new(DeliveryOptions { copied_bytes: 0, ..options(2, 20) });
            caller.namespaces = 2;
            let culprit = caller.push(2);
            run(&mut caller, 50, &[culprit], &failure);
            for _ in 0..rounds {
                caller.push_all([1, 2, 2]);
                run(&mut caller, 100, &[culprit], &failure);
            }
            for _ in 0..1_200 {
                run(&mut caller, 500, &[culprit], &failure);
                caller.put_away(false);
            }
            let settled = caller.delivery.settled();
            assert!(settled > culprit, "{rounds}: {failure:?}: {:#?}", caller.delivery.lines[0]);
        }
    }
}

/// A start does not know that there are other namespaces: all that they had is passed.
#[test]
fn room_is_made_after_a_start_where_all_that_is_left_is_of_several_objects_of_one_namespace() {
    for (failure, lanes) in [(forbidden(), 1), (invalid(), 1), (broken(), 4), (silence(), 1)] {
        let mut caller = Caller::new(DeliveryOptions { copied_bytes: 0, ..options(lanes, 20) });
        caller.namespaces = 10;
        let culprits: Vec<_> = (0..40).map(|n| caller.push(10 * (1 + n % 4))).collect();
        for _ in 0..1_200 {
            run(&mut caller, 500, &culprits, &failure);
            caller.delivery.relieve(600, caller.now);
            caller.take_fates();
        }
        assert!(
            !caller.delivery.has_live(),
            "{failure:?}: {:#?}",
            caller.delivery.held(caller.now).collect::<Vec<_>>()
        );
    }
}

#[test]
fn room_is_made_where_one_holds_up_a_destination_of_its_own_while_others_are_taken() {
    for failure in [forbidden(), invalid(), broken(), silence()] {
        let mut caller = Caller::new(DeliveryOptions { copied_bytes: 0, ..options(4, 20) });
        (caller.namespaces, caller.destinations) = (3, 3);
        let culprit = caller.push(3);
        for _ in 0..120 {
            caller.push_all([1, 2, 3, 4, 5]);
            run(&mut caller, 500, &[culprit], &failure);
        }
        for _ in 0..1_200 {
            run(&mut caller, 500, &[culprit], &failure);
            caller.put_away(false);
        }
        assert!(
            caller.delivery.settled() > culprit,
            "{failure:?}: {:#?}",
            caller.delivery.held(caller.now).collect::<Vec<_>>()
        );
    }
}

/// Their lanes have all objects that there are, so that nobody who waits could be drawn.
#[test]
fn room_is_made_after_a_start_where_two_namespaces_fail_whose_later_records_wait() {
    for (failure, lanes, batch) in [(forbidden(), 2, 1), (broken(), 2, 1), (silence(), 2, 3)] {
        let copied_bytes = 0;
        let mut caller = Caller::new(DeliveryOptions { copied_bytes, ..options(lanes, batch) });
        caller.namespaces = 10;
        let culprits: Vec<_> = (0..40).map(|n| caller.push(10 + n % 2)).collect();
        for _ in 0..1_200 {
            run(&mut caller, 500, &culprits, &failure);
            caller.delivery.relieve(600, caller.now);
            caller.take_fates();
        }
        let held: Vec<_> = caller.delivery.held(caller.now).collect();
        assert!(!caller.delivery.has_live(), "{failure:?}: {held:#?}");
    }
}

/// The head is of one that holds less than another: nobody else comes until that one is as small.
#[test]
fn room_is_made_soon_where_the_head_is_not_of_the_namespace_that_holds_most() {
    for failure in [invalid(), forbidden(), broken()] {
        let mut caller = Caller::new(DeliveryOptions { copied_bytes: 0, ..options(1, 20) });
        caller.namespaces = 10;
        caller.push_all(2..10);
        let mut culprits: Vec<_> = (0..5).map(|_| caller.push(11)).collect();
        for n in 0..100 {
            culprits.push(caller.push(10 + 10 * n));
            caller.push_all([2 + n % 8]);
        }
        let head = culprits[0];
        // Others are taken until it is full.
        for round in 0..60 {
            caller.push(2 + round % 8);
            run(&mut caller, 500, &culprits, &failure);
        }
        let full = caller.now;
        while caller.delivery.settled() <= head {
            let held = caller.delivery.held(caller.now);
            let held: Vec<_> = held.map(|held| (held.by, held.head, held.records)).collect();
            assert!(caller.now < full + 120_000, "{failure:?}: {held:?}");
            run(&mut caller, 500, &culprits, &failure);
            caller.put_away(false);
        }
    }
}
