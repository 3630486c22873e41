//! Kafka, through librdkafka's idempotent producer.
//!
//! Key: `<cluster uid>/<namespace>/<involved object's uid, else kind/name>`, so that one object's events
//! stay in order in one partition, and nobody's Events pass for those of another namespace; or, with
//! [`KafkaKey::Object`], the object alone. Value: the envelope. Headers: `id`, `content-type`.
//! Timestamp: the envelope's `time`, within `event::bounded`.
//!
//! Order and loss. librdkafka keeps the order of each partition and retries by itself, without an
//! end. When it does report an error, nothing more is queued, all outstanding reports are waited
//! for, and everything from the first record without an acknowledgement on is to be sent again, in
//! the order of the journal: also what was acknowledged behind it, for a consumer that takes the
//! later id first would otherwise see an object's events reversed. A fatal error ends the producer,
//! and the next attempt begins with another.
//!
//! An attempt that runs out of time, or is dropped, leaves its messages in librdkafka's queue. The
//! [ledger](ledger) knows them, and the next attempt waits for their reports instead of queueing
//! them twice.

mod classify;
mod config;
mod ledger;
mod reports;
#[cfg(test)]
mod test_cluster;
#[cfg(test)]
mod tests;
mod words;

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rdkafka::{
    ClientConfig,
    config::FromClientConfigAndContext as _,
    message::{Header, OwnedHeaders},
    producer::{BaseRecord, Producer as _, ThreadedProducer},
    types::RDKafkaErrorCode,
};
use serde::Deserialize;
use tokio::{
    runtime::Handle,
    sync::Mutex,
    task::JoinHandle,
    time::{Instant, timeout_at},
};

use self::{
    ledger::{Ledger, State},
    reports::{Context, Reports},
};
use super::{KafkaKey, KafkaOptions, SinkBuildError, own_deadline};
use crate::{
    bridge::{EventFate, Failure, FailureClass, LogLines, Outcome, RefusedClass, Secrets, Sink},
    event::{Batch, Cluster, Metadata, ObjectReference, Record, Text, bounded},
};

/// Produces batches to one topic, through one producer.
///
/// librdkafka has many messages of a batch under way, and keeps their order. So of several attempts one is made
/// at a time, and the others wait for it: where it fails, none overtakes it.
pub struct KafkaSink {
    topic: String,
    deadline: Duration,
    producing: Mutex<Producing>,
}

/// The producer, and what attempts have left in it.
struct Producing {
    config: ClientConfig,
    secrets: Secrets,
    topic: String,
    key: KafkaKey,
    deadline: Duration,
    /// Made by the first attempt: making it connects.
    producer: Option<ThreadedProducer<Context>>,
    reports: Arc<Reports>,
    lines: LogLines,
    ledger: Ledger,
    /// A producer on its way out; its successor waits for it, or they might overtake each other.
    retiring: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for KafkaSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The configuration holds secrets.
        f.debug_struct("KafkaSink").field("topic", &self.topic).finish_non_exhaustive()
    }
}

/// The members of an envelope that a message is made of.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Parts<'a> {
    #[serde(default)]
    cluster: Cluster,
    #[serde(borrow)]
    time: Text<'a>,
    #[serde(borrow, default)]
    observed_time: Text<'a>,
    #[serde(borrow)]
    event: PartsOfEvent<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PartsOfEvent<'a> {
    #[serde(borrow, default)]
    metadata: Option<Metadata<'a>>,
    #[serde(borrow, default)]
    involved_object: Option<ObjectReference<'a>>,
}

/// What came of handing a batch's records to librdkafka.
enum Queued {
    All,
    /// The local queue has no room for the next one.
    Full,
    /// librdkafka refuses, for a reason that is not the record's.
    Error(RDKafkaErrorCode),
}

impl KafkaSink {
    /// Checks the options; nothing is connected yet.
    pub fn new(options: &KafkaOptions) -> Result<Self, SinkBuildError> {
        let secrets = options.secrets();
        let producing = Producing {
            config: config::build(options, &secrets)?,
            secrets,
            topic: options.topic.clone(),
            key: options.key,
            deadline: own_deadline(options.timeout),
            producer: None,
            reports: Arc::default(),
            lines: LogLines::new(&options.name),
            ledger: Ledger::default(),
            retiring: None,
        };
        let (topic, deadline) = (producing.topic.clone(), producing.deadline);
        Ok(Self { topic, deadline, producing: Mutex::new(producing) })
    }
}

