//! The ledger of what a receiver has received.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::Value;
use serde_json::value::RawValue;

/// One event as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub(crate) id: String,
    /// The involved object: its uid, else `kind/namespace/name`.
    pub(crate) object: String,
    pub(crate) occurrences: u64,
    pub(crate) delta: u64,
    /// All that was said of the event, to compare a repeat with the first.
    pub(crate) body: String,
    pub(crate) at: Instant,
}

impl Delivery {
    /// Reads an envelope, which is the whole body.
    pub(crate) fn of_envelope(body: String) -> Result<Self, String> {
        let envelope: Value =
            serde_json::from_str(&body).map_err(|error| format!("{error} in {body}"))?;
        let known = || {
            Some(Self {
                id: envelope["id"].as_str()?.to_owned(),
                object: object_key(&envelope["event"]["involvedObject"]),
                occurrences: envelope["occurrences"].as_u64()?,
                delta: envelope["delta"].as_u64()?,
                body: String::new(),
                at: Instant::now(),
            })
        };
        match known() {
            Some(delivery) => Ok(Self { body, ..delivery }),
            None => Err(format!("not an envelope: {body}")),
        }
    }
}

/// The key of an involved object as the API writes it.
fn object_key(object: &Value) -> String {
    let member = |name: &str| object[name].as_str().unwrap_or_default();
    match member("uid") {
        "" => format!("{}/{}/{}", member("kind"), member("namespace"), member("name")),
        uid => uid.to_owned(),
    }
}

/// The envelopes of a request: one, or an array of them.
pub(crate) fn envelopes(body: &[u8]) -> serde_json::Result<Vec<String>> {
    if body.first() == Some(&b'[') {
        let envelopes: Vec<Box<RawValue>> = serde_json::from_slice(body)?;
        return Ok(envelopes.into_iter().map(|one| one.get().to_owned()).collect());
    }
    let envelope: Box<RawValue> = serde_json::from_slice(body)?;
    Ok(vec![envelope.get().to_owned()])
}

/// All that a receiver has received, in the order of arrival.
#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) deliveries: Vec<Delivery>,
    /// The ids of them.
    pub(crate) ids: HashSet<String>,
    /// The faults that a receiver has found: not an envelope, a wrong header, a bad signature.
    pub(crate) complaints: Vec<String>,
}

/// A ledger that a receiver writes and the test reads.
#[derive(Clone, Default)]
pub(crate) struct SharedLedger(Arc<Mutex<Ledger>>);

impl SharedLedger {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn record(&self, delivery: Delivery) {
        let mut ledger = self.lock();
        ledger.ids.insert(delivery.id.clone());
        ledger.deliveries.push(delivery);
    }

    pub(crate) fn complain(&self, complaint: String) {
        self.lock().complaints.push(complaint);
    }

    /// How many different ids have arrived.
    pub(crate) fn distinct(&self) -> usize {
        self.lock().ids.len()
    }
}
