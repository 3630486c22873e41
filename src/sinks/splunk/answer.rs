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
//! program: misconfigured. An answer to the question for an acknowledgement never refuses: the events are taken.

use http::StatusCode;
use serde_json::Value;

use crate::{
    bridge::{Failure, FailureClass, RefusedClass, Secrets},
    event::Batch,
    sinks::http::Reply,
};

/// A longer answer, in bytes, is of another program.
pub(super) const MOST_BYTES: usize = 1 << 20;

/// Reads the answer to a batch: the number by which its acknowledgement is asked for, where there is one.
pub(super) fn taken(
    reply: &Reply,
    sent: &Batch,
    secrets: &Secrets,
) -> Result<Option<u64>, Failure> {
    let answer = body(reply);
    if reply.is_success() && answer["code"] == 0 {
        return Ok(answer["ackId"].as_u64());
    }
    Err(failure(reply, &answer, sent, secrets))
}

/// Reads the answer to the question for an acknowledgement.
pub(super) fn is_acknowledged(
    reply: &Reply,
    id: u64,
    sent: &Batch,
    secrets: &Secrets,
) -> Result<bool, Failure> {
    let answer = body(reply);
    if reply.is_success() && answer["acks"].is_object() {
        return Ok(answer["acks"][id.to_string()] == true);
    }
    Err(failure(reply, &answer, sent, secrets))
}

/// The body as JSON; null where it is none.
fn body(reply: &Reply) -> Value {
    serde_json::from_slice(&reply.body).unwrap_or_default()
}

/// The failure that an answer is.
fn failure(reply: &Reply, answer: &Value, sent: &Batch, secrets: &Secrets) -> Failure {
    let is_of_another = reply.is_success() || reply.status() == StatusCode::BAD_REQUEST;
    let Some(code) = answer["code"].as_i64() else {
        if is_of_another {
            let words =
                format!("expected the answer of an event collector, found {}", reply.text());
            return Failure::new(FailureClass::Misconfigured, secrets.reason(words));
        }
        return reply.failure(&reply.text(), sent, secrets);
    };
    let text = answer["text"].as_str().unwrap_or_default();
    let event = answer["invalid-event-number"].as_u64();
    let event = event.map(|number| format!(", event {number}")).unwrap_or_default();
    let of_status = reply.failure(&format!("{text} (code {code}{event})"), sent, secrets);
    let class = match code {
        1..=4 | 7 | 10 | 11 | 14 => FailureClass::Misconfigured,
        5 | 6 | 12 | 13 | 15 => FailureClass::Refused(RefusedClass::Invalid),
        8 | 9 | 18..=20 | 23 => FailureClass::Unavailable,
        _ if reply.is_success() => FailureClass::Misconfigured,
        _ => of_status.class,
    };
    if class == of_status.class {
        return of_status;
    }
    let Failure { status, after, reason, .. } = of_status;
    Failure { status, after, ..Failure::new(class, reason) }
}
