//! Taking a list apart while its body arrives, item by item.
//!
//! A page of a list may hold 500 objects of 1.5 MiB, so it is never in memory whole: the splitter
//! follows strings and brackets, emits each element of the member `items` as it closes, and keeps
//! the rest, which is small, to be read as JSON at the end.

use bytes::Bytes;
use serde::Deserialize;

/// What a list says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ListMeta {
    /// The resourceVersion at which it was taken.
    pub(super) resource_version: String,
    /// The token for the next page; empty on the last.
    pub(super) continue_token: String,
}

/// Why a body is not a list.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ListError {
    /// Something else than a list in JSON.
    #[error("the answer to a list is no list: {0}")]
    NotAList(String),
    /// The body ended in the middle.
    #[error("the answer to a list broke off in the middle")]
    Truncated,
    /// Its pages have no end.
    #[error(
        "expected the next page of a list, found one that came before: its continue token comes again"
    )]
    Endless,
    /// A list that was asked for in one piece goes on.
    #[error("expected the whole of a list, found a part of it: a continue token comes with it")]
    Cut,
    /// So many of its pages in a row had nothing in them, and led to another one.
    #[error("expected the items of a list, found {0} pages in a row with nothing in them")]
    Empty(u32),
}

/// Everything of a list but its items; past this it is no list.
const MAX_HEAD_BYTES: usize = 1 << 20;
/// One item; see the bound of a watch line.
const MAX_ITEM_BYTES: usize = 32 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Zone {
    /// Outside the member `items`.
    Head,
    /// Between two items.
    Items,
    /// Inside an item.
    Item,
}

/// Splits the body of one page.
#[derive(Debug)]
pub(super) struct ListItems {
    zone: Zone,
    depth: u32,
    in_string: bool,
    escaped: bool,
    head: Vec<u8>,
    item: Vec<u8>,
}

/// The depth of brackets at which the items stand: the list's object, and the array.
const ITEMS_DEPTH: u32 = 2;

impl ListItems {
    /// A splitter at the start of a body.
    pub(super) fn new() -> Self {
        Self {
            zone: Zone::Head,
            depth: 0,
            in_string: false,
            escaped: false,
            head: Vec::new(),
            item: Vec::new(),
        }
    }

    /// Takes a chunk of the body and appends the items that it completes to `items`.
    pub(super) fn push(&mut self, chunk: &[u8], items: &mut Vec<Bytes>) -> Result<(), ListError> {
        let mut rest = chunk;
        while let Some(&byte) = rest.first() {
            if self.in_string {
                rest = self.inside_string(rest);
            } else {
                rest = &rest[1..];
                self.outside_string(byte, items)?;
            }
        }
        if self.head.len() > MAX_HEAD_BYTES {
            return Err(not_a_list(&self.head, "it has no items but other members without end"));
        }
        if self.item.len() > MAX_ITEM_BYTES {
            return Err(not_a_list(&self.item, "an item is longer than any object"));
        }
        Ok(())
    }

