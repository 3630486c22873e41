//! The past of a source that is new in a journal, or back after others: those, of earlier runs with
//! other namespaces or another field selector, may have read its Events.

use std::{collections::BTreeMap, sync::Arc};

use tidings_log::Resume;

use crate::journal::{SavedWitness, SourceState, Unfinished};

/// A source that is back goes on where it ended if that is no longer ago, in milliseconds, or if all of it
/// was read meanwhile. So long it is known of an Event what was read of it, even if it was deleted by
/// then: its history comes again. The API server keeps that for some minutes only.
const BACK_WITHIN_MS: u64 = 3_600_000;

/// What a journal has of a source beside its own resume point.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Past {
    /// Nothing more.
    None,
    /// Others have read a part of it: what happened since the first of them fell silent may be missing.
    Part { last_heard_ms: u64 },
    /// Another one has read all of it since, and it goes on where that has ended.
    Whole(Ended),
}

/// Where a source ended that read all of another one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) resume: Resume,
    pub(super) last_heard_ms: Option<u64>,
    pub(super) whole_from: Option<u64>,
    pub(super) witness: Option<SavedWitness>,
    pub(super) unfinished: Option<Unfinished>,
}

/// Where a source stands by its own frames. One without any begins in the journal's newest epoch: what
/// is of an older one counts as had.
pub(super) fn own_resume(key: &str, resume: &BTreeMap<Arc<str>, Resume>) -> Resume {
    let newest = || resume.values().map(|resume| resume.epoch).max().unwrap_or(0);
    let anew = || Resume { epoch: newest(), resource_version: 0 };
    resume.get(key).copied().unwrap_or_else(anew)
}

impl Past {
    /// That of the source `key` at a time, by what is known of all sources and by where they stand. What
    /// is to be stated of a list that a crash cut short goes to the first that asks.
    pub(super) fn of(
        key: &str,
        known: &mut BTreeMap<String, SourceState>,
        resume: &BTreeMap<Arc<str>, Resume>,
        now_ms: u64,
    ) -> Self {
        let scope = Scope::of(key);
        let own = own_resume(key, resume);
        let own_heard_ms = known.get(key).and_then(|state| state.last_heard_ms);
        let others = |other: &&Arc<str>| ***other != *key && scope.overlaps(&Scope::of(other));
        let read = resume.iter().filter(|(_, resume)| resume.resource_version > 0);
        let read: Vec<_> = read.filter(|(other, _)| others(other)).collect();
        let heard_ms = |other: &Arc<str>| known.get(&**other).and_then(|state| state.last_heard_ms);
        let later = |(other, resume): &(&Arc<str>, &Resume)| {
            // A clock that was ahead says nothing of which is newer.
            let newer = resume.epoch != own.epoch || resume.resource_version > own.resource_version;
            heard_ms(other) > own_heard_ms && newer
        };
        let since = |read: &&(&Arc<str>, &Resume)| {
            Scope::of(read.0).covers(&scope) && (own.resource_version == 0 || later(read))
        };
        let read_since = read.iter().any(later);
        let whole =
            read.iter().filter(since).max_by_key(|(other, resume)| (heard_ms(other), **resume));
        if let Some((other, resume)) = whole
            && let Some(state) = known.get_mut(&***other)
        {
            // A restored etcd that the source has counted stays counted.
            let epoch = resume.epoch.max(own.epoch);
            // It can be asked for wherever the source itself can.
            let near = |witness: &SavedWitness| {
                scope.namespace.is_none_or(|namespace| witness.namespace == namespace)
            };
            let as_ours = |witness| SavedWitness { epoch, ..witness };
            return Self::Whole(Ended {
                resume: Resume { epoch, ..**resume },
                last_heard_ms: state.last_heard_ms,
                whole_from: state.whole_from,
                witness: state.witness.clone().filter(near).map(as_ours),
                unfinished: state.unfinished.take(),
            });
        }
        let last_heard_ms = |key: &str| {
            let state = known.get(key)?;
            Some(state.last_heard_ms.unwrap_or(state.first_start_ms))
        };
        if own.resource_version > 0 {
            let last_heard_ms = last_heard_ms(key).unwrap_or_default();
            let too_late = now_ms.saturating_sub(last_heard_ms) > BACK_WITHIN_MS;
            return if too_late && read_since { Self::Part { last_heard_ms } } else { Self::None };
        }
        let heard = read.iter().filter_map(|(other, _)| last_heard_ms(other));
        heard.min().map_or(Self::None, |last_heard_ms| Self::Part { last_heard_ms })
    }
}

