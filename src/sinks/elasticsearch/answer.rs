//! The meaning of an answer to a bulk request.
//!
//! Within a 200 each item has a status, which means as much as that of a whole answer ([`status`](crate::sinks::http)):
//!
//! | item | fate |
//! |---|---|
//! | 200, 201 | delivered |
//! | 409 of a version conflict | duplicate: the index already has the id |
//! | 400, 413 | refused |
//! | 429 | throttled |
//! | 5xx | unavailable |
//! | 401, 403, 404 and other 4xx | misconfigured |
//! | [`CLUSTER_ERRORS`] | misconfigured, though their status is 400 |
//! | [`DOCUMENT_ERRORS`] | refused, though their status is 500 |
//!
//! A whole 400 refuses only where Elasticsearch says so of the request: no action line of ours is malformed, and any other
//! body of a 400 is of a proxy, a TLS port or another program.

use http::StatusCode;
use serde::Deserialize;

use crate::{
    bridge::{EventFate, Failure, FailureClass, Outcome, RefusedClass, Secrets},
    event::{Batch, Record},
    sinks::http::{Reply, to_failure},
};

/// A longer answer, in bytes, is not read. It may repeat twice the values that it was sent.
pub(super) const MOST_BYTES: usize = 64 << 20;

/// Types of errors, and the starts of their reasons, that no document brings about.
const CLUSTER_ERRORS: [(&str, &str); 6] = [
    ("index_closed_exception", ""),
    // No more shards may be opened.
    ("validation_exception", ""),
    ("illegal_argument_exception", "pipeline with id ["),
    ("illegal_argument_exception", "no write index is defined for alias ["),
    ("illegal_argument_exception", "explicit index in bulk is not allowed"),
    ("illegal_argument_exception", "Number of documents in the index can't exceed ["),
];
/// Types of errors by which the processors `fail` and `dissect` of a pipeline refuse a document.
const DOCUMENT_ERRORS: [&str; 2] = ["fail_processor_exception", "find_match"];
const CONFLICT: &str = "version_conflict_engine_exception";

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
    error: ErrorBody,
}

/// The body of a whole answer that is no success.
#[derive(Deserialize)]
struct Refusal {
    error: ErrorBody,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ErrorBody {
    r#type: Option<String>,
    reason: Option<String>,
    caused_by: Option<Cause>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Cause {
    reason: Option<String>,
}

/// The outcome that an answer states.
pub(super) fn outcome(reply: &Reply, sent: &Batch, secrets: &Secrets) -> Outcome {
    if reply.status() == StatusCode::BAD_REQUEST {
        let refusal = serde_json::from_slice::<Refusal>(&reply.body);
        if refusal.map_or(true, |refusal| refusal.error.is_of_the_cluster()) {
            return Outcome::Failed(reply.failure_of(FailureClass::Misconfigured, secrets));
        }
    }
    if !reply.is_success() {
        return Outcome::Failed(reply.failure(&reply.text(), sent, secrets));
    }
    if reply.body.len() > MOST_BYTES {
        let reason =
            format!("expected an answer of at most {MOST_BYTES} bytes, found a longer one");
        return Outcome::Failed(Failure::new(FailureClass::Unavailable, secrets.reason(reason)));
    }
    let Ok(answer) = serde_json::from_slice::<Answer>(&reply.body) else {
        let words = format!("expected the answer to a bulk request, found {}", reply.text());
        return Outcome::Failed(Failure::new(FailureClass::Misconfigured, secrets.reason(words)));
    };
    if !answer.errors {
        return Outcome::Delivered;
    }
    let items = answer.items.into_iter().zip(&sent.records);
    Outcome::PerEvent(items.map(|(item, record)| item.create.fate(record, secrets)).collect())
}

impl Created {
    fn fate(&self, sent: &Record, secrets: &Secrets) -> EventFate {
        // The index has it, or a pipeline has dropped it.
        if (200..300).contains(&self.status) {
            return EventFate::Delivered;
        }
        let error = &self.error;
        if self.status == 409 && error.r#type.as_deref().is_none_or(|found| found == CONFLICT) {
            return EventFate::Duplicate;
        }
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let failure = to_failure(status, None, &error.words(), std::slice::from_ref(sent), secrets);
        let Failure { status, ref reason, .. } = failure;
        let other = if error.is_of_the_cluster() {
            Failure::new(FailureClass::Misconfigured, reason.clone())
        } else if error.r#type.as_deref().is_some_and(|found| DOCUMENT_ERRORS.contains(&found)) {
            Failure::refused(RefusedClass::Invalid, reason.clone())
        } else {
            return EventFate::Failed(failure);
        };
        EventFate::Failed(Failure { status, ..other })
    }
}

impl ErrorBody {
    fn is_of_the_cluster(&self) -> bool {
        let (found, reason) = (self.r#type.as_deref(), self.reason.as_deref().unwrap_or_default());
        CLUSTER_ERRORS
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
