//! Kafka, through librdkafka's idempotent producer.
//!
//! Key: `<cluster uid>/<namespace>/<involved object's uid, else kind/name>`, so that one object's events
//! stay in order in one partition, and nobody's Events pass for those of another namespace; or, with
//! [`KafkaKey::Object`](super::KafkaKey::Object), the object alone. Value: the envelope. Headers: `id`, `content-type`.
//! Timestamp: the envelope's `time`, within `event::bounded`.
//!
//! Order and loss. librdkafka keeps the order of each partition and retries by itself, without an
//! end. Several attempts share one producer; no two live ones have events of one object. When librdkafka
//! does report an error, the attempt that it is about queues nothing more, waits for all its outstanding
//! reports, and has everything from the first record without an acknowledgement on sent again, in
//! the order of the journal: also what was acknowledged behind it, for a consumer that takes the
//! later id first would otherwise see an object's events reversed. A fatal error ends the producer
//! for all attempts, and the next one begins with another.
//!
//! An attempt that runs out of time, or is dropped, leaves its messages in librdkafka's queue. The
//! [ledger](ledger) knows them, and the next attempt at them waits for their reports instead of queueing
//! them twice.
//!
//! A record that is refused may have been so for others in its message set. One that is an attempt by
//! itself is therefore sent once more, while no other is under way, before it is given up.

mod classify;
mod config;
mod context;
mod ledger;
mod message;
mod producer;
#[cfg(test)]
mod test_cluster;
#[cfg(test)]
mod tests;
mod words;

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rdkafka::{ClientConfig, types::RDKafkaErrorCode};
use tokio::{
    runtime::Handle,
    sync::{Mutex, RwLock},
    task::{JoinHandle, spawn_blocking},
    time::{Instant, timeout, timeout_at},
};

use self::{
    context::Context,
    ledger::Attempt,
    message::Messages,
    producer::{Producer, Queued},
};
use super::KafkaOptions;
use crate::{
    bridge::{EventFate, Failure, FailureClass, LogLines, Outcome, Secrets, Sink},
    event::Batch,
    sinks::{SinkBuildError, own_deadline},
};

