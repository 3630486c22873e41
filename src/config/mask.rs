//! The parts of the file that may be secrets, and an excerpt of it with asterisks in their places.

use std::{
    collections::{BTreeMap, HashSet},
    ops::Range,
    sync::LazyLock,
};

use super::schema::{LEAVES, Shown};
use crate::document::{
    is_variable, is_word,
    yaml::{Node, Origin, Value},
};

/// How the values of keys are shown, by their names; of two keys with one name, the stricter counts. The value of
/// a key that is not there is masked, which covers mistyped keys: that of `pasword` is as secret as that
/// of `password`.
static SHOWN: LazyLock<BTreeMap<&str, Shown>> = LazyLock::new(|| {
    // Where a text is, and not the text.
    let mut all = BTreeMap::from([("env", Shown::Always), ("file", Shown::Always)]);
    for leaf in LEAVES.iter() {
        if let Some(key) = leaf.path.last() {
            let known = all.entry(&**key).or_insert(leaf.shown);
            *known = leaf.shown.max(*known);
        }
    }
    all
});

/// A copy of the file, byte for byte as long, with every value masked that may be a secret.
pub(super) fn masked(text: &str, root: &Node) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for span in hidden(root).into_iter().filter_map(span) {
        let shown = |byte: &&mut u8| !matches!(byte, b'\n' | b'\r');
        bytes[span].iter_mut().filter(shown).for_each(|byte| *byte = b'*');
    }
    let mut written = Vec::new();
    spans(root, &mut written);
    mask_comments(&written, &mut bytes);
    // Only whole values were overwritten, with ASCII; anything else would be a bug, and then
    // showing nothing is right.
    String::from_utf8(bytes).unwrap_or_default()
}

/// The values, and the names of headers, that may be secrets.
pub(super) fn hidden(root: &Node) -> HashSet<&Origin> {
    let mut hidden = HashSet::new();
    hide(root, Shown::Never, &mut hidden);
    hidden
}

fn hide<'a>(node: &'a Node, shown: Shown, hidden: &mut HashSet<&'a Origin>) {
    match &node.value {
        Value::Null => {}
        Value::List(items) => items.iter().for_each(|item| hide(item, shown, hidden)),
        Value::Map(entries) => {
            for entry in entries {
                // Also where it is mistyped.
                if entry.key.to_ascii_lowercase().contains("header") {
                    hide_headers(&entry.node, hidden);
                } else if entry.key == "env" && !is_name_of_variable(&entry.node) {
                    hide(&entry.node, Shown::Never, hidden);
                } else {
                    let shown = SHOWN.get(&*entry.key).copied().unwrap_or(Shown::Never);
                    hide(&entry.node, shown, hidden);
                }
            }
        }
        Value::Scalar { text, .. } => {
            let shown = match shown {
                Shown::Always => !text.contains("-----BEGIN"),
                Shown::Address => is_host(text),
                Shown::Never => false,
            };
            if !shown {
                hidden.insert(&node.origin);
            }
        }
    }
}

fn is_name_of_variable(node: &Node) -> bool {
    matches!(&node.value, Value::Scalar { text, .. } if is_variable(text))
}

/// Whether an address names a host, and has no user, path or query, of which each may be a secret.
fn is_host(address: &str) -> bool {
    let (_, host) = address.split_once("://").unwrap_or(("", address));
    !host.trim_end_matches('/').contains(['@', '/', '?', '#'])
}

/// Here the keys are anybody's, so a header called `name` is hidden like every other, and so is a key that is no
/// name: it may be the value.
fn hide_headers<'a>(node: &'a Node, hidden: &mut HashSet<&'a Origin>) {
    for entry in node.entries() {
        if !is_word(&entry.key) {
            hidden.insert(&entry.key_origin);
        }
        hide(&entry.node, Shown::Never, hidden);
    }
    if node.entries().is_empty() {
        hide(node, Shown::Never, hidden);
    }
}

/// Where keys and values stand.
fn spans(node: &Node, into: &mut Vec<Range<usize>>) {
    match &node.value {
        Value::Null => {}
        Value::Scalar { .. } => into.extend(span(&node.origin)),
        Value::List(items) => items.iter().for_each(|item| spans(item, into)),
        Value::Map(entries) => {
            for entry in entries {
                into.extend(span(&entry.key_origin));
                spans(&entry.node, into);
            }
        }
    }
}

/// Where something stands in the file, if it is from there.
fn span(origin: &Origin) -> Option<Range<usize>> {
    match origin {
        Origin::File(span) => Some(span.clone()),
        Origin::Env(_) => None,
    }
}

/// Hides comments: values that were replaced by references are often left in one.
fn mask_comments(written: &[Range<usize>], bytes: &mut [u8]) {
    let mut is_comment = vec![true; bytes.len()];
    for span in written {
        is_comment[span.clone()].fill(false);
    }
    let mut inside = false;
    for at in 0..bytes.len() {
        let begins = bytes[at] == b'#'
            && is_comment[at]
            && at.checked_sub(1).is_none_or(|before| bytes[before].is_ascii_whitespace());
        if matches!(bytes[at], b'\n' | b'\r') {
            inside = false;
        } else if inside {
            bytes[at] = b'*';
        }
        inside |= begins;
    }
}
