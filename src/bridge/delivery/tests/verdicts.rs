//! Verdicts: who steps aside, who is given up, and who is not.

use super::harness::{Caller, failure, http, invalid, options};
use crate::bridge::{
    Failure, FailureClass, Fault, HeldBy, Outcome, Status,
    delivery::{Delivery, DeliveryOptions, Fate, LetterClass, Number, Ticket},
};

fn forbidden() -> Failure {
    http(FailureClass::Misconfigured, Fault::RecordForGood, 403)
}

fn broken() -> Failure {
    http(FailureClass::Unavailable, Fault::RecordForNow, 500)
}

/// Sends for so long, with an answer to each batch: a failure if it has any of these records.
fn run(caller: &mut Caller, millis: u64, culprits: &[Number], failure: &Failure) {
    let until = caller.now + millis;
    while caller.now < until {
        for (line, sent) in caller.send() {
            let fails = sent.iter().any(|number| culprits.contains(number));
            let failed = Outcome::Failed(failure.clone());
            caller.answer(line, if fails { failed } else { Outcome::Delivered });
        }
        caller.now += 50;
    }
}

/// Records of ten namespaces, and two of the first one that its receiver does not take.
fn with_culprits(caller: &mut Caller) -> [Number; 2] {
    caller.namespaces = 10;
    caller.push_all(1..30);
    let culprits = [10, 20].map(|key| caller.push(key));
    caller.push_all(31..90);
    culprits
}

fn class(caller: &Caller, number: Number) -> Option<LetterClass> {
    match caller.fate(number) {
        Some(Fate::DeadLetter(letter)) => Some(letter.class),
        _ => None,
    }
}

#[test]
fn a_namespace_leaves_the_lane_and_the_others_go_on() {
    let mut caller = Caller::new(options(1, 20));
    let culprits = with_culprits(&mut caller);
    run(&mut caller, 9_000, &culprits, &forbidden());
    assert!(caller.fates.len() < 89, "it was parted too early");
    run(&mut caller, 2_000, &culprits, &forbidden());
    assert!(caller.fates.len() >= 80, "the others wait: {}", caller.fates.len());
    // Nobody else is sent any more: it is judged when somebody is.
    for round in 0..200 {
        caller.push(1 + round % 9);
        run(&mut caller, 500, &culprits, &forbidden());
    }
    for culprit in culprits {
        assert_eq!(class(&caller, culprit), Some(LetterClass::Blocked));
    }
    let letters = caller.fates.values().filter(|fate| matches!(fate, Fate::DeadLetter(_)));
    assert_eq!(letters.count(), 2);
}

#[test]
fn one_of_a_batch_is_parted_from_the_others_of_the_batch_though_nobody_else_comes() {
    for failure in [forbidden(), invalid(), broken()] {
        let mut caller = Caller::new(options(1, 50));
        caller.push_all(1..20);
        let culprit = caller.push(20);
        caller.push_all(21..50);
        run(&mut caller, 14_000, &[culprit], &failure);
        assert_eq!(caller.fates.len(), 48, "{failure:?}: the others wait");
    }
}

#[test]
fn one_of_a_namespace_is_parted_from_its_others_where_no_other_namespace_waits() {
    for failure in [forbidden(), invalid(), broken()] {
        let mut caller = Caller::new(options(1, 50));
        caller.namespaces = 10;
        caller.push_all(1..10);
        run(&mut caller, 100, &[], &failure);
        caller.push_all((1..20).map(|n| 10 * n));
        let culprit = caller.push(200);
        caller.push_all((21..40).map(|n| 10 * n));
        run(&mut caller, 40_000, &[culprit], &failure);
        assert_eq!(caller.fates.len(), 9 + 38, "{failure:?}: the others wait");
        assert!(caller.fates.values().all(|fate| *fate == Fate::Delivered));
    }
}

