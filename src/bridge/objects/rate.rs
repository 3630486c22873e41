//! The rate of requests.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use tidings_kube::workqueue::TokenBucket;

/// What all requests for enrichment wait for, and are counted by.
///
/// Who is to choose whom to ask for waits first ([`ready`](Self::ready)) and chooses then. Chosen
/// before, whoever asks for much would have the next turns, too.
pub(super) struct Rate {
    bucket: TokenBucket,
    /// A turn has come that nobody has taken.
    ready: AtomicBool,
    requests: Arc<AtomicU64>,
}

impl Rate {
    pub(super) fn new(qps: f64, burst: u32, requests: Arc<AtomicU64>) -> Self {
        Self { bucket: TokenBucket::new(qps, burst), ready: AtomicBool::new(false), requests }
    }

    /// Waits until a request can be made at once. One waits at a time.
    pub(super) async fn ready(&self) {
        if !self.ready.load(Ordering::Relaxed) {
            self.bucket.take().await;
            self.ready.store(true, Ordering::Relaxed);
        }
    }

    /// Waits until a request can be made, and counts it.
    pub(super) async fn take(&self) {
        if !self.ready.swap(false, Ordering::Relaxed) {
            self.bucket.take().await;
        }
        self.requests.fetch_add(1, Ordering::Relaxed);
    }
}
