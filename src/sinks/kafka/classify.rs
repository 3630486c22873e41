//! What librdkafka's errors mean to the bridge.
//!
//! | error | outcome |
//! |---|---|
//! | message or message set too large | refused: too large |
//! | invalid record, timestamp out of the topic's range | refused: invalid |
//! | unknown topic or partition, invalid topic name, ACLs, SASL, TLS, policies, unsupported features | retry: misconfigured |
//! | timed out | retry: timeout |
//! | quota | retry: throttled |
//! | everything else | retry: unavailable |

use rdkafka::types::RDKafkaErrorCode as Code;

use crate::bridge::{RefusedClass, RetryClass};

/// Why a record will never be taken, if that is what the error says.
pub(super) fn refused(code: Code) -> Option<RefusedClass> {
    match code {
        Code::MessageSizeTooLarge | Code::MessageBatchTooLarge => Some(RefusedClass::TooLarge),
        Code::InvalidRecord | Code::InvalidTimestamp | Code::InvalidMessageSize => {
            Some(RefusedClass::Invalid)
        }
        _ => None,
    }
}

/// Whether a report says that the producer has failed fatally: it then purges its queues, which
/// the sink never does, and these reports may come before the word of the error itself.
pub(super) fn of_a_dead_producer(code: Code) -> bool {
    matches!(code, Code::Fatal | Code::PurgeQueue | Code::PurgeInflight)
}

/// Whether an error is of TLS. A broker that wants a client's certificate says so after the
/// handshake, and librdkafka reports that as a failed receive: only OpenSSL's words tell.
pub(super) fn is_tls(text: &str) -> bool {
    text.contains("SSL routines")
}

/// How an error is to be retried.
pub(super) fn retry(code: Code) -> RetryClass {
    match code {
        Code::UnknownTopic
        | Code::UnknownPartition
        | Code::UnknownTopicOrPartition
        | Code::InvalidTopic
        | Code::TopicAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::TransactionalIdAuthorizationFailed
        | Code::Authentication
        | Code::SaslAuthenticationFailed
        | Code::UnsupportedSASLMechanism
        | Code::IllegalSASLState
        | Code::SSL
        | Code::InvalidRequiredAcks
        | Code::UnsupportedCompressionType
        | Code::UnsupportedForMessageFormat
        | Code::UnsupportedVersion
        | Code::UnsupportedFeature
        | Code::InvalidConfig
        | Code::PolicyViolation => RetryClass::Misconfigured,
        Code::MessageTimedOut | Code::OperationTimedOut | Code::RequestTimedOut => {
            RetryClass::Timeout
        }
        Code::ThrottlingQuotaExceeded => RetryClass::Throttled,
        _ => RetryClass::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tls_alert_is_told_from_a_broker_that_is_away() {
        // As a broker of Apache Kafka 4.1.1 was heard to say them.
        assert!(is_tls(
            "sasl_ssl://localhost:39094/bootstrap: Receive failed: error:0A000412:SSL routines::\
             ssl/tls alert bad certificate: SSL alert number 42 (after 0ms in state \
             APIVERSION_QUERY)"
        ));
        assert!(!is_tls(
            "sasl_ssl://localhost:39094/bootstrap: Connect to ipv4#127.0.0.1:39094 failed: \
             Connection refused (after 0ms in state CONNECT)"
        ));
    }
}
