//! Masking of an excerpt of the file: what may be a secret is shown as asterisks.

use std::{collections::BTreeMap, ops::Range, sync::LazyLock};

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
    mask(root, Shown::Never, &mut bytes);
    let mut written = Vec::new();
    spans(root, &mut written);
    mask_comments(&written, &mut bytes);
    // Only whole values were overwritten, with ASCII; anything else would be a bug, and then
    // showing nothing is right.
    String::from_utf8(bytes).unwrap_or_default()
}

fn mask(node: &Node, shown: Shown, bytes: &mut [u8]) {
    match &node.value {
        Value::Null => {}
        Value::List(items) => items.iter().for_each(|item| mask(item, shown, bytes)),
        Value::Map(entries) => {
            for entry in entries {
                // Also where it is mistyped.
                if entry.key.to_ascii_lowercase().contains("header") {
                    mask_headers(&entry.node, bytes);
                } else if entry.key == "env" && !is_name_of_variable(&entry.node) {
                    mask(&entry.node, Shown::Never, bytes);
                } else {
                    let shown = SHOWN.get(&*entry.key).copied().unwrap_or(Shown::Never);
                    mask(&entry.node, shown, bytes);
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
                hide(&node.origin, bytes);
            }
        }
    }
}

fn is_name_of_variable(node: &Node) -> bool {
    matches!(&node.value, Value::Scalar { text, .. } if is_variable(text))
}

fn hide(origin: &Origin, bytes: &mut [u8]) {
    let Some(span) = span(origin) else { return };
    bytes[span]
        .iter_mut()
        .filter(|byte| !matches!(byte, b'\n' | b'\r'))
        .for_each(|byte| *byte = b'*');
}

/// Whether an address names a host, and has no user, path or query, of which each may be a secret.
fn is_host(address: &str) -> bool {
    let (_, host) = address.split_once("://").unwrap_or(("", address));
    !host.trim_end_matches('/').contains(['@', '/', '?', '#'])
}

/// Here the keys are anybody's, so a header called `name` is hidden like every other, and so is a key that is no
/// name: it may be the value.
fn mask_headers(node: &Node, bytes: &mut [u8]) {
    for entry in node.entries() {
        if !is_word(&entry.key) {
            hide(&entry.key_origin, bytes);
        }
        mask(&entry.node, Shown::Never, bytes);
    }
    if node.entries().is_empty() {
        mask(node, Shown::Never, bytes);
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
