//! librdkafka's errors in words that say what is to be done, and that stay the same while nothing
//! changes: what is said anew is logged anew.

use rdkafka::types::RDKafkaErrorCode as Code;

use crate::bridge::{Reason, Secrets};

/// The reason that an error about messages to `topic` gives, with what mends it where that is known.
pub(super) fn of_code(code: Code, topic: &str) -> Reason {
    // These are librdkafka's own words for the code, and no broker's.
    let reason = |words: String| Secrets::none().reason(words);
    let mends = match code {
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition => {
            format!("create the topic {topic:?}, or mend kafka.topic")
        }
        Code::TopicAuthorizationFailed => {
            format!("the account needs the right to write to the topic {topic:?}")
        }
        Code::ClusterAuthorizationFailed => format!(
            "the account needs the right to write to the topic {topic:?}; for brokers before 2.8 \
             also IdempotentWrite on the cluster"
        ),
        Code::MessageSizeTooLarge | Code::MessageBatchTooLarge => format!(
            "the limit is max.message.bytes of the topic {topic:?}, or message.max.bytes of its \
             brokers"
        ),
        _ => return reason(code.to_string()),
    };
    reason(format!("{code}: {mends}"))
}

/// The words of an error of a connection, without the times and counts at its end.
pub(super) fn of_connection(text: &str) -> &str {
    match text.rsplit_once(" (after ") {
        Some((what, _)) if text.ends_with(')') => what,
        _ => text,
    }
}

/// Whether two errors of connections have the same cause, which is what stands last: brokers that
/// are away together say the same of different addresses.
pub(super) fn of_one_cause(one: &str, other: &str) -> bool {
    one.rsplit(": ").next() == other.rsplit(": ").next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brokers_that_are_away_together_have_one_cause() {
        let refused = "a:9092/1: Connect to ipv4#10.0.0.1:9092 failed: Connection refused";
        let of_another =
            "b:9092/bootstrap: Connect to ipv4#10.0.0.2:9092 failed: Connection refused";
        assert!(of_one_cause(refused, of_another));
        assert!(!of_one_cause(refused, "a:9092/1: Disconnected"));
    }

    #[test]
    fn what_changes_with_each_attempt_is_left_out() {
        let refused = "127.0.0.1:9092/1: Connect to ipv4#127.0.0.1:9092 failed: Connection refused";
        let heard = [
            " (after 0ms in state CONNECT)",
            " (after 1ms in state CONNECT, 16 identical error(s) suppressed)",
            "",
        ];
        for end in heard {
            assert_eq!(of_connection(&format!("{refused}{end}")), refused);
        }
    }

    #[test]
    fn what_mends_it_is_said() {
        let said = of_code(Code::UnknownTopicOrPartition, "k8s-events");
        assert_eq!(
            &*said,
            "UnknownTopicOrPartition (Broker: Unknown topic or partition): create the topic \
             \"k8s-events\", or mend kafka.topic"
        );
        assert_eq!(
            &*of_code(Code::BrokerTransportFailure, "t"),
            Code::BrokerTransportFailure.to_string()
        );
    }
}
