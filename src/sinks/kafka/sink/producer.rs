//! One producer of librdkafka, which all attempts share.

use std::sync::{Arc, PoisonError, RwLock};

use rdkafka::{
    ClientConfig,
    config::FromClientConfigAndContext as _,
    error::KafkaError,
    producer::{Producer as _, ThreadedProducer},
    types::RDKafkaErrorCode,
};

use super::{
    classify,
    context::Context,
    ledger::{Attempt, Ledger},
    message::Messages,
};
use crate::bridge::{Failure, FailureClass, RefusedClass, Secrets};

/// The end of handing an attempt's records to librdkafka.
pub(super) enum Queued {
    All,
    /// The local queue has no room for the next one.
    Full,
    /// librdkafka refuses, for a reason that is not the record's.
    Error(RDKafkaErrorCode),
}

/// See the [module](self).
pub(super) struct Producer {
    pub(super) ledger: Arc<Ledger>,
    /// Nothing once it is on its way out.
    handle: RwLock<Option<ThreadedProducer<Context>>>,
}

impl Producer {
    /// Connects, by and by.
    pub(super) fn new(
        config: &ClientConfig,
        context: impl FnOnce(Arc<Ledger>) -> Context,
    ) -> Result<Self, RDKafkaErrorCode> {
        let ledger = Arc::<Ledger>::default();
        let context = context(Arc::clone(&ledger));
        let producer = ThreadedProducer::from_config_and_context(config, context).map_err(
            |error: KafkaError| error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail),
        )?;
        Ok(Self { ledger, handle: RwLock::new(Some(producer)) })
    }

    /// Queues records of an attempt from a place on that are not known yet, in order, and moves the place
    /// behind them.
    pub(super) fn queue(
        &self,
        attempt: &Attempt<'_>,
        from: &mut usize,
        messages: &Messages,
        secrets: &Secrets,
    ) -> Queued {
        let handle = self.handle.read().unwrap_or_else(PoisonError::into_inner);
        let Some(producer) = &*handle else { return Queued::Error(RDKafkaErrorCode::Fatal) };
        for record in &attempt.records()[*from..] {
            if !attempt.knows(record) {
                let message = match messages.of(record) {
                    Ok(message) => message,
                    Err(error) => {
                        let reason = secrets.reason(error);
                        let failure = Failure::refused(RefusedClass::Unsendable, reason);
                        attempt.unqueueable(record, failure);
                        *from += 1;
                        continue;
                    }
                };
                // Its report may come before the call ends.
                attempt.queued(record);
                if let Err((error, _)) = producer.send(message.as_record()) {
                    attempt.not_queued(record);
                    let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail);
                    match classify::class(code) {
                        FailureClass::Refused(_) => {
                            attempt.unqueueable(record, messages.failure(code));
                        }
                        _ if code == RDKafkaErrorCode::QueueFull => return Queued::Full,
                        _ => return Queued::Error(code),
                    }
                }
            }
            *from += 1;
        }
        Queued::All
    }

    /// The error that it died of.
    pub(super) fn fatal_error(&self) -> Option<(RDKafkaErrorCode, String)> {
        let handle = self.handle.read().unwrap_or_else(PoisonError::into_inner);
        handle.as_ref()?.client().fatal_error()
    }

    /// Ends it, and waits for its threads: to be done away from the runtime.
    pub(super) fn end(&self) {
        let handle = self.handle.write().unwrap_or_else(PoisonError::into_inner).take();
        drop(handle);
    }
}
