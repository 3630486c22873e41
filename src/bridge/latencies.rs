//! How long events took from the journal to their receivers.

/// The upper bounds of the buckets, in milliseconds; one more has all above.
const BOUNDS_MS: [u64; 16] = [
    5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 1_800_000,
    3_600_000,
];

/// A histogram of the times from journalling an event to its acknowledgement by the receiver. For events that were
/// sent together the time is that of the oldest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    counts: [u64; BOUNDS_MS.len() + 1],
    sum_ms: u64,
}

impl Latencies {
    /// Counts an event.
    pub(super) fn count(&mut self, ms: u64) {
        self.counts[BOUNDS_MS.partition_point(|bound| *bound < ms)] += 1;
        self.sum_ms += ms;
    }

    /// Each bucket: its upper bound in seconds, infinite for the last, and how many events are in it alone.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = BOUNDS_MS.iter().map(|ms| *ms as f64 / 1000.0).chain([f64::INFINITY]);
        bounds.zip(self.counts)
    }

    /// All times together, in seconds.
    pub fn sum_seconds(&self) -> f64 {
        self.sum_ms as f64 / 1000.0
    }
}

impl std::ops::AddAssign for Latencies {
    fn add_assign(&mut self, more: Self) {
        for (sum, more) in self.counts.iter_mut().zip(more.counts) {
            *sum += more;
        }
        self.sum_ms += more.sum_ms;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_in_the_bucket_of_the_first_bound_that_is_not_below() {
        let mut latencies = Latencies::default();
        for ms in [0, 5, 6, 1_000, 3_600_000, 3_600_001] {
            latencies.count(ms);
        }
        let filled = latencies.buckets().filter(|(_, count)| *count > 0);
        assert_eq!(
            filled.collect::<Vec<_>>(),
            [(0.005, 2), (0.01, 1), (1.0, 1), (3600.0, 1), (f64::INFINITY, 1)]
        );
        assert!((latencies.sum_seconds() - 7_201.012).abs() < 1e-9);
    }
}
