//! The JSON Schema of the configuration file, for editors and for reviews of a changed contract.

use schemars::{
    Schema,
    generate::SchemaSettings,
    transform::{Transform, transform_subschemas},
};
use serde_json::{Value, json};

use super::model::Model;

/// The schema as it is committed in `config/schema.json`: pretty-printed, with a final line feed.
pub fn schema() -> String {
    let generator = SchemaSettings::draft2020_12().with_transform(Tidy).into_generator();
    let schema = generator.into_root_schema_for::<Model>();
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
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