#[test]
fn namespaces_that_all_have_a_culprit_go_on_without_it() {
    for failure in [forbidden(), invalid(), broken()] {
        let mut caller = Caller::new(options(1, 50));
        caller.namespaces = 2;
        caller.push_all(1..20);
        let culprits = [20, 21].map(|key| caller.push(key));
        caller.push_all(22..60);
        for round in 0..200 {
            caller.push(100 + round);
            run(&mut caller, 500, &culprits, &failure);
        }
        let taken = caller.fates.values().filter(|fate| **fate == Fate::Delivered);
        assert!(taken.count() > 19 + 38 + 150, "{failure:?}: the others wait");
        let passed =
            |culprit| class(&caller, culprit).is_some() || caller.copied.contains(&culprit);
        assert!(culprits.into_iter().all(passed), "{failure:?}: a culprit holds the lane");
    }
}

#[test]
fn what_may_pass_is_set_aside_with_its_object_and_taken_when_it_passes() {
    let mut caller = Caller::new(options(1, 20));
    let culprits = with_culprits(&mut caller);
    for round in 0..100 {
        caller.push(1 + round % 9);
        run(&mut caller, 500, &culprits, &broken());
    }
    let behind = caller.push(10);
    run(&mut caller, 1_000, &culprits, &broken());
    assert!(culprits.iter().all(|culprit| caller.copied.contains(culprit)));
    assert!(caller.copied.contains(&behind) && caller.fate(behind).is_none());
    assert_eq!(caller.delivery.settled(), behind + 1, "the position passes what is copied");
    let held: Vec<_> = caller.delivery.held(caller.now).collect();
    let shelf = held.iter().find(|held| held.by == HeldBy::SetAside).unwrap();
    assert_eq!((shelf.head, shelf.records), (culprits[0], 3));
    assert_eq!(shelf.failure.map(|failure| failure.status), Some(Status::Http(500)));
    run(&mut caller, 60_000, &[], &broken());
    assert_eq!(caller.fate(behind), Some(&Fate::Delivered));
    assert_eq!(caller.delivery.held(caller.now).count(), 0);
}

#[test]
fn the_faults_of_the_sink_decide_nothing() {
    for failure in [
        failure(FailureClass::Misconfigured),
        failure(FailureClass::Unavailable),
        failure(FailureClass::Throttled),
    ] {
        let mut caller = Caller::new(options(4, 1));
        let culprits = with_culprits(&mut caller);
        for round in 0..200 {
            caller.push(1 + round % 9);
            run(&mut caller, 500, &culprits, &failure);
        }
        let mut held = caller.delivery.held(caller.now);
        assert!(held.all(|held| held.by == HeldBy::Lane) && caller.copied.is_empty());
        assert!(caller.fates.values().all(|fate| *fate == Fate::Delivered));
        assert!(caller.fates.len() > 250, "{failure:?}: others wait");
    }
}

#[test]
fn nothing_is_given_up_without_a_witness() {
    let mut caller = Caller::new(options(8, 1));
    caller.namespaces = 10;
    caller.push_all(0..200);
    let all: Vec<_> = (1..=200).collect();
    run(&mut caller, 600_000, &all, &forbidden());
    assert!(caller.fates.is_empty() && caller.copied.is_empty());
    run(&mut caller, 120_000, &[], &forbidden());
    assert_eq!(caller.fates.len(), 200);
}

#[test]
fn an_outage_after_a_verdict_convicts_nobody() {
    let mut caller = Caller::new(options(1, 20));
    let culprits = with_culprits(&mut caller);
    for round in 0..200 {
        caller.push(1 + round % 9);
        run(&mut caller, 500, &culprits, &forbidden());
    }
    assert_eq!(class(&caller, culprits[0]), Some(LetterClass::Blocked));
    let before = caller.fates.len();
    let numbers: Vec<_> = (0..50).map(|key| caller.push(key)).collect();
    run(&mut caller, 300_000, &numbers, &forbidden());
    assert_eq!(caller.fates.len(), before);
    run(&mut caller, 120_000, &[], &forbidden());
    assert!(numbers.iter().all(|number| caller.fate(*number) == Some(&Fate::Delivered)));
}

