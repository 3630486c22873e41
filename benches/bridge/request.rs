//! HTTP/1.1 requests, as far as a receiver that searches their bodies has to know them: no more than where the
//! body is, and what an envelope in it begins with.

use std::io;

use memchr::memmem;

/// The beginning of every envelope. Nowhere else is a brace followed by a member `id`.
pub(crate) const ENVELOPE: &[u8] = b"{\"id\":\"";

/// Where the body of a request begins and how long it is; none while the head is incomplete.
pub(crate) fn head(bytes: &[u8]) -> io::Result<Option<(usize, usize)>> {
    let Some(end) = memmem::find(bytes, b"\r\n\r\n") else { return Ok(None) };
    let length = bytes[..end].split(|byte| *byte == b'\n').find_map(|line| {
        let colon = memchr::memchr(b':', line)?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if !name.eq_ignore_ascii_case(b"content-length") {
            return None;
        }
        std::str::from_utf8(value).ok()?.parse().ok()
    });
    let found = length.map(|length| Some((end + 4, length)));
    found.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a request without a length"))
}
