//! What each namespace takes of the backlog: of what the log keeps for a sink that has not had it.
//!
//! A log drops whole segments, so a namespace's share of it is kept where records come in. While the
//! backlog takes more than half of the journal, the Events of a namespace that takes more than a
//! quarter of the backlog are cut to [`LITTLE`]. A namespace that is alone in it takes all.
//!
//! The backlog is counted in stretches that follow each other in the log. Of a stretch, 64 namespaces
//! are known at most: where there are more, each is taken for less than it has, by a sixty-fourth of the
//! stretch at most. So memory is bounded however many there are, and none is taken for more than it
//! has.

use std::{
    collections::{HashMap, VecDeque},
    hash::BuildHasherDefault,
    sync::Arc,
};

use rustc_hash::FxHasher;

use crate::{
    bridge::SinkProgress,
    event::{EnvelopeParts, LEAST_ENVELOPE},
    journal::{Log, LogHandle},
};

/// What an envelope takes of a namespace that has more than its share, in bytes.
pub(super) const LITTLE: usize = LEAST_ENVELOPE;
/// The journal is full of a backlog by more than this part of it.
const FULL: u64 = 2;
/// A namespace has more than its share with more than this part of the backlog.
const SHARE: u64 = 4;
/// The journal has so many stretches, about.
const STRETCHES: u64 = 64;
/// So many namespaces of a stretch are known.
const KNOWN: usize = 64;
/// So much is read of a segment at the start, to tell whose it is.
const SAMPLE: usize = 1 << 20;

type Bytes = HashMap<Box<str>, u64, BuildHasherDefault<FxHasher>>;

/// A part of the log.
#[derive(Debug, Default)]
struct Stretch {
    /// Its first record.
    from: u64,
    bytes: u64,
    /// What it has of the namespaces that have most of it.
    of: Bytes,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Shares {
    retention_size: u64,
    /// Oldest first.
    stretches: VecDeque<Stretch>,
    /// What all of them take.
    bytes: u64,
    /// What the namespaces have of all but the last, as far as one may have more than its share.
    many: Vec<(Box<str>, u64)>,
}

impl Shares {
    fn new(retention_size: u64) -> Self {
        Self { retention_size, stretches: VecDeque::new(), bytes: 0, many: Vec::new() }
    }

    /// Of a log that is opened. Where much of it is backlog, the start of each segment is read.
    pub(super) fn of_log(log: &Log, sinks: &[Arc<SinkProgress>]) -> Self {
        let handle = log.handle();
        let mut shares = Self::new(log.options().retention_size);
        let from = backlog_from(sinks, &handle);
        let stretches = handle.segments().into_iter().filter(|segment| segment.next > from);
        let mut stretches: VecDeque<_> = stretches
            .map(|segment| Stretch {
                from: segment.first,
                bytes: segment.bytes,
                of: Bytes::default(),
            })
            .collect();
        shares.bytes = stretches.iter().map(|stretch| stretch.bytes).sum();
        if shares.is_full(2) {
            stretches.iter_mut().for_each(|stretch| stretch.sample(&handle));
        }
        shares.stretches = stretches;
        shares.begin(handle.tail().next);
        shares
    }

    /// Whether the backlog takes more than half of the journal, or so many times less.
    fn is_full(&self, times: u64) -> bool {
        self.bytes > self.retention_size / FULL / times
    }

    /// Whether a namespace has more than its share.
    pub(super) fn is_over(&self, namespace: &str) -> bool {
        if !self.is_full(1) {
            return false;
        }
        let known = self.many.iter().find(|(name, _)| **name == *namespace);
        let last = self.stretches.back().and_then(|last| last.of.get(namespace));
        let bytes = known.map_or(0, |(_, bytes)| *bytes) + last.copied().unwrap_or_default();
        bytes > self.bytes / SHARE && bytes < self.bytes
    }

    /// A record comes, as `next` or behind it. Answers whether it is time to
    /// [look after](Self::look_after) the backlog.
    pub(super) fn add(&mut self, namespace: &str, bytes: usize, next: u64) -> bool {
        let bytes = bytes as u64;
        let most = self.retention_size / STRETCHES;
        let begins = self.stretches.back().is_none_or(|last| last.bytes >= most);
        if begins {
            self.begin(next);
        }
        self.bytes += bytes;
        if let Some(last) = self.stretches.back_mut() {
            last.add(namespace, bytes);
        }
        begins
    }

    fn begin(&mut self, from: u64) {
        let known = Bytes::with_capacity_and_hasher(KNOWN, BuildHasherDefault::default());
        self.stretches.push_back(Stretch { from, bytes: 0, of: known });
        self.look();
    }

    /// Every sink has had what is before a record, or the log has it no longer.
    fn forget(&mut self, from: u64) {
        while self.stretches.get(1).is_some_and(|second| second.from <= from) {
            self.bytes -= self.stretches.pop_front().map_or(0, |first| first.bytes);
        }
        self.look();
    }

    /// Looks at what sinks have not had.
    pub(super) fn look_after(&mut self, sinks: &[Arc<SinkProgress>], log: &LogHandle) {
        let from = backlog_from(sinks, log);
        if from >= log.tail().next && self.bytes > 0 {
            self.stretches.clear();
            self.bytes = 0;
            self.begin(from);
        } else {
            self.forget(from);
        }
    }

