//! A YAML document as a configuration is read from it: a tree with places, strict decoding, texts by
//! reference, and checks whose problems say where and how to mend them.
//!
//! Nothing here knows a key of the configuration.

mod checks;
pub(crate) mod decode;
mod error;
mod locate;
mod path;
pub(crate) mod secrets;
pub(crate) mod values;
mod variables;
pub(crate) mod yaml;

use schemars::JsonSchema;
use serde_json::{Map, Value};

#[cfg(test)]
pub(crate) use self::checks::refused;
pub(crate) use self::{
    checks::{Checks, shown_of},
    error::{Misplaced, SourceFile, Wrong, wrong},
    path::Path,
    secrets::{is_variable, is_word},
    values::Texts,
    variables::Variables,
};
pub use self::{
    error::{Error, Problem},
    secrets::CheckSecrets,
    values::{Size, Span, Text},
};

/// The keys of a mapping, by the schema of its type.
pub(crate) fn keys_of<T: JsonSchema>() -> Vec<String> {
    let schema = schemars::schema_for!(T);
    let keys = schema.get("properties").and_then(Value::as_object).map(Map::keys);
    keys.into_iter().flatten().cloned().collect()
}
