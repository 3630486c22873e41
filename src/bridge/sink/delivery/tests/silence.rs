//! Receivers that crash, or hang, at some records: how often they are disturbed.

use std::collections::BTreeMap;

use super::harness::{Caller, broken, options, run, silence};
use crate::bridge::{
    Failure, Outcome,
    sink::delivery::{Fate, Number},
};

/// How often each culprit was tried in so long, while others are sent and taken.
fn tries(
    caller: &mut Caller,
    millis: u64,
    fails: impl Fn(Number) -> Option<Failure>,
) -> BTreeMap<Number, u64> {
    let mut tries = BTreeMap::new();
    for round in 0..millis / 100 {
        if round % 10 == 0 {
            caller.push(8 + round / 10 % 2);
        }
        for (line, sent) in caller.send() {
            let culprit = sent.iter().find_map(|number| Some((*number, fails(*number)?)));
            if let Some((number, failure)) = culprit {
                *tries.entry(number).or_default() += 1;
                caller.answer(line, Outcome::Failed(failure));
            } else {
                caller.answer(line, Outcome::Delivered);
            }
        }
        caller.now += 100;
    }
    tries
}

/// The receiver is silent at these.
fn at(culprits: &[Number]) -> impl Fn(Number) -> Option<Failure> {
    |number| culprits.contains(&number).then(silence)
}

/// Forty objects of so many namespaces that are set aside.
fn with_forty_aside(caller: &mut Caller, namespaces: u64) -> Vec<Number> {
    caller.namespaces = 10;
    caller.push_all([8, 9]);
    let culprits: Vec<_> = (0..40).map(|n| caller.push(100 + 10 * n + n % namespaces)).collect();
    tries(caller, 600_000, at(&culprits));
    assert!(culprits.iter().all(|culprit| caller.copied.contains(culprit)));
    culprits
}

fn are_taken(caller: &Caller, numbers: &[Number]) -> bool {
    numbers.iter().all(|number| caller.fate(*number) == Some(&Fate::Delivered))
}

#[test]
fn a_receiver_that_is_silent_at_what_is_set_aside_is_disturbed_once_in_a_back_off() {
    for namespaces in [1, 4] {
        let mut caller = Caller::new(options(4, 20));
        let culprits = with_forty_aside(&mut caller, namespaces);
        // Each wait is 5 s at least, and 30 s at most: each is tried in its turn.
        let tries = tries(&mut caller, 1_500_000, at(&culprits));
        assert!(tries.values().sum::<u64>() <= 1_500 / 5, "{namespaces}: {tries:?}");
        assert_eq!(tries.len(), 40, "{namespaces}: one is never tried: {tries:?}");
        run(&mut caller, 60_000, &[], &silence());
        assert!(are_taken(&caller, &culprits), "{namespaces}: the others do not follow");
    }
}

#[test]
fn a_record_that_was_answered_waits_for_none_that_was_silent_once_it_is_set_aside() {
    let mut caller = Caller::new(options(4, 20));
    let silent = with_forty_aside(&mut caller, 1);
    let answered = [200, 204].map(|key| caller.push(key + 1000));
    let fails = |number| at(&silent)(number).or(answered.contains(&number).then(broken));
    tries(&mut caller, 120_000, fails);
    let tries = tries(&mut caller, 600_000, fails);
    assert!(answered.iter().all(|number| tries[number] >= 600 / 31), "{tries:?}");
}

#[test]
fn copies_of_an_earlier_run_are_tried_one_by_one_where_the_receiver_is_silent() {
    let mut caller = Caller::after(options(4, 20), 40);
    caller.namespaces = 10;
    let copies: Vec<_> = (0..40).map(|n| caller.push_copy(100 + 10 * n)).collect();
    let tries = tries(&mut caller, 60_000, at(&copies));
    assert!(tries.values().sum::<u64>() <= 60 / 5, "{tries:?}");
    run(&mut caller, 60_000, &[], &silence());
    assert!(are_taken(&caller, &copies));
}

#[test]
fn resends_at_which_the_receiver_is_silent_disturb_it_once_in_a_back_off() {
    let mut caller = Caller::new(options(2, 1));
    caller.namespaces = 10;
    let resends: Vec<_> = (0..40).map(|n| caller.push_resend(100 + 10 * n)).collect();
    tries(&mut caller, 60_000, at(&resends));
    let tries = tries(&mut caller, 1_500_000, at(&resends));
    assert!(tries.values().sum::<u64>() <= 1_500 / 5, "{tries:?}");
    run(&mut caller, 60_000, &[], &silence());
    assert!(are_taken(&caller, &resends));
}
