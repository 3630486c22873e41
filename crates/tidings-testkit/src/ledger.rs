//! The account of a receiver: the events that arrived, and its complaints.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use serde_json::{Value, value::RawValue};

/// One event as it arrived.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// `<event uid>-<resourceVersion>`.
    pub id: String,
    /// The involved object: its uid, else `kind/namespace/name`.
    pub object: String,
    /// How often the event has occurred.
    pub occurrences: u64,
    /// By how much that rose.
    pub delta: u64,
    /// All that was said of the event, to compare a repeat with the first.
    pub body: String,
    /// When it arrived.
    pub at: Instant,
}

impl Delivery {
    /// Reads an envelope, which is the whole body.
    ///
    /// # Errors
    /// The body is no envelope; the error has the body.
    pub fn of_envelope(body: String) -> Result<Self, String> {
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

    /// The resourceVersion in the id; 0 if it has none.
    pub fn version(&self) -> u64 {
        self.id.rsplit_once('-').and_then(|(_, version)| version.parse().ok()).unwrap_or_default()
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
///
/// # Errors
/// The body is neither.
pub fn envelopes(body: &[u8]) -> serde_json::Result<Vec<String>> {
    if body.first() == Some(&b'[') {
        let envelopes: Vec<Box<RawValue>> = serde_json::from_slice(body)?;
        return Ok(envelopes.into_iter().map(|one| one.get().to_owned()).collect());
    }
    let envelope: Box<RawValue> = serde_json::from_slice(body)?;
    Ok(vec![envelope.get().to_owned()])
}

/// All that a receiver has received, in the order of arrival.
#[derive(Debug, Default)]
pub struct Ledger {
    /// The events.
    pub deliveries: Vec<Delivery>,
    /// The ids of them.
    pub ids: HashSet<String>,
    /// The complaints of the receiver: not an envelope, a wrong header, a bad signature.
    pub complaints: Vec<String>,
    tally: Tally,
    /// The highest resourceVersion that came of each object.
    newest: HashMap<String, u64>,
    keeps_sums_alone: bool,
}

/// The sums of a [`Ledger`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Different ids.
    pub distinct: u64,
    /// Arrivals of an id that had come before.
    pub repeated: u64,
    /// The sum of the deltas of first arrivals.
    pub delta: u64,
    /// First arrivals that came after a later version of the same object.
    pub out_of_order: u64,
}

impl Ledger {
    /// The sums so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    fn record(&mut self, delivery: Delivery) {
        if self.ids.insert(delivery.id.clone()) {
            self.tally.distinct += 1;
            self.tally.delta += delivery.delta;
            let newest = self.newest.entry(delivery.object.clone()).or_default();
            let version = delivery.version();
            self.tally.out_of_order += u64::from(version < *newest);
            *newest = version.max(*newest);
        } else {
            self.tally.repeated += 1;
        }
        if !self.keeps_sums_alone {
            self.deliveries.push(delivery);
        }
    }
}

/// A ledger that a receiver writes and others read. Clones are the same ledger.
#[derive(Clone, Debug, Default)]
pub struct SharedLedger(Arc<Mutex<Ledger>>);

impl SharedLedger {
    /// A ledger of ids and sums, without the deliveries, for what runs long.
    pub fn of_sums() -> Self {
        Self(Arc::new(Mutex::new(Ledger { keeps_sums_alone: true, ..Ledger::default() })))
    }

    /// The ledger as it is now.
    pub fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes down an event.
    pub fn record(&self, delivery: Delivery) {
        self.lock().record(delivery);
    }

    /// Writes down what is wrong.
    pub fn complain(&self, complaint: String) {
        self.lock().complaints.push(complaint);
    }

    /// Writes down events, and why others are none.
    pub fn take(&self, deliveries: impl IntoIterator<Item = Result<Delivery, String>>) {
        for delivery in deliveries {
            match delivery {
                Ok(delivery) => self.record(delivery),
                Err(complaint) => self.complain(complaint),
            }
        }
    }

    /// Writes down the envelopes of a request, and answers how many it has.
    pub fn take_envelopes(&self, body: &[u8]) -> usize {
        match envelopes(body) {
            Ok(envelopes) => {
                let count = envelopes.len();
                self.take(envelopes.into_iter().map(Delivery::of_envelope));
                count
            }
            Err(error) => {
                let body = String::from_utf8_lossy(body);
                self.complain(format!("no envelopes, {error}: {body}"));
                0
            }
        }
    }

    /// How many different ids have arrived.
    pub fn distinct(&self) -> usize {
        self.lock().ids.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(id: &str, delta: u64, object: &str) -> String {
        format!(
            r#"{{"id":"{id}","occurrences":9,"delta":{delta},"event":{{"involvedObject":{{"uid":"{object}"}}}}}}"#
        )
    }

    #[test]
    fn repeats_and_order_are_told_apart() {
        let ledger = SharedLedger::default();
        let array = [envelope("a-1", 1, "x"), envelope("b-3", 2, "x"), envelope("c-2", 1, "y")];
        assert_eq!(ledger.take_envelopes(format!("[{}]", array.join(",")).as_bytes()), 3);
        assert_eq!(ledger.take_envelopes(envelope("a-1", 1, "x").as_bytes()), 1);
        assert_eq!(ledger.take_envelopes(envelope("d-2", 5, "x").as_bytes()), 1);
        let tally = Tally { distinct: 4, repeated: 1, delta: 9, out_of_order: 1 };
        let ledger = ledger.lock();
        assert_eq!((ledger.tally(), ledger.deliveries.len()), (tally, 5));
        assert_eq!(ledger.deliveries[1].body, array[1]);
        assert!(ledger.complaints.is_empty());
    }

    #[test]
    fn what_is_no_envelope_is_complained_of() {
        let ledger = SharedLedger::of_sums();
        ledger.take_envelopes(b"<html>");
        ledger.take_envelopes(b"[{}]");
        ledger.take_envelopes(envelope("a-1", 1, "x").as_bytes());
        let ledger = ledger.lock();
        assert_eq!((ledger.complaints.len(), &*ledger.complaints[1]), (2, "not an envelope: {}"));
        assert_eq!((ledger.tally().distinct, ledger.deliveries.len()), (1, 0));
    }
}
