//! Verdicts: who steps aside, who is given up, and who is not.

use super::harness::{
    Caller, broken, class, failed, failure, forbidden, http, invalid, options, run, run_in_turns,
    silence, with_culprits,
};
use crate::bridge::{
    EventFate, Failure, FailureClass, Fault, HeldBy, Outcome, Status,
    sink::delivery::{DeadLetterClass, Delivery, Fate, Number, Ticket, Trouble},
};

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
        assert_eq!(class(&caller, culprit), Some(DeadLetterClass::Blocked));
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
fn objects_that_fail_one_after_another_in_the_only_namespace_hold_up_nobody_for_long() {
    let mut caller = Caller::new(options(1, 1));
    caller.namespaces = 1;
    let (mut culprits, mut others) = (Vec::new(), 0);
    for key in 1..200 {
        if key % 8 == 0 {
            culprits.push(caller.push(key));
        } else {
            caller.push(key);
            others += 1;
        }
        run(&mut caller, 500, &culprits, &broken());
    }
    run(&mut caller, 10_000, &culprits, &broken());
    let taken = caller.fates.values().filter(|fate| **fate == Fate::Delivered).count();
    assert_eq!(taken, others, "the others wait");
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

/// As two replicas answer by turns behind one name.
#[test]
fn a_record_whose_failures_change_holds_up_nobody_for_long() {
    let other = http(FailureClass::Unavailable, Fault::RecordForNow, 502);
    for failures in [
        [broken(), other.clone()],
        [broken(), silence()],
        [forbidden(), broken()],
        [forbidden(), invalid()],
    ] {
        for (lanes, batch) in [(1, 1), (1, 20), (8, 1)] {
            let mut caller = Caller::new(options(lanes, batch));
            let mut failures = failures.iter().cycle();
            let culprits = with_culprits(&mut caller);
            for round in 0..600 {
                caller.push(1 + round % 9);
                run_in_turns(&mut caller, 100, &culprits, &mut failures);
            }
            let case = format!("{failures:?}, {lanes} lanes of {batch}");
            let waiting = caller.fates.values().filter(|fate| **fate == Fate::Delivered).count();
            assert!(waiting > 29 + 60 + 500, "{case}: {waiting} are taken");
            let passed =
                |culprit| class(&caller, culprit).is_some() || caller.copied.contains(&culprit);
            assert!(culprits.into_iter().all(passed), "{case}: there is no verdict");
        }
    }
}

#[test]
fn a_failure_that_may_pass_sets_a_record_aside_with_its_object_until_it_is_taken() {
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
fn records_that_fail_are_sent_beside_the_lanes_and_take_the_place_of_none() {
    for (lanes, beside) in [(1, 1), (4, 1), (8, 2)] {
        let mut caller = Caller::new(options(lanes, 1));
        (caller.namespaces, caller.now) = (10, 1);
        let culprits: Vec<_> = (1..4).map(|key| caller.push(key)).collect();
        caller.push_all(4..40);
        for round in 0..100 {
            caller.push(4 + round % 6);
            run(&mut caller, 500, &culprits, &forbidden());
        }
        // Their namespaces are on probation, and the others have something to send.
        caller.push_all((0..20).flat_map(|n| (1..9).map(move |key| key + 10 * n)));
        let sent = caller.send();
        assert_eq!(sent.len(), lanes + beside, "{sent:?}");
        assert_eq!(sent.iter().filter(|(line, _)| *line >= lanes).count(), beside);
    }
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
fn somebody_has_to_mend_a_receiver_that_refuses_all_and_not_one_that_is_down() {
    for (failure, to_be_mended) in [(invalid(), true), (forbidden(), true), (broken(), false)] {
        let mut caller = Caller::new(options(1, 50));
        caller.namespaces = 10;
        caller.push_all(0..200);
        let all: Vec<_> = (1..=200).collect();
        run(&mut caller, 120_000, &all, &failure);
        let trouble = caller.delivery.trouble();
        let misconfigured = matches!(trouble, Trouble::Misconfigured(_));
        assert!(misconfigured == to_be_mended && trouble != Trouble::None, "{trouble:?}");
        run(&mut caller, 60_000, &[], &failure);
        assert_eq!(caller.delivery.trouble(), Trouble::None);
    }
}

#[test]
fn an_outage_after_a_verdict_convicts_nobody() {
    let mut caller = Caller::new(options(1, 20));
    let culprits = with_culprits(&mut caller);
    for round in 0..200 {
        caller.push(1 + round % 9);
        run(&mut caller, 500, &culprits, &forbidden());
    }
    assert_eq!(class(&caller, culprits[0]), Some(DeadLetterClass::Blocked));
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
fn nothing_starts_beside_the_lanes_where_the_program_ends() {
    let mut caller = Caller::after(options(1, 1), 1);
    let copy = caller.push_copy(7);
    let live = caller.push(8);
    caller.delivery.end_beside();
    assert_eq!(caller.send(), [(0, vec![live])]);
    caller.answer(0, Outcome::Delivered);
    assert!(caller.send().is_empty() && caller.delivery.wake_at().is_none());
    assert_eq!(caller.fate(copy), None);
}

#[test]
fn a_head_is_put_away_by_hand_and_the_lane_goes_on() {
    let mut caller = Caller::new(options(1, 2));
    caller.push_all(0..4);
    caller.send();
    caller.answer(0, Outcome::Failed(failure(FailureClass::Misconfigured)));
    caller.put_away(true);
    assert_eq!(class(&caller, 1), Some(DeadLetterClass::Blocked));
    assert_eq!(caller.send(), [(0, vec![2])]);
    caller.put_away(true);
    assert_eq!(caller.fate(2), None, "it is under way");
    caller.drain();
}

#[test]
fn a_record_that_was_set_aside_goes_before_later_ones_of_its_object_after_a_start() {
    let mut delivery = Delivery::new(options(2, 1), 2, 3);
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
    assert_eq!(delivery.settled(), 4);
}

#[test]
fn records_that_an_earlier_run_set_aside_are_given_up_where_there_is_but_one_namespace() {
    let mut caller = Caller::after(options(2, 1), 3);
    caller.namespaces = 1;
    let culprits: Vec<_> = [7, 7, 8].map(|key| caller.push_copy(key)).to_vec();
    for key in 0..200 {
        caller.push(10 + key);
        run(&mut caller, 5_000, &culprits, &invalid());
    }
    for culprit in culprits {
        assert!(matches!(class(&caller, culprit), Some(DeadLetterClass::Refused(_))), "{culprit}");
    }
}

#[test]
fn a_queue_ends_once_all_that_had_failed_is_taken_though_more_of_its_namespace_comes() {
    let mut caller = Caller::new(options(8, 1));
    let culprits = with_culprits(&mut caller);
    let (mut rounds, mut mended) = (0, false);
    while rounds < 40 {
        caller.push_all([10, 20]);
        for (line, sent) in caller.send() {
            mended |= !caller.delivery.queues.is_empty();
            let fails = !mended && sent.iter().any(|number| culprits.contains(number));
            let outcome = if fails { Outcome::Failed(broken()) } else { Outcome::Delivered };
            caller.answer(line, outcome);
        }
        rounds += u32::from(mended);
        caller.now += 50;
    }
    assert!(caller.delivery.queues.is_empty(), "the queue takes one of two");
}

#[test]
fn a_resend_that_fails_holds_up_no_live_record() {
    let mut caller = Caller::new(options(1, 1));
    let resend = caller.push_resend(3);
    run(&mut caller, 200, &[resend], &forbidden());
    let live = caller.push(3);
    run(&mut caller, 5_000, &[resend], &forbidden());
    assert_eq!(caller.fate(live), Some(&Fate::Delivered));
    for key in 0..60 {
        caller.push(key % 9);
        run(&mut caller, 5_000, &[resend], &forbidden());
    }
    assert_eq!(class(&caller, resend), Some(DeadLetterClass::Blocked));
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

#[test]
fn a_failure_of_a_batch_is_not_that_of_a_record_that_is_taken_without_the_others() {
    use crate::bridge::EventFate::{Delivered, Failed};
    let named = |first, second| Outcome::PerEvent(vec![first, second]);
    let unavailable = failure(FailureClass::Unavailable);
    let refused = Failure { status: unavailable.status, ..forbidden() };
    for before in [
        Outcome::Failed(refused.clone()),
        named(Failed(unavailable.clone()), Failed(refused.clone())),
    ] {
        let mut caller = Caller::new(options(1, 2));
        caller.namespaces = 10;
        caller.push_all([1, 2]);
        for outcome in [before, named(Delivered, Failed(refused.clone()))] {
            caller.now += 60_000;
            let sent = caller.send();
            assert_eq!(sent, [(0, vec![1, 2])]);
            caller.answer(0, outcome);
        }
        assert!(caller.delivery.places.tells(0, refused.status, caller.now));
    }
}

#[test]
fn a_status_that_all_failed_with_and_that_passes_says_nothing_about_content() {
    for batch in [1, 2] {
        let mut caller = Caller::new(options(1, batch));
        caller.namespaces = 10;
        caller.push_all([1, 2]);
        run(&mut caller, 60_000, &[1, 2], &forbidden());
        run(&mut caller, 60_000, &[], &forbidden());
        assert_eq!(caller.fates.len(), 2);
        assert!(!caller.delivery.places.tells(0, forbidden().status, caller.now), "{batch}");
    }
}

#[test]
fn many_namespaces_that_fail_with_one_status_are_parted_soon() {
    let mut caller = Caller::new(options(8, 1));
    caller.namespaces = 1000;
    let mut culprits = Vec::new();
    for key in 0..60 {
        culprits.push(caller.push(100 + key));
    }
    let mut others = Vec::new();
    for round in 0..600 {
        others.push(caller.push(1 + round % 50));
        run(&mut caller, 50, &culprits, &forbidden());
    }
    let waiting = others.iter().filter(|number| caller.fate(**number).is_none()).count();
    assert!(waiting < 20, "{waiting} of {} wait after 30 s", others.len());
}

#[test]
fn a_lane_that_fails_once_is_retried_and_somebody_has_to_mend_it_only_then() {
    let mut caller = Caller::new(options(1, 1));
    caller.namespaces = 10;
    let culprits = [caller.push(1)];
    run(&mut caller, 50, &culprits, &forbidden());
    assert!(matches!(caller.delivery.trouble(), Trouble::Retrying(_)));
    run(&mut caller, 2_000, &culprits, &forbidden());
    assert!(matches!(caller.delivery.trouble(), Trouble::Misconfigured(_)));
}

#[test]
fn a_failure_of_a_part_is_not_that_of_the_others_once_they_are_one_batch_again() {
    use crate::bridge::EventFate::{Delivered, Failed};
    let mut caller = Caller::new(options(1, 2));
    caller.namespaces = 10;
    caller.push_all([1, 2]);
    let mut alone = 0;
    for _ in 0..30 {
        caller.now += 60_000;
        for (line, sent) in caller.send() {
            alone += u32::from(sent.len() == 1);
            let answer = |number: &Number| {
                let taken = sent.len() == 2 && *number == 2 && alone > 1;
                let failure = if *number == 1 { forbidden() } else { broken() };
                if taken { Delivered } else { Failed(failure) }
            };
            let outcome = Outcome::PerEvent(sent.iter().map(answer).collect());
            caller.answer(line, outcome);
        }
    }
    assert_eq!(caller.fate(2), Some(&Fate::Delivered));
    assert!(caller.delivery.places.tells(0, forbidden().status, caller.now));
}

#[test]
fn a_resend_that_waits_holds_up_those_of_its_object_only() {
    let mut caller = Caller::new(options(2, 5));
    let [first, other] = [3, 4].map(|key| caller.push_resend(key));
    run(&mut caller, 500, &[first, other], &broken());
    let behind = caller.push_resend(3);
    run(&mut caller, 60_000, &[first], &broken());
    assert_eq!(caller.fate(other), Some(&Fate::Delivered));
    assert!(caller.fate(first).is_none() && caller.fate(behind).is_none());
    run(&mut caller, 60_000, &[], &broken());
    assert!([first, behind].iter().all(|resend| caller.fate(*resend) == Some(&Fate::Delivered)));
}

#[test]
fn a_witness_that_the_log_has_no_more_holds_up_nobody() {
    let mut caller = Caller::new(options(1, 20));
    let culprits = with_culprits(&mut caller);
    let mut gone = None;
    for round in 0..2_000 {
        if gone.is_some() {
            break;
        }
        caller.push(1 + round % 9);
        for (line, sent) in caller.send() {
            if gone.is_none() && caller.delivery.lines[line].witness.is_some() {
                caller.sent.remove(&line);
                caller.delivery.not_sent(line, caller.now);
                assert!(caller.delivery.put_away(sent[0], caller.now));
                caller.take_fates();
                gone = Some(sent[0]);
                continue;
            }
            let fails = sent.iter().any(|number| culprits.contains(number));
            let failed = Outcome::Failed(broken());
            caller.answer(line, if fails { failed } else { Outcome::Delivered });
        }
        caller.now += 50;
    }
    assert!(gone.is_some(), "no witness was drawn");
    caller.drain();
}

#[test]
fn a_record_that_came_back_and_that_the_log_has_no_more_holds_up_no_lane() {
    for lanes in [1, 4] {
        let mut caller = Caller::after(options(lanes, 10), 3);
        let copies = [7, 7, 7].map(|key| caller.push_copy(key));
        assert_eq!(caller.send(), [(lanes, vec![copies[0]])]);
        caller.answer(lanes, Outcome::Delivered);
        // The others of its object go to a lane.
        assert_eq!(caller.send(), [(0, copies[1..].to_vec())]);
        caller.sent.remove(&0);
        caller.delivery.not_sent(0, caller.now);
        assert!(caller.delivery.put_away(copies[1], caller.now), "{lanes} lanes");
        caller.take_fates();
        assert_eq!(class(&caller, copies[1]), Some(DeadLetterClass::Blocked));
        assert_eq!(caller.send(), [(0, vec![copies[2]])]);
        caller.drain();
    }
}

#[test]
fn a_witness_from_the_batch_keeps_its_place_among_the_records_of_its_object() {
    let mut caller = Caller::new(options(1, 5));
    let numbers = [0, 1, 2, 3, 3].map(|key| caller.push(key));
    // Three namespaces fail, and so do both of the fourth, each as a witness: nobody is taken.
    run(&mut caller, 20_000, &numbers, &broken());
    assert!(caller.fates.is_empty() && caller.copied.is_empty());
    caller.drain();
    assert_eq!(caller.fates.len(), 5);
}

#[test]
fn copies_go_before_live_records_of_their_objects_in_a_batch_that_has_failed() {
    let mut caller = Caller::after(options(1, 10), 2);
    let copies = [7, 7].map(|key| caller.push_copy(key));
    caller.push(7);
    assert_eq!(caller.send(), [(1, vec![copies[0]])]);
    caller.answer(1, Outcome::Delivered);
    // The others of its object go to a lane.
    let numbers: Vec<_> = (copies[1]..6).collect();
    caller.push_all([8, 9]);
    run(&mut caller, 20_000, &numbers, &broken());
    assert_eq!(caller.fates.len(), 1);
    caller.drain();
    assert_eq!(caller.fates.len(), 5);
}

/// The receiver said only later which destinations it has.
#[test]
fn a_copy_is_not_overtaken_by_a_record_of_its_object_for_another_destination() {
    let mut caller = Caller::after(options(2, 10), 2);
    (caller.namespaces, caller.destinations) = (10, 1);
    let copies = [7, 7].map(|key| caller.push_copy(key));
    let other = caller.push(1);
    assert_eq!(caller.send(), [(0, vec![other]), (2, vec![copies[0]])]);
    caller.answer(0, Outcome::Delivered);
    caller.answer(2, Outcome::Delivered);
    caller.destinations = 2;
    let behind = [copies[1], caller.push(7)];
    assert_eq!(caller.send(), [(0, behind.to_vec())]);
    caller.answer(0, failed(FailureClass::Unavailable));
    for round in 0..200 {
        caller.push(1 + 2 * (round % 3));
        run(&mut caller, 500, &behind, &failure(FailureClass::Unavailable));
    }
    assert!(behind.iter().all(|number| caller.fate(*number).is_none()));
    caller.drain();
}

/// As of a broker, which answers for each record: a quiet cluster, in which nobody waits while it is tried.
#[test]
fn a_record_that_is_answered_by_itself_is_judged_where_others_are_taken_between_its_attempts() {
    for (lanes, failure) in [(4, invalid()), (4, forbidden()), (8, invalid())] {
        let mut caller = Caller::new(options(lanes, 20));
        caller.namespaces = 10;
        let culprit = caller.push(10);
        for round in 0..12_000 {
            // None of another namespace waits while it is tried.
            for other in [false, true] {
                if other && round % 10 == 0 {
                    caller.push(1 + round / 10 % 9);
                }
                for (line, sent) in caller.send() {
                    let fate = |number: &Number| {
                        if *number == culprit {
                            EventFate::Failed(failure.clone())
                        } else {
                            EventFate::Delivered
                        }
                    };
                    caller.answer(line, Outcome::PerEvent(sent.iter().map(fate).collect()));
                }
            }
            caller.now += 100;
        }
        assert!(class(&caller, culprit).is_some(), "{failure:?}: {:#?}", caller.delivery.lines[0]);
    }
}