impl Producing {
    async fn produce(&mut self, batch: &Batch, end: Instant) -> Outcome {
        if let Some(retiring) = &mut self.retiring {
            if timeout_at(end, retiring).await.is_err() {
                return stalled(FailureClass::Timeout, "librdkafka takes long to end");
            }
            self.retiring = None;
        }
        let first = batch.records.first().map_or(0, |record| record.seq);
        // What another kind of batch has left behind is none of this one's.
        let live = first < Record::FIRST_ERRAND;
        let these = first..if live { Record::FIRST_ERRAND } else { u64::MAX };
        self.ledger.keep(&these);
        loop {
            for report in self.reports.take() {
                self.ledger.apply(report);
            }
            if self.reports.is_fatal() {
                return self.give_up_producer(batch);
            }
            let failed = self.ledger.first_failed(&these);
            if let Some((_, code)) = failed
                && classify::of_a_dead_producer(code)
            {
                return self.give_up_producer(batch);
            }
            if let Some((seq, code)) = failed
                && self.ledger.outstanding() == 0
            {
                if let Some(outcome) = self.settle_failure(batch, seq, code) {
                    return outcome;
                }
                continue;
            }
            // After a failure nothing more is queued until it is settled.
            let queued = if failed.is_some() { Queued::All } else { self.queue(batch) };
            let more = match queued {
                Queued::All => false,
                Queued::Full => true,
                Queued::Error(RDKafkaErrorCode::Fatal) => return self.give_up_producer(batch),
                Queued::Error(code) => {
                    return self.settle(batch, self.failure(code));
                }
            };
            let settled = |record: &Record| {
                matches!(self.ledger.get(record.seq), Some(State::Acked | State::Unqueueable(..)))
            };
            if batch.records.iter().all(settled) {
                return self.settle(batch, self.failure(RDKafkaErrorCode::NoError));
            }
            if more && self.ledger.outstanding() == 0 {
                // librdkafka makes room a moment after the report; it is making it now.
                if Instant::now() >= end {
                    return stalled(FailureClass::Timeout, "librdkafka's queue stays full");
                }
                tokio::task::yield_now().await;
                continue;
            }
            // With a full queue half of it is reason enough to go on, or it would run dry.
            let outstanding = self.ledger.outstanding();
            let wake_at = if more { outstanding / 2 } else { outstanding }.max(1);
            if timeout_at(end, self.reports.wait(wake_at)).await.is_err() {
                for report in self.reports.take() {
                    self.ledger.apply(report);
                }
                return self.settle(batch, self.why_late());
            }
        }
    }