#[test]
fn a_status_that_has_passed_gives_nothing_up() {
    let mut caller = Caller::new(options(1, 20));
    caller.namespaces = 10;
    let flaky = caller.push(5);
    run(&mut caller, 300, &[flaky], &forbidden());
    run(&mut caller, 1_000, &[], &forbidden());
    assert_eq!(caller.fate(flaky), Some(&Fate::Delivered));
    let culprits = with_culprits(&mut caller);
    for round in 0..200 {
        caller.push(1 + round % 9);
        run(&mut caller, 500, &culprits, &forbidden());
    }
    for culprit in culprits {
        assert!(caller.fate(culprit).is_none() && caller.copied.contains(&culprit));
    }
}

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
    assert_eq!(class(&caller, held), Some(LetterClass::Blocked));
    assert!(!caller.delivery.relieve(caller.now), "a copy takes no room in the log");
}

#[test]
fn a_head_is_put_away_by_hand_and_the_lane_goes_on() {
    let mut caller = Caller::new(options(1, 2));
    caller.push_all(0..4);
    caller.send();
    caller.answer(0, Outcome::Failed(failure(FailureClass::Misconfigured)));
    caller.put_away(true);
    assert_eq!(class(&caller, 1), Some(LetterClass::Blocked));
    assert_eq!(caller.send(), [(0, vec![2])]);
    caller.put_away(true);
    assert_eq!(caller.fate(2), None, "it is under way");
    caller.drain();
}

#[test]
fn what_was_set_aside_goes_before_later_records_of_its_object_after_a_start() {
    let mut delivery = Delivery::new(options(2, 1), 1, 3);
    let ticket = |key| Ticket { key, namespace: 1, destination: 0, bytes: 10 };
    let first = delivery.push_set_aside(ticket(7));
    let second = delivery.push_set_aside(ticket(7));
    let live = [7, 8].map(|key| delivery.push(ticket(key)));
    let mut order = Vec::<Number>::new();
    while let Some(line) = delivery.next_send(order.len() as u64) {
        order.extend(delivery.tickets(line));
        delivery.answered(line, Outcome::Delivered, order.len() as u64);
    }
    assert!(first < second && order.len() == 4);
    let of_object: Vec<_> = order.into_iter().filter(|number| *number != live[1]).collect();
    assert_eq!(of_object, [first, second, live[0]]);
    assert_eq!(delivery.settled(), 3);
}

#[test]
fn an_errand_that_fails_holds_up_no_live_record() {
    let mut caller = Caller::new(options(1, 1));
    let errand = caller.push_errand(3);
    run(&mut caller, 200, &[errand], &forbidden());
    let live = caller.push(3);
    run(&mut caller, 5_000, &[errand], &forbidden());
    assert_eq!(caller.fate(live), Some(&Fate::Delivered));
    for key in 0..60 {
        caller.push(key % 9);
        run(&mut caller, 5_000, &[errand], &forbidden());
    }
    assert_eq!(class(&caller, errand), Some(LetterClass::Blocked));
}

#[test]
fn a_destination_that_takes_nothing_is_waited_for_by_itself() {
    let mut caller = Caller::new(options(1, 20));
    (caller.namespaces, caller.destinations) = (10, 4);
    caller.push_all(0..400);
    let there: Vec<_> = (1..=400).filter(|number| number % 4 == 1).collect();
    let unavailable = failure(FailureClass::Unavailable);
    let run_named = |caller: &mut Caller, millis, there: &[Number]| {
        let until = caller.now + millis;
        while caller.now < until {
            for (line, sent) in caller.send() {
                let fate = |number| {
                    use crate::bridge::EventFate::{Delivered, Failed};
                    if there.contains(number) { Failed(unavailable.clone()) } else { Delivered }
                };
                caller.answer(line, Outcome::PerEvent(sent.iter().map(fate).collect()));
            }
            caller.now += 50;
        }
    };
    run_named(&mut caller, 29_000, &there);
    assert_eq!(caller.fates.len(), 15);
    run_named(&mut caller, 5_000, &there);
    assert_eq!(caller.fates.len(), 300);
    let held: Vec<_> =
        caller.delivery.held(caller.now).map(|held| (held.by, held.records)).collect();
    assert_eq!(held, [(HeldBy::Destination, 100)]);
    run_named(&mut caller, 60_000, &[]);
    assert_eq!(caller.fates.len(), 400);
}
