//! Masking of an excerpt of the file: what may be a secret is shown as asterisks.

use super::yaml::{Node, Origin, Value};

/// Keys whose plain value is no secret. Whatever is not listed is masked, which covers mistyped
/// keys too: the value of `pasword` is as secret as that of `password`.
const SHOWN: &[&str] = &[
    "name",
    "uid",
    "kubeconfig",
    "namespaces",
    "fieldSelector",
    "start",
    "heartbeat",
    "path",
    "size",
    "age",
    "sync",
    "topic",
    "protocol",
    "ca",
    "cert",
    "serverName",
    "mechanism",
    "events",
    "linger",
    "match",
    "mode",
    "initial",
    "max",
    "maxAttempts",
    "timeout",
    "maxAge",
    "compression",
    "overflow",
    "listen",
    "detail",
    "level",
    "format",
    "enabled",
    "lease",
    "allowPlaintext",
    "env",
    "file",
];

/// A copy of the file, byte for byte as long, with every value masked that may be a secret.
pub(super) fn masked(text: &str, root: &Node) -> String {
    let mut bytes = text.as_bytes().to_vec();
    mask(root, Rule::Hide, &mut bytes);
    // Only whole values were overwritten, with ASCII; anything else would be a bug, and then
    // showing nothing is right.
    String::from_utf8(bytes).unwrap_or_default()
}

/// What becomes of the scalars directly below a key.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    Show,
    /// Shown unless it holds what an address with credentials in it holds.
    Address,
    Hide,
}

fn rule_of(key: &str) -> Rule {
    match key {
        "endpoint" | "brokers" => Rule::Address,
        key if SHOWN.contains(&key) => Rule::Show,
        _ => Rule::Hide,
    }
}

fn mask(node: &Node, rule: Rule, bytes: &mut [u8]) {
    match &node.value {
        Value::Null => {}
        Value::List(items) => items.iter().for_each(|item| mask(item, rule, bytes)),
        Value::Map(entries) => {
            for entry in entries {
                // Also where it is mistyped.
                if entry.key.to_ascii_lowercase().contains("header") {
                    mask_headers(&entry.node, bytes);
                } else {
                    mask(&entry.node, rule_of(&entry.key), bytes);
                }
            }
        }
        Value::Scalar { text, .. } => {
            let shown = match rule {
                Rule::Show => !text.contains("-----BEGIN"),
                Rule::Address => !text.contains(['@', '?']),
                Rule::Hide => false,
            };
            if let (false, Origin::File(span)) = (shown, &node.origin) {
                bytes[span.clone()]
                    .iter_mut()
                    .filter(|byte| !matches!(byte, b'\n' | b'\r'))
                    .for_each(|byte| *byte = b'*');
            }
        }
    }
}

/// Here the keys are anybody's, so a header called `name` is hidden like every other.
fn mask_headers(node: &Node, bytes: &mut [u8]) {
    for entry in node.entries() {
        mask(&entry.node, Rule::Hide, bytes);
    }
    if node.entries().is_empty() {
        mask(node, Rule::Hide, bytes);
    }
}
