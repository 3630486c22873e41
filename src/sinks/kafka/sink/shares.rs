//! Shares of the partitions in the queue, and when each last took something.
//!
//! The queue is the producer's, and librdkafka keeps in it what a partition does not take, without an end.
//! A partition may therefore have no more than what is free: one that takes nothing has half of the
//! queue at most, two of them have two thirds, and the others always have some.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use crate::event::Record;

/// Messages held by librdkafka; the journal is the buffer, not this.
pub(super) const MOST_MESSAGES: usize = 4096;
/// Their bytes.
pub(super) const MOST_BYTES: usize = 8 << 20;

/// The number of a partition, while it is not known how many there are: that of all of them.
pub(super) const UNKNOWN: i32 = -1;

/// The shares of all partitions of one producer. See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Shares {
    partitions: HashMap<i32, Share>,
    outstanding: usize,
    bytes: usize,
    /// When any partition last took a message.
    taken_at: Option<Instant>,
}

#[derive(Debug)]
struct Share {
    outstanding: usize,
    bytes: usize,
    /// How many messages were queued since none was outstanding.
    together: usize,
    /// The records whose messages are to travel alone: until they have, all of the partition do.
    alone: HashSet<u64>,
    /// When it last had a report, or began to have one due.
    since: Instant,
}

impl Shares {
    /// How many reports are due.
    pub(super) fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Whether there is room for a message of a partition.
    pub(super) fn has_room(&self, partition: i32, bytes: usize) -> bool {
        let Some(share) = self.partitions.get(&partition) else { return true };
        share.outstanding == 0
            || share.alone.is_empty()
                && share.outstanding < MOST_MESSAGES.saturating_sub(self.outstanding)
                && share.bytes + bytes <= MOST_BYTES.saturating_sub(self.bytes)
    }

    pub(super) fn add(&mut self, partition: i32, bytes: usize) {
        let share = self.partitions.entry(partition).or_insert_with(Share::new);
        if share.outstanding == 0 {
            share.since = Instant::now();
            share.together = 0;
        }
        share.outstanding += 1;
        share.together += 1;
        share.bytes += bytes;
        self.outstanding += 1;
        self.bytes += bytes;
    }

    /// Takes back that a message was queued: it was not.
    pub(super) fn take_back(&mut self, partition: i32, bytes: usize) {
        if let Some(share) = self.partitions.get_mut(&partition) {
            share.together -= 1;
        }
        self.drop_one(partition, bytes);
    }

    /// Takes the report about a record, and answers whether its message travelled alone.
    pub(super) fn reported(&mut self, partition: i32, seq: u64, bytes: usize, taken: bool) -> bool {
        self.drop_one(partition, bytes);
        let now = Instant::now();
        if taken {
            self.taken_at = Some(now);
        }
        let Some(share) = self.partitions.get_mut(&partition) else { return false };
        share.since = now;
        let alone = share.together == 1;
        if alone {
            share.alone.remove(&seq);
        }
        alone
    }

    fn drop_one(&mut self, partition: i32, bytes: usize) {
        let Some(share) = self.partitions.get_mut(&partition) else { return };
        share.outstanding -= 1;
        share.bytes -= bytes;
        self.outstanding -= 1;
        self.bytes -= bytes;
    }

    /// Has the message of a record travel alone.
    pub(super) fn send_alone(&mut self, partition: i32, seq: u64) {
        self.partitions.entry(partition).or_insert_with(Share::new).alone.insert(seq);
    }

    /// Takes back that the messages of records are to travel alone: nobody sends them for now.
    pub(super) fn give_up_alone(&mut self, records: &[Record]) {
        for share in self.partitions.values_mut().filter(|share| !share.alone.is_empty()) {
            for record in records {
                share.alone.remove(&record.seq);
            }
        }
    }

    /// Whether messages of a partition are to travel alone.
    pub(super) fn is_careful(&self, partition: i32) -> bool {
        self.partitions.get(&partition).is_some_and(|share| !share.alone.is_empty())
    }

    /// Whether a partition has reports due and had none for so long, while another one took something: so
    /// it is not the cluster that takes nothing.
    pub(super) fn is_stuck(&self, partition: i32, patience: Duration) -> bool {
        self.partitions.get(&partition).is_some_and(|share| {
            share.outstanding > 0
                && self.taken_at.is_some_and(|taken_at| taken_at > share.since)
                && share.since.elapsed() >= patience
        })
    }

