//! Doors for `fuzz/`, which are no part of the library.

use bytes::Bytes;

use super::{
    LineError, ListError, WatchEvent,
    lines::{Line, Lines},
    list_items::ListItems,
};

/// What a watch makes of a body that comes in these chunks: its events, and why it gave up, if it
/// did.
pub fn watch(chunks: &[&[u8]]) -> (Vec<WatchEvent>, Option<LineError>) {
    let mut events = Vec::new();
    let mut lines = Lines::default();
    for chunk in chunks {
        let taken = lines.push(Bytes::copy_from_slice(chunk), |line| {
            if let Line::Event(event) = Line::parse(&line)? {
                events.push(event);
            }
            Ok(())
        });
        if let Err(error) = taken {
            return (events, Some(error));
        }
    }
    (events, None)
}

/// What a list makes of a body that comes in these chunks: its items, and the resourceVersion and
/// the token for the next page.
pub fn list(chunks: &[&[u8]], kind: &str) -> (Vec<Bytes>, Result<(String, String), ListError>) {
    let (mut splitter, mut items) = (ListItems::new(), Vec::new());
    for chunk in chunks {
        if let Err(error) = splitter.push(chunk, &mut items) {
            return (items, Err(error));
        }
    }
    let meta = splitter.finish(kind);
    (items, meta.map(|meta| (meta.resource_version, meta.continue_token)))
}
