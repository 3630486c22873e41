//! Writing an envelope: what ingest knows of a change, and then the Event, cut where it is too large.

use std::io::Write as _;

use super::{
    Change, Incoming,
    cut::{Cut, reduced, shortened},
    envelope::{EVENT, TRUNCATED},
    record::ID_PREFIX,
};

/// The head of an envelope: what ingest knows of a change beyond the Event itself.
#[derive(Clone, Copy, Debug)]
pub struct EnvelopeHead<'a> {
    /// [`Cluster`](super::Cluster) as JSON.
    pub cluster_json: &'a str,
    /// First version or a later one.
    pub change: Change,
    /// When the change reached the bridge, RFC 3339, UTC.
    pub observed_time: &'a str,
    /// By how much the occurrences rose.
    pub delta: u64,
    /// Whether it comes from a list that closed a gap rather than from the watch.
    pub replayed: bool,
}

impl EnvelopeHead<'_> {
    /// Appends the envelope of `event` to `out`, without a line feed; answers whether the Event was
    /// cut because its envelope would have been longer than `most` bytes. A bound below
    /// [`LEAST_ENVELOPE`](super::LEAST_ENVELOPE) counts as that.
    pub fn write(&self, event: &Incoming<'_>, most: usize, out: &mut Vec<u8>) -> bool {
        let (before, after) = event.json();
        out.reserve((before.len() + after.len()).min(most) + 320);
        let start = out.len();
        self.write_start(event, event.fields.time(), out);
        let length = out.len() - start + EVENT.len() + before.len() + after.len() + 1;
        if length > most {
            return self.write_cut(event, most, start, out);
        }
        out.extend_from_slice(EVENT);
        for piece in [before, after] {
            for line in lines(piece) {
                out.extend_from_slice(line.as_bytes());
            }
        }
        out.push(b'}');
        false
    }

    /// All that stands before the Event, and before what was cut of it.
    fn write_start(&self, event: &Incoming<'_>, time: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(ID_PREFIX.as_bytes());
        // Writing to a vector cannot fail; the uid was checked to need no escapes.
        let _ = write!(
            out,
            "{}-{}\",\"cluster\":{},\"change\":\"{}\",\"time\":",
            &*event.fields.metadata.uid,
            event.resource_version,
            self.cluster_json,
            self.change.as_str(),
        );
        let _ = serde_json::to_writer(&mut *out, time);
        let _ = write!(
            out,
            ",\"observedTime\":\"{}\",\"occurrences\":{},\"delta\":{},\"replayed\":{}",
            self.observed_time,
            event.fields.occurrences(),
            self.delta,
            self.replayed,
        );
    }

    /// Goes on behind such a start, from `start` of `out` on, or begins anew there.
    fn write_cut(
        &self,
        event: &Incoming<'_>,
        most: usize,
        start: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        let (before, after) = event.json();
        let text: String = lines(before).chain(lines(after)).collect();
        let most = most.max(super::LEAST_ENVELOPE);
        let room = |out: &[u8]| most.saturating_sub(out.len() - start + EVENT.len() + 1);
        if text.len() <= room(out) {
            // Only its line feeds were too many.
            write_event(&Cut { json: text, bytes: Vec::new() }, out);
            return false;
        }
        let cut = shortened(&text, room(out), most).unwrap_or_else(|| {
            out.truncate(start);
            self.write_start(event, "", out);
            let (time, cut) = reduced(&event.fields, &text, room(out), most);
            out.truncate(start);
            self.write_start(event, &time, out);
            cut
        });
        write_event(&cut, out);
        true
    }
}

/// The Event, behind what was cut of it.
fn write_event(cut: &Cut, out: &mut Vec<u8>) {
    for (place, (field, bytes)) in cut.bytes.iter().enumerate() {
        out.extend_from_slice(if place == 0 { TRUNCATED } else { b"," });
        let _ = write!(out, "{}\"{field}\":{bytes}", if place == 0 { "{" } else { "" });
    }
    if !cut.bytes.is_empty() {
        out.push(b'}');
    }
    out.extend_from_slice(EVENT);
    out.extend_from_slice(cut.json.as_bytes());
    out.push(b'}');
}

/// A line feed between members is white space; inside a string JSON does not allow one. So leaving
/// them out keeps the envelope on one line without changing what it says.
fn lines(piece: &str) -> impl Iterator<Item = &str> {
    let mut rest = piece;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = memchr::memchr2(b'\n', b'\r', rest.as_bytes());
        let (line, behind) = end.map_or((rest, ""), |at| (&rest[..at], &rest[at + 1..]));
        rest = behind;
        Some(line)
    })
}