    /// Queues what the ledger does not know yet, in order.
    fn queue(&mut self, batch: &Batch) -> Queued {
        if self.producer.is_none() {
            let reports = Arc::<Reports>::default();
            let context = Context {
                reports: Arc::clone(&reports),
                secrets: self.secrets.clone(),
                lines: self.lines.clone(),
                runtime: Handle::current(),
            };
            match ThreadedProducer::from_config_and_context(&self.config, context) {
                Ok(producer) => self.producer = Some(producer),
                Err(error) => {
                    let code = error.rdkafka_error_code();
                    return Queued::Error(code.unwrap_or(RDKafkaErrorCode::Fail));
                }
            }
            self.reports = reports;
        }
        let Some(producer) = &self.producer else { return Queued::All };
        for record in &batch.records {
            if self.ledger.get(record.seq).is_some() {
                continue;
            }
            let parts: Parts<'_> = match serde_json::from_slice(&record.envelope) {
                Ok(parts) => parts,
                Err(error) => {
                    let reason = self.secrets.reason(format_args!("not an envelope: {error}"));
                    let failure = Failure::refused(RefusedClass::Invalid, reason);
                    self.ledger.unqueueable(record.seq, failure);
                    continue;
                }
            };
            let metadata = parts.event.metadata.unwrap_or_default();
            let object = parts.event.involved_object.unwrap_or_default();
            let key = match self.key {
                KafkaKey::Qualified => qualified_key(&parts.cluster, &metadata.namespace, &object),
                KafkaKey::Object => object_key(&object),
            };
            let created = &metadata.creation_timestamp;
            let time = bounded(&parts.time, created, &parts.observed_time);
            let headers = OwnedHeaders::new_with_capacity(2)
                .insert(Header { key: "id", value: Some(record.id()) })
                .insert(Header { key: "content-type", value: Some("application/json") });
            let message = BaseRecord::with_opaque_to(&self.topic, Box::new(record.seq))
                .key(&key)
                .payload(record.envelope.as_ref())
                .headers(headers)
                // 0 is replaced by now.
                .timestamp(time.map_or(0, |time| time.as_millisecond().max(0)));
            match producer.send(message) {
                Ok(()) => self.ledger.queued(record.seq),
                Err((error, _)) => {
                    let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail);
                    match classify::class(code) {
                        FailureClass::Refused(_) => {
                            self.ledger.unqueueable(record.seq, self.failure(code));
                        }
                        _ if code == RDKafkaErrorCode::QueueFull => return Queued::Full,
                        _ => return Queued::Error(code),
                    }
                }
            }
        }
        Queued::All
    }

    /// Acts on a failure once no report is outstanding; `None`: it is worth another try at once.
    fn settle_failure(
        &mut self,
        batch: &Batch,
        seq: u64,
        code: RDKafkaErrorCode,
    ) -> Option<Outcome> {
        let alone = self.ledger.was_alone();
        self.ledger.forget_from(seq);
        let failure = self.failure(code);
        if !matches!(failure.class, FailureClass::Refused(_)) {
            return Some(self.settle(batch, failure));
        }
        let of_this_batch = batch.records.iter().any(|record| record.seq == seq);
        if of_this_batch && (alone || batch.records.len() > 1) {
            // The bridge halves a batch of several; what was acknowledged is remembered.
            return Some(Outcome::Failed(failure));
        }
        // Refused in company that the bridge has split since: it gets its answer by itself.
        None
    }

    /// The fates of a batch: those in front of the first unsettled record are final, the rest is
    /// to be sent again.
    fn settle(&mut self, batch: &Batch, failure: Failure) -> Outcome {
        let mut fates = Vec::with_capacity(batch.records.len());
        for record in &batch.records {
            let Some(fate) = self.ledger.settle(record.seq) else { break };
            fates.push(fate);
        }
        let settled = fates.len();
        if settled == batch.records.len() {
            if fates.iter().all(|fate| *fate == EventFate::Delivered) {
                return Outcome::Delivered;
            }
            return Outcome::PerEvent(fates);
        }
        if settled == 0 {
            return Outcome::Failed(failure);
        }
        fates.resize(batch.records.len(), EventFate::Failed(failure));
        Outcome::PerEvent(fates)
    }

    /// What an error about a record, or about all of them, says.
    fn failure(&self, code: RDKafkaErrorCode) -> Failure {
        classify::failure(code, words::of_code(code, &self.topic))
    }

    /// Why no report has come in time.
    fn why_late(&self) -> Failure {
        let (class, reason) = match self.reports.last_error() {
            Some(error) => {
                let class = match classify::class(error.code) {
                    FailureClass::Misconfigured => FailureClass::Misconfigured,
                    _ if classify::is_tls(&error.text) => FailureClass::Misconfigured,
                    _ => FailureClass::Unavailable,
                };
                (class, self.secrets.reason(error.text))
            }
            None => {
                let words = format!("no acknowledgement within {:?}", self.deadline);
                (FailureClass::Timeout, Secrets::none().reason(words))
            }
        };
        Failure::new(class, reason)
    }

    /// Lets go of a producer that reported a fatal error.
    fn give_up_producer(&mut self, batch: &Batch) -> Outcome {
        let fatal = self.producer.as_ref().and_then(|producer| producer.client().fatal_error());
        let (code, text) =
            fatal.unwrap_or((RDKafkaErrorCode::Fatal, "the producer failed fatally".into()));
        let text = self.secrets.reason(text);
        tracing::debug!(error = %text, "the producer failed fatally and is replaced");
        self.retire_producer();
        for report in self.reports.take() {
            self.ledger.apply(report);
        }
        self.reports = Arc::default();
        self.ledger.abandon();
        let unacked = |record: &&Record| self.ledger.get(record.seq) != Some(&State::Acked);
        if let Some(unacked) = batch.records.iter().find(unacked) {
            self.ledger.forget_from(unacked.seq);
        }
        self.settle(batch, Failure { reason: text, ..self.failure(code) })
    }

    /// Ends the producer away from the runtime: it waits for threads.
    fn retire_producer(&mut self) {
        if let Some(producer) = self.producer.take() {
            self.retiring = Some(tokio::task::spawn_blocking(move || drop(producer)));
        }
    }
}

impl Sink for KafkaSink {
    fn send<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Outcome> {
        let end = Instant::now() + self.deadline;
        Box::pin(async move {
            match timeout_at(end, self.producing.lock()).await {
                Ok(mut producing) => producing.produce(batch, end).await,
                Err(_) => stalled(FailureClass::Timeout, "an earlier batch is still under way"),
            }
        })
    }

    /// What is still queued was not acknowledged, so it is sent again after the next start; it is
    /// dropped here rather than sent now and then repeated.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let mut producing = self.producing.lock().await;
            producing.retire_producer();
            if let Some(retiring) = producing.retiring.take() {
                // It can only fail by a panic inside, and then it is gone as well.
                let _ = tokio::time::timeout(self.deadline, retiring).await;
            }
        })
    }
}

fn stalled(class: FailureClass, words: &str) -> Outcome {
    Outcome::Failed(Failure::new(class, Secrets::none().reason(words)))
}

/// What keeps the events of one object together, behind where they are from. The name of the cluster
/// stands in for a uid that is not known.
fn qualified_key(cluster: &Cluster, namespace: &str, object: &ObjectReference<'_>) -> String {
    let cluster = cluster.uid.as_ref().or(cluster.name.as_ref()).map_or("", |text| text);
    if object.uid.is_empty() {
        format!("{cluster}/{namespace}/{}/{}", &*object.kind, &*object.name)
    } else {
        format!("{cluster}/{namespace}/{}", &*object.uid)
    }
}

/// The object as the Event has it.
fn object_key(object: &ObjectReference<'_>) -> String {
    if object.uid.is_empty() {
        format!("{}/{}/{}", &*object.kind, &*object.namespace, &*object.name)
    } else {
        object.uid.0.clone().into_owned()
    }
}
