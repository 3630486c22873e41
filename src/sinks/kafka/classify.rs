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
