//! Where librdkafka's thread leaves delivery reports and the sink picks them up.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rdkafka::{
    ClientContext, Message as _,
    config::RDKafkaLogLevel,
    error::KafkaError,
    message::DeliveryResult,
    producer::{NoCustomPartitioner, ProducerContext},
    types::RDKafkaErrorCode,
};
use tokio::{runtime::Handle, sync::Notify};
use tracing::Level;

use super::words;
use crate::bridge::{LogLines, Secrets};

const SAYS: &str = "librdkafka says that it is in trouble";

/// What became of one message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    /// The record's place in the journal.
    pub(super) seq: u64,
    /// `None`: all replicas have it.
    pub(super) error: Option<RDKafkaErrorCode>,
}

/// An error that is about a connection or the producer, not about one message.
#[derive(Clone, Debug)]
pub(super) struct ClientError {
    pub(super) code: RDKafkaErrorCode,
    /// Of librdkafka and of brokers.
    pub(super) text: String,
}

#[derive(Debug, Default)]
struct Inner {
    reports: Vec<Report>,
    /// From how many reports on the sink wants to be woken.
    wake_at: usize,
    last_error: Option<ClientError>,
    fatal: bool,
}

/// Shared by one producer's context and the sink.
#[derive(Debug, Default)]
pub(super) struct Reports {
    inner: Mutex<Inner>,
    notify: Notify,
}

impl Reports {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Nothing that holds the lock can panic half-way.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what has come so far.
    pub(super) fn take(&self) -> Vec<Report> {
        mem::take(&mut self.inner().reports)
    }

    /// Waits until at least `count` reports lie ready, one of them tells of an error, or the
    /// producer is beyond repair. May be dropped and called again.
    pub(super) async fn wait(&self, count: usize) {
        loop {
            {
                let mut inner = self.inner();
                inner.wake_at = count;
                let failed = inner.reports.iter().any(|report| report.error.is_some());
                if inner.reports.len() >= count || failed || inner.fatal {
                    return;
                }
            }
            self.notify.notified().await;
        }
    }

    /// The last client error since a message was last acknowledged; of several of one cause the
    /// first.
    pub(super) fn last_error(&self) -> Option<ClientError> {
        self.inner().last_error.clone()
    }

    /// Whether the producer is beyond repair.
    pub(super) fn is_fatal(&self) -> bool {
        self.inner().fatal
    }
}

/// librdkafka's callbacks; they run on the producer's polling thread.
pub(super) struct Context {
    pub(super) reports: Arc<Reports>,
    pub(super) secrets: Secrets,
    pub(super) lines: LogLines,
    /// On which the lines are told that come too often.
    pub(super) runtime: Handle,
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        // librdkafka repeats each failed connection as an error. The bridge tells of a sink that
        // is down, once, and in the words of `error` below; so this is for those who look closer.
        let message = self.secrets.reason(message);
        let grave = matches!(
            level,
            RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical
        );
        let _runtime = self.runtime.enter();
        if grave && self.lines.admit(Level::ERROR, SAYS, facility, 1) {
            let sink = self.lines.sink();
            tracing::error!(target: "librdkafka", sink, facility, said = &*message, "{SAYS}");
        } else {
            tracing::debug!(target: "librdkafka", facility, "{message}");
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let Some(code) = error.rdkafka_error_code() else { return };
        let said = self.secrets.reason(reason);
        tracing::debug!(target: "librdkafka", %error, reason = &*said, "client error");
        let mut inner = self.reports.inner();
        match code {
            RDKafkaErrorCode::Fatal => {
                inner.fatal = true;
                self.reports.notify.notify_one();
            }
            // It follows the error of the last broker, which says why.
            RDKafkaErrorCode::AllBrokersDown if inner.last_error.is_some() => {}
            _ => {
                let text = words::of_connection(reason);
                let known = inner.last_error.as_ref();
                // The brokers take turns at saying it; it is news once.
                if !known.is_some_and(|known| {
                    known.code == code && words::of_one_cause(&known.text, text)
                }) {
                    inner.last_error = Some(ClientError { code, text: text.to_owned() });
                }
            }
        }
    }
}

impl ProducerContext<NoCustomPartitioner> for Context {
    type DeliveryOpaque = Box<u64>;

    fn delivery(&self, result: &DeliveryResult<'_>, seq: Box<u64>) {
        let error = match result {
            Ok(_) => None,
            Err((error, message)) => {
                let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
                tracing::debug!(target: "librdkafka", %error, partition = message.partition(), "message failed");
                Some(code)
            }
        };
        let mut inner = self.reports.inner();
        if error.is_none() {
            inner.last_error = None;
        }
        inner.reports.push(Report { seq: *seq, error });
        if error.is_some() || inner.reports.len() >= inner.wake_at {
            self.reports.notify.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bridge::heard::Levels;

    #[tokio::test(start_paused = true)]
    async fn lines_of_librdkafka_come_once_a_second() {
        let (levels, _guard) = Levels::heard();
        let context = Context {
            reports: Arc::default(),
            secrets: Secrets::none(),
            lines: LogLines::new("audit"),
            runtime: Handle::current(),
        };
        for _ in 0..1000 {
            context.log(RDKafkaLogLevel::Critical, "FATAL", "the same again");
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        let errors = levels.take().into_iter().filter(|level| *level == Level::ERROR);
        assert_eq!(errors.count(), 2, "the first of them, and how many more there were");
    }
}
