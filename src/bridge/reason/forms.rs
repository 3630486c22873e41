//! The forms in which a text can come back, and where they stand in another one.

use std::{borrow::Cow, collections::BTreeSet, ops::Range};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};
use memchr::memmem;

use crate::plain::one_line;

/// Escapes within escapes are undone so often.
const LAYERS: usize = 4;
/// Less of a text in base64 is not told from a word.
const SHORTEST_BASE64: usize = 6;
/// The beginning of a secret is found within a text from so many bytes on, if it is half of the secret.
const SHORTEST_BEGINNING: usize = 12;

/// So many digits of a reference to a character are looked at, zeros in front included.
const MOST_DIGITS: usize = 12;
/// The characters of ASCII that have names in HTML, but for those of which secrets are not made.
const NAMED: [(&str, u8); 20] = [
    ("amp", b'&'),
    ("apos", b'\''),
    ("ast", b'*'),
    ("bsol", b'\\'),
    ("colon", b':'),
    ("comma", b','),
    ("commat", b'@'),
    ("dollar", b'$'),
    ("equals", b'='),
    ("excl", b'!'),
    ("gt", b'>'),
    ("lowbar", b'_'),
    ("lt", b'<'),
    ("num", b'#'),
    ("percnt", b'%'),
    ("period", b'.'),
    ("plus", b'+'),
    ("quest", b'?'),
    ("quot", b'"'),
    ("sol", b'/'),
];

/// A form by which a secret is recognised.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Form {
    bytes: Box<[u8]>,
    /// The characters around it belong to it, too.
    base64: bool,
}

impl Form {
    /// A secret as it is, as it is when escapes of its own are undone, and the base64 of both.
    pub(super) fn all(secret: &str, into: &mut BTreeSet<Self>) {
        let mut add = |bytes: &[u8], base64| into.insert(Self { bytes: bytes.into(), base64 });
        let mut reading = Reading::of(&one_line(secret, secret.len()));
        base64_of(secret.as_bytes(), |base64| _ = add(base64, true));
        for _ in 0..LAYERS {
            base64_of(&reading.bytes, |base64| _ = add(base64, true));
            if !reading.bytes.is_empty() {
                add(&reading.bytes, false);
            }
            // As forms are encoded, and decoded.
            for (from, to) in [(b' ', b'+'), (b'+', b' ')] {
                if reading.bytes.contains(&from) {
                    let bytes =
                        reading.bytes.iter().map(|byte| if *byte == from { to } else { *byte });
                    add(&bytes.collect::<Vec<_>>(), false);
                }
            }
            match reading.unescaped() {
                Some(next) => reading = next,
                None => break,
            }
        }
    }

    /// Whether it is found in lines, too: a plain word that is shorter may well stand in two.
    fn may_be_wrapped(&self) -> bool {
        self.base64 || self.bytes.len() >= SHORTEST_BEGINNING
    }

    /// Where it stands in a reading, or most of it from its beginning on. At the end its beginning counts from so
    /// many bytes on.
    fn places(&self, reading: &Reading, shortest: usize) -> Vec<Range<usize>> {
        let (form, bytes) = (&*self.bytes, &*reading.bytes);
        let mut found: Vec<_> =
            memmem::find_iter(bytes, form).map(|at| at..at + form.len()).collect();
        let least = form.len().div_ceil(2).max(SHORTEST_BEGINNING);
        if let Some(beginning) = form.get(..least) {
            found.extend(memmem::find_iter(bytes, beginning).map(|at| {
                let same = bytes[at..].iter().zip(form).take_while(|(a, b)| a == b).count();
                at..at + same
            }));
        }
        let longest = bytes.len().min(form.len() - 1);
        let cut = (shortest..=longest).rev().find(|len| bytes.ends_with(&form[..*len]));
        found.extend(cut.map(|len| bytes.len() - len..bytes.len()));
        if self.base64 {
            let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(&byte);
            for Range { start, end } in &mut found {
                let before = (0..*start).rev();
                let before = before.take_while(|at| is_part(bytes[*at]) && reading.joins(*at));
                let is_more = |byte: u8| is_part(byte) || byte == b'=';
                let after = *end..bytes.len();
                let after = after.take_while(|at| is_more(bytes[*at]) && reading.joins(at - 1));
                (*start, *end) = (*start - before.count(), *end + after.count());
            }
        }
        found
    }
}

