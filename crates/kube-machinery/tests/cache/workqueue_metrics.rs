//! Measures of a work queue.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use kube_machinery::cache::workqueue::{WorkQueue, WorkQueueMetrics};
use tokio::time::advance;

/// Each measure, a line for each.
#[derive(Clone, Default)]
struct Measured(Arc<Mutex<Vec<String>>>);

impl Measured {
    fn write(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl WorkQueueMetrics for Measured {
    fn depth(&self, queued: usize) {
        self.write(format!("depth {queued}"));
    }

    fn added(&self) {
        self.write("added".to_owned());
    }

    fn waited(&self, time: Duration) {
        self.write(format!("waited {time:?}"));
    }

    fn worked(&self, time: Duration) {
        self.write(format!("worked {time:?}"));
    }

    fn retried(&self) {
        self.write("retried".to_owned());
    }
}

#[tokio::test(start_paused = true)]
async fn each_item_is_measured_from_its_add_to_its_end() {
    const SECOND: Duration = Duration::from_secs(1);
    let measured = Measured::default();
    let queue = WorkQueue::new().with_metrics(measured.clone());
    queue.add("a");
    queue.add("a");
    assert_eq!(measured.take(), ["added", "depth 1"]);

    advance(SECOND).await;
    let a = queue.get().await.unwrap();
    assert_eq!(measured.take(), ["waited 1s", "depth 0"]);
    advance(2 * SECOND).await;
    queue.add("a");
    assert_eq!(measured.take(), ["added"], "it is queued when the worker has done with it");
    advance(SECOND).await;
    let stats = queue.stats();
    assert_eq!((stats.processing, stats.longest_running), (1, 3 * SECOND));
    drop(a);
    assert_eq!(measured.take(), ["worked 3s", "depth 1"]);
    drop(queue.get().await.unwrap());
    assert_eq!(measured.take(), ["waited 1s", "depth 0", "worked 0ns"]);

    queue.add_after("b", SECOND);
    assert_eq!(measured.take(), ["retried"]);
    advance(3 * SECOND).await;
    let b = queue.get().await.unwrap();
    // It counts as added when it is looked at, as nobody was there to do so before.
    assert_eq!(measured.take(), ["added", "depth 1", "waited 0ns", "depth 0"]);
    queue.add("c");
    let c = queue.get().await.unwrap();
    advance(SECOND).await;
    assert_eq!((queue.stats().unfinished, queue.stats().processing), (2 * SECOND, 2));
    drop((b, c));
    assert_eq!((queue.stats().unfinished, queue.stats().longest_running), Default::default());
}
