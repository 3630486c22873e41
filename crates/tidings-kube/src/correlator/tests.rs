#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::{Aggregator, Damaged, Key, Keys, SpamFilter, defaults};

const SECOND: i64 = 1_000_000_000;

fn keys() -> Keys {
    Keys::with_secret(*b"0123456789abcdef")
}

fn key(name: u64) -> Key {
    keys().joined(&[&name.to_string()])
}

fn aggregator() -> Aggregator {
    Aggregator::new(defaults::LRU_CACHE_SIZE, defaults::MAX_EVENTS, defaults::MAX_INTERVAL)
}

fn spam_filter() -> SpamFilter {
    SpamFilter::new(defaults::LRU_CACHE_SIZE, defaults::BURST, defaults::QPS)
}

#[test]
fn joined_parts_meet_and_separated_parts_do_not() {
    let keys = keys();
    assert_eq!(keys.joined(&["shop", "1web"]), keys.joined(&["shop1", "web"]));
    assert_ne!(keys.separated(&["shop", "1web"]), keys.separated(&["shop1", "web"]));
    assert_ne!(keys.separated(&["a"]), keys.separated(&["a", ""]));
    assert_eq!(keys.separated(&["a", "b"]), keys.prefix(&["a"]).key(&["b"]));
    assert_ne!(keys.joined(&["a"]), Keys::random().joined(&["a"]));
}

#[test]
fn the_tenth_message_is_combined_and_the_first_nine_stand_alone_for_good() {
    let mut aggregator = aggregator();
    let mut combined = |message| aggregator.observe(key(0), key(message), 0).is_aggregate();
    assert!((1..=9).all(|message| !combined(message)));
    assert!((10..=20).all(&mut combined));
    assert!((1..=9).all(|message| !combined(message)));
    assert!(combined(10));
}

#[test]
fn a_group_begins_anew_after_more_than_its_window_without_events() {
    let mut aggregator = aggregator();
    for message in 1..=10 {
        let _ = aggregator.observe(key(0), key(message), 0);
    }
    let mut combined = |message, now| aggregator.observe(key(0), key(message), now).is_aggregate();
    assert!(combined(11, 600 * SECOND));
    assert!(combined(12, 0), "a clock that goes back makes nothing older");
    assert!(!combined(13, 600 * SECOND + 1));
}

#[test]
fn the_extremes_of_an_aggregator() {
    let mut combines_all = Aggregator::new(1, 1, 0);
    assert!(combines_all.observe(key(0), key(1), 0).is_aggregate());
    let mut combines_none = Aggregator::new(1, usize::MAX, 0);
    assert!(
        (0..100).all(|message| { !combines_none.observe(key(0), key(message), 0).is_aggregate() })
    );
    let mut always_anew = Aggregator::new(1, 2, -SECOND);
    assert!((0..9).all(|message| !always_anew.observe(key(0), key(message), 0).is_aggregate()));
    let mut keeps_none = Aggregator::new(0, 2, SECOND);
    assert!((0..9).all(|message| {
        let observed = keeps_none.observe(key(0), key(message), 0);
        !observed.is_aggregate() && observed.evicted() == Some(key(0))
    }));
}

#[test]
fn the_least_recent_group_goes_and_is_named() {
    let mut aggregator = Aggregator::new(2, 3, SECOND);
    let mut evicted = |group| aggregator.observe(key(group), key(9), 0).evicted();
    assert_eq!([evicted(1), evicted(2), evicted(1)], [None; 3]);
    assert_eq!(evicted(3), Some(key(2)));
}

#[test]
fn twenty_five_at_once_and_one_in_300_s() {
    let mut filter = spam_filter();
    let mut allow = |now| filter.allow(key(0), now);
    assert!((0..25).all(|_| allow(0)));
    assert!(!allow(0));
    // In single precision the rate is a little above 1/300.
    let early = 300 * SECOND - 7_264;
    assert!(!allow(early - 10));
    assert!(allow(early + 10));
    assert!(!allow(early + 20));
}

