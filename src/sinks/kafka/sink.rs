//! Kafka, through librdkafka's idempotent producer.
//!
//! Key: `<cluster uid>/<namespace>/<involved object's uid, else kind/name>`, so that one object's events
//! stay in order in one partition, and nobody's Events pass for those of another namespace; or, with
//! [`KafkaKey::Object`](super::KafkaKey::Object), the object alone. Value: the envelope. Headers: `id`, `content-type`.
//! Timestamp: the envelope's `time`, within `event::bounded`.
//!
//! Order and loss. librdkafka keeps the order of each partition and retries by itself, without an
//! end. Several attempts share one producer; no two of them have events of one object. Each partition of
//! a batch is answered for by itself. When librdkafka does report an error, the attempt that it is about
//! queues nothing more to that partition, waits for its outstanding reports, and has everything there
//! from the first record without an acknowledgement on sent again, in the order of the journal: also
//! what was acknowledged behind it, for a consumer that takes the later id first would otherwise see an
//! object's events reversed. A fatal error ends the producer for all attempts, and the next one begins
//! with another.
//!
//! An attempt that runs out of time, or is dropped, leaves its messages in librdkafka's queue. The
//! [ledger](ledger) knows them, and the next attempt at them waits for their reports instead of queueing
//! them twice.
//!
//! A partition that takes nothing for as long as an attempt may take, while another one does, is
//! [stuck](shares): nothing more is queued to it, and who has records of it is answered without waiting
//! for their reports. What it has in the queue stays there: librdkafka sends that in order as soon as it
//! can, and the queue keeps room for the others. Taken out again, a message would make a gap in the
//! numbers by which brokers tell repeats, and one that was under way might arrive behind later ones.
//!
//! A record that is refused may have been so for others in its message set. It is therefore sent once
//! more, while no other of its partition is under way, before it is given up; the others are delivered.

mod classify;
mod config;
mod context;
mod ledger;
mod message;
mod partitions;
mod producer;
mod shares;
#[cfg(test)]
mod test_cluster;
#[cfg(test)]
mod tests;
mod words;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex as Lock,
        atomic::{AtomicI32, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use rdkafka::{ClientConfig, types::RDKafkaErrorCode};
use tokio::{
    runtime::Handle,
    sync::{Mutex, oneshot},
    task::{JoinHandle, spawn_blocking},
    time::{Instant, timeout, timeout_at},
};

use self::{
    context::Context,
    ledger::{Attempt, ClientError, Ledger, Unsettled},
    message::{Message, Messages},
    partitions::Partitions,
    producer::Producer,
};
use super::KafkaOptions;
use crate::{
    bridge::{
        EventFate, Failure, FailureClass, Fault, LogLines, Outcome, RefusedClass, Secrets, Sink,
    },
    event::{Batch, Origin},
    locks::lock,
    sinks::{SinkBuildError, own_deadline},
};

/// So often an attempt that waits looks whether its partitions are stuck, and so long it waits for one
/// that is.
const LOOKS: Duration = Duration::from_millis(500);
/// Brokers are asked how their partitions are no more often.
const ASKED_EVERY: Duration = Duration::from_secs(10);

/// Produces batches to one topic, through one producer.
pub struct KafkaSink {
    config: ClientConfig,
    secrets: Secrets,
    messages: Messages,
    deadline: Duration,
    lines: LogLines,
    partitions: Arc<Partitions>,
    /// How many of them are told from each other: as many as there were when they were last looked at; less
    /// than 0 before that.
    parts: AtomicI32,
    current: Mutex<Current>,
    complaints: Arc<Lock<Complaints>>,
}

/// The words of the brokers about partitions that may take nothing, when they were last asked.
#[derive(Default)]
struct Complaints {
    asked_at: Option<Instant>,
    words: BTreeMap<i32, String>,
}

/// The producer of now.
#[derive(Default)]
struct Current {
    /// Made by the first attempt: making it connects.
    producer: Option<Arc<Producer>>,
    /// One on its way out; its successor waits for it, or they might overtake each other.
    retiring: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for KafkaSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The configuration holds secrets.
        f.debug_struct("KafkaSink").field("topic", &self.messages.topic).finish_non_exhaustive()
    }
}

impl KafkaSink {
    /// Checks the options; nothing is connected yet.
    pub fn new(options: &KafkaOptions) -> Result<Self, SinkBuildError> {
        let secrets = options.secrets();
        Ok(Self {
            config: config::build(options, &secrets)?,
            secrets,
            messages: Messages { topic: options.topic.clone(), key: options.key },
            deadline: own_deadline(options.timeout),
            lines: LogLines::new(&options.name),
            partitions: Arc::default(),
            parts: (-1).into(),
            current: Mutex::default(),
            complaints: Arc::default(),
        })
    }

