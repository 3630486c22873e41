//! Events for syslog, a message of RFC 5424 each:
//! `<priority>1 time host application - reason [tidings@32473 id="…"] event`.
//!
//! | part | value |
//! |---|---|
//! | priority | facility and severity: `Critical` 2, `Error` 3, `Warning` 4, `Normal` 6, another type 5 |
//! | time | the envelope's `time`, if that is at most an hour before and 30 days after `metadata.creationTimestamp`, else that; with microseconds, in UTC |
//! | host | the cluster's name, else its uid; what a host may not have becomes `_`, and at most 255 characters are kept |
//! | reason | the reason of the Event in the place of `MSGID`; in the same way, at most 32 characters |
//! | `id` | the envelope's id |
//! | event | the event in the sink's format, a line of JSON. There is no byte-order mark before it: JSON has none |
//!
//! An empty part is `-`. No part but the event has a blank or a quote in it that an Event wrote, and JSON has no line feed.

use std::io::Write as _;

use super::{EncodeError, Format, kinds, parsed::Parsed};
use crate::event::{Record, stable_time};

/// The message of a record.
pub(crate) fn message(
    record: &Record,
    format: Format,
    facility: u8,
    app_name: &str,
) -> Result<Vec<u8>, EncodeError> {
    let parsed = Parsed::of(&record.envelope);
    let parsed = parsed.map_err(|source| EncodeError { seq: record.seq, source })?;
    let event = &parsed.event;
    let time = stable_time(&parsed.time, &event.metadata.creation_timestamp);
    let line = format.encode(record)?;
    let mut message = Vec::with_capacity(line.len() + 256);
    // Writing to memory cannot fail.
    let _ = write!(
        message,
        "<{}>1 {} {} {app_name} - {} [tidings@32473 id=\"{}\"] ",
        facility * 8 + severity(&event.type_),
        time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ"),
        word(parsed.cluster(), 255),
        word(&event.reason, 32),
        parsed.id.replace('\\', r"\\").replace('"', "\\\"").replace(']', r"\]"),
    );
    message.extend_from_slice(&line);
    Ok(message)
}

fn severity(event_type: &str) -> u8 {
    match kinds::severity(event_type) {
        21 => 2,
        17 => 3,
        13 => 4,
        9 => 6,
        _ => 5,
    }
}

/// A part of the header.
fn word(text: &str, most: usize) -> String {
    let fit = |c: char| if c.is_ascii_graphic() { c } else { '_' };
    let word: String = text.chars().take(most).map(fit).collect();
    if word.is_empty() { "-".to_owned() } else { word }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(cluster: &str, event: &str) -> Record {
        let envelope = format!(
            r#"{{"id":"e1-1","cluster":{cluster},"change":"created","time":"2026-11-21T10:00:00.123456789Z","observedTime":"2026-11-21T10:00:01Z","occurrences":1,"delta":1,"replayed":false,"event":{event}}}"#
        );
        Record { seq: 1, envelope: envelope.into() }
    }

    #[test]
    fn a_message_is_header_structured_data_and_event() {
        let of = |cluster, event| {
            let record = record(cluster, event);
            let message = message(&record, Format::Envelope, 16, "tidings").unwrap();
            let message = String::from_utf8(message).unwrap();
            message.strip_suffix(std::str::from_utf8(&record.envelope).unwrap()).unwrap().to_owned()
        };
        assert_eq!(
            of(r#"{"name":"prod-eu-1","uid":"u"}"#, r#"{"reason":"BackOff","type":"Warning"}"#),
            r#"<132>1 2026-11-21T10:00:00.123456Z prod-eu-1 tidings - BackOff [tidings@32473 id="e1-1"] "#
        );
        assert_eq!(
            of("{}", r#"{"type":"Normal"}"#),
            r#"<134>1 2026-11-21T10:00:00.123456Z - tidings - - [tidings@32473 id="e1-1"] "#
        );
        // An Event writes no part of a header.
        let forged =
            r#"{"reason":"a] <1>1 - - -\n\u0000\u202eé and more than thirty-two","type":"x"}"#;
        assert_eq!(
            of(r#"{"name":"my cluster"}"#, forged),
            r#"<133>1 2026-11-21T10:00:00.123456Z my_cluster tidings - a]_<1>1_-_-_-_____and_more_than_ [tidings@32473 id="e1-1"] "#
        );
        let created = r#"{"metadata":{"creationTimestamp":"2026-11-01T00:00:00Z"},"reason":"R"}"#;
        assert!(of("{}", created).starts_with("<133>1 2026-11-21T10:00:00.123456Z - "));
        let created = r#"{"metadata":{"creationTimestamp":"2026-10-01T00:00:00Z"},"reason":"R"}"#;
        assert!(of("{}", created).starts_with("<133>1 2026-10-01T00:00:00.000000Z - "));
    }
}
