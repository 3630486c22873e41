//! Batches for the tests of the sinks.

use crate::event::{Batch, Record};

/// Envelopes as ingest writes them, of events about three pods in turn.
pub(super) fn batch(seqs: std::ops::RangeInclusive<u64>) -> Batch {
    Batch { records: seqs.map(|seq| record(seq, "m")).collect() }
}

/// One envelope with a message.
pub(super) fn record(seq: u64, message: &str) -> Record {
    let pod = seq % 3;
    let envelope = format!(
        r#"{{"id":"e{seq}-{seq}","cluster":{{"name":"prod"}},"change":"created","time":"2026-11-21T10:00:00Z","observedTime":"2026-11-21T10:00:01Z","occurrences":1,"delta":1,"replayed":false,"event":{{"metadata":{{"uid":"e{seq}"}},"involvedObject":{{"kind":"Pod","uid":"p{pod}"}},"message":"{message}"}}}}"#
    );
    Record { seq, envelope: envelope.into() }
}
