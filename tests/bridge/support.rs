//! A bridge under test, and a sink that answers as it is told and remembers what it was sent.

use std::{
    collections::VecDeque,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::BoxFuture;
use tidings::{
    bridge::{
        BatchOptions, Bridge, BridgeError, BridgeOptions, JournalOptions, Outcome, RetryOptions,
        Sink, SinkOptions, SinkStart, SourceOptions, SourceStart,
    },
    demo::api_server::{ApiServer, EventObject, Options, Written},
    event::{Batch, Cluster, Envelope},
    journal::{LogOptions, Sync as LogSync},
};

/// One event as a sink received it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Received {
    pub(crate) id: String,
    pub(crate) seq: u64,
    pub(crate) delta: u64,
    pub(crate) occurrences: u64,
    pub(crate) change: String,
    pub(crate) replayed: bool,
    pub(crate) envelope: String,
}

#[derive(Default)]
struct Memory {
    received: Vec<Received>,
    batches: Vec<usize>,
    answers: VecDeque<Outcome>,
    refuse: Option<Box<dyn Fn(&Received) -> Option<Outcome> + Send>>,
}

/// A sink in memory; clones are the same sink.
#[derive(Clone, Default)]
pub(crate) struct MemorySink(Arc<Mutex<Memory>>);

impl MemorySink {
    /// The next attempts are answered so, and take nothing unless it is `Delivered`.
    pub(crate) fn answer(&self, answers: impl IntoIterator<Item = Outcome>) {
        self.0.lock().unwrap().answers.extend(answers);
    }

    /// Whatever attempt holds an event for which this answers is answered so.
    pub(crate) fn refuse(&self, rule: impl Fn(&Received) -> Option<Outcome> + Send + 'static) {
        self.0.lock().unwrap().refuse = Some(Box::new(rule));
    }

    pub(crate) fn accept_everything(&self) {
        let mut memory = self.0.lock().unwrap();
        memory.refuse = None;
        memory.answers.clear();
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.0.lock().unwrap().received.clone()
    }

    pub(crate) fn ids(&self) -> Vec<String> {
        self.received().into_iter().map(|event| event.id).collect()
    }

    /// The sizes of the batches taken.
    pub(crate) fn batches(&self) -> Vec<usize> {
        self.0.lock().unwrap().batches.clone()
    }

    /// Waits until so many events have been received.
    pub(crate) async fn wait_for(&self, count: usize) -> Vec<Received> {
        let arrived = async {
            while self.0.lock().unwrap().received.len() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(60), arrived).await.is_err() {
            panic!("{} of {count} events after a minute", self.received().len());
        }
        self.received()
    }
}

fn read(batch: &Batch) -> Vec<Received> {
    let one = |record: &tidings::event::Record| {
        let envelope = Envelope::parse(&record.envelope).unwrap();
        Received {
            id: record.id().to_owned(),
            seq: record.seq,
            delta: envelope.delta,
            occurrences: envelope.occurrences,
            change: envelope.change.to_string(),
            replayed: envelope.replayed,
            envelope: String::from_utf8(record.envelope.to_vec()).unwrap(),
        }
    };
    batch.records.iter().map(one).collect()
}

impl Sink for MemorySink {
    fn send<'a>(&'a mut self, batch: &'a Batch) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let events = read(batch);
            let mut memory = self.0.lock().unwrap();
            let answer = memory
                .answers
                .pop_front()
                .or_else(|| memory.refuse.as_ref().and_then(|rule| events.iter().find_map(rule)));
            let answer = answer.unwrap_or(Outcome::Delivered);
            if answer == Outcome::Delivered {
                memory.batches.push(events.len());
                memory.received.extend(events);
            }
            answer
        })
    }
}

/// How a bridge under test is set up; the defaults suit most tests.
pub(crate) struct Setup<'a> {
    pub(crate) server: &'a ApiServer,
    pub(crate) journal: &'a Path,
    pub(crate) start: SourceStart,
    pub(crate) namespaces: Vec<String>,
    pub(crate) field_selector: String,
    pub(crate) retention: u64,
    pub(crate) sinks: Vec<(&'static str, MemorySink, Tuning)>,
}

/// What differs between the sinks of a test.
#[derive(Clone)]
pub(crate) struct Tuning {
    pub(crate) batch: BatchOptions,
    pub(crate) retry: RetryOptions,
    pub(crate) timeout: Duration,
    pub(crate) start: SinkStart,
    pub(crate) filter: Option<&'static str>,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            batch: BatchOptions { linger: Duration::from_millis(5), ..BatchOptions::default() },
            retry: RetryOptions {
                initial: Duration::from_millis(5),
                max: Duration::from_millis(50),
                max_attempts: None,
            },
            timeout: Duration::from_secs(5),
            start: SinkStart::default(),
            filter: None,
        }
    }
}

impl<'a> Setup<'a> {
    pub(crate) fn new(server: &'a ApiServer, journal: &'a Path) -> Self {
        Self {
            server,
            journal,
            start: SourceStart::All,
            namespaces: Vec::new(),
            field_selector: String::new(),
            retention: 64 << 20,
            sinks: Vec::new(),
        }
    }

    pub(crate) fn sink(self, name: &'static str, sink: &MemorySink) -> Self {
        self.tuned(name, sink, Tuning::default())
    }

    pub(crate) fn tuned(mut self, name: &'static str, sink: &MemorySink, tuning: Tuning) -> Self {
        self.sinks.push((name, sink.clone(), tuning));
        self
    }

    pub(crate) async fn try_start(self) -> Result<Bridge, BridgeError> {
        let sinks = self.sinks.into_iter().map(|(name, sink, tuning)| SinkOptions {
            name: name.to_owned(),
            kind: "memory",
            sink: Box::new(sink),
            filter: tuning.filter.map(|text| tidings::bridge::Filter::compile(text).unwrap()),
            batch: tuning.batch,
            retry: tuning.retry,
            timeout: tuning.timeout,
            start: tuning.start,
        });
        let options = BridgeOptions {
            cluster: Cluster { name: Some("test".to_owned()), uid: None },
            source: SourceOptions {
                namespaces: self.namespaces,
                field_selector: self.field_selector,
                start: self.start,
            },
            journal: JournalOptions {
                path: self.journal.to_owned(),
                log: LogOptions {
                    retention_size: self.retention,
                    retention_age: Duration::from_secs(3600),
                    sync: LogSync::Interval(Duration::from_secs(1)),
                },
            },
            sinks: sinks.collect(),
        };
        Bridge::start(client(self.server), options).await
    }

    pub(crate) async fn start(self) -> Bridge {
        self.try_start().await.unwrap()
    }
}

pub(crate) fn client(server: &ApiServer) -> kube::Client {
    let mut config = kube::Config::new(server.url().parse().unwrap());
    config.default_retry = false;
    kube::Client::try_from(config).unwrap()
}

pub(crate) fn server() -> ApiServer {
    ApiServer::start(Options::default()).unwrap()
}

/// Creates an Event about a Pod.
pub(crate) fn create(server: &ApiServer, pod: &str) -> Written {
    server.create(EventObject::about_pod("shop", pod, "Started", "Started container web")).unwrap()
}

pub(crate) async fn stop(bridge: Bridge) {
    bridge.stop(Duration::from_secs(10)).await;
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let holds = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(60), holds).await.is_err() {
        panic!("after a minute still not: {what}");
    }
}
