//! Several servers of one receiver, asked in turn.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt as _, future::BoxFuture};
use tokio::time::Instant;

use super::{HttpKind, HttpSink};
use crate::{
    bridge::{FailureClass, Outcome, Reason, Sink},
    event::{Batch, Record},
};

/// For how long a server that failed is passed over while there are others.
const RESTS: Duration = Duration::from_secs(30);

/// Each batch goes to the next of them that has not just failed. Where all have, it goes to the next one.
pub(crate) struct Nodes<K> {
    nodes: Vec<Node<K>>,
    next: AtomicUsize,
}

struct Node<K> {
    sink: HttpSink<K>,
    rests_until: Mutex<Option<Instant>>,
}

impl<K: HttpKind> Nodes<K> {
    /// `nodes` has one or more.
    pub(crate) fn new(nodes: Vec<HttpSink<K>>) -> Self {
        debug_assert!(!nodes.is_empty(), "a receiver has a server");
        let nodes = nodes.into_iter().map(|sink| Node { sink, rests_until: Mutex::default() });
        Self { nodes: nodes.collect(), next: AtomicUsize::new(0) }
    }

    fn next(&self) -> &Node<K> {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let node = |at: usize| &self.nodes[(first.wrapping_add(at)) % self.nodes.len()];
        (0..self.nodes.len()).map(node).find(|node| !node.rests()).unwrap_or_else(|| node(0))
    }
}

impl<K> Node<K> {
    fn rests(&self) -> bool {
        let until = self.rests_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| until > Instant::now())
    }

    fn answered(&self, outcome: &Outcome) {
        let failed = matches!(
            outcome,
            Outcome::Failed(failure)
                if !matches!(failure.class, FailureClass::Refused(_) | FailureClass::Throttled)
        );
        let until = failed.then(|| Instant::now() + RESTS);
        *self.rests_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}

impl<K: HttpKind> Sink for Nodes<K> {
    fn send<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Outcome> {
        let node = self.next();
        async move {
            let outcome = node.sink.send(batch).await;
            node.answered(&outcome);
            outcome
        }
        .boxed()
    }

    fn destination(&self, record: &Record) -> Result<Option<String>, Reason> {
        self.nodes[0].sink.destination(record)
    }
}
