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

use crate::{
    bridge::{Failure, FailureClass, Outcome, Reason, Sink},
    event::{Batch, Record},
};

/// For how long a server that failed is passed over while there are others.
const COOLDOWN: Duration = Duration::from_secs(30);
/// A server that fails within this time leaves enough of the attempt for another one.
const FAILS_FAST: Duration = Duration::from_secs(1);

/// Each batch goes to the next server that has not just failed. One that fails fast makes way for another in the same
/// attempt. Where all have failed, the batch goes to the next one.
pub(crate) struct Nodes<S> {
    nodes: Vec<Node<S>>,
    next: AtomicUsize,
}

struct Node<S> {
    /// Its host and port, for the log.
    name: String,
    sink: S,
    cools_down_until: Mutex<Option<Instant>>,
}

impl<S: Sink> Nodes<S> {
    /// `nodes` has one or more, each with its host and port.
    pub(crate) fn new(nodes: Vec<(String, S)>) -> Self {
        debug_assert!(!nodes.is_empty(), "a receiver has a server");
        let node = |(name, sink)| Node { name, sink, cools_down_until: Mutex::default() };
        Self { nodes: nodes.into_iter().map(node).collect(), next: AtomicUsize::new(0) }
    }

    /// The next server that does not cool down.
    fn next(&self) -> Option<&Node<S>> {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let node = |at: usize| &self.nodes[first.wrapping_add(at) % self.nodes.len()];
        (0..self.nodes.len()).map(node).find(|node| !node.cools_down())
    }

    async fn attempt(&self, batch: &Batch) -> Outcome {
        if let [only] = self.nodes.as_slice() {
            return only.sink.send(batch).await;
        }
        let began = Instant::now();
        let any = self.next.load(Ordering::Relaxed) % self.nodes.len();
        let mut node = self.next().unwrap_or(&self.nodes[any]);
        loop {
            let outcome = node.sink.send(batch).await;
            if !node.failed(&outcome) || began.elapsed() > FAILS_FAST {
                return outcome;
            }
            match self.next() {
                Some(other) => node = other,
                None => return outcome,
            }
        }
    }
}

impl<S> Node<S> {
    fn cools_down(&self) -> bool {
        let until = self.cools_down_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| until > Instant::now())
    }

    /// Whether an outcome is a failure that another server may not have. It cools down then.
    fn failed(&self, outcome: &Outcome) -> bool {
        let failure = match outcome {
            Outcome::Failed(failure) => Some(failure),
            _ => None,
        };
        let failure = failure.filter(|failure| {
            !matches!(failure.class, FailureClass::Refused(_) | FailureClass::Throttled)
        });
        if let Some(Failure { reason, .. }) = failure
            && !self.cools_down()
        {
            let (server, reason) = (&self.name, &**reason);
            tracing::warn!(server, reason, "a server fails: others are asked for 30 s");
        }
        let until = failure.map(|_| Instant::now() + COOLDOWN);
        *self.cools_down_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
        failure.is_some()
    }
}

impl<S: Sink> Sink for Nodes<S> {
    fn send<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Outcome> {
        self.attempt(batch).boxed()
    }

    fn destination(&self, record: &Record) -> Result<Option<String>, Reason> {
        self.nodes[0].sink.destination(record)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        bridge::{RefusedClass, Secrets},
        sinks::fixtures::batch,
    };

    /// Answers as it is told, and counts.
    #[derive(Default)]
    struct Server {
        failure: Mutex<Option<FailureClass>>,
        asked: AtomicUsize,
    }

    impl Sink for Arc<Server> {
        fn send<'a>(&'a self, _: &'a Batch) -> BoxFuture<'a, Outcome> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            let class = *self.failure.lock().unwrap();
            let failed = |class| Outcome::Failed(Failure::new(class, Secrets::none().reason("no")));
            Box::pin(std::future::ready(class.map_or(Outcome::Delivered, failed)))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn servers_take_turns_and_one_that_fails_is_passed_over_for_a_while() {
        let servers: [Arc<Server>; 3] = Default::default();
        let nodes = Nodes::new(
            servers.iter().map(|server| ("s:1".to_owned(), Arc::clone(server))).collect(),
        );
        let send = async |times: usize| {
            for _ in 0..times {
                nodes.send(&batch(1..=1)).await;
            }
            servers.each_ref().map(|server| server.asked.swap(0, Ordering::Relaxed))
        };
        assert_eq!(send(6).await, [2, 2, 2]);
        // Neither is about the server.
        for class in [FailureClass::Throttled, FailureClass::Refused(RefusedClass::Invalid)] {
            *servers[1].failure.lock().unwrap() = Some(class);
            assert_eq!(send(6).await, [2, 2, 2]);
        }
        for class in [FailureClass::Unavailable, FailureClass::Misconfigured] {
            *servers[1].failure.lock().unwrap() = Some(class);
            let [first, failing, last] = send(9).await;
            // What it fails on goes to another one at once.
            assert_eq!((failing, first + last), (1, 9));
            tokio::time::advance(COOLDOWN).await;
        }
        *servers[1].failure.lock().unwrap() = None;
        assert_eq!(send(9).await, [3, 3, 3]);
        for server in &servers {
            *server.failure.lock().unwrap() = Some(FailureClass::Timeout);
        }
        assert_eq!(send(1).await, [1, 1, 1]);
        // They are asked all the same.
        assert_eq!(send(9).await, [3, 3, 3]);
    }
}
