//! Samples of what a process holds, over time.

use std::fs;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::usage::{Usage, kib};

/// How often it is looked at. A peak of memory in between is known to the kernel.
const EVERY: Duration = Duration::from_secs(1);

/// The resources of a process at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) rss_mib: f64,
    /// The most since it was started.
    pub(crate) peak_rss_mib: f64,
    pub(crate) descriptors: f64,
    pub(crate) threads: f64,
}

impl Sample {
    /// None when it has ended.
    pub(crate) fn of(process: u32) -> Option<Self> {
        let usage = Usage::of(process).ok()?;
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        Some(Self {
            rss_mib: usage.rss_mib,
            peak_rss_mib: usage.peak_rss_mib,
            descriptors: fs::read_dir(format!("/proc/{process}/fd")).ok()?.count() as f64,
            // A count and no KiB, in a line of the same form.
            threads: kib(&status, "Threads:").ok()?,
        })
    }
}

/// Looks at a process again and again.
pub(crate) struct Sampler {
    sampling: JoinHandle<Vec<Sample>>,
    stop: oneshot::Sender<()>,
}

impl Sampler {
    pub(crate) fn start(process: u32) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        let sampling = tokio::spawn(async move {
            let (mut samples, mut ticks) = (Vec::new(), tokio::time::interval(EVERY));
            loop {
                tokio::select! {
                    _ = ticks.tick() => samples.extend(Sample::of(process)),
                    _ = &mut stopped => return samples,
                }
            }
        });
        Self { sampling, stop }
    }

    /// All that was seen, the last of it now.
    pub(crate) async fn finish(self) -> Vec<Sample> {
        // Gone only if it panicked, and then the next line says so.
        let _ = self.stop.send(());
        self.sampling.await.expect("a sampler that does not panic")
    }
}

/// The middle one of the values of some samples.
pub(crate) fn median(samples: &[Sample], value: impl Fn(&Sample) -> f64) -> f64 {
    let mut values: Vec<f64> = samples.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