/// Until when it is to be known what was read of Events that the source `key` sees deleted, in
/// milliseconds since the epoch: while one that is not among those `read` now may be back, to read their
/// history. No longer than that from now, whatever a clock that was ahead has left.
pub(super) fn deleted_known_until_ms(
    key: &str,
    read: &[String],
    known: &BTreeMap<String, SourceState>,
    resume: &BTreeMap<Arc<str>, Resume>,
    now_ms: u64,
) -> u64 {
    let may_be_back = |other: &&Arc<str>| {
        let scope = Scope::of(other);
        scope.overlaps(&Scope::of(key)) && !read.iter().any(|key| Scope::of(key).covers(&scope))
    };
    let ended = resume.keys().filter(may_be_back).filter_map(|other| {
        let heard = known.get(&**other)?.last_heard_ms?;
        Some(heard.min(now_ms).saturating_add(BACK_WITHIN_MS))
    });
    ended.max().unwrap_or_default()
}

/// What a source reads, by its key.
struct Scope<'a> {
    /// Nothing for all of them.
    namespace: Option<&'a str>,
    selector: &'a str,
}

impl<'a> Scope<'a> {
    fn of(key: &'a str) -> Self {
        let (namespace, selector) = key.split_once('?').unwrap_or((key, ""));
        Self { namespace: (namespace != "*").then_some(namespace), selector }
    }

    /// Whether it reads all that the other one reads.
    fn covers(&self, other: &Self) -> bool {
        (self.namespace.is_none() || self.namespace == other.namespace)
            && (self.selector.is_empty() || self.selector == other.selector)
    }

