//! The correlator: an Event in, what is to be written of it out.

use k8s_openapi::api::core::v1::Event;
use serde_json::{Value, json};
use tidings_kube::correlator::{CorrelatorOptions, EventCorrelator, Patch};

use super::{
    compare::{self, Difference},
    vector::Vector,
};

/// What the members of the same names say.
pub(crate) fn options(options: &Value) -> CorrelatorOptions {
    let number = |name: &str| options[name].as_i64().unwrap_or(0);
    CorrelatorOptions {
        lru_cache_size: number("lruCacheSize"),
        burst_size: number("burstSize"),
        qps: options["qps"].as_f64().unwrap_or(0.0) as f32,
        max_events: number("maxEvents"),
        max_interval_in_seconds: number("maxIntervalInSeconds"),
        ..CorrelatorOptions::default()
    }
}

pub(crate) fn drive(vector: &Vector) -> Result<Vec<Value>, String> {
    let mut correlator = EventCorrelator::new(options(&vector.options));
    vector.steps.iter().map(|step| drive_step(&mut correlator, vector, step)).collect()
}

fn drive_step(
    correlator: &mut EventCorrelator,
    vector: &Vector,
    step: &Value,
) -> Result<Value, String> {
    let event = |value: &Value| {
        serde_json::from_value::<Event>(value.clone()).map_err(|error| error.to_string())
    };
    if let Some(server) = step.get("update_state") {
        correlator.update_state(&event(server)?);
        return Ok(json!({"update_state": true}));
    }
    let result = correlator.correlate(&event(&step["event"])?, vector.clock_of(step));
    if result.skip {
        return Ok(json!({"skip": true, "patch": null}));
    }
    if let Some(server) = step.get("server") {
        let mut state = result.event.clone();
        state.metadata.resource_version = server["resourceVersion"].as_str().map(ToOwned::to_owned);
        correlator.update_state(&state);
    }
    let bytes =
        result.patch.as_ref().map(Patch::to_bytes).transpose().map_err(|e| e.to_string())?;
    let patch = bytes.as_deref().map_or(Ok(Value::Null), serde_json::from_slice::<Value>);
    let mut event = serde_json::to_value(&result.event).map_err(|error| error.to_string())?;
    for name in ["apiVersion", "kind"] {
        event.as_object_mut().map(|event| event.remove(name));
    }
    Ok(json!({
        "skip": false,
        "op": if result.is_update() { "patch" } else { "create" },
        "event": compare::pruned(event),
        "patch": patch.map_err(|error| error.to_string())?,
        "patch_raw": bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
    }))
}

/// Where the vector has the Go client's bytes of a patch, ours have to be the same.
pub(crate) fn compare(expected: &[Value], actual: &[Value]) -> Result<(), Difference> {
    for (step, (expected, actual)) in expected.iter().zip(actual).enumerate() {
        let (expected, actual) = (&expected["patch_raw"], &actual["patch_raw"]);
        if !expected.is_null() && expected != actual {
            let what = format!("expected the bytes {expected}\n    but got            {actual}");
            return Err(Difference { step: Some(step), what });
        }
    }
    let actual: Vec<Value> = actual.iter().cloned().map(compare::without_information).collect();
    compare::step_by_step(expected, &actual)
}
