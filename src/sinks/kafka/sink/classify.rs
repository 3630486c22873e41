//! The meaning of librdkafka's errors to the bridge.
//!
//! | error | class | fault |
//! |---|---|---|
//! | message or message set too large | refused: too large | a record's, for good |
//! | invalid record, timestamp out of the topic's range | refused: invalid | a record's, for good |
//! | corrupt message, unknown error of the broker | unavailable | a record's, for now |
//! | unknown topic or partition, invalid topic name, ACLs, SASL, TLS, policies, unsupported features | misconfigured | the sink's |
//! | timed out | timeout | the sink's |
//! | quota | throttled | the sink's |
//! | everything else | unavailable | the sink's |

use rdkafka::types::RDKafkaErrorCode as Code;

use crate::bridge::{Failure, FailureClass, Fault, Reason, RefusedClass, Status};

/// The failure that an error about a record, or about all of them, is.
pub(super) fn failure(code: Code, reason: Reason) -> Failure {
    let failure = Failure::new(class(code), reason);
    let fault = match code {
        Code::InvalidMessage | Code::Unknown => Fault::RecordForNow,
        _ => failure.fault,
    };
    Failure { fault, status: Status::Kafka(code as i32), ..failure }
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

/// The class of an error: what is to be done about it.
pub(super) fn class(code: Code) -> FailureClass {
    match code {
        Code::MessageSizeTooLarge | Code::MessageBatchTooLarge => {
            FailureClass::Refused(RefusedClass::TooLarge)
        }
        Code::InvalidRecord | Code::InvalidTimestamp | Code::InvalidMessageSize => {
            FailureClass::Refused(RefusedClass::Invalid)
        }
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
        | Code::PolicyViolation => FailureClass::Misconfigured,
        Code::MessageTimedOut | Code::OperationTimedOut | Code::RequestTimedOut => {
            FailureClass::Timeout
        }
        Code::ThrottlingQuotaExceeded => FailureClass::Throttled,
        _ => FailureClass::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::types::RDKafkaRespErr;

    use super::*;
    use crate::bridge::Secrets;

    #[test]
    fn every_code_has_its_failure() {
        use FailureClass::{Misconfigured, Refused, Throttled, Timeout, Unavailable};
        let mut seen = 0;
        for code in (-200..200).filter_map(|code| RDKafkaRespErr::try_from(code).ok()) {
            let code = Code::from(code);
            let (class, fault) = match code {
                Code::MessageSizeTooLarge | Code::MessageBatchTooLarge => {
                    (Refused(RefusedClass::TooLarge), Fault::RecordForGood)
                }
                Code::InvalidRecord | Code::InvalidTimestamp | Code::InvalidMessageSize => {
                    (Refused(RefusedClass::Invalid), Fault::RecordForGood)
                }
                Code::InvalidMessage | Code::Unknown => (Unavailable, Fault::RecordForNow),
                Code::ThrottlingQuotaExceeded => (Throttled, Fault::Sink),
                Code::MessageTimedOut | Code::OperationTimedOut | Code::RequestTimedOut => {
                    (Timeout, Fault::Sink)
                }
                _ if MISCONFIGURED.contains(&code) => (Misconfigured, Fault::Sink),
                _ => (Unavailable, Fault::Sink),
            };
            let found = failure(code, Secrets::none().reason("words"));
            assert_eq!((found.class, found.fault, found.after), (class, fault, None), "{code}");
            assert_eq!(found.status, Status::Kafka(code as i32));
            seen += 1;
        }
        assert!(seen > 100, "{seen}");
    }

    const MISCONFIGURED: [Code; 19] = [
        Code::UnknownTopic,
        Code::UnknownPartition,
        Code::UnknownTopicOrPartition,
        Code::InvalidTopic,
        Code::TopicAuthorizationFailed,
        Code::ClusterAuthorizationFailed,
        Code::TransactionalIdAuthorizationFailed,
        Code::Authentication,
        Code::SaslAuthenticationFailed,
        Code::UnsupportedSASLMechanism,
        Code::IllegalSASLState,
        Code::SSL,
        Code::InvalidRequiredAcks,
        Code::UnsupportedCompressionType,
        Code::UnsupportedForMessageFormat,
        Code::UnsupportedVersion,
        Code::UnsupportedFeature,
        Code::InvalidConfig,
        Code::PolicyViolation,
    ];

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