    /// Forgets the partitions, because there are as many as was not known. What is outstanding is to be
    /// added anew.
    pub(super) fn forget(&mut self) {
        *self = Self { taken_at: self.taken_at, ..Self::default() };
    }
}

impl Share {
    fn new() -> Self {
        let alone = HashSet::new();
        Self { outstanding: 0, bytes: 0, together: 0, alone, since: Instant::now() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sinks::fixtures;

    const NEVER: Duration = Duration::from_hours(1);

    /// Adds messages as long as there is room.
    fn fill(shares: &mut Shares, partition: i32, bytes: usize) -> usize {
        let mut count = 0;
        while shares.has_room(partition, bytes) {
            shares.add(partition, bytes);
            count += 1;
        }
        count
    }

    #[test]
    fn partitions_that_take_nothing_leave_room_for_the_others() {
        for (bytes, of) in [(1, MOST_MESSAGES), (1 << 14, MOST_BYTES >> 14)] {
            let mut shares = Shares::default();
            assert_eq!(fill(&mut shares, 0, bytes), of / 2);
            for partition in 1..8 {
                assert!(fill(&mut shares, partition, bytes) >= 1);
                assert_eq!(fill(&mut shares, 0, bytes), 0);
            }
            assert!(shares.outstanding() <= of);
        }
    }

    #[test]
    fn the_largest_message_has_room_in_a_partition_of_its_own() {
        let mut shares = Shares::default();
        fill(&mut shares, 0, 1 << 14);
        assert!(shares.has_room(1, MOST_BYTES));
    }

    #[test]
    fn a_partition_is_stuck_only_while_another_one_takes() {
        let mut shares = Shares::default();
        shares.add(0, 1);
        shares.add(1, 1);
        assert!(!shares.is_stuck(0, Duration::ZERO));
        std::thread::sleep(Duration::from_millis(2));
        shares.reported(1, 7, 1, true);
        assert!(shares.is_stuck(0, Duration::ZERO) && !shares.is_stuck(0, NEVER));
        assert!(!shares.is_stuck(1, Duration::ZERO));
        shares.add(1, 1);
        std::thread::sleep(Duration::from_millis(2));
        shares.reported(0, 7, 1, true);
        assert!(!shares.is_stuck(0, Duration::ZERO) && shares.is_stuck(1, Duration::ZERO));
    }

    #[test]
    fn messages_travel_alone_where_that_is_asked() {
        let mut shares = Shares::default();
        shares.add(0, 1);
        shares.add(0, 1);
        assert!(!shares.reported(0, 1, 1, false) && !shares.reported(0, 2, 1, false));
        shares.send_alone(0, 1);
        shares.send_alone(0, 2);
        for seq in [1, 2] {
            assert!(shares.is_careful(0) && shares.has_room(0, 1));
            shares.add(0, 1);
            assert!(!shares.has_room(0, 1) && shares.has_room(1, 1));
            assert!(shares.reported(0, seq, 1, true));
        }
        assert_eq!(fill(&mut shares, 0, 1), MOST_MESSAGES / 2);
    }

    #[test]
    fn a_message_that_is_to_travel_alone_does_whatever_others_have_under_way() {
        let mut shares = Shares::default();
        shares.add(0, 1);
        shares.add(0, 1);
        shares.send_alone(0, 9);
        assert!(!shares.has_room(0, 1));
        for seq in [1, 2] {
            assert!(!shares.reported(0, seq, 1, true), "two were under way");
        }
        // Another one comes first, by itself.
        shares.add(0, 1);
        assert!(shares.reported(0, 3, 1, true) && shares.is_careful(0));
        shares.add(0, 1);
        assert!(!shares.has_room(0, 1));
        assert!(shares.reported(0, 9, 1, true) && !shares.is_careful(0));
    }

    #[test]
    fn messages_that_nobody_sends_any_more_keep_no_others_apart() {
        let mut shares = Shares::default();
        shares.send_alone(0, 9);
        shares.add(0, 1);
        shares.give_up_alone(&fixtures::batch(9..=9).records);
        assert!(shares.has_room(0, 1));
    }
}