    /// Whether both may read the same Event. Two selectors may always: an Event can change.
    fn overlaps(&self, other: &Self) -> bool {
        self.namespace.is_none() || other.namespace.is_none() || self.namespace == other.namespace
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sources with their epoch, their resourceVersion, and when they were last heard of.
    fn journal(
        others: &[(&str, u32, u64, u64)],
    ) -> (BTreeMap<String, SourceState>, BTreeMap<Arc<str>, Resume>) {
        let mut known = BTreeMap::new();
        let mut resume = BTreeMap::new();
        for (key, epoch, resource_version, last_heard_ms) in others {
            let state =
                SourceState { last_heard_ms: Some(*last_heard_ms), ..SourceState::default() };
            known.insert((*key).to_owned(), state);
            let at = Resume { epoch: *epoch, resource_version: *resource_version };
            resume.insert(Arc::from(*key), at);
        }
        (known, resume)
    }

    /// The past of a source in a journal with these others.
    fn past(key: &str, others: &[(&str, u32, u64, u64)]) -> Past {
        let (mut known, resume) = journal(others);
        Past::of(key, &mut known, &resume, 100)
    }

    fn goes_on_at(key: &str, others: &[(&str, u32, u64, u64)]) -> Option<u64> {
        match past(key, others) {
            Past::Whole(whole) => Some(whole.resume.resource_version),
            Past::Part { .. } | Past::None => None,
        }
    }

    #[test]
    fn a_source_goes_on_where_the_newest_ended_that_read_all_of_it() {
        assert_eq!(goes_on_at("shop", &[("*", 0, 7, 70)]), Some(7));
        assert_eq!(goes_on_at("*?type=Warning", &[("*", 0, 7, 70)]), Some(7));
        assert_eq!(goes_on_at("shop?type=Warning", &[("*?type=Warning", 0, 7, 70)]), Some(7));
        assert_eq!(goes_on_at("shop?a", &[("*", 0, 7, 70), ("shop", 0, 9, 90)]), Some(9));
        assert_eq!(goes_on_at("shop?a", &[("*", 1, 7, 95), ("shop", 0, 9, 90)]), Some(7));
        assert_eq!(
            goes_on_at("shop", &[("shop", 0, 7, 70), ("*", 0, 9, 90)]),
            Some(9),
            "it is back"
        );
        assert_eq!(goes_on_at("shop", &[("shop", 0, 9, 90), ("*", 0, 7, 70)]), None);
    }

    #[test]
    fn a_clock_that_was_ahead_takes_no_source_back() {
        assert_eq!(goes_on_at("shop", &[("shop", 0, 9, 70), ("*", 0, 7, 90)]), None);
        assert_eq!(goes_on_at("shop", &[("shop", 0, 7, 70), ("*", 0, 7, 90)]), None);
    }

    #[test]
    fn a_source_that_goes_on_where_another_one_ended_keeps_its_epoch() {
        let epoch = |own, other| match past("shop", &[("shop", own, 9, 70), ("*", other, 10, 90)]) {
            Past::Whole(whole) => whole.resume.epoch,
            Past::Part { .. } | Past::None => panic!("it has read all of it since"),
        };
        assert_eq!([epoch(2, 1), epoch(1, 2), epoch(1, 1)], [2, 2, 1]);
    }

    #[test]
    fn what_others_read_in_part_is_unknown_since_the_first_of_them_fell_silent() {
        let part = |last_heard_ms| Past::Part { last_heard_ms };
        assert_eq!(past("*", &[("shop", 0, 7, 70), ("bank", 0, 9, 60)]), part(60));
        assert_eq!(past("shop", &[("shop?type=Warning", 0, 7, 70)]), part(70));
        assert_eq!(past("shop?a", &[("*?b", 0, 7, 70), ("bank", 0, 9, 60)]), part(70));
    }

    #[test]
    fn a_source_that_is_back_goes_on_where_it_ended_unless_others_read_a_part_for_too_long() {
        let at = |now_ms: u64, other_version: u64| {
            let others = [("*", 0, 7, 70), ("shop", 0, other_version, 90)];
            let (mut known, resume) = journal(&others);
            Past::of("*", &mut known, &resume, now_ms)
        };
        assert_eq!(at(70 + BACK_WITHIN_MS, 9), Past::None);
        assert_eq!(at(71 + BACK_WITHIN_MS, 9), Past::Part { last_heard_ms: 70 });
        assert_eq!(at(71 + BACK_WITHIN_MS, 7), Past::None, "nothing was read since");
        // Where it is not known when it was heard of, nothing is missing from before the first start.
        let (mut known, resume) = journal(&[("*", 0, 7, 70), ("shop", 0, 9, 90)]);
        let state = known.get_mut("*").unwrap();
        (state.last_heard_ms, state.first_start_ms) = (None, 60);
        let past = Past::of("*", &mut known, &resume, 61 + BACK_WITHIN_MS);
        assert_eq!(past, Past::Part { last_heard_ms: 60 });
    }

    #[test]
    fn what_was_read_of_deleted_events_is_known_while_a_source_may_be_back_that_is_not_read() {
        let until_at = |now_ms, key: &str, read: &[&str]| {
            let (known, resume) = journal(&[("*", 0, 7, 70), ("shop?a", 0, 9, 90)]);
            let read: Vec<_> = read.iter().map(|&key| key.to_owned()).collect();
            let until = deleted_known_until_ms(key, &read, &known, &resume, now_ms);
            until.saturating_sub(BACK_WITHIN_MS)
        };
        let until = |key: &str, read: &[&str]| until_at(100, key, read);
        assert_eq!(until("*", &["*"]), 0);
        assert_eq!(until("bank", &["bank"]), 70);
        assert_eq!(until("shop?b", &["shop?b"]), 90);
        assert_eq!(until("shop", &["shop"]), 70);
        assert_eq!(until_at(40, "shop", &["shop"]), 40, "the clock was ahead when it was heard of");
    }

    #[test]
    fn what_nobody_read_has_no_past() {
        assert_eq!(past("shop", &[]), Past::None);
        assert_eq!(past("shop", &[("bank", 0, 7, 70)]), Past::None);
        assert_eq!(past("shop", &[("*", 0, 0, 70)]), Past::None, "no list of it was whole");
        assert_eq!(past("shop", &[("shop", 0, 7, 70)]), Past::None, "its own past");
    }
}
