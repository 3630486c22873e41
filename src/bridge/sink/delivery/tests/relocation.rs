//! Destinations that the receiver names only when it is back.

use super::harness::{Caller, failure, options, run, silence};
use crate::bridge::{
    FailureClass, Outcome,
    sink::delivery::{Fate, places::Unit},
};

#[test]
fn records_that_wait_are_for_the_destinations_that_are_learnt_later() {
    let mut caller = Caller::after(options(2, 10), 3);
    (caller.namespaces, caller.destinations) = (10, 1);
    let copies = [11, 12, 11].map(|key| caller.push_copy(key));
    let resend = caller.push_resend(13);
    assert!(!caller.delivery.has_live() && caller.relocate(3));
    let destinations = copies.map(|copy| caller.delivery.live.get(copy).destination);
    assert_eq!((destinations, caller.delivery.ticket(resend).destination), ([2, 0, 2], 1));
    let mut shelves: Vec<Unit> = caller.delivery.shelves.keys().copied().collect();
    shelves.sort_unstable();
    let unit = |destination, of| Unit { destination, by_object: false, of };
    assert_eq!(shelves, [unit(0, 2), unit(2, 1)]);
    let behind = caller.push(11);
    assert_eq!(caller.delivery.live.get(behind).destination, 2);
    caller.drain();
    assert_eq!(caller.fates.len(), 5);
}

#[test]
fn records_under_way_are_relocated_when_they_are_answered() {
    let mut caller = Caller::after(options(2, 10), 1);
    let copy = caller.push_copy(11);
    let sent = caller.send();
    let [(line, _)] = &sent[..] else { panic!("it is not sent") };
    assert!(!caller.relocate(3));
    assert_eq!(caller.delivery.live.get(copy).destination, 0);
    caller.answer(*line, Outcome::Failed(silence()));
    assert!(caller.relocate(3));
    assert_eq!(caller.delivery.live.get(copy).destination, 2);
    caller.drain();
}

#[test]
fn a_resend_leaves_with_its_object_though_it_is_for_another_destination() {
    let mut caller = Caller::new(options(2, 2));
    caller.destinations = 2;
    caller.push_resend(1);
    caller.send();
    caller.relocate(1);
    // The first one keeps the destination that its object has under way.
    let culprits = [1, 2].map(|key| caller.push(key));
    caller.answer(0, Outcome::Delivered);
    let resend = caller.push_resend(1);
    let sent = caller.send();
    assert_eq!(sent, [(0, culprits.to_vec())], "the resend is behind its object");
    let destinations =
        [culprits[0], culprits[1], resend].map(|number| caller.delivery.ticket(number).destination);
    assert_eq!(destinations, [1, 0, 0]);
    caller.answer(0, Outcome::Failed(failure(FailureClass::Unavailable)));
    for _ in 0..120 {
        caller.push(3);
        run(&mut caller, 500, &culprits, &failure(FailureClass::Unavailable));
    }
    assert!(caller.delivery.destinations.contains_key(&1), "it has left");
    assert_eq!(caller.fate(resend), Some(&Fate::Delivered));
    assert_eq!(culprits.map(|culprit| caller.fate(culprit)), [None, None]);
    caller.drain();
}
