//! What was done beside what is expected.

use std::fmt;

use serde_json::Value;

/// The first place where they differ.
#[derive(Debug)]
pub(crate) struct Difference {
    /// The step of it, if it belongs to one.
    pub(crate) step: Option<usize>,
    pub(crate) what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            Some(step) => write!(f, "step {step}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

/// `expect[i]` belongs to `steps[i]`, and is compared as JSON.
pub(crate) fn step_by_step(expected: &[Value], actual: &[Value]) -> Result<(), Difference> {
    for (step, (expected, actual)) in expected.iter().zip(actual).enumerate() {
        let expected = without_information(expected.clone());
        if expected != *actual {
            let what = format!("expected {expected}\n    but got  {actual}");
            return Err(Difference { step: Some(step), what });
        }
    }
    if expected.len() != actual.len() {
        let what = format!("expected {} answers, got {}", expected.len(), actual.len());
        return Err(Difference { step: None, what });
    }
    Ok(())
}

/// The Go client's own byte string of a patch is there to be read, not to be compared.
pub(crate) fn without_information(mut value: Value) -> Value {
    match &mut value {
        Value::Object(members) => {
            members.remove("patch_raw");
            for member in members.values_mut() {
                *member = without_information(member.take());
            }
        }
        Value::Array(items) => {
            for item in items {
                *item = without_information(item.take());
            }
        }
        _ => {}
    }
    value
}

/// Leaves out members that are null, "", 0, false, {} or [], from the inside out.
pub(crate) fn pruned(value: Value) -> Value {
    match value {
        Value::Object(members) => Value::Object(
            members
                .into_iter()
                .map(|(name, member)| (name, pruned(member)))
                .filter(|(_, member)| !is_nothing(member))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().map(pruned).collect()),
        other => other,
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(true) => false,
    }
}
