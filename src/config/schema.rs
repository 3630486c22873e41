//! The JSON Schema of the configuration file, for editors and for reviews of a changed contract.

use std::sync::LazyLock;

use schemars::{
    Schema,
    generate::SchemaSettings,
    transform::{Transform, transform_subschemas},
};
use serde_json::{Value, json};

use super::model::Model;

/// The mark of a text: `true` where it is no secret, `"address"` where it is none unless it has credentials
/// in it. Nobody else sees it.
const MARK: &str = "x-shown";

fn tidy() -> Schema {
    let mut schema =
        SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<Model>();
    Tidy.transform(&mut schema);
    schema
}

/// The schema as it is committed in `config/schema.json`: pretty-printed, with a final line feed.
pub fn schema() -> String {
    let mut schema = tidy();
    remove_marks(&mut schema);
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

fn remove_marks(schema: &mut Schema) {
    schema.remove(MARK);
    transform_subschemas(&mut remove_marks, schema);
}

/// How the value of a key is shown in an excerpt of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shown {
    Always,
    /// Unless it holds what an address with credentials in it holds.
    Address,
    Never,
}

/// A key that holds no others.
pub(super) struct Leaf {
    /// The keys above it, and itself; `*` stands for any.
    pub(super) path: Vec<String>,
    /// A number, a word of a few or a duration is no secret; a text is one unless it is marked as none.
    pub(super) shown: Shown,
}

/// The keys of the configuration, by its types.
pub(super) static LEAVES: LazyLock<Vec<Leaf>> = LazyLock::new(|| {
    let schema = tidy().to_value();
    let mut leaves = Vec::new();
    visit(&schema, &schema, &[], &mut leaves);
    leaves
});

fn visit(root: &Value, node: &Value, path: &[String], leaves: &mut Vec<Leaf>) {
    let below = |key: &str| [path, &[key.to_owned()]].concat();
    let target = target(root, node);
    if let Value::Object(members) = &target["properties"] {
        members.iter().for_each(|(key, member)| visit(root, member, &below(key), leaves));
    } else if target["additionalProperties"].is_object() {
        visit(root, &target["additionalProperties"], &below("*"), leaves);
    } else {
        let shown = match &node[MARK] {
            Value::Bool(_) => Shown::Always,
            Value::String(_) => Shown::Address,
            _ if may_be_secret(root, node) => Shown::Never,
            _ => Shown::Always,
        };
        leaves.push(Leaf { path: path.to_vec(), shown });
    }
}

fn target<'a>(root: &'a Value, node: &'a Value) -> &'a Value {
    let name = node["$ref"].as_str().and_then(|path| path.strip_prefix('#'));
    name.and_then(|pointer| root.pointer(pointer)).unwrap_or(node)
}

/// Whether a value may be any text, or a list of some, or a mapping without keys to go by.
fn may_be_secret(root: &Value, node: &Value) -> bool {
    ["#/$defs/Text", "#/$defs/Texts"].iter().any(|text| node["$ref"] == *text)
        || target(root, node)["type"][0] == "object"
        || node["items"].is_object() && may_be_secret(root, &node["items"])
}

/// Says what the decoder does, and in whole lines.
#[derive(Clone, Debug)]
struct Tidy;

impl Transform for Tidy {
    fn transform(&mut self, schema: &mut Schema) {
        // A key without a value is refused, so `null` is no alternative of what may be absent.
        let null = json!({ "type": "null" });
        if let Some(Value::Array(alternatives)) = schema.get("anyOf")
            && let [only, last] = alternatives.as_slice()
            && *last == null
            && let Value::Object(only) = only.clone()
        {
            schema.remove("anyOf");
            for (key, value) in only {
                schema.insert(key, value);
            }
        }
        if let Some(Value::Array(types)) = schema.get("type")
            && let [only, last] = types.as_slice()
            && last == "null"
            && only != "object"
        {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
        // The line breaks of doc comments mean nothing, but for those between paragraphs.
        if let Some(Value::String(text)) = schema.get("description") {
            let paragraphs: Vec<_> = text.split("\n\n").map(|p| p.replace('\n', " ")).collect();
            schema.insert("description".to_owned(), paragraphs.join("\n\n").into());
        }
        transform_subschemas(self, schema);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn committed_schema_is_current_else_run_cargo_run_schema_into_config_schema_json() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/config/schema.json");
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            committed == schema(),
            "config/schema.json is not what the code describes; to regenerate it:\n\
             cargo run -- schema > config/schema.json"
        );
    }
}