    /// The body has ended: what the list says of itself. It has to be of this kind, if it says so.
    pub(super) fn finish(self, expected_kind: &str) -> Result<ListMeta, ListError> {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Meta {
            resource_version: String,
            r#continue: String,
        }
        #[derive(Deserialize)]
        struct Head {
            #[serde(default)]
            kind: String,
            metadata: Meta,
        }
        if self.depth > 0 || self.in_string {
            return Err(ListError::Truncated);
        }
        let head: Head = serde_json::from_slice(&self.head)
            .map_err(|e| not_a_list(&self.head, &e.to_string()))?;
        if !head.kind.is_empty() && head.kind != expected_kind {
            let why = format!("its kind is {:?}, not {expected_kind}", head.kind);
            return Err(not_a_list(&self.head, &why));
        }
        let Meta { resource_version, r#continue: continue_token } = head.metadata;
        Ok(ListMeta { resource_version, continue_token })
    }

    fn keep(&mut self, bytes: &[u8]) {
        match self.zone {
            Zone::Head => self.head.extend_from_slice(bytes),
            Zone::Items => {}
            Zone::Item => self.item.extend_from_slice(bytes),
        }
    }

    fn inside_string<'a>(&mut self, rest: &'a [u8]) -> &'a [u8] {
        if self.escaped {
            self.escaped = false;
            self.keep(&rest[..1]);
            return &rest[1..];
        }
        let Some(at) = memchr::memchr2(b'"', b'\\', rest) else {
            self.keep(rest);
            return &[];
        };
        match rest[at] {
            b'"' => self.in_string = false,
            _ => self.escaped = true,
        }
        self.keep(&rest[..=at]);
        &rest[at + 1..]
    }

    fn outside_string(&mut self, byte: u8, items: &mut Vec<Bytes>) -> Result<(), ListError> {
        if self.zone == Zone::Items {
            match byte {
                b'{' => self.zone = Zone::Item,
                b']' => self.zone = Zone::Head,
                b',' | b' ' | b'\n' | b'\r' | b'\t' => {}
                _ => return Err(not_a_list(&[byte], "an item is not an object")),
            }
        }
        let opens_items = byte == b'[' && self.zone == Zone::Head && self.at_items();
        self.keep(&[byte]);
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.depth = self
                    .depth
                    .checked_sub(1)
                    .ok_or_else(|| not_a_list(&self.head, "a bracket too many"))?;
                if self.zone == Zone::Item && self.depth == ITEMS_DEPTH {
                    items.push(Bytes::from(std::mem::take(&mut self.item)));
                    self.zone = Zone::Items;
                }
            }
            _ => {}
        }
        if opens_items {
            self.zone = Zone::Items;
        }
        Ok(())
    }

    /// Whether the head ends in the key `items` of the list's own object.
    fn at_items(&self) -> bool {
        self.depth == 1
            && self
                .head
                .trim_ascii_end()
                .strip_suffix(b":")
                .is_some_and(|key| key.trim_ascii_end().ends_with(b"\"items\""))
    }
}

fn not_a_list(bytes: &[u8], why: &str) -> ListError {
    let start = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]);
    ListError::NotAList(format!("{why}; it starts {start:?}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(body: &[u8], step: usize) -> Result<(Vec<String>, ListMeta), ListError> {
        let (mut splitter, mut items) = (ListItems::new(), Vec::new());
        for chunk in body.chunks(step.max(1)) {
            splitter.push(chunk, &mut items)?;
        }
        let text = |item: Bytes| String::from_utf8(item.to_vec()).unwrap();
        Ok((items.into_iter().map(text).collect(), splitter.finish("EventList")?))
    }

    const LIST: &str = r#"{"kind":"EventList","apiVersion":"v1","metadata":{"resourceVersion":"77","continue":"to\"ken"},
        "items":[{"a":"]}\\\"","items":[1,{"x":2}]} , {"b":{}}]}"#;

    #[test]
    fn items_are_found_whatever_the_chunks() {
        for step in 1..LIST.len() {
            let (items, meta) = split(LIST.as_bytes(), step).unwrap();
            assert_eq!(items, [r#"{"a":"]}\\\"","items":[1,{"x":2}]}"#, r#"{"b":{}}"#]);
            assert_eq!(
                meta,
                ListMeta { resource_version: "77".into(), continue_token: "to\"ken".into() }
            );
        }
    }

    #[test]
    fn items_may_come_first_be_empty_or_null() {
        let meta = r#""metadata":{"resourceVersion":"5"}"#;
        for (body, count) in [
            (format!(r#"{{"items":[{{}}],{meta}}}"#), 1),
            (format!(r#"{{{meta},"items":[]}}"#), 0),
            (format!(r#"{{{meta},"items":null}}"#), 0),
            (format!("{{{meta}}}"), 0),
        ] {
            let (items, meta) = split(body.as_bytes(), 3).unwrap();
            assert_eq!((items.len(), &*meta.resource_version), (count, "5"), "{body}");
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for body in [
            "<html><body>502</body></html>",
            r#"{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[]}"#,
            r#"{"kind":"EventList","metadata":{"resourceVersion":"1"},"items":[1]}"#,
            "]",
        ] {
            assert!(matches!(split(body.as_bytes(), 7), Err(ListError::NotAList(_))), "{body}");
        }
        for cut in 1..LIST.len() {
            assert_eq!(split(&LIST.as_bytes()[..cut], 9), Err(ListError::Truncated));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(body in prop::collection::vec(prop::sample::select(b"{}[]\",:\\ items1".to_vec()), 0..60)) {
            let _ = split(&body, 5);
        }
    }
}
