//! An envelope on its way to a sink that takes less than the journal: the Event cut once more.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{
    EnvelopeParts, LEAST_ENVELOPE,
    cut::{reduced, shortened},
    envelope::{EVENT, TRUNCATED, replayed_length, truncated_length},
};

/// An Event keeps so much room, whatever stands in the envelope beside it.
const LEAST_EVENT: usize = LEAST_ENVELOPE;

/// The envelope with its Event cut so that it takes no more bytes than `most`, with all
/// that stands beside the Event; nothing where it does not take more, and where it is none. The bytes
/// that are cut are added to those that were cut before.
pub fn smaller(envelope: &[u8], most: usize) -> Option<Bytes> {
    let most = most.max(LEAST_EVENT);
    if envelope.len() <= most {
        return None;
    }
    let parts = EnvelopeParts::of(envelope)?;
    let event = std::str::from_utf8(parts.event).ok()?;
    let head = &envelope[..envelope.len() - parts.event.len() - EVENT.len() - 1];
    let before_truncated =
        head.len() - parts.after_delta.len() + replayed_length(parts.after_delta);
    let (before, rest) = head.split_at(before_truncated);
    let (truncated, added) = rest.split_at(truncated_length(rest));
    let mut bytes: BTreeMap<&str, u64> = match truncated.get(TRUNCATED.len()..) {
        Some(json) => serde_json::from_slice(json).ok()?,
        None => BTreeMap::new(),
    };
    let beside = before.len() + added.len() + EVENT.len() + 1;
    let room = most.saturating_sub(beside).max(LEAST_EVENT);
    let cut = match shortened(event, room, room) {
        Some(cut) => cut,
        None => reduced(&parts.fields()?, event, room, room).1,
    };
    for (field, lost) in cut.bytes {
        *bytes.entry(field).or_default() += lost as u64;
    }
    let mut out = Vec::with_capacity(most);
    out.extend_from_slice(before);
    out.extend_from_slice(TRUNCATED);
    // A map of numbers always serialises.
    let _ = serde_json::to_writer(&mut out, &bytes);
    for piece in [added, EVENT, cut.json.as_bytes()] {
        out.extend_from_slice(piece);
    }
    out.push(b'}');
    Some(out.into())
}

#[cfg(test)]
#[path = "smaller_tests.rs"]
mod tests;
