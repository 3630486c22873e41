//! One producer of librdkafka, which all attempts share.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use rdkafka::{
    ClientConfig,
    config::FromClientConfigAndContext as _,
    error::KafkaError,
    metadata::{Metadata, MetadataPartition, MetadataTopic},
    producer::{Producer as _, ThreadedProducer},
    types::RDKafkaErrorCode,
};

use super::{
    classify,
    context::Context,
    ledger::{Attempt, Ledger, Pass},
    message::{Message, Messages},
    partitions::Partitions,
    words,
};

/// How long brokers may take to say how partitions are.
const ASKED_FOR: Duration = Duration::from_secs(2);

/// The producer of one sink. See the [module](self).
pub(super) struct Producer {
    pub(super) ledger: Arc<Ledger>,
    /// Nothing once it is on its way out.
    handle: RwLock<Option<Arc<Handle>>>,
}

type Handle = ThreadedProducer<Context, Partitions>;

impl Producer {
    /// Connects, by and by.
    pub(super) fn new(config: &ClientConfig, context: Context) -> Result<Self, RDKafkaErrorCode> {
        let ledger = Arc::clone(&context.ledger);
        let producer =
            Handle::from_config_and_context(config, context).map_err(|error: KafkaError| {
                error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail)
            })?;
        Ok(Self { ledger, handle: RwLock::new(Some(Arc::new(producer))) })
    }

    /// Queues the messages of an attempt that are not known yet and may be queued now, in order. An error is
    /// no message's.
    pub(super) fn queue(
        &self,
        attempt: &Attempt<'_>,
        of_records: &[Option<Message<'_>>],
        messages: &Messages,
    ) -> Result<Pass, RDKafkaErrorCode> {
        let handle = self.handle().ok_or(RDKafkaErrorCode::Fatal)?;
        let mut pass = Pass::default();
        for message in of_records.iter().flatten() {
            // Its report may come before the call ends.
            if !attempt.claim(&mut pass, message) {
                continue;
            }
            if let Err((error, _)) = handle.send(message.as_record()) {
                let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail);
                let refused = classify::is_refusal(code).then(|| messages.failure(code));
                let is_refused = refused.is_some();
                attempt.not_queued(&mut pass, message.record, refused);
                if !is_refused && code != RDKafkaErrorCode::QueueFull {
                    return Err(code);
                }
            }
        }
        Ok(pass)
    }

    /// Asks the brokers about partitions that may take nothing. Waits for them.
    pub(super) fn complaints(&self, topic: &str) -> BTreeMap<i32, String> {
        let Some(metadata) = self.metadata(topic) else { return BTreeMap::new() };
        let partitions = metadata.topics().iter().flat_map(MetadataTopic::partitions);
        let complaint = |of: &MetadataPartition| {
            Some((of.id(), words::of_partition(of.leader(), of.isr().len(), of.replicas().len())?))
        };
        partitions.filter_map(complaint).collect()
    }

    /// Learns from the brokers how many partitions there are. Waits for them.
    pub(super) fn count_partitions(&self, topic: &str) {
        let Some(metadata) = self.metadata(topic) else { return };
        let partitions: usize =
            metadata.topics().iter().map(|topic| topic.partitions().len()).sum();
        if let Some(count) = i32::try_from(partitions).ok().filter(|count| *count > 0) {
            self.ledger.partitions().are(count);
        }
    }

    fn metadata(&self, topic: &str) -> Option<Metadata> {
        self.handle()?.client().fetch_metadata(Some(topic), ASKED_FOR).ok()
    }

    fn handle(&self) -> Option<Arc<Handle>> {
        self.handle.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The error that it died of.
    pub(super) fn fatal_error(&self) -> Option<(RDKafkaErrorCode, String)> {
        self.handle()?.client().fatal_error()
    }

    /// Ends it, and waits for its threads: to be done away from the runtime.
    pub(super) fn end(&self) {
        let mut handle = self.handle.write().unwrap_or_else(PoisonError::into_inner).take();
        // Others have it for as long as a call takes.
        while let Some(shared) = handle.take() {
            if let Err(shared) = Arc::try_unwrap(shared) {
                std::thread::sleep(Duration::from_millis(10));
                handle = Some(shared);
            }
        }
    }
}