#[test]
fn time_that_goes_back_counts_twice() {
    let mut filter = SpamFilter::new(1, 2, 1.0);
    assert!(filter.allow(key(0), 10 * SECOND));
    assert!(filter.allow(key(0), 0), "the bucket's time is set back");
    assert!(!filter.allow(key(0), 0));
    assert!(filter.allow(key(0), SECOND));
}

#[test]
fn the_extremes_of_a_spam_filter() {
    let allowed = |burst, qps, now| {
        let mut filter = SpamFilter::new(1, burst, qps);
        (0..5).filter(|_| filter.allow(key(0), now)).count()
    };
    assert_eq!(allowed(0, 1.0, 0), 0);
    assert_eq!(allowed(-1, 1.0, 0), 0);
    assert_eq!(allowed(3, -1.0, i64::MAX), 3);
    assert_eq!(allowed(3, f32::INFINITY, i64::MIN), 5);
    assert_eq!(allowed(3, 1e-9, 0), 3);
    assert_eq!(allowed(3, 1e-10, 0), 5, "the wait has no room in 64 bits");
    let mut keeps_none = SpamFilter::new(0, 1, 1.0);
    assert!((0..5).all(|_| keeps_none.allow(key(0), 0)));
}

fn saved(aggregator: &Aggregator, filter: &SpamFilter) -> Vec<u8> {
    let mut bytes = Vec::new();
    keys().save(&mut bytes);
    aggregator.save(&mut bytes);
    filter.save(&mut bytes);
    bytes
}

fn loaded(bytes: &[u8]) -> Result<(Keys, Aggregator, SpamFilter), Damaged> {
    let (keys, rest) = Keys::load(bytes)?;
    let (aggregator, rest) = Aggregator::load(rest, 4, 3, 5)?;
    let (filter, rest) = SpamFilter::load(rest, 4, 2, 0.5)?;
    if rest.is_empty() { Ok((keys, aggregator, filter)) } else { Err(Damaged) }
}

type Step = (u64, u64, i64);

fn run(
    aggregator: &mut Aggregator,
    filter: &mut SpamFilter,
    steps: &[Step],
) -> Vec<(bool, Option<Key>, bool)> {
    let step = |&(group, local, now): &Step| {
        let observed = aggregator.observe(key(group), key(local), now);
        (observed.is_aggregate(), observed.evicted(), filter.allow(key(group), now * SECOND))
    };
    steps.iter().map(step).collect()
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((0..7u64, 0..6u64, -3..20i64), 0..60)
}

proptest! {
    #[test]
    fn joining_is_concatenation(parts in prop::collection::vec(".{0,40}", 0..8)) {
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        prop_assert_eq!(keys().joined(&parts), keys().joined(&[&parts.concat()]));
    }

    #[test]
    fn what_is_loaded_goes_on_as_what_was_saved(before in steps(), after in steps()) {
        let (mut aggregator, mut filter) = (Aggregator::new(4, 3, 5), SpamFilter::new(4, 2, 0.5));
        run(&mut aggregator, &mut filter, &before);
        let bytes = saved(&aggregator, &filter);
        let (keys, mut aggregator_2, mut filter_2) = loaded(&bytes).unwrap();
        prop_assert_eq!(keys.joined(&["a"]), super::tests::keys().joined(&["a"]));
        prop_assert_eq!(&bytes, &saved(&aggregator_2, &filter_2));
        prop_assert_eq!(
            run(&mut aggregator, &mut filter, &after),
            run(&mut aggregator_2, &mut filter_2, &after)
        );
    }

    #[test]
    fn damage_never_panics(
        before in steps(),
        after in steps(),
        cut in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let (mut aggregator, mut filter) = (Aggregator::new(4, 3, 5), SpamFilter::new(4, 2, 0.5));
        run(&mut aggregator, &mut filter, &before);
        let mut bytes = saved(&aggregator, &filter);
        prop_assert!(loaded(&bytes[..cut.index(bytes.len())]).is_err());
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok((_, mut aggregator, mut filter)) = loaded(&bytes) {
            run(&mut aggregator, &mut filter, &after);
        }
    }
}
