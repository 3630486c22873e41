//! The meaning of an answer of the event collector.
//!
//! The code in its body decides:
//!
//! | code | outcome |
//! |---|---|
//! | 0 | taken; with acknowledgement, once that is there |
//! | 1 to 4 (token), 7 (index), 10, 11 (channel), 14 (acknowledgement is off) | misconfigured |
//! | 5, 6, 12, 13, 15 (no event, or one of a wrong form) | refused |
//! | 8, 9, 18, 19, 20, 23 (an error, busy, full, or stopping) | unavailable |
//!
//! Another code means what the status means ([`status`](crate::sinks::http)). A success or a 400 without a code is of another
//! program: misconfigured.

use http::StatusCode;
use serde::Deserialize;

use crate::{
    bridge::{Failure, FailureClass, RefusedClass, Secrets},
    event::Batch,
    sinks::http::Reply,
};

/// A longer answer, in bytes, is of another program.
pub(super) const MOST_BYTES: usize = 1 << 20;

#[derive(Deserialize)]
struct Answer {
    code: i64,
    #[serde(default)]
    text: String,
    #[serde(default, rename = "invalid-event-number")]
    invalid_event_number: Option<u64>,
    #[serde(default, rename = "ackId")]
    ack_id: Option<u64>,
}

#[derive(Deserialize)]
struct Acknowledged {
    acks: std::collections::BTreeMap<String, bool>,
}

/// Reads the answer to a batch: the number by which its acknowledgement is asked for, where there is one.
pub(super) fn taken(
    reply: &Reply,
    sent: &Batch,
    secrets: &Secrets,
) -> Result<Option<u64>, Failure> {
    let Ok(answer) = serde_json::from_slice::<Answer>(&reply.body) else {
        return Err(failure(reply, sent, secrets));
    };
    if reply.is_success() && answer.code == 0 {
        return Ok(answer.ack_id);
    }
    Err(failure(reply, sent, secrets))
}

/// Reads the answer to the question for an acknowledgement.
pub(super) fn is_acknowledged(
    reply: &Reply,
    id: u64,
    sent: &Batch,
    secrets: &Secrets,
) -> Result<bool, Failure> {
    match serde_json::from_slice::<Acknowledged>(&reply.body) {
        Ok(Acknowledged { acks }) if reply.is_success() => {
            Ok(acks.get(&id.to_string()).copied().unwrap_or(false))
        }
        _ => Err(failure(reply, sent, secrets)),
    }
}

/// The failure that an answer is.
fn failure(reply: &Reply, sent: &Batch, secrets: &Secrets) -> Failure {
    let is_of_another = reply.is_success() || reply.status() == StatusCode::BAD_REQUEST;
    let Ok(answer) = serde_json::from_slice::<Answer>(&reply.body) else {
        if is_of_another {
            let words =
                format!("expected the answer of an event collector, found {}", reply.text());
            return Failure::new(FailureClass::Misconfigured, secrets.reason(words));
        }
        return reply.failure(&reply.text(), sent, secrets);
    };
    let Answer { code, text, invalid_event_number, .. } = answer;
    let event = invalid_event_number.map(|number| format!(", event {number}")).unwrap_or_default();
    let of_status = reply.failure(&format!("{text} (code {code}{event})"), sent, secrets);
    let class = match code {
        1..=4 | 7 | 10 | 11 | 14 => FailureClass::Misconfigured,
        5 | 6 | 12 | 13 | 15 => FailureClass::Refused(RefusedClass::Invalid),
        8 | 9 | 18..=20 | 23 => FailureClass::Unavailable,
        _ if reply.is_success() => FailureClass::Misconfigured,
        _ => return of_status,
    };
    let Failure { status, after, reason, .. } = of_status;
    Failure { status, after, ..Failure::new(class, reason) }
}
