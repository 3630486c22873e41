//! Every record has one answer, whatever a receiver says, without a runtime.

use std::{collections::VecDeque, time::Duration};

use proptest::{collection::vec, prelude::*};

use super::*;

fn reason(text: &str) -> Reason {
    Secrets::none().reason(text)
}

fn refused(class: RefusedClass) -> Outcome {
    Outcome::Failed(Failure::refused(class, reason("no")))
}

fn down(class: FailureClass) -> Failure {
    Failure::new(class, reason("down"))
}

/// The fate of an event that is refused by itself.
fn no() -> EventFate {
    EventFate::Failed(Failure::refused(RefusedClass::Invalid, reason("no")))
}

fn failed(class: FailureClass) -> Outcome {
    Outcome::Failed(down(class))
}

/// A record's sequence is its place, and 100.
fn piece(events: usize) -> Piece {
    let record = |place| Record { seq: 100 + place as u64, envelope: "{}".into() };
    Piece::whole(Batch { records: (0..events).map(record).collect() }, 7)
}

fn attempts(most: Option<u32>) -> RetryOptions {
    RetryOptions { max_attempts: most, ..RetryOptions::default() }
}

/// One step without a bound on attempts.
fn step(piece: &mut Piece, outcome: Outcome, refusals: &mut Refusals) -> Step {
    piece.answered(outcome, &attempts(None), refusals)
}

/// The places of a step's answers, and the class of those that were refused.
fn places(step: &Step) -> Vec<(Vec<usize>, Option<&'static str>)> {
    let class = |answer: &Answer| match answer {
        Answer::Taken { .. } => None,
        Answer::Refused { class, .. } => Some(class.as_str()),
    };
    step.answers.iter().map(|group| (group.places.clone(), class(&group.answer))).collect()
}

#[test]
fn a_batch_that_is_refused_is_halved_and_both_halves_are_tried_anew() {
    let (mut first, mut refusals) = (piece(5), Refusals::bounded());
    step(&mut first, failed(FailureClass::Timeout), &mut refusals);
    assert_eq!((first.attempts, first.failures), (1, 1));
    let halved = step(&mut first, refused(RefusedClass::Invalid), &mut refusals);
    assert!(halved.answers.is_empty());
    let Next::Halved(second) = halved.next else { panic!("{:?}", halved.next) };
    assert_eq!((&first.places[..], &second.places[..]), (&[0, 1][..], &[2, 3, 4][..]));
    for half in [&first, &second] {
        assert_eq!((half.attempts, half.failures, half.first_ms), (0, 0, 7));
    }
    assert_eq!(second.batch.records[0].seq, 102);
}

#[test]
fn a_single_event_that_is_refused_is_given_up_with_its_class() {
    let mut single = piece(1);
    let last = step(&mut single, refused(RefusedClass::TooLarge), &mut Refusals::bounded());
    assert_eq!(places(&last), [(vec![0], Some("too-large"))]);
    assert!(matches!(last.next, Next::Done) && single.places.is_empty());
    assert_eq!(single.attempts, 1);
}

#[test]
fn a_piece_keeps_the_events_without_an_answer() {
    let mut batch = piece(6);
    let fates = vec![EventFate::Delivered, EventFate::Duplicate, no(), EventFate::Delivered];
    let sorted = step(&mut batch, Outcome::PerEvent(fates), &mut Refusals::bounded());
    assert_eq!(places(&sorted), [(vec![0, 1], None), (vec![2], Some("invalid")), (vec![3], None)]);
    let Next::Again(failure) = sorted.next else { panic!("{:?}", sorted.next) };
    let words = reason("some events of the batch were not taken");
    assert_eq!(failure, Failure::new(FailureClass::Unavailable, words));
    assert_eq!((batch.places, batch.failures), (vec![4, 5], 1));
}

#[test]
fn a_partial_success_names_nobody_and_leaves_nothing() {
    for (rejected, answers) in [
        (0, vec![(vec![0, 1, 2], None)]),
        (2, vec![(vec![0, 1], Some("partial-success")), (vec![2], None)]),
        (9, vec![(vec![0, 1, 2], Some("partial-success")), (vec![], None)]),
    ] {
        let mut batch = piece(3);
        let outcome = Outcome::Partial { rejected, reason: reason("too old") };
        let last = step(&mut batch, outcome, &mut Refusals::bounded());
        assert_eq!(places(&last), answers);
        assert!(matches!(last.next, Next::Done) && batch.places.is_empty());
        let warning = (rejected == 0).then(|| reason("too old"));
        let last = &last.answers.last().unwrap().answer;
        assert_eq!(*last, Answer::Taken { warning });
    }
}