    /// The producer for an attempt: another one where that of before is dead.
    async fn producer(&self) -> Result<Arc<Producer>, RDKafkaErrorCode> {
        let mut current = self.current.lock().await;
        current.retire_if(|producer| producer.ledger.is_dead());
        current.retired().await;
        if let Some(producer) = &current.producer {
            return Ok(Arc::clone(producer));
        }
        let context = Context {
            ledger: Arc::new(Ledger::new(Arc::clone(&self.partitions), self.deadline)),
            secrets: self.secrets.clone(),
            lines: self.lines.clone(),
            runtime: Handle::current(),
        };
        let producer = Arc::new(Producer::new(&self.config, context)?);
        current.producer = Some(Arc::clone(&producer));
        Ok(producer)
    }

    async fn produce(&self, batch: &Batch, end: Instant) -> Outcome {
        let producer = match timeout_at(end, self.producer()).await {
            Ok(Ok(producer)) => producer,
            Ok(Err(code)) => return Outcome::Failed(self.messages.failure(code)),
            Err(_) => return stalled("librdkafka takes long to end"),
        };
        let messages: Vec<_> =
            batch.records.iter().map(|record| self.messages.of(record)).collect();
        let hash = |message: &Option<Message<'_>>| message.as_ref().map_or(0, Message::hash);
        let attempt = producer.ledger.begin(&batch.records, messages.iter().map(hash).collect());
        for (record, message) in batch.records.iter().zip(&messages) {
            if message.is_none() {
                let reason = self.secrets.reason("not an envelope");
                attempt.unqueueable(record, Failure::refused(RefusedClass::Invalid, reason));
            }
        }
        let began = Instant::now();
        loop {
            let queued = producer.queue(&attempt, &messages, &self.messages);
            if producer.ledger.is_dead() || matches!(queued, Err(RDKafkaErrorCode::Fatal)) {
                return self.give_up(&producer, &attempt);
            }
            let pass = match queued {
                Ok(pass) => pass,
                Err(code) => return settle(&attempt, |_| self.messages.failure(code)),
            };
            let now = Instant::now();
            let (due, stuck) = attempt.due();
            if due == 0 && !pass.waits && (stuck == 0 || now >= began + LOOKS) {
                if attempt.has_failed() && attempt.tells_of_the_end() {
                    return self.give_up(&producer, &attempt);
                }
                if attempt.has_failed() && attempt.ask_again_alone() {
                    continue;
                }
                return self.settle(&producer, &attempt);
            }
            if now >= end {
                return self.settle(&producer, &attempt);
            }
            if stuck > 0 || now + self.deadline / 2 >= end {
                self.ask(&producer);
            }
            let _ = timeout_at(end.min(now + LOOKS), attempt.reported(&pass)).await;
        }
    }

    /// Asks the brokers how many partitions there are, and waits a little for the answer.
    async fn count_partitions(&self) {
        let Ok(producer) = self.producer().await else { return };
        let topic = self.messages.topic.clone();
        let (answer, answered) = oneshot::channel();
        // Nobody waits for it, a runtime that stops included.
        std::thread::spawn(move || {
            producer.count_partitions(&topic);
            let _ = answer.send(());
        });
        let _ = answered.await;
    }

    /// Asks the brokers how the partitions are, unless that was done lately, and waits for nothing.
    fn ask(&self, producer: &Arc<Producer>) {
        let now = Instant::now();
        let mut complaints = lock(&self.complaints);
        if complaints.asked_at.is_some_and(|asked_at| now < asked_at + ASKED_EVERY) {
            return;
        }
        complaints.asked_at = Some(now);
        let (producer, topic) = (Arc::clone(producer), self.messages.topic.clone());
        let complaints = Arc::clone(&self.complaints);
        // Nobody waits for it, a runtime that stops included.
        std::thread::spawn(move || {
            let words = producer.complaints(&topic);
            lock(&complaints).words = words;
        });
    }

    fn settle(&self, producer: &Producer, attempt: &Attempt<'_>) -> Outcome {
        let last_error = producer.ledger.last_error();
        let complaints = lock(&self.complaints);
        settle(attempt, |why| match why {
            Unsettled::Failed(code) => self.messages.failure(code),
            Unsettled::InCompany => late("it was refused together with others"),
            Unsettled::Late { partition, others_go_on } => {
                let complaint = complaints.words.get(&partition);
                self.why_late(partition, others_go_on, complaint, last_error.as_ref())
            }
        })
    }

