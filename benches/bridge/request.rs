//! The little that a receiver has to know of an HTTP/1.1 request or a message of syslog that it searches: where the body is,
//! and the bytes that an envelope in it begins with.

use std::io;

use memchr::memmem;

/// What every envelope begins with. Nowhere else is a brace followed by a member `id`.
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

/// The same of messages of syslog: all that are complete are one body.
pub(crate) fn frames(bytes: &[u8]) -> io::Result<Option<(usize, usize)>> {
    let mut end = 0;
    while let Some(blank) = memchr::memchr(b' ', &bytes[end..]) {
        let length = std::str::from_utf8(&bytes[end..end + blank]).ok();
        let length: Option<usize> = length.and_then(|digits| digits.parse().ok());
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "a message without a length");
        let next = end + blank + 1 + length.ok_or_else(wrong)?;
        if next > bytes.len() {
            break;
        }
        end = next;
    }
    Ok((end > 0).then_some((0, end)))
}