    /// Sums up all stretches but the last.
    fn look(&mut self) {
        let mut sums = Bytes::default();
        for stretch in self.stretches.range(..self.stretches.len().saturating_sub(1)) {
            for (namespace, bytes) in &stretch.of {
                match sums.get_mut(namespace) {
                    Some(sum) => *sum += bytes,
                    None => _ = sums.insert(namespace.clone(), *bytes),
                }
            }
        }
        // The last one cannot make up for what a namespace lacks of half its share.
        let least = self.bytes / SHARE / 2;
        self.many = sums.into_iter().filter(|(_, bytes)| *bytes > least).collect();
    }
}

impl Stretch {
    fn add(&mut self, namespace: &str, bytes: u64) {
        self.bytes += bytes;
        if let Some(has) = self.of.get_mut(namespace) {
            *has += bytes;
            return;
        }
        if self.of.len() < KNOWN {
            self.of.insert(namespace.into(), bytes);
            return;
        }
        // All of them give as much as the least has, or the new one.
        let least = self.of.values().copied().min().unwrap_or(0).min(bytes);
        self.of.retain(|_, has| {
            *has -= least;
            *has > 0
        });
        if bytes > least {
            self.of.insert(namespace.into(), bytes - least);
        }
    }

    /// Reads its start, and takes the rest to be like it. What cannot be read is nobody's, and so is a
    /// sixty-fourth of it: a namespace that the start does not have may be there.
    fn sample(&mut self, log: &LogHandle) {
        let mut sample = Self::default();
        for frame in log.reader(self.from).read(SAMPLE).unwrap_or_default() {
            for record in frame.records() {
                let parts = EnvelopeParts::of(&record.envelope);
                if let Some(fields) = parts.and_then(|parts| parts.fields()) {
                    sample.add(&fields.metadata.namespace, record.envelope.len() as u64);
                }
            }
        }
        let known = self.bytes - self.bytes / KNOWN as u64;
        let of_all = |bytes: u64| {
            let scaled = u128::from(bytes) * u128::from(known) / u128::from(sample.bytes.max(1));
            u64::try_from(scaled).unwrap_or(u64::MAX)
        };
        self.of = sample.of.iter().map(|(name, bytes)| (name.clone(), of_all(*bytes))).collect();
    }
}

/// The first record that a sink has not had and the log has.
fn backlog_from(sinks: &[Arc<SinkProgress>], log: &LogHandle) -> u64 {
    let tail = log.tail().next;
    let from = sinks.iter().map(|sink| sink.unsettled_from()).min().unwrap_or(tail);
    from.max(log.oldest().next)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 64 << 20;

    fn shares() -> Shares {
        Shares::new(SIZE)
    }

    /// So many bytes of a namespace, in records of 1 KiB; answers the sequence after them.
    fn fill(shares: &mut Shares, namespace: &str, bytes: u64, from: u64) -> u64 {
        let to = from + bytes / 1024;
        (from..to).for_each(|next| _ = shares.add(namespace, 1024, next));
        to
    }

    #[test]
    fn a_namespace_is_over_its_share_while_the_backlog_takes_half_of_the_journal() {
        let mut shares = shares();
        let next = fill(&mut shares, "loud", SIZE / 2 - (1 << 20), 1);
        let next = fill(&mut shares, "other", 1 << 20, next);
        assert!(!shares.is_over("loud"), "half of the journal is nobody's");
        let half = next;
        let next = fill(&mut shares, "other", 1 << 20, next);
        assert!(shares.is_over("loud"));
        assert!(!shares.is_over("other") && !shares.is_over("a third"));
        shares.forget(half);
        assert!(!shares.is_over("loud"), "sinks have had it");
        let next = fill(&mut shares, "a third", 1 << 20, next);
        fill(&mut shares, "other", SIZE / 2, next);
        assert!(shares.is_over("other") && !shares.is_over("loud"));
    }

    #[test]
    fn a_namespace_that_is_alone_has_all() {
        let mut shares = shares();
        let next = fill(&mut shares, "alone", SIZE, 1);
        assert!(!shares.is_over("alone"));
        shares.add("other", 1, next);
        assert!(shares.is_over("alone"));
    }

    #[test]
    fn ten_thousand_namespaces_take_little_memory_and_none_is_taken_for_more_than_it_has() {
        let mut shares = shares();
        let mut next = 1;
        for round in 0..16_000 {
            let small = format!("n{}", round % 10_000);
            next = fill(&mut shares, &small, 2048, next);
            // A third of all, and an eighth.
            next = fill(&mut shares, if round % 2 == 0 { "loud" } else { "less" }, 1024, next);
            if round % 5 == 0 {
                next = fill(&mut shares, "loud", 4096, next);
            }
        }
        let known = shares.stretches.iter().map(|stretch| stretch.of.len()).max();
        assert!(known <= Some(KNOWN));
        assert!(shares.stretches.len() as u64 <= STRETCHES + 1);
        assert!(shares.is_over("loud"));
        assert!(!shares.is_over("less") && !shares.is_over("n7"));
    }
}