#[test]
fn a_receiver_that_asks_for_time_is_passed_on() {
    let asked = Some(Duration::from_mins(2));
    let (busy, asks) = (down(FailureClass::Throttled), down(FailureClass::Throttled));
    let asks = Failure { after: asked, ..asks };
    let fates = vec![EventFate::Failed(busy), EventFate::Failed(asks.clone())];
    for outcome in [Outcome::Failed(asks.clone()), Outcome::PerEvent(fates)] {
        let step = step(&mut piece(2), outcome, &mut Refusals::bounded());
        assert!(matches!(step.next, Next::Again(failure) if failure == asks));
    }
}

#[test]
fn attempts_are_bounded_by_failures_that_mend_themselves_only() {
    let (mut batch, mut refusals) = (piece(3), Refusals::bounded());
    let options = attempts(Some(2));
    for class in [FailureClass::Misconfigured, FailureClass::Timeout, FailureClass::Misconfigured] {
        let step = batch.answered(failed(class), &options, &mut refusals);
        assert!(matches!(step.next, Next::Again(_)), "{class:?}");
    }
    assert_eq!((batch.attempts, batch.failures), (3, 1));
    // What is left of it is given up, and the attempts are all that were made.
    let fates = vec![EventFate::Failed(down(FailureClass::Timeout)), EventFate::Delivered];
    let outcome = Outcome::PerEvent(fates);
    let last = batch.answered(outcome, &options, &mut refusals);
    assert_eq!(places(&last), [(vec![1], None), (vec![0, 2], Some("max-attempts"))]);
    assert!(matches!(last.next, Next::Done));
    assert_eq!(batch.attempts, 4);
}

/// So many single events, all of them refused; how many were given up before one was a failure.
fn given_up(events: usize, one_by_one: bool, refusals: &mut Refusals) -> (usize, Option<Next>) {
    if one_by_one {
        let outcome = Outcome::PerEvent(vec![no(); events]);
        let step = step(&mut piece(events), outcome, refusals);
        let failed = matches!(step.next, Next::Again(_));
        return (step.answers.len(), failed.then_some(step.next));
    }
    for event in 0..events {
        let step = step(&mut piece(1), refused(RefusedClass::Invalid), refusals);
        if step.answers.is_empty() {
            return (event, Some(step.next));
        }
    }
    (events, None)
}

#[test]
fn refusals_in_a_row_are_a_failure_of_the_sink_for_live_events_only() {
    for one_by_one in [false, true] {
        let mut refusals = Refusals::bounded();
        let (answered, next) = given_up(25, one_by_one, &mut refusals);
        assert_eq!(answered, 20);
        let Some(Next::Again(failure)) = next else { panic!("{next:?}") };
        assert_eq!(failure.class, FailureClass::Misconfigured);
        assert_eq!(&*failure.reason, "refuses everything, 20 events in a row: no");
        // One that is taken begins the count anew.
        step(&mut piece(1), Outcome::Delivered, &mut refusals);
        assert_eq!(given_up(25, one_by_one, &mut refusals).0, 20);
        // An event that is sent once more has its fate: it is refused once more, and that is all.
        let (answered, next) = given_up(25, one_by_one, &mut Refusals::unbounded());
        assert!(answered == 25 && next.is_none());
    }
}

#[test]
fn a_receiver_that_rejects_everything_by_partial_success_gives_up_no_more_than_one_that_refuses() {
    let rejects = |rejected, events, refusals: &mut Refusals| {
        let mut batch = piece(events);
        let outcome = Outcome::Partial { rejected, reason: reason("no") };
        let step = step(&mut batch, outcome, refusals);
        match step.next {
            Next::Done => Ok(step.answers[0].places.len()),
            Next::Again(failure) => {
                let left = (step.answers.len(), batch.places.len(), failure.after);
                assert_eq!(left, (0, events, None));
                Err((failure.class, failure.reason.to_string()))
            }
            Next::Halved(_) => panic!("a partial success is not tried in halves"),
        }
    };
    let full =
        Err((FailureClass::Misconfigured, "refuses everything, 20 events in a row: no".to_owned()));
    let mut refusals = Refusals::bounded();
    for _ in 0..20 {
        assert_eq!(rejects(1, 1, &mut refusals), Ok(1));
    }
    assert_eq!(rejects(1, 1, &mut refusals), full);
    assert_eq!(rejects(500, 500, &mut refusals), full);
    // With one that is taken it is not everything.
    assert_eq!(rejects(499, 500, &mut refusals), Ok(499));
    assert_eq!(rejects(500, 500, &mut refusals), Ok(500), "it was answered for as one");
    assert_eq!(rejects(1, 1, &mut refusals), full);
    step(&mut piece(1), refused(RefusedClass::Invalid), &mut refusals);
    assert_eq!(rejects(1, 1, &mut refusals), full, "both kinds of refusals are one row");
    step(&mut piece(1), Outcome::Delivered, &mut refusals);
    assert_eq!(rejects(1, 1, &mut refusals), Ok(1));
    let mut unbounded = Refusals::unbounded();
    for _ in 0..3 {
        assert_eq!(rejects(500, 500, &mut unbounded), Ok(500));
    }
}

