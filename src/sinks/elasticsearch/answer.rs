//! The meaning of an answer to a bulk request.
//!
//! Within a 200 each item has a status, which means as much as that of a whole answer ([`status`](crate::sinks::http)):
//!
//! | item | fate |
//! |---|---|
//! | 200, 201 | delivered |
//! | 409 | duplicate: the index has had the id |
//! | 400, 413 | refused, but for the faults below |
//! | 201 with `failure_store: used` | refused: the event is kept apart, and not found where others are |
//! | 429 | throttled |
//! | 5xx | unavailable |
//! | 401, 403, 404 and other 4xx | misconfigured |
//!
//! Some 400 are about the index or the cluster, not about a document: [`OF_THE_CLUSTER`]. They are misconfigured, too. One
//! 500 is about a document: a pipeline has refused it ([`OF_A_DOCUMENT`]).

use http::StatusCode;
use serde::Deserialize;

use crate::{
    bridge::{EventFate, Failure, FailureClass, Outcome, RefusedClass, Secrets},
    event::Batch,
    sinks::http::{Reply, item_failure},
};

/// Types of errors with status 400, and starts of their reasons, that no document brings about.
const OF_THE_CLUSTER: [(&str, &str); 4] = [
    ("index_closed_exception", ""),
    // No more shards may be opened.
    ("validation_exception", ""),
    ("illegal_argument_exception", "pipeline with id ["),
    ("illegal_argument_exception", "no write index is defined for alias ["),
];

/// The type of the error by which the processor `fail` of a pipeline refuses a document, with status 500.
const OF_A_DOCUMENT: &str = "fail_processor_exception";

#[derive(Deserialize)]
struct Answer {
    errors: bool,
    #[serde(default)]
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    create: Created,
}

#[derive(Deserialize)]
struct Created {
    status: u16,
    #[serde(default)]
    error: Fault,
    /// Whether a data stream has put the document aside; `used` where it has.
    #[serde(default)]
    failure_store: String,
}

/// The body of an answer that is no success.
#[derive(Deserialize)]
struct Refusal {
    error: Fault,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Fault {
    r#type: Option<String>,
    reason: Option<String>,
    caused_by: Option<Cause>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Cause {
    reason: Option<String>,
}

impl Fault {
    fn is_of_the_cluster(&self) -> bool {
        let (found, reason) = (self.r#type.as_deref(), self.reason.as_deref().unwrap_or_default());
        OF_THE_CLUSTER
            .iter()
            .any(|(r#type, start)| found == Some(r#type) && reason.starts_with(start))
    }

    fn words(&self) -> String {
        let cause = self.caused_by.as_ref().and_then(|cause| cause.reason.as_ref());
        let words = [self.r#type.as_ref(), self.reason.as_ref(), cause];
        let words: Vec<_> = words.into_iter().flatten().map(String::as_str).collect();
        words.join(": ")
    }
}

/// The outcome that an answer of at most so many bytes states.
pub(super) fn outcome(reply: &Reply, most: usize, sent: &Batch, secrets: &Secrets) -> Outcome {
    if !reply.is_success() {
        return Outcome::Failed(match serde_json::from_slice::<Refusal>(&reply.body) {
            Ok(Refusal { error }) => {
                let failure = reply.failure(&error.words(), sent, secrets);
                let ours = error.is_of_the_cluster();
                Failure {
                    class: if ours { FailureClass::Misconfigured } else { failure.class },
                    ..failure
                }
            }
            Err(_) => reply.failure(&reply.text(), sent, secrets),
        });
    }
    if reply.body.len() > most {
        let reason = format!("expected an answer of at most {most} bytes, found a longer one");
        return Outcome::Failed(Failure::new(FailureClass::Unavailable, secrets.reason(reason)));
    }
    let Ok(answer) = serde_json::from_slice::<Answer>(&reply.body) else {
        let words = format!("expected the answer to a bulk request, found {}", reply.text());
        return Outcome::Failed(Failure::new(FailureClass::Misconfigured, secrets.reason(words)));
    };
    if !answer.errors && answer.items.iter().all(|item| item.create.is_stored()) {
        return Outcome::Delivered;
    }
    let fate = |Item { create: created }| match created.status {
        _ if created.is_stored() => EventFate::Delivered,
        409 => EventFate::Duplicate,
        _ => EventFate::Failed(created.failure(sent, secrets)),
    };
    Outcome::PerEvent(answer.items.into_iter().map(fate).collect())
}

impl Created {
    fn is_stored(&self) -> bool {
        (200..300).contains(&self.status) && self.failure_store != "used"
    }

    fn failure(&self, sent: &Batch, secrets: &Secrets) -> Failure {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if status.is_success() {
            let reason = "the data stream has put the event into its failure store";
            return Failure::refused(RefusedClass::Invalid, secrets.reason(reason));
        }
        let failure = item_failure(status, &self.error.words(), sent, secrets);
        let class = if self.error.is_of_the_cluster() {
            FailureClass::Misconfigured
        } else if self.error.r#type.as_deref() == Some(OF_A_DOCUMENT) {
            FailureClass::Refused(RefusedClass::Invalid)
        } else {
            failure.class
        };
        Failure { class, ..failure }
    }
}