/// Produces batches to one topic, through one producer.
pub(super) struct KafkaSink {
    config: ClientConfig,
    secrets: Secrets,
    messages: Messages,
    deadline: Duration,
    lines: LogLines,
    current: Mutex<Current>,
    /// Attempts share it; one whose record is to travel alone has it for itself.
    company: RwLock<()>,
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

/// A record was refused that had not travelled alone.
struct InCompany;

impl KafkaSink {
    /// Checks the options; nothing is connected yet.
    pub(super) fn new(options: &KafkaOptions) -> Result<Self, SinkBuildError> {
        let secrets = options.secrets();
        Ok(Self {
            config: config::build(options, &secrets)?,
            secrets,
            messages: Messages {
                topic: options.topic.clone(),
                key: options.key,
                format: options.format,
            },
            deadline: own_deadline(options.timeout),
            lines: LogLines::new(&options.name),
            current: Mutex::default(),
            company: RwLock::default(),
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
        let context = |ledger| Context {
            ledger,
            secrets: self.secrets.clone(),
            lines: self.lines.clone(),
            runtime: Handle::current(),
        };
        let producer = Arc::new(Producer::new(&self.config, context)?);
        current.producer = Some(Arc::clone(&producer));
        Ok(producer)
    }

    /// One attempt, and for a record that was refused in company another one without.
    async fn produce(&self, batch: &Batch, end: Instant) -> Outcome {
        let in_company = match timeout_at(end, self.company.read()).await {
            Ok(_company) => self.attempt(batch, false, end).await,
            Err(_) => return stalled("an event that was refused is sent alone"),
        };
        match in_company {
            Ok(outcome) => outcome,
            Err(InCompany) => match timeout_at(end, self.company.write()).await {
                Ok(_alone) => self
                    .attempt(batch, true, end)
                    .await
                    .unwrap_or_else(|InCompany| stalled("other events are still under way")),
                Err(_) => stalled("other events are still under way"),
            },
        }
    }

    async fn attempt(
        &self,
        batch: &Batch,
        alone: bool,
        end: Instant,
    ) -> Result<Outcome, InCompany> {
        let producer = match timeout_at(end, self.producer()).await {
            Ok(Ok(producer)) => producer,
            Ok(Err(code)) => return Ok(Outcome::Failed(self.messages.failure(code))),
            Err(_) => return Ok(stalled("librdkafka takes long to end")),
        };
        let attempt = producer.ledger.begin(&batch.records);
        if alone && timeout_at(end, attempt.idle()).await.is_err() {
            return Err(InCompany);
        }
        let mut place = 0;
        loop {
            // After a failure nothing more is queued until it is settled.
            let queued = if attempt.has_failed() {
                Queued::All
            } else {
                producer.queue(&attempt, &mut place, &self.messages, &self.secrets)
            };
            let in_time = match queued {
                _ if producer.ledger.is_dead() => return Ok(self.give_up(&producer, &attempt)),
                Queued::Error(RDKafkaErrorCode::Fatal) => {
                    return Ok(self.give_up(&producer, &attempt));
                }
                Queued::Error(code) => return Ok(settle(&attempt, self.messages.failure(code))),
                Queued::All => timeout_at(end, attempt.reported()).await,
                // librdkafka makes room a moment after the report; it is making it now.
                Queued::Full if producer.ledger.outstanding() == 0 => {
                    tokio::task::yield_now().await;
                    if Instant::now() >= end {
                        return Ok(stalled("librdkafka's queue stays full"));
                    }
                    continue;
                }
                Queued::Full => timeout_at(end, attempt.has_room()).await,
            };
            if in_time.is_err() {
                return Ok(settle(&attempt, self.why_late(&producer)));
            }
            if matches!(queued, Queued::All) && !producer.ledger.is_dead() {
                return self.reported(&producer, &attempt);
            }
        }
    }

    /// The outcome of an attempt, all of whose reports are there.
    fn reported(&self, producer: &Producer, attempt: &Attempt<'_>) -> Result<Outcome, InCompany> {
        let Some((place, code, alone)) = attempt.first_failed() else {
            return Ok(settle(attempt, self.messages.failure(RDKafkaErrorCode::NoError)));
        };
        if classify::of_a_dead_producer(code) {
            return Ok(self.give_up(producer, attempt));
        }
        attempt.forget_from(place);
        let failure = self.messages.failure(code);
        match failure.class {
            FailureClass::Refused(_) if attempt.records().len() == 1 && !alone => Err(InCompany),
            // The bridge halves a batch of several; what was acknowledged is remembered.
            FailureClass::Refused(_) => Ok(Outcome::Failed(failure)),
            _ => Ok(settle(attempt, failure)),
        }
    }

    /// Why no report has come in time.
    fn why_late(&self, producer: &Producer) -> Failure {
        let Some(error) = producer.ledger.last_error() else {
            let words = format_args!("no acknowledgement within {:?}", self.deadline);
            return Failure::new(FailureClass::Timeout, Secrets::none().reason(words));
        };
        let class = match classify::class(error.code) {
            FailureClass::Misconfigured => FailureClass::Misconfigured,
            _ if classify::is_tls(&error.text) => FailureClass::Misconfigured,
            _ => FailureClass::Unavailable,
        };
        Failure::new(class, self.secrets.reason(error.text))
    }

    /// Ends an attempt whose producer reported a fatal error. The next one replaces that.
    fn give_up(&self, producer: &Producer, attempt: &Attempt<'_>) -> Outcome {
        producer.ledger.die();
        let (code, text) = producer
            .fatal_error()
            .unwrap_or((RDKafkaErrorCode::Fatal, "the producer failed fatally".into()));
        let reason = self.secrets.reason(text);
        tracing::debug!(error = %reason, "the producer failed fatally and is replaced");
        settle(attempt, Failure { reason, ..self.messages.failure(code) })
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

/// The fates of a batch: those in front of the first unsettled record are final, the rest is
/// to be sent again.
fn settle(attempt: &Attempt<'_>, failure: Failure) -> Outcome {
    let (mut fates, all) = (attempt.settle(), attempt.records().len());
    match fates.len() {
        settled if settled == all => {
            if fates.iter().all(|fate| *fate == EventFate::Delivered) {
                return Outcome::Delivered;
            }
        }
        0 => return Outcome::Failed(failure),
        _ => fates.resize(all, EventFate::Failed(failure)),
    }
    Outcome::PerEvent(fates)
}

fn stalled(words: &str) -> Outcome {
    Outcome::Failed(Failure::new(FailureClass::Timeout, Secrets::none().reason(words)))
}

impl Sink for KafkaSink {
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