/// The characters of base64 that a text has whole wherever it stands in what is encoded.
fn base64_of(text: &[u8], mut add: impl FnMut(&[u8])) {
    for before in 0..3 {
        let longer = [&[0; 3][..before], text].concat();
        let (first, end) = ((before * 8).div_ceil(6), longer.len() * 8 / 6);
        if end < first + SHORTEST_BASE64 {
            continue;
        }
        for encoded in [STANDARD_NO_PAD.encode(&longer), URL_SAFE_NO_PAD.encode(&longer)] {
            add(&encoded.as_bytes()[first..end]);
        }
    }
}

/// Where secrets stand in a text, from the first to the last, none overlapping or touching another.
pub(super) fn find(text: &str, secrets: &[Form], shortest: usize) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut reading = Reading::of(text);
    for _ in 0..LAYERS {
        let mut look_at = |reading: &Reading, form: &Form| {
            let places = form.places(reading, shortest);
            found.extend(places.into_iter().map(|place| reading.from(place)));
        };
        for form in secrets {
            look_at(&reading, form);
        }
        if let Some(joined) = reading.without_spaces() {
            for form in secrets.iter().filter(|form| form.may_be_wrapped()) {
                look_at(&joined, form);
            }
        }
        match reading.unescaped() {
            Some(next) => reading = next,
            None => break,
        }
    }
    found.sort_by_key(|range| range.start);
    let mut apart: Vec<Range<usize>> = Vec::new();
    for Range { start, end } in found {
        let (start, end) = (text.floor_char_boundary(start), text.ceil_char_boundary(end));
        match apart.last_mut() {
            Some(last) if start <= last.end => last.end = last.end.max(end),
            _ => apart.push(start..end),
        }
    }
    apart
}

/// A text with some of its escapes undone, and where each byte of it comes from.
struct Reading {
    bytes: Vec<u8>,
    places: Vec<Range<usize>>,
    /// How long the text itself is.
    end: usize,
}

impl Reading {
    fn of(text: &str) -> Self {
        let places = (0..text.len()).map(|at| at..at + 1).collect();
        Self { bytes: text.as_bytes().to_vec(), places, end: text.len() }
    }

    /// Where these bytes stand in the text itself.
    fn from(&self, range: Range<usize>) -> Range<usize> {
        let last = range.end == self.bytes.len();
        let end = if last { self.end } else { self.places[range.end - 1].end };
        self.places[range.start].start..end
    }

    /// Whether the byte behind this one comes right behind it in the text.
    fn joins(&self, at: usize) -> bool {
        self.places[at].end >= self.places[at + 1].start
    }

    /// The same with its lines joined, if it has any: a long text is wrapped, and base64 mostly is.
    fn without_spaces(&self) -> Option<Self> {
        let kept =
            self.bytes.iter().zip(&self.places).filter(|(byte, _)| !byte.is_ascii_whitespace());
        let (bytes, places): (Vec<_>, Vec<_>) =
            kept.map(|(byte, place)| (*byte, place.clone())).unzip();
        (bytes.len() < self.bytes.len()).then_some(Self { bytes, places, end: self.end })
    }

