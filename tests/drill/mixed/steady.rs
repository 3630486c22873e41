//! Resources of a process that lives on: the same in the end as at first.

use crate::bridge::Bridge;
use crate::sampler::{Sample, Sampler, median};

/// So many more descriptors or tasks than before are no leak: of connections that come and go.
const SLACK: f64 = 16.0;
/// So many MiB more are none: what the allocator keeps, and how long the backlog was of late.
const RSS_SLACK: f64 = 16.0;

/// A life that is looked at until its end.
pub(super) struct Life {
    sampler: Sampler,
    tasks: f64,
}

impl Life {
    pub(super) async fn of(bridge: &Bridge) -> Self {
        Self { sampler: Sampler::start(bridge.id()), tasks: tasks(bridge).await }
    }

    /// Holds its last minute against its first: the same, but for connections that come and go.
    pub(super) async fn judge(self, bridge: &Bridge) -> String {
        let now = tasks(bridge).await;
        assert!(now <= self.tasks + SLACK, "tasks that never end: {} then, {now} now", self.tasks);
        format!("{}, tasks {} then {now}", flat(&self.sampler.finish().await), self.tasks)
    }
}

fn flat(samples: &[Sample]) -> String {
    let minute = samples.len().min(60);
    let (first, last) = (&samples[..minute], &samples[samples.len() - minute..]);
    let line = |what: &str, value: fn(&Sample) -> f64, slack: f64| {
        let (first, last) = (median(first, value), median(last, value));
        assert!(last <= first + slack, "{what} at first {first:.0}, in the end {last:.0}");
        format!("{what} {first:.0} then {last:.0}")
    };
    [
        line("descriptors", |sample| sample.descriptors, SLACK),
        line("threads", |sample| sample.threads, SLACK),
        line("RSS MiB", |sample| sample.rss_mib, RSS_SLACK),
    ]
    .join(", ")
}

async fn tasks(bridge: &Bridge) -> f64 {
    bridge.metric("tidings_runtime_tasks").await.parse().expect("a number of tasks")
}