    /// Why no report has come in time.
    fn why_late(
        &self,
        partition: i32,
        others_go_on: bool,
        complaint: Option<&String>,
        last_error: Option<&ClientError>,
    ) -> Failure {
        let complaint = complaint.filter(|_| others_go_on || last_error.is_none());
        let (class, words) = match (complaint, last_error) {
            (Some(complaint), _) => (FailureClass::Unavailable, complaint.clone()),
            (None, Some(error)) => {
                let class = match classify::class(error.code) {
                    FailureClass::Misconfigured => FailureClass::Misconfigured,
                    _ if classify::is_tls(&error.text) => FailureClass::Misconfigured,
                    _ => FailureClass::Unavailable,
                };
                (class, error.text.clone())
            }
            (None, None) => {
                (FailureClass::Timeout, format!("no acknowledgement within {:?}", self.deadline))
            }
        };
        let reason = if others_go_on || complaint.is_some() {
            let topic = &self.messages.topic;
            let words = format_args!("partition {partition} of {topic:?} takes nothing: {words}");
            self.secrets.reason(words)
        } else {
            self.secrets.reason(words)
        };
        Failure::new(class, reason)
    }

    /// Ends an attempt whose producer reported a fatal error. The next one replaces that.
    fn give_up(&self, producer: &Producer, attempt: &Attempt<'_>) -> Outcome {
        producer.ledger.die();
        let (code, text) = producer
            .fatal_error()
            .unwrap_or((RDKafkaErrorCode::Fatal, "the producer failed fatally".into()));
        let reason = self.secrets.reason(text);
        tracing::debug!(error = %reason, "the producer failed fatally and is replaced");
        settle(attempt, |_| Failure { reason: reason.clone(), ..self.messages.failure(code) })
    }
}

impl Current {
    /// Ends the producer away from the runtime, because that waits for threads.
    fn retire_if(&mut self, condition: impl FnOnce(&Producer) -> bool) {
        if let Some(producer) = self.producer.take_if(|producer| condition(producer)) {
            self.retiring = Some(spawn_blocking(move || producer.end()));
        }
    }

    /// Waits for the end of the producer that was retired.
    async fn retired(&mut self) {
        if let Some(retiring) = &mut self.retiring {
            // It can only fail by a panic inside, and then it is gone as well.
            let _ = retiring.await;
            self.retiring = None;
        }
    }
}

/// The fates of a batch, or one failure where the receiver has taken nothing, and no record is to blame.
fn settle(attempt: &Attempt<'_>, why: impl Fn(Unsettled) -> Failure) -> Outcome {
    let fates = attempt.settle(why);
    let failure = |fate: &EventFate| match fate {
        EventFate::Failed(failure) => Some(failure.clone()),
        EventFate::Delivered | EventFate::Duplicate => None,
    };
    let Some(first) = fates.iter().find_map(failure) else { return Outcome::Delivered };
    let is_the_sinks = |fate: &EventFate| failure(fate).is_some_and(|it| it.fault == Fault::Sink);
    if fates.iter().all(is_the_sinks) { Outcome::Failed(first) } else { Outcome::PerEvent(fates) }
}

fn stalled(words: &str) -> Outcome {
    Outcome::Failed(late(words))
}

fn late(words: &str) -> Failure {
    Failure::new(FailureClass::Timeout, Secrets::none().reason(words))
}

impl Sink for KafkaSink {
    /// Learns how many partitions there are.
    fn survey(&self) -> BoxFuture<'_, bool> {
        Box::pin(async {
            if self.partitions.count().is_none() && self.parts.load(Ordering::Relaxed) < 0 {
                self.count_partitions().await;
            }
            let count = self.partitions.count().unwrap_or_default();
            self.parts.swap(count, Ordering::Relaxed) != count
        })
    }

    /// The partition, from 1 on; with one partition, or before it is known how many there are, 0.
    fn destination(&self, origin: &Origin<'_>) -> u64 {
        let count = self.parts.load(Ordering::Relaxed);
        if count < 2 {
            return 0;
        }
        let hash = partitions::murmur2(self.messages.key_of(origin).as_bytes());
        1 + u64::from(partitions::of_hash(hash, count).cast_unsigned())
    }

    fn send<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Outcome> {
        Box::pin(self.produce(batch, Instant::now() + self.deadline))
    }

    /// Drops what is still queued: it was not acknowledged and is sent again after the next start, so
    /// sent now it would come twice.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let mut current = self.current.lock().await;
            current.retire_if(|_| true);
            let _ = timeout(self.deadline, current.retired()).await;
        })
    }
}
