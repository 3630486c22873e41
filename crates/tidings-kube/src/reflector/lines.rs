//! Cutting a watch stream into lines, and a line into its type and its object.

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{WatchEvent, WatchEventType};

/// The longest line taken. The API server bounds an object at 1.5 MiB in etcd, JSON and its
/// escapes make more of it; past this it is no watch stream.
const MAX_LINE_BYTES: usize = 32 << 20;

/// What is wrong with a stream.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// No line feed for 32 MiB.
    #[error("a line of the watch is longer than {} MiB", MAX_LINE_BYTES >> 20)]
    TooLong,
    /// Not a watch event.
    #[error("not a watch event: {line:?} ({error})")]
    Malformed {
        /// How it starts.
        line: String,
        /// What the parser says.
        error: String,
    },
}

/// Cuts chunks of a body into lines. A line within one chunk is a slice of it, not a copy.
#[derive(Debug, Default)]
pub(super) struct Lines {
    partial: BytesMut,
}

impl Lines {
    /// Takes a chunk and hands each line that it completes to `take`. What follows the last line
    /// feed stays until more comes; a stream that ends there was cut, and the piece is no line.
    pub(super) fn push(
        &mut self,
        mut chunk: Bytes,
        mut take: impl FnMut(Bytes) -> Result<(), LineError>,
    ) -> Result<(), LineError> {
        while let Some(at) = memchr::memchr(b'\n', &chunk) {
            let line = chunk.split_to(at + 1);
            let line = if self.partial.is_empty() {
                line
            } else {
                self.partial.extend_from_slice(&line);
                self.partial.split().freeze()
            };
            let line = line.slice(..line.len() - 1);
            if !line.is_empty() {
                take(line)?;
            }
        }
        if self.partial.len() + chunk.len() > MAX_LINE_BYTES {
            return Err(LineError::TooLong);
        }
        self.partial.extend_from_slice(&chunk);
        Ok(())
    }
}

/// The types of events on the wire.
const NAMES: [(&str, WatchEventType); 4] = [
    ("ADDED", WatchEventType::Added),
    ("MODIFIED", WatchEventType::Modified),
    ("DELETED", WatchEventType::Deleted),
    ("BOOKMARK", WatchEventType::Bookmark),
];

impl WatchEvent {
    /// The line that says it.
    pub(super) fn to_line(&self) -> Bytes {
        let known = NAMES.iter().find(|(_, kind)| *kind == self.kind);
        let name = known.map_or("UNKNOWN", |(name, _)| name);
        let mut line = format!("{{\"type\":\"{name}\",\"object\":").into_bytes();
        // In JSON a line feed is white space.
        line.extend(self.object.iter().map(|byte| if *byte == b'\n' { b' ' } else { *byte }));
        line.extend_from_slice(b"}\n");
        line.into()
    }
}

/// One line of a watch.
#[derive(Debug)]
pub(super) enum Line {
    /// A change or a bookmark.
    Event(WatchEvent),
    /// The server ends the watch; the object is a `Status`.
    Error(Bytes),
}

impl Line {
    /// Reads a line, as far as the type and where the object lies.
    pub(super) fn parse(line: &Bytes) -> Result<Self, LineError> {
        if let Some(event) = Self::as_written_by_the_api_server(line) {
            return Ok(Self::Event(event));
        }
        #[derive(Deserialize)]
        struct Raw<'a> {
            r#type: &'a str,
            #[serde(borrow)]
            object: &'a RawValue,
        }
        let malformed = |error: String| LineError::Malformed {
            line: String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned(),
            error,
        };
        let raw: Raw<'_> = serde_json::from_slice(line).map_err(|e| malformed(e.to_string()))?;
        let object = line.slice_ref(raw.object.get().as_bytes());
        if raw.r#type == "ERROR" {
            return Ok(Self::Error(object));
        }
        let known = NAMES.iter().find(|(name, _)| *name == raw.r#type);
        let kind = known.map_or(WatchEventType::Unknown, |(_, kind)| *kind);
        Ok(Self::Event(WatchEvent { kind, object }))
    }

    /// The API server writes the type first and the object last. Then the object is found without
    /// reading it, and is read once, by whoever decodes it.
    fn as_written_by_the_api_server(line: &Bytes) -> Option<WatchEvent> {
        const PREFIXES: [(&[u8], WatchEventType); 3] = [
            (b"{\"type\":\"ADDED\",\"object\":{", WatchEventType::Added),
            (b"{\"type\":\"MODIFIED\",\"object\":{", WatchEventType::Modified),
            (b"{\"type\":\"DELETED\",\"object\":{", WatchEventType::Deleted),
        ];
        let (prefix, kind) = PREFIXES.into_iter().find(|(prefix, _)| line.starts_with(prefix))?;
        let end = line.trim_ascii_end().strip_suffix(b"}")?.len();
        // The opening brace is the object's own.
        Some(WatchEvent { kind, object: line.slice(prefix.len() - 1..end) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kind_and_object(line: &str) -> (WatchEventType, String) {
        match Line::parse(&Bytes::from(line.to_owned())).unwrap() {
            Line::Event(e) => (e.kind, String::from_utf8(e.object.to_vec()).unwrap()),
            Line::Error(_) => panic!("an error"),
        }
    }

    #[test]
    fn a_line_is_read_in_either_order_of_its_members() {
        for line in [
            r#"{"type":"ADDED","object":{"a":"}"}}"#,
            r#"{"object":{"a":"}"},"type":"ADDED"}"#,
            r#" {"type" : "ADDED", "object" : {"a":"}"} } "#,
        ] {
            assert_eq!(kind_and_object(line), (WatchEventType::Added, r#"{"a":"}"}"#.into()));
        }
        assert_eq!(
            kind_and_object(r#"{"type":"BOOKMARK","object":{}}"#).0,
            WatchEventType::Bookmark
        );
        assert_eq!(kind_and_object(r#"{"type":"SYNCED","object":{}}"#).0, WatchEventType::Unknown);
        assert!(matches!(
            Line::parse(&Bytes::from_static(br#"{"type":"ERROR","object":{"code":410}}"#)),
            Ok(Line::Error(status)) if &status[..] == br#"{"code":410}"#
        ));
    }

    #[test]
    fn what_is_no_watch_event_is_quoted() {
        for line in ["<html>", "{}", r#"{"type":"ADDED"}"#, "7"] {
            let error = Line::parse(&Bytes::from(line.to_owned())).unwrap_err().to_string();
            assert!(error.starts_with("not a watch event: "), "{error}");
        }
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_how_the_stream_is_cut(
            lines in prop::collection::vec("[a-zé]{1,12}", 0..8),
            tail in "[a-z]{0,5}",
            cuts in prop::collection::vec(0usize..200, 0..8),
        ) {
            let stream = lines.iter().fold(String::new(), |all, line| all + line + "\n") + &tail;
            let mut cuts: Vec<usize> = cuts.iter().map(|c| c % (stream.len() + 1)).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let stream = Bytes::from(stream);
            let (mut splitter, mut got) = (Lines::default(), Vec::new());
            for pair in cuts.windows(2) {
                let chunk = stream.slice(pair[0]..pair[1]);
                splitter.push(chunk, |line| {
                    got.push(String::from_utf8(line.to_vec()).unwrap());
                    Ok(())
                }).unwrap();
            }
            prop_assert_eq!(got, lines);
        }
    }
}