fn class() -> impl Strategy<Value = FailureClass> {
    prop_oneof![
        Just(FailureClass::Unavailable),
        Just(FailureClass::Throttled),
        Just(FailureClass::Timeout),
        Just(FailureClass::Misconfigured),
    ]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let fate = prop_oneof![
        2 => Just(EventFate::Delivered),
        1 => Just(EventFate::Duplicate),
        2 => class().prop_map(|class| EventFate::Failed(down(class))),
        3 => Just(no()),
    ];
    prop_oneof![
        1 => Just(Outcome::Delivered),
        3 => vec(fate, 0..50).prop_map(Outcome::PerEvent),
        1 => (0..60u64)
            .prop_map(|rejected| Outcome::Partial { rejected, reason: reason("some") }),
        3 => class().prop_map(failed),
        4 => Just(refused(RefusedClass::Invalid)),
    ]
}

proptest! {
    #[test]
    fn every_record_has_one_answer_and_the_order_stays(
        events in 1..60usize,
        outcomes in vec(outcome(), 0..120),
        most in proptest::option::of(1..5u32),
        live in any::<bool>(),
    ) {
        let options = attempts(most);
        let mut refusals = if live { Refusals::bounded() } else { Refusals::unbounded() };
        let mut outcomes = outcomes.into_iter();
        let mut answered = vec![0; events];
        let mut in_a_row = 0;
        let mut pieces = VecDeque::from([piece(events)]);
        while let Some(mut piece) = pieces.pop_front() {
            let outcome = outcomes.next().unwrap_or(Outcome::Delivered);
            let before = (piece.attempts, piece.failures);
            let may_refuse = !live || in_a_row < REFUSALS_IN_A_ROW;
            let sent = piece.places.clone();
            prop_assert!(!sent.is_empty());
            let Step { answers, next } = piece.answered(outcome, &options, &mut refusals);
            let mut left = sent;
            for Answered { records, places, answer } in answers {
                prop_assert_eq!(records.len(), places.len());
                for (record, place) in records.iter().zip(&places) {
                    prop_assert_eq!(record.seq, 100 + *place as u64);
                    answered[*place] += 1;
                }
                left.retain(|place| !places.contains(place));
                match answer {
                    // Of a partial success that rejects everything.
                    Answer::Taken { .. } if places.is_empty() => {}
                    Answer::Taken { .. } => in_a_row = 0,
                    Answer::Refused { class: DeadLetterClass::Refused(_), .. } => {
                        in_a_row += 1;
                        prop_assert!(!live || in_a_row <= REFUSALS_IN_A_ROW);
                    }
                    Answer::Refused { class: DeadLetterClass::MaxAttempts, .. } => {
                        prop_assert_eq!(Some(piece.failures), most);
                    }
                    Answer::Refused { .. } => {
                        prop_assert!(may_refuse || !left.is_empty());
                        in_a_row += u32::try_from(places.len()).unwrap();
                    }
                }
            }
            match next {
                Next::Done => prop_assert!(left.is_empty() && piece.places.is_empty()),
                Next::Again(failure) => {
                    let mends_itself = u32::from(failure.class != FailureClass::Misconfigured);
                    let now = (piece.attempts, piece.failures);
                    prop_assert_eq!(now, (before.0 + 1, before.1 + mends_itself));
                    prop_assert!(most.is_none_or(|most| piece.failures < most));
                    prop_assert_eq!(&piece.places, &left);
                    pieces.push_front(piece);
                }
                Next::Halved(second) => {
                    prop_assert!(!piece.places.is_empty());
                    pieces.push_front(second);
                    pieces.push_front(piece);
                }
            }
            let order: Vec<_> = pieces.iter().flat_map(|piece| &piece.places).collect();
            prop_assert!(order.is_sorted());
            for piece in &pieces {
                prop_assert_eq!(piece.batch.records.len(), piece.places.len());
            }
        }
        prop_assert_eq!(answered, vec![1; events]);
    }
}
