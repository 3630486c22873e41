//! A configuration as it may be shown: with the values of the environment overlay, and without
//! secrets.

use std::{collections::HashSet, fmt::Write as _};

use serde::{Serialize, Serializer};

use super::mask::hidden;
use crate::document::yaml::{Node, Origin, Value};

/// In the place of a secret.
const HIDDEN: &str = "***";

/// YAML, below a comment for each key that a variable of the environment sets.
pub(super) fn shown(root: &Node) -> String {
    let mut text = String::new();
    overlaid(root, &mut Vec::new(), &mut text);
    let yaml = serde_saphyr::to_string(&Shown { node: root, hidden: &hidden(root) });
    text + &yaml.unwrap_or_else(|error| format!("# It cannot be shown: {error}\n"))
}

fn overlaid<'a>(node: &'a Node, path: &mut Vec<&'a str>, text: &mut String) {
    if let (Value::Scalar { .. }, Origin::Env(variable)) = (&node.value, &node.origin) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# {} is set by {variable}.", path.join("."));
    }
    for entry in node.entries() {
        path.push(&entry.key);
        overlaid(&entry.node, path, text);
        path.pop();
    }
}

struct Shown<'a> {
    node: &'a Node,
    hidden: &'a HashSet<&'a Origin>,
}

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { node, hidden } = self;
        let below = |node| Shown { node, hidden };
        match &node.value {
            Value::Null => serializer.serialize_unit(),
            Value::List(items) => serializer.collect_seq(items.iter().map(below)),
            Value::Map(entries) => serializer.collect_map(entries.iter().map(|entry| {
                // The origin of a value of the environment is that of its key, too.
                let of_file = matches!(entry.key_origin, Origin::File(_));
                let is_hidden = of_file && hidden.contains(&entry.key_origin);
                let key = if is_hidden { HIDDEN } else { &entry.key };
                (key, below(&entry.node))
            })),
            Value::Scalar { .. } if hidden.contains(&node.origin) => {
                serializer.serialize_str(HIDDEN)
            }
            Value::Scalar { text, quoted: false } if matches!(&**text, "true" | "false") => {
                serializer.serialize_bool(text == "true")
            }
            Value::Scalar { text, quoted: false } => match text.parse::<i64>() {
                Ok(number) if number.to_string() == *text => serializer.serialize_i64(number),
                _ => serializer.serialize_str(text),
            },
            Value::Scalar { text, .. } => serializer.serialize_str(text),
        }
    }
}
