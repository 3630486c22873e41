//! The callbacks of librdkafka's thread: delivery reports, errors and lines of its log.

use std::sync::Arc;

use rdkafka::{
    ClientContext, Message as _,
    config::RDKafkaLogLevel,
    error::KafkaError,
    message::DeliveryResult,
    producer::{NoCustomPartitioner, ProducerContext},
    types::RDKafkaErrorCode,
};
use tokio::runtime::Handle;
use tracing::Level;

use super::{ledger::Ledger, words};
use crate::bridge::{LogLines, Secrets};

const SAYS: &str = "librdkafka says that it is in trouble";

/// librdkafka's callbacks; they run on the producer's polling thread.
pub(super) struct Context {
    pub(super) ledger: Arc<Ledger>,
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
        match code {
            RDKafkaErrorCode::Fatal => self.ledger.die(),
            // It follows the error of the last broker, which says why.
            RDKafkaErrorCode::AllBrokersDown if self.ledger.last_error().is_some() => {}
            _ => self.ledger.client_error(code, words::of_connection(reason)),
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
        self.ledger.report(*seq, error);
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
            ledger: Arc::default(),
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
