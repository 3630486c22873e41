//! How fast one broadcaster writes. Measured and said, not judged: it is the API server's speed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidings_kube::correlator::CorrelatorOptions;
use tidings_kube::recorder::{BroadcasterOptions, EventType, SinkCounts};

use super::{Stand, pod};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: make e2e ARGS=--all"]
async fn a_broadcaster_without_a_rate_limit_writes_as_fast_as_it_is_answered() {
    const EVENTS: u32 = 1000;
    let stand = Stand::set().await;
    for (what, pods) in [("creates", EVENTS), ("patches", 1)] {
        // Room for all of them, and nothing is held back.
        let correlator =
            || CorrelatorOptions { burst_size: i64::from(EVENTS), ..CorrelatorOptions::default() };
        let options = BroadcasterOptions {
            queue: EVENTS as usize,
            watcher_queue: EVENTS as usize,
            correlator: Arc::new(correlator),
            drain: Duration::from_mins(1),
            ..BroadcasterOptions::default()
        };
        let recording = stand.recording(options).await;
        let started = Instant::now();
        for nth in 0..EVENTS {
            let pod = pod(&format!("{what}-{}", nth % pods));
            recording.recorder.event(&pod, EventType::Normal, "Started", "started app");
        }
        let report = recording.broadcaster.shutdown().await;
        let took = started.elapsed();
        let rate = f64::from(EVENTS) / took.as_secs_f64();
        eprintln!("  {EVENTS} {what}, one after the other: {rate:.0} events/s");
        let all = SinkCounts { written: u64::from(EVENTS), ..SinkCounts::default() };
        assert_eq!(report.sinks, [all]);
    }
}