    /// The same with one more layer of escapes undone, if there is one.
    fn unescaped(&self) -> Option<Self> {
        let mut next = Self { bytes: Vec::new(), places: Vec::new(), end: self.end };
        let mut at = 0;
        while at < self.bytes.len() {
            let rest = &self.bytes[at..];
            if breaks_off(rest) {
                break;
            }
            let (bytes, length) = escape(rest).unwrap_or((Cow::Borrowed(&rest[..1]), 1));
            let place = self.from(at..at + length);
            next.places.extend(bytes.iter().map(|_| place.clone()));
            next.bytes.extend_from_slice(&bytes);
            at += length;
        }
        (next.bytes != self.bytes).then_some(next)
    }
}

/// Whether a text is no more than the beginning of an escape: what it would stand for is not known.
fn breaks_off(text: &[u8]) -> bool {
    let shortest = match text {
        [b'%', ..] => 3,
        [b'\\', b'u', ..] => 6,
        [b'\\', b'x', ..] => 4,
        [b'\\', ..] => 2,
        [b'&', b'#', rest @ ..] if rest.iter().all(u8::is_ascii_alphanumeric) => MOST_DIGITS,
        _ => 0,
    };
    text.len() < shortest
}

/// The escape that a text begins with: what it stands for, and its length.
fn escape(text: &[u8]) -> Option<(Cow<'_, [u8]>, usize)> {
    let byte = |at: usize| u8::try_from(hex(text.get(at..at + 2)?)?).ok();
    let owned = |byte: u8, length| Some((Cow::Owned(vec![byte]), length));
    match text {
        [b'%', ..] => owned(byte(1)?, 3),
        [b'\\', b'x', ..] => owned(byte(2)?, 4),
        [b'\\', b'u', b'{', rest @ ..] => {
            let end = rest.iter().take(7).position(|byte| *byte == b'}')?;
            Some((character(hex(&rest[..end])?)?, end + 4))
        }
        [b'\\', b'u', ..] => {
            let unit = |at: usize| u16::try_from(hex(text.get(at..at + 4)?)?).ok();
            let first = unit(2)?;
            if let Some(one) = character(u32::from(first)) {
                return Some((one, 6));
            }
            let second = text.get(6..8).filter(|begin| begin == b"\\u").and_then(|_| unit(8))?;
            let c = char::decode_utf16([first, second]).next()?.ok()?;
            Some((character(u32::from(c))?, 12))
        }
        [b'\\', b'n' | b'r' | b't', ..] => owned(b' ', 2),
        [b'\\', escaped @ (b'\\' | b'/' | b'"' | b'\''), ..] => owned(*escaped, 2),
        [b'&', b'#', b'x' | b'X', rest @ ..] => {
            let (digits, end) = digits(rest, u8::is_ascii_hexdigit);
            Some((character(hex(digits)?)?, 3 + end))
        }
        [b'&', b'#', rest @ ..] => {
            let (digits, end) = digits(rest, u8::is_ascii_digit);
            let value = std::str::from_utf8(digits).ok()?.parse().ok()?;
            Some((character(value)?, 2 + end))
        }
        [b'&', rest @ ..] => {
            let end = rest.iter().take(7).position(|byte| *byte == b';')?;
            let (_, byte) = NAMED.iter().find(|(name, _)| name.as_bytes() == &rest[..end])?;
            owned(*byte, end + 2)
        }
        _ => None,
    }
}

/// The digits that a text begins with, and where what follows the reference begins: a semicolon may end it.
fn digits(text: &[u8], is_one: fn(&u8) -> bool) -> (&[u8], usize) {
    let end = text.iter().take(MOST_DIGITS).take_while(|byte| is_one(byte)).count();
    (&text[..end], end + usize::from(text.get(end) == Some(&b';')))
}

fn hex(digits: &[u8]) -> Option<u32> {
    // Signs are digits to `from_str_radix`.
    let digits = std::str::from_utf8(digits).ok()?;
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(())?;
    u32::from_str_radix(digits, 16).ok()
}

fn character(value: u32) -> Option<Cow<'static, [u8]>> {
    Some(Cow::Owned(char::from_u32(value)?.to_string().into_bytes()))
}
